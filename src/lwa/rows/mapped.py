"""Rows of a file that is mapped into memory: asked for ahead of a gather, let go behind a scan."""

import mmap
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import resource

    THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # of Linux alone
except ImportError:
    THREAD = None

WATCHED = 32
"""Gathers that ask ahead once one had to wait for the disk, before another is left to find out whether it still must.

Asking is dear where the file is in memory and cheap where it is not: there the disk serves all rows side by side, and
reads a page for each instead of the megabytes around it (docs/scaling.md, `benchmarks/out_of_core.py`)."""


@dataclass(eq=False)
class MappedRows:
    """Where the rows of an array lie in the file that it is mapped from."""

    mapping: mmap.mmap
    offset: int  # of the first row
    stride: int  # bytes from row to row
    size: int  # bytes of a row
    asking: int = field(default=0, init=False)  # gathers that will still ask ahead

    def gather(self, array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        """Rows at these positions, which ascend, so that each page of the file is read once and forwards."""
        if self.asking:
            self.asking -= 1
            self._ask(indices)
            return gather(array, indices)
        before = waits()
        found = gather(array, indices)
        if waits() > before:
            self.asking = WATCHED
        return found

    def _ask(self, indices: NDArray[np.int64]) -> None:
        """Have the system fetch the pages of these rows, all at once."""
        begin = self.offset + indices * self.stride
        first, last = begin // mmap.PAGESIZE, (begin + self.size - 1) // mmap.PAGESIZE
        new = np.concatenate([[True], last[1:] > last[:-1]])  # rows that share a page are asked for once
        for page, count in zip(first[new].tolist(), (last - first + 1)[new].tolist(), strict=True):
            self.mapping.madvise(mmap.MADV_WILLNEED, page * mmap.PAGESIZE, count * mmap.PAGESIZE)

    def let_go(self, start: int, stop: int) -> None:
        """Rows that have been read need not count as this process's memory. They come back if they are read again."""
        if not memoryview(self.mapping).readonly:
            return  # a private mapping that was written to would lose what was written
        first = -(-(self.offset + start * self.stride) // mmap.PAGESIZE)
        last = (self.offset + stop * self.stride) // mmap.PAGESIZE
        if last > first:
            self.mapping.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


def gather(array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
    """Rows at these positions, in this order."""
    # np.take is the fastest gather, but it first copies an array that is strided or unaligned: O(N) for every call.
    if array.flags.c_contiguous and array.flags.aligned:
        return np.take(array, indices, axis=0)
    return array[indices]


def mapped_rows(array: NDArray[Any]) -> MappedRows | None:
    """Of an array that is mapped from a file, row after row; None of any other."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    inner = array[:1].nbytes
    if not isinstance(base, mmap.mmap) or not array.size or array.strides[0] < inner or not hasattr(base, "madvise"):
        return None
    start = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    return MappedRows(base, array.__array_interface__["data"][0] - start, array.strides[0], inner)


def waits() -> int:
    """How often this thread had to wait for a page of a file; 0 where the system does not say."""
    return 0 if THREAD is None else resource.getrusage(THREAD).ru_majflt
