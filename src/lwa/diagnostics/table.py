"""A table of parameters that needs no other library."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics import running
from lwa.diagnostics.monte_carlo_error import effective_draws
from lwa.diagnostics.running import Moments, Running
from lwa.diagnostics.short_chains import limits

SHARES = [0.055, 0.5, 0.945]
"""Quantiles: between the first and the last lie 89 % of the draws, as in ArviZ's table."""
FEWEST = 8
"""Draws a chain from which autocorrelations are looked at."""


@dataclass(frozen=True, eq=False)
class Table:
    """One line a scalar. `table["mean"]` is a column; `print(table)` shows all, and says where the numbers are from."""

    names: list[str]
    columns: Mapping[str, NDArray[np.float64]]
    note: str
    most: NDArray[np.float64] | None = None  # nested R-hat that chance may leave

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """A column."""
        return self.columns[column]

    def to_dict(self, orient: str = "index") -> dict[str, dict[str, float]]:
        """By line, then by column, as pandas has it with `orient="index"`."""
        return {
            name: {column: float(values[i]) for column, values in self.columns.items()}
            for i, name in enumerate(self.names)
        }

    def __str__(self) -> str:
        """Aligned, with as many digits as the Monte Carlo error leaves."""
        lines = [["", *self.columns]]
        lines += [[name, *self._line(i)] for i, name in enumerate(self.names)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        first, rest = widths[0], widths[1:]
        shown = [
            "  ".join([line[0].ljust(first), *(cell.rjust(wide) for cell, wide in zip(line[1:], rest, strict=True))])
            for line in lines
        ]
        return "\n".join([*shown, self.note])

    __repr__ = __str__

    def _line(self, i: int) -> list[str]:
        error = float(self.columns["mcse_mean"][i])
        digits = max(0, 1 - int(np.floor(np.log10(error)))) if 0 < error < np.inf else 3
        return [in_digits(column, float(values[i]), min(digits, 12)) for column, values in self.columns.items()]


def in_digits(column: str, value: float, digits: int) -> str:
    """A number as its column shows it."""
    if column == "ess":
        return f"{value:.0f}"
    return f"{value:.4f}" if column.endswith("r_hat") else f"{value:.{digits}f}"


def scalar_names(
    posterior: Mapping[str, NDArray[Any]], dims: Mapping[str, list[str]], coords: Mapping[str, list[Any]]
) -> list[str]:
    """Every scalar of the parameters, in their order, with its labels."""
    names = []
    for name, array in posterior.items():
        shape = array.shape[2:]
        axes = dims.get(name, [""] * len(shape))
        labels = [coords.get(axis, range(size)) for axis, size in zip(axes, shape, strict=True)]
        for place in np.ndindex(*shape):
            at = ", ".join(str(labels[i][j]) for i, j in enumerate(place))
            names.append(f"{name}[{at}]" if place else name)
    return names


def scalars(posterior: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Their draws, `(chains, draws, scalars)`."""
    flat = [
        np.asarray(array, np.float64).reshape(*array.shape[:2], int(np.prod(array.shape[2:])))
        for array in posterior.values()
    ]
    return np.concatenate(flat, -1)


def table_of_draws(names: list[str], posterior: Mapping[str, NDArray[Any]], why: str) -> Table:
    """Of draws that are there, where ArviZ's table will not do, and why."""
    state, values = running.moments_of(posterior), scalars(posterior)
    chains, draws, k = values.shape
    found = np.stack([np.quantile(values[..., i], SHARES) for i in range(k)], axis=1)
    note, half = f"{why}: these are lwa's own numbers.", draws // 2
    if chains > running.MANY or half < 2:
        return many_chains(names, state, found, running.superchains_for(chains), note)
    ess = effective_draws(values) if draws >= FEWEST else running.effective(state)[0]
    halves = np.stack([values[:, :half], values[:, -half:]], axis=1).reshape(2 * chains, half, k)  # as ArviZ does
    rhat = running.nested(running.moments_of({"": halves}), 2 * chains).rhat
    return Table(names, columns_of(state, found, ess) | {"r_hat": rhat}, note)


def table_of_running(names: list[str], state: Running, superchains: int) -> Table:
    """Of all draws of a run that kept only their summary."""
    chains, count = len(state.moments.mean), int(state.moments.count)
    sd = np.sqrt(running.variance(state.moments))
    cell = 2 * running.REACH / running.CELLS * np.max(state.sketch.scale[sd > 0] / sd[sd > 0], initial=0.0)
    note = f"Of {chains:,} chains x {count:,} draws, summarised while they were made: quantiles to {cell:.1g} sd."
    return many_chains(names, state.moments, running.quantiles(state.sketch, SHARES), superchains, note)


def many_chains(names: list[str], state: Moments, found: NDArray[np.float64], superchains: int, note: str) -> Table:
    """Mixing as the means of chains tell it."""
    ess, error = running.effective(state)
    rhat = running.nested(state, superchains)
    sure = f", known to {error:.0%}" if np.isfinite(error) else ""
    note += f" ess from the variance of chain means{sure}; nested R-hat of {superchains} superchains."
    columns = columns_of(state, found, ess) | {"nested_r_hat": rhat.rhat}
    return Table(names, columns, note, limits(rhat, len(state.mean), superchains))


def columns_of(state: Moments, found: NDArray[np.float64], ess: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """What both tables begin with."""
    low, middle, high = found
    sd = np.sqrt(running.variance(state))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = sd / np.sqrt(ess)
    return {
        "mean": running.mean(state), "sd": sd, "eti89_lb": low, "median": middle, "eti89_ub": high, "ess": ess,
        "mcse_mean": error,
    }  # fmt: skip
