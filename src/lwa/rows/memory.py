"""Rows that NumPy can address, arrays in memory or mapped from a file, and `as_rows`, which accepts any data.

A column is left in the chunks in which its owner stores it. Of a mapped file, the pages of rows are requested ahead of
a gather and released behind a scan.
"""

import mmap
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError, InputError
from lwa.executors import Executor
from lwa.rows.protocol import Batch, Rows
from lwa.user.progress import Display

try:
    import resource

    THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # Linux only
except ImportError:
    THREAD = None

HELD_BYTES = 16 * 2**20
"""How much of the files behind a scan stays in memory: other threads that work on blocks may lag behind."""
WATCHED = 32
"""How many gathers request pages ahead once a gather had to wait for the disk; the next one finds out if it still must.

To request is slow if the file is in memory and fast if it is not: then the disk serves all rows side by side, and reads
a page for each instead of the megabytes around it (docs/scaling.md, `benchmarks/out_of_core.py`)."""
_REMEDIES = {
    "c": "Pass its .real and .imag as two columns.",
    "M": "Pass numbers, e.g. (t - t[0]) / np.timedelta64(1, 's').",
    "m": "Pass numbers, e.g. t / np.timedelta64(1, 's').",
    "O": "Convert it with np.asarray(values, dtype=float), or drop it.",
    "f": "Pass values.astype(np.float64).",
    "V": "Pass values.astype(np.float32), or drop it.",
}
_ENCODE = "Encode it as numbers, e.g. np.unique(values, return_inverse=True)[1], or drop it."


