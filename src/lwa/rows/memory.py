"""Rows that NumPy can address, arrays in memory or mapped from a file, and `as_rows`, which accepts any data.

A column is left in the chunks in which its owner stores it. Of a mapped file, the pages of rows are requested ahead of
a gather and released behind a scan.
"""

import math
import mmap
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path
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

type ColumnName = str | int | None
"""A name if the data are a dict or a table, a position if they are a matrix, None if they are one column."""


class RangedRows(ABC):
    """Rows that can be read from any position on."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time: views of arrays and mapped files if possible."""

    def blocks(self, size: int) -> Iterator[Batch]:
        """Yield all rows in order, `size` at a time."""
        if size < 1:
            raise InputError(f"size={size} is no number of rows. Pass size >= 1.")
        return self.between(0, len(self), size)


@dataclass(frozen=True, init=False, eq=False)
class ArrayRows(RangedRows):
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
        return len(self.list_columns()[0])

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order."""
        return self._call(Chunked.take, indices)

    def take_runs(self, first: NDArray[np.int64], length: int) -> Batch:
        """Return `length` consecutive rows from each of these positions, leaves `(m, length, *shape)`."""
        return self._call(Chunked.take_runs, first, length)

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time."""
        for at, end in scan(self.list_columns(), start, stop, size):
            yield self._call(Chunked.view, at, end)

    def list_columns(self) -> list["Chunked"]:
        """Return the columns without their names."""
        return list(self.columns.values()) if isinstance(self.columns, dict) else [self.columns]

    def _call(self, method: Callable[..., NDArray[Any]], *arguments: object) -> Batch:
        if isinstance(self.columns, dict):
            return {name: method(column, *arguments) for name, column in self.columns.items()}
        return method(self.columns, *arguments)


@dataclass(frozen=True, eq=False)
class Chunked:
    """A column of N rows held as views of consecutive chunks, so that none is copied or joined.

    Examples
    --------
    >>> column = Chunked((np.array([0.0, 1.0]), np.array([2.0, 3.0])))
    >>> column.take(np.array([3, 0]))
    array([3., 0.])
    >>> column.view(1, 3)
    array([1., 2.])
    """

    chunks: tuple[NDArray[Any], ...]  # at least one, all of one dtype and one shape after the first axis
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
        positions = require_positions(indices, len(self))
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


def require_positions(indices: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return positions from 0 to `count` - 1; negative indices count from the end. Raise for any other."""
    positions = np.where(indices < 0, indices + count, indices)
    if positions.size and not (positions.min() >= 0 and positions.max() < count):
        raise IndexError(f"indices run from {indices.min()} to {indices.max()}, but there are {count} rows.")
    return positions


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


@dataclass(frozen=True, eq=False)
class NpyRows(RangedRows):
    """Rows of a mapped file. Raise if the file shrank: a read past its end would kill the process (SIGBUS)."""

    path: Path
    rows: ArrayRows
    mapping: mmap.mmap
    size: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order."""
        self._require_size()
        return self.rows.take(indices)

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time."""
        self._require_size()
        for batch in self.rows.between(start, stop, size):
            yield batch
            self._require_size()

    def __reduce__(self) -> tuple[Callable[[Path], "NpyRows"], tuple[Path]]:
        """Have another process map the file itself."""
        return open_npy, (self.path.absolute(),)

    def _require_size(self) -> None:
        # This is the size of the file that the mapping holds open: a file moved or deleted since is still whole.
        size = self.mapping.size()
        if size < self.size:
            raise DataError(
                f"'{self.path}' shrank from {self.size} to {size} bytes while it was read. "
                "Write it again with np.save and start again."
            )


def open_npy(path: str | os.PathLike[str]) -> NpyRows:
    """Map a `.npy` file. No row is read before it is needed; those that are contiguous (C order) are the fastest."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise DataError(f"'{path}' is a folder; a '.npy' file is expected. Pass the path of one file.")
    if path.suffix != ".npy":
        raise DataError(
            f"'{path}' ends in {path.suffix!r}; '.npy' is accepted. Read the file yourself and pass the array or "
            "table, or write it once with np.save('rows.npy', array)."
        )
    try:
        size = _find_npy_size(path)
        array = np.lib.format.open_memmap(path, mode="r")
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(
            f"'{path}' does not exist (working folder: '{Path.cwd()}'). Pass the path of a file."
        ) from error
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}. Check its permissions with ls -l.") from error
    except ValueError as error:
        raise DataError(
            f"'{path}' is not a .npy file, whatever its name: {error}. Write it again with np.save(path, array)."
        ) from error
    try:
        rows = ArrayRows(array)
    except DataError as error:
        raise DataError(f"'{path}': {error}") from error
    assert isinstance(array.base, mmap.mmap)
    return NpyRows(path, rows, array.base, size)


def _find_npy_size(path: Path) -> int:
    """Return the number of bytes that the header promises; raise if the file has fewer."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        # Format 3 is format 2 with UTF-8 field names, which do not change the size.
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        size, promised = os.fstat(file.fileno()).st_size, file.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise DataError(
            f"'{path}' holds Python objects (dtype {dtype}); numbers are expected. "
            "Write it again with np.save(path, np.asarray(values, dtype=float))."
        )
    if size < promised:
        raise DataError(
            f"'{path}' is cut short: it has {size} bytes, and its header promises {promised}. Copy or write it again."
        )
    return promised


def select_column(batch: Batch, column: ColumnName, asked: str) -> NDArray[Any]:
    """Return one number per row; raise if there is no such column. Errors call the option and its value `asked`."""
    if isinstance(batch, dict):
        if column is None and len(batch) == 1:
            column = next(iter(batch))
        if column not in batch:
            raise InputError(f"{asked}: no such column. Valid: {', '.join(map(repr, batch))}.")
        values = batch[str(column)]
    elif column is None:
        values = batch[:, 0] if batch.ndim == 2 and batch.shape[1] == 1 else batch
    elif isinstance(column, int) and batch.ndim == 2 and -batch.shape[1] <= column < batch.shape[1]:
        values = batch[:, column]
    else:
        raise InputError(
            f"{asked} does not fit rows of shape {batch.shape[1:]}. Pass the position of the column in a matrix, its "
            "name in a dict or table, or None if the data are one column."
        )
    if values.ndim != 1:
        raise InputError(f"{asked} needs one value per row, but the column has rows of shape {values.shape[1:]}.")
    return values


def load_column(rows: Rows, column: ColumnName, asked: str, order: NDArray[np.int64] | None = None) -> NDArray[Any]:
    """Return all rows of a column as one array: the user's own if it is one chunk, else a copy in a temporary file."""
    held = rows.rows if isinstance(rows, NpyRows) else rows
    if isinstance(held, ArrayRows) and order is None and all(len(one.chunks) == 1 for one in held.list_columns()):
        return select_column(next(held.blocks(len(held))), column, asked)
    first = select_column(rows.take(np.zeros(1, np.int64)), column, asked)
    with tempfile.TemporaryFile(prefix="lwa-column-") as file:  # it has no name and lasts as long as its mapping
        copy: NDArray[Any] = np.memmap(file, first.dtype, "w+", shape=(len(rows),))
    start, size, every = 0, 2**18, range(0, len(rows), 2**18)
    for batch in rows.blocks(size) if order is None else (rows.take(order[at : at + size]) for at in every):
        values = select_column(batch, column, asked)
        copy[start : start + len(values)] = values
        start += len(values)
    return copy


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
