"""One column of the data, left in the pieces in which its owner stores it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.rows.mapped import MappedRows, gather, mapped_rows

HELD_BYTES = 16 * 2**20
"""Of files behind a scan that stay in memory: whoever works on blocks on other threads may lag behind."""


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
    files: tuple[MappedRows | None, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Leave out empty chunks and find where each of the others starts."""
        chunks = tuple(chunk for chunk in self.chunks if len(chunk)) or self.chunks[:1]
        object.__setattr__(self, "chunks", chunks)
        object.__setattr__(self, "starts", np.cumsum([0, *map(len, chunks)], dtype=np.int64))
        object.__setattr__(self, "files", tuple(map(mapped_rows, chunks)))

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    def take(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Rows at these positions, in this order; rows of files are read in the order of the file."""
        if self.files == (None,):
            return _native(gather(self.chunks[0], indices))
        positions = np.where(indices < 0, indices + len(self), indices)
        if positions.size and not (positions.min() >= 0 and positions.max() < len(self)):
            raise IndexError(f"indices run from {indices.min()} to {indices.max()}, but there are {len(self)} rows.")
        order = np.argsort(positions, kind="stable")
        owner = np.searchsorted(self.starts, positions[order], side="right") - 1
        owners, first = np.unique(owner, return_index=True)
        taken = np.empty((len(positions), *self.chunks[0].shape[1:]), self.chunks[0].dtype)
        # Not strict: of no indices at all, split still makes one (empty) part.
        for chunk, where in zip(owners, np.split(order, first[1:]), strict=False):
            array, file, rows = self.chunks[chunk], self.files[chunk], positions[where] - self.starts[chunk]
            taken[where] = gather(array, rows) if file is None else file.gather(array, rows)
        return _native(taken)

    def runs(self, first: NDArray[np.int64], length: int) -> NDArray[Any]:
        """`length` rows in a row from each of these positions, `(m, length, ...)`; in memory, a copy a run."""
        if self.files != (None,):
            taken = self.take((first[:, None] + np.arange(length)).ravel())
            return taken.reshape(len(first), length, *taken.shape[1:])
        every = np.lib.stride_tricks.sliding_window_view(self.chunks[0], length, axis=0)
        return _native(np.moveaxis(every, -1, 1)[first])

    def span(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start to stop - 1, at least one: a view when they lie in one chunk."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        pieces = [
            chunk[max(start - offset, 0) : stop - offset]
            for chunk, offset in zip(self.chunks[first:last], self.starts[first:last].tolist(), strict=True)
        ]
        return _native(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))

    def let_go(self, start: int, stop: int) -> None:
        """Rows start to stop - 1 of files have been read, and will not be read again soon."""
        for file, first, last in zip(self.files, self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            if file is not None and first < stop and start < last:
                file.let_go(max(start - first, 0), min(stop, last) - first)


def scan(columns: Sequence[Chunked], start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Where blocks of `size` rows of all columns begin and end; of files, what is behind is let go by and by."""
    held = start
    behind = max(size, HELD_BYTES // sum(column.chunks[0][:1].nbytes for column in columns))
    for at in range(start, stop, size):
        if at - held >= 2 * behind:
            for column in columns:
                column.let_go(held, at - behind)
            held = at - behind
        yield at, min(at + size, stop)
    for column in columns:
        column.let_go(held, stop)


def _native(array: NDArray[Any]) -> NDArray[Any]:
    # JAX refuses the other byte order; swapping a batch keeps the user's array uncopied.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