@dataclass(frozen=True, init=False, eq=False)
class ArrayRows:
    """Rows of an array, or of named arrays that share their first axis. Views are kept and nothing is copied.

    Parameters
    ----------
    data
        A NumPy, memory-mapped or JAX array, a list of numbers, a `Chunked` column, or a dict of these. The fields of a
        structured array become named columns.

    Examples
    --------
    >>> rows = ArrayRows({"x": np.arange(6.0).reshape(3, 2), "y": [0, 1, 1]})
    >>> len(rows)
    3
    >>> rows.take(np.array([2, 0]))["y"]
    array([1, 0])
    """

    columns: "Chunked | dict[str, Chunked]"

    def __init__(self, data: object) -> None:
        object.__setattr__(self, "columns", _read_columns(data))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values())) if isinstance(self.columns, dict) else self.columns)

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order."""
        if isinstance(self.columns, dict):
            return {name: column.take(indices) for name, column in self.columns.items()}
        return self.columns.take(indices)

    def take_runs(self, first: NDArray[np.int64], length: int) -> Batch:
        """Return `length` consecutive rows from each of these positions, leaves `(m, length, *shape)`."""
        if isinstance(self.columns, dict):
            return {name: column.take_runs(first, length) for name, column in self.columns.items()}
        return self.columns.take_runs(first, length)

    def blocks(self, size: int) -> Iterator[Batch]:
        """Yield all rows in order, `size` at a time: views of the user's arrays."""
        require_size(size)
        return self.between(0, len(self), size)

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time."""
        columns = list(self.columns.values()) if isinstance(self.columns, dict) else [self.columns]
        for at, end in scan(columns, start, stop, size):
            if isinstance(self.columns, dict):
                yield {name: column.view(at, end) for name, column in self.columns.items()}
            else:
                yield self.columns.view(at, end)


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
    >>> column.view(1, 3)
    array([1., 2.])
    """

    chunks: tuple[NDArray[Any], ...]
    starts: NDArray[np.int64] = field(init=False, repr=False)
    files: "tuple[MappedRows | None, ...]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Leave out empty chunks and find where each of the others starts."""
        chunks = tuple(chunk for chunk in self.chunks if len(chunk)) or self.chunks[:1]
        object.__setattr__(self, "chunks", chunks)
        object.__setattr__(self, "starts", np.cumsum([0, *map(len, chunks)], dtype=np.int64))
        object.__setattr__(self, "files", tuple(map(find_mapping, chunks)))

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.starts[-1])

    def take(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows at these positions, in this order; rows of files are read in the order of the file."""
        if self.files == (None,):
            return _to_native(gather(self.chunks[0], indices))
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
        return _to_native(taken)

    def take_runs(self, first: NDArray[np.int64], length: int) -> NDArray[Any]:
        """Return `length` consecutive rows from each of these positions, `(m, length, ...)`; copy each run at once."""
        if self.files != (None,):
            taken = self.take((first[:, None] + np.arange(length)).ravel())
            return taken.reshape(len(first), length, *taken.shape[1:])
        every = np.lib.stride_tricks.sliding_window_view(self.chunks[0], length, axis=0)
        return _to_native(np.moveaxis(every, -1, 1)[first])

    def view(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start` to `stop` - 1, at least one: a view if they lie in one chunk, else a copy."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        pieces = [
            chunk[max(start - offset, 0) : stop - offset]
            for chunk, offset in zip(self.chunks[first:last], self.starts[first:last].tolist(), strict=True)
        ]
        return _to_native(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))

    def release(self, start: int, stop: int) -> None:
        """Release rows `start` to `stop` - 1 of files, which will not be read again soon."""
        for file, first, last in zip(self.files, self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            if file is not None and first < stop and start < last:
                file.release(max(start - first, 0), min(stop, last) - first)


@dataclass(eq=False)
class MappedRows:
    """Where the rows of an array lie in the file that it is mapped from."""

    mapping: mmap.mmap
    offset: int  # of the first row
    stride: int  # bytes from row to row
    size: int  # bytes of a row
    asking: int = field(default=0, init=False)  # gathers that will still request pages ahead

    def gather(self, array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows at these positions, which ascend, so that each page of the file is read once and forwards."""
        if self.asking:
            self.asking -= 1
            self._request(indices)
            return gather(array, indices)
        before = count_waits()
        found = gather(array, indices)
        if count_waits() > before:
            self.asking = WATCHED
        return found

    def _request(self, indices: NDArray[np.int64]) -> None:
        """Have the system fetch the pages of these rows, all at once."""
        begin = self.offset + indices * self.stride
        first, last = begin // mmap.PAGESIZE, (begin + self.size - 1) // mmap.PAGESIZE
        new = np.concatenate([[True], last[1:] > last[:-1]])  # rows that share a page are requested once
        for page, count in zip(first[new].tolist(), (last - first + 1)[new].tolist(), strict=True):
            self.mapping.madvise(mmap.MADV_WILLNEED, page * mmap.PAGESIZE, count * mmap.PAGESIZE)

    def release(self, start: int, stop: int) -> None:
        """Take rows that have been read out of this process's memory. They come back if they are read again."""
        if not memoryview(self.mapping).readonly:
            return  # a private mapping that was written to would lose what was written
        first = -(-(self.offset + start * self.stride) // mmap.PAGESIZE)
        last = (self.offset + stop * self.stride) // mmap.PAGESIZE
        if last > first:
            self.mapping.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


def scan(columns: Sequence[Chunked], start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where blocks of `size` rows of all columns begin and end, and release the files behind them."""
    held = start
    behind = max(size, HELD_BYTES // sum(column.chunks[0][:1].nbytes for column in columns))
    for at in range(start, stop, size):
        if at - held >= 2 * behind:
            for column in columns:
                column.release(held, at - behind)
            held = at - behind
        yield at, min(at + size, stop)
    for column in columns:
        column.release(held, stop)


def gather(array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
    """Return the rows at these positions, in this order."""
    # np.take is the fastest gather, but it first copies an array that is strided or unaligned: O(N) for every call.
    if array.flags.c_contiguous and array.flags.aligned:
        return np.take(array, indices, axis=0)
    return array[indices]


def find_mapping(array: NDArray[Any]) -> MappedRows | None:
    """Return where the rows of an array lie in the file it is mapped from; None for any other array."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    inner = array[:1].nbytes
    if not isinstance(base, mmap.mmap) or not array.size or array.strides[0] < inner or not hasattr(base, "madvise"):
        return None
    start = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    return MappedRows(base, array.__array_interface__["data"][0] - start, array.strides[0], inner)


def count_waits() -> int:
    """Return how often this thread had to wait for a page of a file; 0 if the system does not say."""
    return 0 if THREAD is None else resource.getrusage(THREAD).ru_majflt


def require_size(size: int) -> None:
    """Raise unless a block has at least one row."""
    if size < 1:
        raise InputError(f"size={size} is no number of rows. Pass size >= 1.")


def require_numeric(name: str | None, dtype: np.dtype[Any]) -> None:
    """Raise unless the dtype is boolean, integer or floating of at most 64 bits: what JAX computes with."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        remedy = _REMEDIES.get(dtype.kind, _ENCODE)
        raise DataError(
            f"{name_column(name)} has dtype {dtype}; bool, int or float of at most 64 bits is expected. {remedy}"
        )


def name_column(name: object) -> str:
    """Return what an error calls the column of this name; data without names have one column, None."""
    return "data" if name is None else f"column {name!r}"


def is_table(data: object) -> bool:
    """Return whether data is a pandas, polars or Arrow table."""
    return (
        is_from("pandas", "DataFrame", data)
        or is_from("polars", "DataFrame LazyFrame", data)
        or is_from("pyarrow", "Table RecordBatch", data)
    )


def is_series(data: object) -> bool:
    """Return whether data is one column of a pandas, polars or Arrow table."""
    return is_from("pandas polars", "Series", data) or is_from("pyarrow", "ChunkedArray Array", data)


def is_from(libraries: str, kinds: str, data: object) -> bool:
    """Return whether data is an object of one of these classes of one of these libraries."""
    # An object of a library can exist only if its library is already imported, so none is imported to ask.
    modules = [sys.modules[library] for library in libraries.split() if sys.modules.get(library) is not None]
    return any(isinstance(data, getattr(module, kind)) for module in modules for kind in kinds.split())


def _read_columns(data: object) -> Chunked | dict[str, Chunked]:
    if isinstance(data, Mapping):
        columns = {_require_name(name, data): _read_column(name, values) for name, values in data.items()}
    elif isinstance(data, np.ndarray) and data.dtype.names:
        columns = {name: _read_column(name, data[name]) for name in data.dtype.names}
    else:
        return _read_column(None, data)
    if not columns:
        raise DataError("data has no columns: an empty dict came. Pass at least one, e.g. {'x': x, 'y': y}.")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
        raise DataError(f"columns have different lengths ({listed}). Pass arrays that share their first axis.")
    return columns


def _require_name(name: object, data: Mapping[Any, object]) -> str:
    if not isinstance(name, str):
        raise DataError(
            f"column name {name!r} is of type {type(name).__name__}; a string is expected. "
            "Pass {str(name): values for name, values in data.items()}."
        )
    if isinstance(data[name], Mapping):
        raise DataError(
            f"column {name!r} is itself a dict; an array is expected. "
            f"Flatten it, e.g. {{'{name}_x': data[{name!r}]['x'], ...}}."
        )
    return name


def _read_column(name: str | None, values: object) -> Chunked:
    chunks = values.chunks if isinstance(values, Chunked) else (_read_array(name, values),)
    dtype, shape = chunks[0].dtype, chunks[0].shape
    require_numeric(name, dtype)
    if not shape:
        raise DataError(
            f"{name_column(name)} is the single number {values!r}; an array with one entry per row is expected. "
            "Pass [value] for a single row."
        )
    if 0 in shape:
        raise DataError(f"{name_column(name)} is empty (shape {shape}). Pass at least one row of at least one number.")
    return Chunked(chunks)


def _read_array(name: str | None, values: object) -> NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        mask = np.ma.getmaskarray(values)
        raise DataError(
            f"{name_column(name)} has {mask.sum()} masked entries, the first in row {np.argwhere(mask)[0, 0]}; none is "
            "expected. Drop those rows, or fill them with values.filled(...)."
        )
    try:
        # A base-class view: indexing a memmap or a matrix through its subclass is slower or two-dimensional.
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name_column(name)} ({type(values).__name__}) cannot be read as an array: {error}. "
            "Pass rows of equal length, as an array of numbers."
        ) from error


def _to_native(array: NDArray[Any]) -> NDArray[Any]:
    # JAX refuses the other byte order; swapping a batch keeps the user's array uncopied.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


@runtime_checkable
class _ArrayLike(Protocol):
    """Arrays of NumPy, JAX and similar libraries."""

    def __array__(self) -> NDArray[Any]: ...


def as_rows(data: object, *, progress: bool | Display = False, executor: Executor | None = None) -> Rows:
    """Return the rows of anything that holds them; an object with the three methods of `Rows` is returned unchanged.

    Parameters
    ----------
    data
        An array (NumPy, memory-mapped, JAX) or a list of numbers, a dict of these, a pandas or polars DataFrame, an
        Arrow table, the path of a ``.npy`` file or of a folder that `convert` wrote, or a `Rows` object. Nothing is
        copied that NumPy can view. Or the path of a Parquet, Arrow or CSV file, a folder of them, a pattern or a URL:
        it is converted once, into ``~/.cache/lwa`` (or ``$LWA_CACHE``), and again if its files change.
    progress
        Whether to show the progress of a conversion, or the display to show it in.
    executor
        Whose workers read Parquet files, so that all of their rows never come to this process. If None, it reads them.

    Examples
    --------
    >>> import numpy as np
    >>> len(as_rows({"x": np.zeros((4, 2)), "y": np.ones(4)}))
    4
    """
    from lwa.rows.store.cache import open_path  # both are made of the rows of this module
    from lwa.rows.tables import view_series, view_table

    if is_table(data):
        return ArrayRows(view_table(data))
    if isinstance(data, type):
        raise DataError(f"data is the class {data.__name__}; an object is expected. Pass {data.__name__}(...).")
    if isinstance(data, Rows):
        return data
    if isinstance(data, str | os.PathLike):
        return open_path(data, progress, executor=executor)
    if is_series(data):
        return ArrayRows(view_series({None: data})[None])
    if isinstance(data, Mapping):
        series = {name: values for name, values in data.items() if is_series(values)}
        return ArrayRows({**data, **view_series(series)} if series else data)
    if isinstance(data, list | tuple | _ArrayLike | Number):
        return ArrayRows(data)
    raise DataError(
        f"data is of type {type(data).__name__}. Pass an array or a list of numbers, a dict of arrays, a pandas or "
        "polars DataFrame, a pyarrow Table, the path of a '.npy' file or of a table (Parquet, Arrow or CSV: a file, a "
        "folder, a pattern or a URL), or an object with the methods __len__, take(indices) and blocks(size) "
        "(lwa.rows.Rows)."
    )
