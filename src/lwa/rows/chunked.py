"""One column of the data, left in the pieces in which its owner stores it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Chunked:
    """A column of N rows held as views of consecutive chunks, so that none is copied or joined.

    Parameters
    ----------
    chunks
        At least one array; all of one dtype and one shape after the first axis. A plain array is one chunk.

    Examples
    --------
    >>> column = Chunked((np.array([0.0, 1.0]), np.array([2.0, 3.0])))
    >>> column.take(np.array([3, 0]))
    array([3., 0.])
    >>> column.span(1, 3)
    array([1., 2.])
    """

    chunks: tuple[NDArray[Any], ...]
    starts: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Leave out empty chunks and find where each of the others starts."""
        chunks = tuple(chunk for chunk in self.chunks if len(chunk)) or self.chunks[:1]
        object.__setattr__(self, "chunks", chunks)
        object.__setattr__(self, "starts", np.cumsum([0, *map(len, chunks)], dtype=np.int64))

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    def take(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Rows at these positions, in this order."""
        if len(self.chunks) == 1:
            return _native(_gather(self.chunks[0], indices))
        positions = np.where(indices < 0, indices + len(self), indices)
        if positions.size and not (positions.min() >= 0 and positions.max() < len(self)):
            raise IndexError(f"indices run from {indices.min()} to {indices.max()}, but there are {len(self)} rows.")
        owner = np.searchsorted(self.starts, positions, side="right") - 1
        by_chunk = np.argsort(owner, kind="stable")
        owners, first = np.unique(owner[by_chunk], return_index=True)
        taken = np.empty((len(positions), *self.chunks[0].shape[1:]), self.chunks[0].dtype)
        # Not strict: of no indices at all, split still makes one (empty) part.
        for chunk, where in zip(owners, np.split(by_chunk, first[1:]), strict=False):
            taken[where] = _gather(self.chunks[chunk], positions[where] - self.starts[chunk])
        return _native(taken)

    def span(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start to stop - 1, at least one: a view when they lie in one chunk."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        pieces = [
            chunk[max(start - offset, 0) : stop - offset]
            for chunk, offset in zip(self.chunks[first:last], self.starts[first:last].tolist(), strict=True)
        ]
        return _native(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))


def _gather(array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
    # np.take is the fastest gather, but it first copies an array that is strided or unaligned: O(N) for every call.
    if array.flags.c_contiguous and array.flags.aligned:
        return np.take(array, indices, axis=0)
    return array[indices]


def _native(array: NDArray[Any]) -> NDArray[Any]:
    # JAX refuses the other byte order; swapping a batch keeps the user's array uncopied.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
