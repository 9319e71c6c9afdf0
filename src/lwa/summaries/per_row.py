"""Additive summaries: S̄(Y_U) is the mean over U of a function of single rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike, NDArray

from lwa.errors import InputError
from lwa.rows import Batch
from lwa.summaries.summary import Gathering, Statistic, Summary, require_width


@dataclass(frozen=True)
class PerRow(Summary):
    """The mean over the subset of any function of rows.

    Parameters
    ----------
    function
        `rows -> (m,)` or `(m, s)`, NumPy or JAX, called on batches of rows.
    scaled
        Divide each component by its spread over all rows, so that `epsilon` counts standard deviations.

    Examples
    --------
    >>> import numpy as np, lwa
    >>> summary = lwa.summaries.PerRow(lambda rows: np.column_stack([rows["y"], rows["y"] ** 2]), scaled=True)
    """

    function: Callable[[PyTree], ArrayLike]
    scaled: bool = False

    def gather(self) -> "RowMoments":
        """Start to gather means and spreads, in float64."""
        return RowMoments(self)

    def evaluate(self, batch: Batch) -> NDArray[np.float64]:
        """Return the function's values, `(m, s)`; raise unless they are one finite vector per row."""
        m = len(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)
        try:
            values = np.asarray(self.function(batch), np.float64)
        except Exception as error:
            raise InputError(
                f"The summary function raised {type(error).__name__}: {error}. It is called with a batch of {m} rows, "
                "shaped like the data, and must return one number or vector per row."
            ) from error
        if values.ndim not in (1, 2) or len(values) != m:
            raise InputError(
                f"The summary function returned shape {values.shape} for {m} rows; ({m},) or ({m}, s) is expected. "
                "Return one number or vector per row, not a sum over rows."
            )
        if not np.isfinite(values.sum()) and (bad := ~np.isfinite(values.reshape(m, -1)).all(1)).any():
            raise InputError(
                f"The summary function is NaN or infinite for {bad.sum()} of {m} rows, first for row {bad.argmax()} of "
                "the batch. Return finite values."
            )
        return values[:, None] if values.ndim == 1 else values


class RowMoments(Gathering):
    """Means and variances of a `PerRow`, merged block by block (Chan, Golub and LeVeque)."""

    def __init__(self, summary: PerRow) -> None:
        self.summary = summary
        self.count = 0
        self.mean: NDArray[np.float64] = np.zeros(0)
        self.squares: NDArray[np.float64] = np.zeros(0)

    def visit(self, block: Batch) -> None:
        """Merge the block's mean and sum of squares into the running ones."""
        values = self.summary.evaluate(block)
        m, mean = len(values), values.mean(0)
        if self.count == 0:
            self.mean, self.squares = np.zeros_like(mean), np.zeros_like(mean)
        require_width(values, len(self.mean))
        self._merge(m, mean, ((values - mean) ** 2).sum(0))

    def join(self, later: Self) -> None:
        """Merge the means and sums of squares of the rows that come next."""
        if later.count:
            if self.count == 0:
                self.mean, self.squares = np.zeros_like(later.mean), np.zeros_like(later.mean)
            require_width(later.mean[None], len(self.mean))
            self._merge(later.count, later.mean, later.squares)

    def _merge(self, m: int, mean: NDArray[np.float64], squares: NDArray[np.float64]) -> None:
        shift, total = mean - self.mean, self.count + m
        self.squares = self.squares + squares + shift**2 * (self.count * m / total)
        self.mean, self.count = self.mean + shift * (m / total), total

    def finish(self) -> Statistic:
        """Return s_N and spread. A component that never varies is left unscaled: it never differs from s_N either."""
        spread = np.sqrt(self.squares / self.count)
        scale = np.where(spread > 0, spread, 1.0) if self.summary.scaled else np.ones_like(spread)
        return Statistic(self.summary.evaluate, self.mean, scale)


def every_column(batch: Batch) -> NDArray[np.float64]:
    """Return all columns side by side."""
    columns = list(batch.values()) if isinstance(batch, dict) else [batch]
    return np.concatenate([np.asarray(column, np.float64).reshape(len(column), -1) for column in columns], axis=1)
