"""Columns of pandas, polars and Arrow tables, viewed in place."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.memory import Chunked, is_from, name_column

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    type ArrowColumn = pyarrow.ChunkedArray | pyarrow.Array


@dataclass(frozen=True, eq=False)
class SeriesView:
    """What the three libraries can all say about a column."""

    dtype: str
    numeric: bool
    null_count: int
    first_null: Callable[[], int]
    chunks: Callable[[], Iterable[NDArray[Any]]]


def read_index(data: object) -> NDArray[Any] | None:
    """Return the index of a pandas object as numbers, if it holds times or numbers and does not just count rows."""
    if not is_from("pandas", "DataFrame Series", data):
        return None
    pandas, index = sys.modules["pandas"], cast("pandas.DataFrame", data).index
    if isinstance(index, pandas.RangeIndex) and index.step > 0:
        return None
    dated = isinstance(index, pandas.DatetimeIndex | pandas.TimedeltaIndex | pandas.PeriodIndex)
    if not (dated or pandas.api.types.is_numeric_dtype(index.dtype)):
        return None
    return np.asarray(index.asi8) if dated else index.to_numpy()


def view_table(table: object) -> dict[str, Chunked]:
    """Return the columns of a pandas, polars or Arrow table by name; only bit-packed booleans are copied."""
    require_collected(table)
    names: list[object]
    columns: list[object]
    if is_from("pandas", "DataFrame", table):
        frame = cast("pandas.DataFrame", table)
        names, columns = list(frame.columns), [series for _, series in frame.items()]
    elif is_from("polars", "DataFrame", table):
        names, columns = [*cast("polars.DataFrame", table).columns], [*cast("polars.DataFrame", table).get_columns()]
    else:
        arrow_table = cast("pyarrow.Table", table)
        names, columns = arrow_table.schema.names, arrow_table.columns
    unnamed = [name for name in names if not isinstance(name, str)]
    if unnamed:
        raise DataError(
            f"column names {unnamed} are not strings; strings are expected. Rename them, e.g. "
            "data.columns = [f'x{name}' for name in data.columns]."
        )
    named = [str(name) for name in names]
    require_unique(named)
    return view_series(dict(zip(named, columns, strict=True)))


def require_collected(table: object) -> None:
    """Raise if a table holds no rows yet."""
    if is_from("polars", "LazyFrame", table):
        raise DataError("data is a polars LazyFrame, which holds no rows yet. Pass data.collect().")


def require_unique(names: Sequence[str]) -> None:
    """Raise if two columns have the same name."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"column names {repeated} occur more than once. Rename the columns so that each is unique.")


def view_series[Name](columns: Mapping[Name, object]) -> dict[Name, Chunked]:
    """Return series as NumPy views; raise one error for all that are not numeric, or one for all that have nulls."""
    views = {name: _describe_series(series) for name, series in columns.items()}
    foreign = [f"{name_column(name)} ({series.dtype})" for name, series in views.items() if not series.numeric]
    if foreign:
        raise DataError(
            f"not numeric: {', '.join(foreign)}. Numeric or boolean columns are expected. Encode each as numbers "
            "(e.g. .cat.codes in pandas, .to_physical() in polars), or drop it."
        )
    nulls = [
        f"{name_column(name)} has {series.null_count}, the first in row {series.first_null()}"
        for name, series in views.items() if series.null_count
    ]  # fmt: skip
    if nulls:
        raise DataError(f"missing values: {'; '.join(nulls)}. None is expected. Drop those rows or fill the values.")
    return {name: Chunked(tuple(series.chunks())) for name, series in views.items()}


def _describe_series(series: object) -> SeriesView:
    if is_from("pandas", "Series", series):
        return _describe_pandas(cast("pandas.Series", series), sys.modules["pandas"])
    if is_from("polars", "Series", series):
        return _describe_polars(cast("polars.Series", series), sys.modules["polars"])
    return _describe_arrow(cast("ArrowColumn", series))


def _describe_pandas(series: "pandas.Series", pandas: ModuleType) -> SeriesView:
    if isinstance(series.dtype, pandas.ArrowDtype):
        return _describe_arrow(series.array.__arrow_array__())
    numeric = pandas.api.types.is_numeric_dtype(series.dtype) or pandas.api.types.is_bool_dtype(series.dtype)
    # Only nullable dtypes have nulls apart from NaN, which the survey counts without a mask of N bytes.
    nulls = int(series.isna().sum()) if numeric and pandas.api.types.is_extension_array_dtype(series.dtype) else 0
    return SeriesView(
        str(series.dtype), numeric, nulls, lambda: int(series.isna().to_numpy().argmax()), lambda: [series.to_numpy()]
    )


def _describe_polars(series: "polars.Series", polars: ModuleType) -> SeriesView:
    viewable = "128" not in str(series.dtype)  # NumPy has no integers of 128 bits
    return SeriesView(
        dtype=str(series.dtype),
        numeric=(series.dtype.is_integer() and viewable) or series.dtype.is_float() or series.dtype == polars.Boolean,
        null_count=series.null_count(),
        first_null=lambda: int(series.is_null().arg_max() or 0),
        chunks=lambda: [chunk.to_numpy() for chunk in series.get_chunks()],
    )


def _describe_arrow(series: "ArrowColumn") -> SeriesView:
    import pyarrow
    import pyarrow.compute

    kind, types = series.type, pyarrow.types
    chunked = series if isinstance(series, pyarrow.ChunkedArray) else pyarrow.chunked_array([series])
    chunks = chunked.chunks or [pyarrow.array([], kind)]
    return SeriesView(
        dtype=str(kind),
        numeric=types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind),
        null_count=chunked.null_count,
        first_null=lambda: int(pyarrow.compute.index(chunked.is_null(), True).as_py()),
        # Arrow packs eight booleans into a byte and NumPy cannot view bits: only they are copied.
        chunks=lambda: [chunk.to_numpy(zero_copy_only=not types.is_boolean(kind)) for chunk in chunks],
    )
