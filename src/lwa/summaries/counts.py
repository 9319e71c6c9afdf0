"""Class counts: S̄(Y_U) is the share of each class in the subset."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.rows import Batch
from lwa.rows.memory import ColumnName, select_column
from lwa.summaries.summary import Gathering, Statistic, Summary

type ClassLevel = float | str  # a class as NumPy's `tolist` returns it

MOST_CLASSES = 1000
"""A column with more distinct values than this holds a measurement, not a class."""


@dataclass(frozen=True)
class Counts(Summary):
    """The share of each class, as in the paper's classification and digits.

    Parameters
    ----------
    column
        The column that holds the class: a name if the data are a dict or a table, a position if they are a matrix,
        `None` if they are one column of classes.
    scaled
        Divide each share by its spread √(p(1-p)), so that rare classes count as much as common ones.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.Counts("digit")
    """

    column: ColumnName = None
    scaled: bool = False

    def gather(self) -> "ClassTally":
        """Start to count the levels."""
        return ClassTally(self)

    def select(self, batch: Batch) -> NDArray[Any]:
        """Return the class of each row."""
        return select_column(batch, self.column, f"Counts(column={self.column!r})")


class ClassTally(Gathering):
    """The levels of a `Counts` and how often each occurs."""

    def __init__(self, summary: Counts) -> None:
        self.summary = summary
        self.counts: dict[ClassLevel, int] = {}

    def visit(self, block: Batch) -> None:
        """Add the block's counts."""
        levels, counts = np.unique(self.summary.select(block), return_counts=True)
        self._add(dict(zip(levels.tolist(), counts.tolist(), strict=True)))

    def join(self, later: Self) -> None:
        """Add the counts of the rows that come next."""
        self._add(later.counts)

    def _add(self, counts: Mapping[ClassLevel, int]) -> None:
        for level, count in counts.items():
            self.counts[level] = self.counts.get(level, 0) + count
        if len(self.counts) > MOST_CLASSES:
            raise InputError(
                f"Counts(column={self.summary.column!r}) found more than {MOST_CLASSES} classes. Name a column of "
                "classes, or use lwa.summaries.PerRow for a measurement."
            )

    def finish(self) -> Statistic:
        """Return the share of each level, in ascending order of levels."""
        levels = np.array(sorted(self.counts))
        shares = np.array([self.counts[level] for level in levels.tolist()], np.float64)
        shares /= shares.sum()
        spread = np.sqrt(shares * (1 - shares))
        scale = np.where(spread > 0, spread, 1.0) if self.summary.scaled else np.ones_like(shares)
        select = self.summary.select

        def per_row(batch: Batch) -> NDArray[np.float64]:
            return np.asarray(select(batch)[:, None] == levels, np.float64)

        return Statistic(per_row, shares, scale)
