"""Columns of pandas, polars and Arrow tables, viewed in place."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.chunked import Chunked
from lwa.rows.protocol import label


@dataclass(frozen=True, eq=False)
class _Series:
    """What the three libraries can all tell about a column."""

    dtype: str
    numeric: bool
    null_count: int
    first_null: Callable[[], int]
    chunks: Callable[[], Iterable[NDArray[Any]]]


def is_table(data: object) -> bool:
    """Whether data is a pandas, polars or Arrow table."""
    return (
        _comes_from("pandas", "DataFrame", data)
        or _comes_from("polars", "DataFrame LazyFrame", data)
        or (_comes_from("pyarrow", "Table RecordBatch", data))
    )


def is_series(data: object) -> bool:
    """Whether data is one column of a pandas, polars or Arrow table."""
    return _comes_from("pandas polars", "Series", data) or _comes_from("pyarrow", "ChunkedArray Array", data)


def pandas_index(data: Any) -> NDArray[Any] | None:
    """The index of a pandas object as numbers, where it is one of times or numbers and not just a count of rows."""
    if not (_comes_from("pandas", "DataFrame Series", data)):
        return None
    pandas = sys.modules["pandas"]
    if isinstance(data.index, pandas.RangeIndex) and data.index.step > 0:
        return None
    dated = isinstance(data.index, pandas.DatetimeIndex | pandas.TimedeltaIndex | pandas.PeriodIndex)
    if not (dated or pandas.api.types.is_numeric_dtype(data.index.dtype)):
        return None
    return np.asarray(data.index.asi8) if dated else data.index.to_numpy()


def table_columns(table: Any) -> dict[str, Chunked]:
    """The columns of a table by name, without a copy of any but bit-packed booleans.

    Parameters
    ----------
    table
        A pandas or polars DataFrame, or an Arrow Table or RecordBatch.
    """
    if _comes_from("polars", "LazyFrame", table):
        raise DataError("data is a polars LazyFrame, which holds no rows yet. Pass data.collect().")
    if _comes_from("pandas", "DataFrame", table):
        names, columns = list(table.columns), [series for _, series in table.items()]
    elif _comes_from("polars", "DataFrame", table):
        names, columns = table.columns, table.get_columns()
    else:
        names, columns = table.schema.names, table.columns
    unnamed = [name for name in names if not isinstance(name, str)]
    if unnamed:
        raise DataError(
            f"column names {unnamed} are not strings; strings are expected. Rename them, e.g. "
            "data.columns = [f'x{name}' for name in data.columns]."
        )
    require_unique(names)
    return series_columns(dict(zip(names, columns, strict=True)))


def require_unique(names: Sequence[str]) -> None:
    """Refuse two columns of one name."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"column names {repeated} occur more than once. Rename the columns so that each is unique.")


def series_columns[Name: str | None](columns: Mapping[Name, object]) -> dict[Name, Chunked]:
    """The same columns as NumPy views; one error names all that are not numbers, one all that have nulls."""
    described = {name: _describe(series) for name, series in columns.items()}
    foreign = [f"{label(name)} ({series.dtype})" for name, series in described.items() if not series.numeric]
    if foreign:
        raise DataError(
            f"not numeric: {', '.join(foreign)}. Numeric or boolean columns are expected. Encode each as numbers "
            "(e.g. .cat.codes in pandas, .to_physical() in polars), or drop it."
        )
    nulls = [
        f"{label(name)} has {series.null_count}, the first in row {series.first_null()}"
        for name, series in described.items()
        if series.null_count
    ]
    if nulls:
        raise DataError(f"missing values: {'; '.join(nulls)}. None is expected. Drop those rows or fill the values.")
    return {name: Chunked(tuple(series.chunks())) for name, series in described.items()}


def _comes_from(libraries: str, kinds: str, data: object) -> bool:
    # An object of a library can exist only if its library is already imported, so none is imported to ask.
    modules = [sys.modules[library] for library in libraries.split() if sys.modules.get(library) is not None]
    return any(isinstance(data, getattr(module, kind)) for module in modules for kind in kinds.split())


def _describe(series: Any) -> _Series:
    if _comes_from("pandas", "Series", series):
        return _from_pandas(series, sys.modules["pandas"])
    if _comes_from("polars", "Series", series):
        return _from_polars(series, sys.modules["polars"])
    return _from_arrow(series)


def _from_pandas(series: Any, pandas: ModuleType) -> _Series:
    if isinstance(series.dtype, pandas.ArrowDtype):
        return _from_arrow(series.array.__arrow_array__())
    numeric = pandas.api.types.is_numeric_dtype(series.dtype) or pandas.api.types.is_bool_dtype(series.dtype)
    # Only nullable dtypes have nulls apart from NaN, which the survey counts without a mask of N bytes.
    nulls = int(series.isna().sum()) if numeric and pandas.api.types.is_extension_array_dtype(series.dtype) else 0
    return _Series(
        str(series.dtype), numeric, nulls, lambda: int(series.isna().to_numpy().argmax()), lambda: [series.to_numpy()]
    )


def _from_polars(series: Any, polars: ModuleType) -> _Series:
    viewable = "128" not in str(series.dtype)  # NumPy has no integers of 128 bits
    return _Series(
        dtype=str(series.dtype),
        numeric=(series.dtype.is_integer() and viewable) or series.dtype.is_float() or series.dtype == polars.Boolean,
        null_count=series.null_count(),
        first_null=lambda: int(series.is_null().arg_max()),
        chunks=lambda: [chunk.to_numpy() for chunk in series.get_chunks()],
    )


def _from_arrow(series: Any) -> _Series:
    import pyarrow
    import pyarrow.compute

    kind, types = series.type, pyarrow.types
    chunked = series if isinstance(series, pyarrow.ChunkedArray) else pyarrow.chunked_array([series])
    chunks = chunked.chunks or [pyarrow.array([], kind)]
    return _Series(
        dtype=str(kind),
        numeric=types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind),
        null_count=chunked.null_count,
        first_null=lambda: int(pyarrow.compute.index(chunked.is_null(), True).as_py()),
        # Arrow packs eight booleans into a byte and NumPy cannot view bits: only they are copied.
        chunks=lambda: [chunk.to_numpy(zero_copy_only=not types.is_boolean(kind)) for chunk in chunks],
    )
