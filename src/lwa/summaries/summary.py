"""S: what makes two subsets alike. It is gathered over all rows in one streamed pass, then applied to batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.rows import Batch
from lwa.rows.units import Stretch


class SubsetStatistic(Protocol):
    """S once it has seen all rows, for subsets of any kind."""

    @property
    def dimension(self) -> int:
        """s; 0 if every subset weighs the same."""


class AdditiveStatistic(SubsetStatistic, Protocol):
    """S of a subset as a sum over its rows, or over its groups."""

    def centred(self, batch: PyTree, counts: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return what each row or group adds to n (S̄(Y_U) - s_N), `(m, s)`."""


@dataclass(frozen=True)
class Statistic:
    """A summary that has seen all rows: S per row, s_N, and the spread that scales it."""

    per_row: Callable[[Batch], NDArray[np.float64]]  # (m rows) -> (m, s)
    full: NDArray[np.float64]  # s_N
    scale: NDArray[np.float64]  # 1 if it is not scaled
    dimension: int = field(init=False)  # s

    def __post_init__(self) -> None:
        """Set the number of components."""
        object.__setattr__(self, "dimension", len(self.full))

    def centred(self, batch: Batch, counts: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return (c_k S(Y_k) - s_N) / scale, `(m, s)`: centring first keeps the subset chain's sums small, so exact."""
        values = self.per_row(batch)
        require_width(values, self.dimension)
        return ((values if counts is None else counts[:, None] * values) - self.full) / self.scale


def require_width(values: NDArray[np.float64], s: int) -> None:
    """Raise if the length of a summary depends on how many rows it is called with."""
    if values.shape[1] != s:
        raise InputError(
            f"The summary function returned {values.shape[1]} numbers per row for a batch of {len(values)} rows, but "
            f"{s} for another batch. Return the same number for every batch: each row is summarised on its own."
        )


def summarise_nothing(batch: Batch) -> NDArray[np.float64]:
    """Return no number per row."""
    return np.empty((len(jax.tree.leaves(batch)[0]), 0))


NO_STATISTIC = Statistic(summarise_nothing, np.empty(0), np.empty(0))
"""Every subset weighs the same."""


@dataclass(frozen=True)
class OverGroups:
    """S of sets of groups: S̄(Y_U) - s_N = Σ_{groups of U} Σ_{rows} (S(Y_k) - s_N) / (n m̄), m̄ the mean group size."""

    statistic: Statistic
    mean_size: float
    dimension: int = field(init=False)  # s

    def __post_init__(self) -> None:
        """Copy the number of components."""
        object.__setattr__(self, "dimension", self.statistic.dimension)

    def centred(self, groups: Stretch, counts: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return what each group adds, times what it counts, `(m, s)`."""
        m, length = groups.scored.shape
        rows = jax.tree.map(lambda leaf: leaf.reshape(m * length, *leaf.shape[2:]), groups.rows)
        values = self.statistic.centred(rows).reshape(m, length, -1)
        summed = np.where(groups.scored[..., None], values, 0.0).sum(1) / self.mean_size
        return summed if counts is None else counts[:, None] * summed


class Gathering(ABC):
    """A summary on its way through the rows."""

    @abstractmethod
    def visit(self, block: Batch) -> None:
        """Add the next block."""

    @abstractmethod
    def join(self, later: Self) -> None:
        """Add what was gathered from the rows that come next."""

    @abstractmethod
    def finish(self) -> Statistic:
        """Return s_N and spread, once every block has been visited."""


class Summary(ABC):
    """S, before it has seen any row."""

    @abstractmethod
    def gather(self) -> Gathering:
        """Start a pass over all rows."""


def start_gathering(summary: Summary) -> Gathering:
    """Start a pass over all rows; a plain function, which can be sent to workers."""
    return summary.gather()
