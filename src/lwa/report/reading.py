"""What a page is made of: every scalar of a run by name, with its line of ArviZ's table."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lwa.result import Result

RHAT = 1.01
"""Above it chains disagree (Vehtari et al., 2021)."""
DRAWS_A_CHAIN = 100
"""Effective draws, for each chain, below which quantiles and R-hat itself are not to be relied on (same place)."""


@dataclass(frozen=True, eq=False)
class Reading:
    """A run's scalars; arrays of the table are `(scalars,)`, draws `(scalars, chains, draws)`."""

    fit: "Result"
    names: list[str]
    draws: NDArray[np.float64]
    table: dict[str, NDArray[np.float64]]  # ArviZ's columns; empty where there are no draws
    interval: tuple[str, str]  # the columns of the interval's ends

    @property
    def chains(self) -> int:
        """How many there are."""
        return self.draws.shape[1]

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
        return self.table["r_hat"] > RHAT

    @property
    def scarce(self) -> NDArray[np.bool_]:
        """Scalars with few effective draws."""
        return ~(np.minimum(self.table["ess_bulk"], self.table["ess_tail"]) >= DRAWS_A_CHAIN * self.chains)

    @property
    def worst_first(self) -> NDArray[np.int64]:
        """Scalars by how badly they mixed; what cannot be told comes first."""
        return np.argsort(np.nan_to_num(self.table["ess_bulk"], nan=-1.0), kind="stable")


def read(fit: "Result") -> Reading:
    """Every scalar of the posterior, derived quantities included, in the order of ArviZ's table."""
    names, values = [], []
    for name, array in fit.posterior.items():
        shape = array.shape[2:]
        axes = fit.dims.get(name, [""] * len(shape))
        labels = [fit.coords.get(axis, range(size)) for axis, size in zip(axes, shape, strict=True)]
        for place in np.ndindex(*shape):
            at = ", ".join(str(labels[i][j]) for i, j in enumerate(place))
            names.append(f"{name}[{at}]" if place else name)
            values.append(np.asarray(array[(slice(None), slice(None), *place)], np.float64))
    draws = np.stack(values)
    table, interval = summary_of(draws)
    return Reading(fit, names, draws, table, interval)


def summary_of(draws: NDArray[np.float64]) -> tuple[dict[str, NDArray[np.float64]], tuple[str, str]]:
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
