"""What a page is made of: every scalar of a run by name, with its line of ArviZ's table."""

import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.running import MANY_CHAINS, SUPERCHAINS
from lwa.diagnostics.short_chains import RHAT_LIMIT
from lwa.diagnostics.table import name_scalars, stack_scalars

if TYPE_CHECKING:
    from lwa.result.result import Result

DRAWS_PER_CHAIN = 100
"""Effective draws, for each chain, below which quantiles and R-hat itself are not to be relied on (same place)."""
CHAINS_SHOWN = 16
"""Chains that pictures show: more lines would hide each other."""


@dataclass(frozen=True, eq=False)
class ReportData:
    """A run's scalars; arrays of the table are `(scalars,)`, draws `(scalars, chains, draws)`."""

    fit: "Result"
    names: list[str]
    draws: NDArray[np.float64]
    table: dict[str, NDArray[np.float64]]  # ArviZ's columns, or lwa's own of them; empty where there are no draws
    interval: tuple[str, str]  # the columns of the interval's ends
    note: str = ""  # where the table is lwa's own, what it is of

    @property
    def chains(self) -> int:
        """How many there are."""
        return self.draws.shape[1]

    @property
    def shown(self) -> NDArray[np.int64]:
        """Chains that pictures show, from all over them."""
        count = min(self.chains, CHAINS_SHOWN)
        return np.arange(count) * self.chains // max(1, count)

    @property
    def shown_in_words(self) -> str:
        """What to say of that."""
        if self.chains <= CHAINS_SHOWN:
            return ""
        return f" Of {self.chains:,} chains {CHAINS_SHOWN} are shown, from all over them."

    @property
    def few(self) -> int:
        """Effective draws under which a parameter has few; where chains are many, a superchain counts as one."""
        return DRAWS_PER_CHAIN * (self.chains if self.chains <= MANY_CHAINS else SUPERCHAINS)

    @property
    def few_in_words(self) -> str:
        """The same."""
        each = f"{DRAWS_PER_CHAIN} effective draws a chain"
        return each if self.chains <= MANY_CHAINS else f"{self.few:,} effective draws in all"

    @property
    def worth(self) -> list[str]:
        """The columns of effective draws."""
        return [column for column in ("ess_bulk", "ess_tail") if column in self.table]

    @property
    def told(self) -> Any:
        """The run's attributes."""
        return self.fit.attributes

    @property
    def rival(self) -> bool:
        """Whether another paper's algorithm made the draws."""
        return "method" in self.told

    @property
    def percent(self) -> str:
        """Of the draws that the interval holds."""
        return "".join(letter for letter in self.interval[0] if letter.isdigit())

    @property
    def disagreeing(self) -> NDArray[np.bool_]:
        """Scalars whose chains disagree."""
        return self.table["r_hat"] > self.table.get("most", RHAT_LIMIT)

    @property
    def disagreeing_in_words(self) -> str:
        """What makes one of these."""
        return "above what chance leaves" if "most" in self.table else f"above {RHAT_LIMIT}"

    @property
    def scarce(self) -> NDArray[np.bool_]:
        """Scalars with few effective draws."""
        return ~(np.min([self.table[column] for column in self.worth], axis=0) >= self.few)

    @property
    def worst_first(self) -> NDArray[np.int64]:
        """Scalars by how badly they mixed; what cannot be told comes first."""
        return np.argsort(np.nan_to_num(self.table["ess_bulk"], nan=-1.0), kind="stable")


def collect_data(fit: "Result") -> ReportData:
    """Every scalar of the posterior, derived quantities included, in the order of ArviZ's table."""
    names = name_scalars(fit.posterior, fit.dims, fit.coords)
    draws = np.moveaxis(stack_scalars(fit.posterior), -1, 0)
    own = fit.running is not None or (draws.size > 0 and (draws.shape[1] > MANY_CHAINS or not find_spec("arviz")))
    if own:
        return ReportData(fit, names, draws, *tabulate_own(fit))
    return ReportData(fit, names, draws, *tabulate_with_arviz(draws))


def tabulate_own(fit: "Result") -> tuple[dict[str, NDArray[np.float64]], tuple[str, str], str]:
    """lwa's table, of all draws where they were summarised, under ArviZ's names; and what it says of itself."""
    found = fit.own_table()
    columns = dict(found.columns)
    rhat = columns.pop("nested_r_hat" if "nested_r_hat" in columns else "r_hat")
    columns |= {"ess_bulk": columns.pop("ess"), "r_hat": rhat}
    columns |= {} if found.most is None else {"most": found.most}
    return columns, ("eti89_lb", "eti89_ub"), found.note


def tabulate_with_arviz(draws: NDArray[np.float64]) -> tuple[dict[str, NDArray[np.float64]], tuple[str, str]]:
    """ArviZ's table, unrounded, and which columns are the interval; nothing where there are no draws.

    The table of `fit.summary()`, but of bare numbers: ArviZ takes no name with a slash, and no True or False.
    """
    if not draws.size:
        return {}, ("", "")
    import arviz_stats
    import xarray

    bare = xarray.Dataset({"x": (("scalar", "chain", "draw"), draws)})
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # draws that stand still are NaN, and are said to be
        warnings.simplefilter("ignore")
        table = arviz_stats.summary(bare, round_to="none")
    columns = {str(column): np.asarray(table[column], np.float64) for column in table.columns}
    low, high = (next(column for column in columns if column.endswith(end)) for end in ("_lb", "_ub"))
    return columns, (low, high)
