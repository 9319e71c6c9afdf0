"""S: what makes two subsets alike. It is gathered over all rows in one streamed pass, then applied to batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.rows import Batch


@dataclass(frozen=True)
class Statistic:
    """A summary that has seen all rows: S per row, s_N, and the spread that scales it."""

    per_row: Callable[[Batch], NDArray[np.float64]]  # (m rows) -> (m, s)
    full: NDArray[np.float64]  # s_N
    scale: NDArray[np.float64]  # 1 where it is not scaled

    @property
    def dimension(self) -> int:
        """s."""
        return len(self.full)

    def centred(self, batch: Batch, counts: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """(c_k S(Y_k) - s_N) / scale, (m, s): centring first keeps the U chain's sums small and so exact."""
        values = self.per_row(batch)
        require_width(values, self.dimension)
        return ((values if counts is None else counts[:, None] * values) - self.full) / self.scale


def require_width(values: NDArray[np.float64], s: int) -> None:
    """Refuse a summary whose length depends on how many rows it is called with."""
    if values.shape[1] != s:
        raise InputError(
            f"The summary function returned {values.shape[1]} numbers a row for a batch of {len(values)} rows, but {s} "
            "for another batch. Return as many for every batch: each row is summarised on its own."
        )


def summarise_nothing(batch: Batch) -> NDArray[np.float64]:
    """Return no number per row."""
    return np.empty((len(jax.tree.leaves(batch)[0]), 0))


NO_STATISTIC = Statistic(summarise_nothing, np.empty(0), np.empty(0))
"""Every subset weighs the same."""


class Gathering(ABC):
    """A summary on its way through the rows."""

    @abstractmethod
    def visit(self, block: Batch) -> None:
        """Take in the next block."""

    @abstractmethod
    def join(self, later: Self) -> None:
        """Take over what was gathered of the rows that come next."""

    @abstractmethod
    def finish(self) -> Statistic:
        """s_N and spread, once every block has been visited."""


class Summary(ABC):
    """S, before it has seen any row."""

    @abstractmethod
    def gather(self) -> Gathering:
        """Begin a pass over all rows."""


def gathering_of(summary: Summary) -> Gathering:
    """Where a pass begins to gather it."""
    return summary.gather()
