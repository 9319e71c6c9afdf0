"""What every other part of lwa needs of rows of data: a length, a gather and a scan."""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

type Batch = NDArray[Any] | dict[str, NDArray[Any]]
"""Some rows: one array, or named arrays that share their first axis."""


@runtime_checkable
class Rows(Protocol):
    """The paper's Y: N rows, however they are stored. An object with these three methods is enough."""

    def __len__(self) -> int:
        """Return N, the number of rows."""

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order, at a cost of O(len(indices)) and never O(N)."""

    def blocks(self, size: int) -> Iterator[Batch]:
        """Yield all rows in order, `size` at a time; the last block may be shorter."""
