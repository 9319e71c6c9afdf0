"""Rows that NumPy can address: arrays in memory or mapped from a file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError, InputError
from lwa.rows.chunked import Chunked, scan
from lwa.rows.protocol import Batch, label
from lwa.rows.tables import is_series, series_columns

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
        A NumPy, memory-mapped or JAX array, a list of numbers, or a dict of these. The fields of a structured array
        become named columns.

    Examples
    --------
    >>> rows = ArrayRows({"x": np.arange(6.0).reshape(3, 2), "y": [0, 1, 1]})
    >>> len(rows)
    3
    >>> rows.take(np.array([2, 0]))["y"]
    array([1, 0])
    """

    columns: Chunked | dict[str, Chunked]

    def __init__(self, data: object) -> None:
        object.__setattr__(self, "columns", _columns(data))

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())) if isinstance(self.columns, dict) else self.columns)

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Rows at these positions, in this order."""
        if isinstance(self.columns, dict):
            return {name: column.take(indices) for name, column in self.columns.items()}
        return self.columns.take(indices)

    def runs(self, first: NDArray[np.int64], length: int) -> Batch:
        """`length` rows in a row from each of these positions, leaves `(m, length, *shape)`."""
        if isinstance(self.columns, dict):
            return {name: column.runs(first, length) for name, column in self.columns.items()}
        return self.columns.runs(first, length)

    def blocks(self, size: int) -> Iterator[Batch]:
        """All rows in order, `size` at a time: views of the user's arrays."""
        require_size(size)
        return self.between(0, len(self), size)

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """The same from `start` to `stop` - 1."""
        columns = list(self.columns.values()) if isinstance(self.columns, dict) else [self.columns]
        for at, end in scan(columns, start, stop, size):
            if isinstance(self.columns, dict):
                yield {name: column.span(at, end) for name, column in self.columns.items()}
            else:
                yield self.columns.span(at, end)


def require_size(size: int) -> None:
    """Refuse a block without rows."""
    if size < 1:
        raise InputError(f"size={size} is no number of rows. Pass size >= 1.")


def check_numeric(name: str | None, dtype: np.dtype[Any]) -> None:
    """Raise unless the dtype is boolean, integer or floating of at most 64 bits: what JAX computes with."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        remedy = _REMEDIES.get(dtype.kind, _ENCODE)
        raise DataError(f"{label(name)} has dtype {dtype}; bool, int or float of at most 64 bits is expected. {remedy}")


def _columns(data: object) -> Chunked | dict[str, Chunked]:
    if isinstance(data, Mapping):
        columns = {_column_name(name, data): _column(name, values) for name, values in data.items()}
    elif isinstance(data, np.ndarray) and data.dtype.names:
        columns = {name: _column(name, data[name]) for name in data.dtype.names}
    else:
        return _column(None, data)
    if not columns:
        raise DataError("data has no columns: an empty dict came. Pass at least one, e.g. {'x': x, 'y': y}.")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
        raise DataError(f"columns have different lengths ({listed}). Pass arrays that share their first axis.")
    return columns


def _column_name(name: object, data: Mapping[Any, object]) -> str:
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


def _column(name: str | None, values: object) -> Chunked:
    if isinstance(values, Chunked):
        chunks = values.chunks
    elif is_series(values):
        chunks = series_columns({name: values})[name].chunks
    else:
        chunks = (_array(name, values),)
    dtype, shape = chunks[0].dtype, chunks[0].shape
    check_numeric(name, dtype)
    if not shape:
        raise DataError(
            f"{label(name)} is the single number {values!r}; an array with one entry per row is expected. "
            "Pass [value] for a single row."
        )
    if 0 in shape:
        raise DataError(f"{label(name)} is empty (shape {shape}). Pass at least one row of at least one number.")
    return Chunked(chunks)


def _array(name: str | None, values: object) -> NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        mask = np.ma.getmaskarray(values)
        raise DataError(
            f"{label(name)} has {mask.sum()} masked entries, the first in row {np.argwhere(mask)[0, 0]}; none is "
            "expected. Drop those rows, or fill them with values.filled(...)."
        )
    try:
        # A base-class view: indexing a memmap or a matrix through its subclass is slower or two-dimensional.
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{label(name)} ({type(values).__name__}) cannot be read as an array: {error}. "
            "Pass rows of equal length, as an array of numbers."
        ) from error
