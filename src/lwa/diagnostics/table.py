"""The table of parameters of many short chains, or of a run that kept only a summary: ArviZ has none for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.diagnostics import running
from lwa.diagnostics.running import ChainMoments, RunningSummary
from lwa.diagnostics.short_chains import rhat_limits

TABLE_QUANTILES = [0.055, 0.5, 0.945]
"""Shares of the quantiles: 89 % of the draws lie between the first and the last, as in ArviZ's table."""


@dataclass(frozen=True, eq=False)
class Table:
    """One line per scalar. `table["mean"]` is a column; `print(table)` shows all columns and a note on their source."""

    names: list[str]
    columns: Mapping[str, NDArray[np.float64]]
    note: str
    most: NDArray[np.float64]  # the largest nested R-hat that chance may leave

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """Return a column by its name."""
        return self.columns[column]

    def to_dict(self, orient: str = "index") -> dict[str, dict[str, float]]:
        """Return numbers by line, then by column, as pandas does with `orient="index"`."""
        return {
            name: {column: float(values[i]) for column, values in self.columns.items()}
            for i, name in enumerate(self.names)
        }

    def __str__(self) -> str:
        """Return aligned columns, with as many digits as the Monte Carlo error leaves."""
        lines = [["", *self.columns], *([name, *self._line(i)] for i, name in enumerate(self.names))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        first, *rest = widths
        template = "  ".join([f"{{:<{first}}}", *(f"{{:>{wide}}}" for wide in rest)])
        return "\n".join([*(template.format(*line) for line in lines), self.note])

    __repr__ = __str__

    def _line(self, i: int) -> list[str]:
        error = float(self.columns["mcse_mean"][i])
        digits = max(0, 1 - int(np.floor(np.log10(error)))) if 0 < error < np.inf else 3
        return [format_cell(column, float(values[i]), min(digits, 12)) for column, values in self.columns.items()]


def format_cell(column: str, value: float, digits: int) -> str:
    """Return a number as its column shows it."""
    if column == "ess":
        return f"{value:.0f}"
    return f"{value:.4f}" if column.endswith("r_hat") else f"{value:.{digits}f}"


def name_scalars(
    posterior: Mapping[str, NDArray[Any]], dims: Mapping[str, list[str]], coords: Mapping[str, list[Any]]
) -> list[str]:
    """Return the name of every scalar of the parameters, in their order, with its labels."""
    names = []
    for name, array in posterior.items():
        shape = array.shape[2:]
        axes = dims.get(name, [""] * len(shape))
        labels = [coords.get(axis, range(size)) for axis, size in zip(axes, shape, strict=True)]
        for place in np.ndindex(*shape):
            at = ", ".join(str(labels[i][j]) for i, j in enumerate(place))
            names.append(f"{name}[{at}]" if place else name)
    return names


def stack_scalars(posterior: Mapping[str, NDArray[Any]]) -> Float64[np.ndarray, "chains draws scalars"]:
    """Return the draws of every scalar of the parameters."""
    arrays = (np.asarray(array, np.float64) for array in posterior.values())
    return np.concatenate([array.reshape(*array.shape[:2], int(np.prod(array.shape[2:]))) for array in arrays], -1)


def tabulate_draws(names: list[str], posterior: Mapping[str, NDArray[Any]], why: str) -> Table:
    """Return the table of the draws of many chains in memory; `why` says why it is not ArviZ's."""
    state, values = running.collect_moments(posterior), stack_scalars(posterior)
    found = np.stack([np.quantile(values[..., i], TABLE_QUANTILES) for i in range(values.shape[2])], axis=1)
    superchains = running.count_superchains(len(values))
    return tabulate_moments(names, state, found, superchains, f"{why}: lwa computed these numbers.")


def tabulate_summary(names: list[str], state: RunningSummary, superchains: int) -> Table:
    """Return the table of all draws of a run that kept only their summary."""
    chains, count = len(state.moments.mean), int(state.moments.count)
    sd = np.sqrt(running.pooled_variance(state.moments))
    widest = np.max(state.sketch.scale[sd > 0] / sd[sd > 0], initial=0.0)
    cell = 2 * running.SKETCH_REACH / running.SKETCH_CELLS * widest
    note = f"Of {chains:,} chains x {count:,} draws, summarised while they were made: quantiles to {cell:.1g} sd."
    found = running.find_quantiles(state.sketch, TABLE_QUANTILES)
    return tabulate_moments(names, state.moments, found, superchains, note)


def tabulate_moments(
    names: list[str], state: ChainMoments, found: Float64[np.ndarray, "3 k"], superchains: int, note: str
) -> Table:
    """Return the table from moments and quantiles; effective draws and R-hat come from the means of chains."""
    low, median, high = found
    ess, error = running.effective_draws_from_means(state)
    rhat = running.compute_nested_rhat(state, superchains)
    sure = f" (relative error {error:.0%})" if np.isfinite(error) else ""
    note += f" ess is from the variance of chain means{sure}; nested R-hat compares {superchains} groups of chains."
    sd = np.sqrt(running.pooled_variance(state))
    with np.errstate(invalid="ignore", divide="ignore"):
        mcse = sd / np.sqrt(ess)
    columns = {
        "mean": running.pooled_mean(state), "sd": sd, "eti89_lb": low, "median": median, "eti89_ub": high, "ess": ess,
        "mcse_mean": mcse, "nested_r_hat": rhat.rhat,
    }  # fmt: skip
    return Table(names, columns, note, rhat_limits(rhat, len(state.mean), superchains))
