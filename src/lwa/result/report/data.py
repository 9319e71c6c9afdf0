"""The data of a page: every scalar of a run by name, with its line of the summary table."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.diagnostics.running import MANY_CHAINS, SUPERCHAINS
from lwa.diagnostics.short_chains import RHAT_LIMIT
from lwa.diagnostics.table import name_scalars, stack_scalars

if TYPE_CHECKING:
    from lwa.result.result import Result

DRAWS_PER_CHAIN = 100
"""Effective draws per chain below which quantiles and R-hat itself are unreliable (Vehtari et al., 2021)."""
CHAINS_SHOWN = 16
"""Chains that pictures show: more lines would hide each other."""


@dataclass(frozen=True, eq=False)
class ReportData:
    """The scalars of a run."""

    fit: "Result"
    names: list[str]
    draws: Float64[np.ndarray, "scalars chains draws"]
    table: dict[str, Float64[np.ndarray, " scalars"]]  # ArviZ's columns, or lwa's own; empty if there are no draws
    interval: tuple[str, str]  # the columns of the interval's ends
    note: str = ""  # the source of the table, if it is not ArviZ

    @property
    def chains(self) -> int:
        """The number of chains."""
        return self.draws.shape[1]

    @property
    def shown(self) -> NDArray[np.int64]:
        """The chains that pictures show, evenly spaced."""
        count = min(self.chains, CHAINS_SHOWN)
        return np.arange(count) * self.chains // max(1, count)

    @property
    def shown_in_words(self) -> str:
        """A sentence on the chains shown, if not all are."""
        if self.chains <= CHAINS_SHOWN:
            return ""
        return f" {CHAINS_SHOWN} of the {self.chains:,} chains are shown, evenly spaced."

    @property
    def few(self) -> int:
        """Effective draws below which a parameter has few; if chains are many, a superchain counts as one chain."""
        return DRAWS_PER_CHAIN * (self.chains if self.chains <= MANY_CHAINS else SUPERCHAINS)

    @property
    def few_in_words(self) -> str:
        """The limit `few` in words."""
        each = f"{DRAWS_PER_CHAIN} effective draws per chain"
        return each if self.chains <= MANY_CHAINS else f"{self.few:,} effective draws in all"

    @property
    def worth(self) -> list[str]:
        """The columns of effective draws."""
        return [column for column in ("ess_bulk", "ess_tail") if column in self.table]

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Seed, settings, costs and warnings of the run."""
        return self.fit.attributes

    @property
    def rival(self) -> bool:
        """Whether another paper's algorithm made the draws."""
        return "method" in self.attributes

    @property
    def kept(self) -> str:
        """Which steps were kept as draws, in words."""
        thinning = self.attributes.get("thinning", 1)
        return "every step" if thinning == 1 else f"one step in {thinning:,}"

    @property
    def percent(self) -> str:
        """The per cent of the draws that the interval holds."""
        return "".join(letter for letter in self.interval[0] if letter.isdigit())

    @property
    def disagreeing(self) -> NDArray[np.bool_]:
        """Scalars whose chains disagree."""
        return self.table["r_hat"] > self.table.get("most", RHAT_LIMIT)

    @property
    def disagreeing_in_words(self) -> str:
        """The limit of R-hat in words."""
        return "above what chance explains" if "most" in self.table else f"above {RHAT_LIMIT}"

    @property
    def scarce(self) -> NDArray[np.bool_]:
        """Scalars with few effective draws."""
        return ~(np.min([self.table[column] for column in self.worth], axis=0) >= self.few)

    @property
    def worst_first(self) -> NDArray[np.int64]:
        """Scalars in the order of how badly they mixed; unknown ones come first."""
        return np.argsort(np.nan_to_num(self.table["ess_bulk"], nan=-1.0), kind="stable")


def collect_data(fit: "Result") -> ReportData:
    """Return every scalar of the posterior, derived quantities included, in the order of ArviZ's table."""
    names = name_scalars(fit.posterior, fit.dims, fit.coords)
    draws = np.moveaxis(stack_scalars(fit.posterior), -1, 0)
    if fit.running is not None or (draws.size > 0 and draws.shape[1] > MANY_CHAINS):
        return ReportData(fit, names, draws, *tabulate_own(fit))
    return ReportData(fit, names, draws, *tabulate_with_arviz(draws))


def tabulate_own(fit: "Result") -> tuple[dict[str, NDArray[np.float64]], tuple[str, str], str]:
    """Return lwa's table for many chains under ArviZ's names, the columns of the interval, and the table's note."""
    found = fit.own_table()
    columns = dict(found.columns)
    columns |= {"ess_bulk": columns.pop("ess"), "r_hat": columns.pop("nested_r_hat"), "most": found.most}
    return columns, ("eti89_lb", "eti89_ub"), found.note


def tabulate_with_arviz(draws: NDArray[np.float64]) -> tuple[dict[str, NDArray[np.float64]], tuple[str, str]]:
    """Return ArviZ's table, unrounded, and the columns of its interval; nothing if there are no draws.

    The table is that of `fit.summary()`, but without names: ArviZ takes no name with a slash, and no True or False.
    """
    if not draws.size:
        return {}, ("", "")
    import arviz_stats
    import xarray

    bare = xarray.Dataset({"x": (("scalar", "chain", "draw"), draws)})
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # numbers on draws that stand still are NaN
        warnings.simplefilter("ignore")
        table = arviz_stats.summary(bare, round_to="none")
    columns = {str(column): np.asarray(table[column], np.float64) for column in table.columns}
    low, high = (next(column for column in columns if column.endswith(end)) for end in ("_lb", "_ub"))
    return columns, (low, high)
