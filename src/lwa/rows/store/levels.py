"""Columns by name, of which some are text or categories: those become codes of their levels."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.memory import as_rows, is_from, is_series, is_table, name_column
from lwa.rows.protocol import Rows
from lwa.rows.store.encoding import Level
from lwa.rows.store.formats import is_numeral, is_text, load_arrow
from lwa.rows.store.store import StoreRows
from lwa.rows.tables import require_collected, require_unique
from lwa.rows.workers.on_workers import RowsOnWorkers

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    type Table = pandas.DataFrame | pyarrow.Table | Mapping[str, object]


class CodedRows(NamedTuple):
    """Rows whose text columns are codes 0, 1, …, and the levels that codes stand for."""

    rows: Rows
    levels: dict[str, tuple[Level, ...]]


class TextColumn(NamedTuple):
    """A column of text: codes, -1 for missing values, and the levels that they stand for."""

    codes: NDArray[np.integer]
    levels: Sequence[Level]
    in_order: bool  # whether the user has ordered the levels; else they are sorted


def list_columns(data: object) -> list[str]:
    """Return the names of the columns; none if the data have no names."""
    if is_table(data):
        require_collected(data)
        table, named_by_schema = cast("pandas.DataFrame", data), type(data).__module__.startswith("pyarrow")
        names = [str(name) for name in (table.schema.names if named_by_schema else table.columns)]
        require_unique(names)
        return names
    if isinstance(data, Mapping):
        return [str(name) for name in data]
    if isinstance(data, np.ndarray):
        return list(data.dtype.names or ())
    if isinstance(data, StoreRows | RowsOnWorkers):
        return list(data.columns)
    if isinstance(data, Rows):
        first = data.take(np.zeros(1, np.int64))
        return list(first) if isinstance(first, dict) else []
    return []


def encode_rows(data: object, names: Iterable[str]) -> CodedRows:
    """Return some columns of data as rows of numbers. Other columns are not read.

    Parameters
    ----------
    data
        A dict of arrays, a pandas, polars or Arrow table, a structured array, a store, or `lwa.Rows`.
    names
        The columns, all of which exist.

    Examples
    --------
    >>> rows, levels = encode_rows({"x": [1.0, 2.0], "color": ["red", "blue"]}, ["x", "color"])
    >>> rows.take(np.array([0, 1]))["color"], levels
    (array([1, 0], dtype=int32), {'color': ('blue', 'red')})
    """
    if not (is_table(data) or isinstance(data, Mapping | np.ndarray)):
        rows = as_rows(data)
        held = rows.columns if isinstance(rows, StoreRows | RowsOnWorkers) else {}
        levels = {name: held[name].levels for name in names if name in held and held[name].kind == "category"}
        return CodedRows(rows, {name: found for name, found in levels.items() if found is not None})
    columns: dict[str, object] = {name: cast("Table", data)[name] for name in names}
    coded: dict[str, tuple[Level, ...]] = {}
    for name, values in columns.items():
        found = read_text(values if is_series(values) else np.asarray(values))
        if found is not None:
            columns[name], coded[name] = order_levels(name, found)
    return CodedRows(as_rows(columns), coded)


def require_one_kind(name: str, levels: Sequence[Level]) -> None:
    """Raise if most of the texts are numbers: one that is not made a column of numbers a column of text."""
    others = [level for level in levels if isinstance(level, str) and not is_numeral(level)]
    if others and len(others) < len(levels) / 2 and all(isinstance(level, str) for level in levels):
        raise DataError(
            f"{name_column(name)} has mixed types: {len(levels) - len(others)} of its {len(levels)} different values "
            f"are numbers, others are text, such as {others[0]!r}. Correct those, or leave them empty (missing); write "
            f"C({name}) in a formula if all of them are levels."
        )


def order_levels(name: str, found: TextColumn) -> tuple[NDArray[np.int32], tuple[Level, ...]]:
    """Return codes of the levels that rows have, and these levels in order."""
    codes = np.asarray(found.codes)
    if (missing := codes < 0).any():
        raise DataError(
            f"missing values: {name_column(name)} has {missing.sum()}, the first in row {int(missing.argmax())}. None "
            "is expected. Drop those rows, or give them a level of their own."
        )
    used = np.flatnonzero(np.bincount(codes, minlength=len(found.levels))).tolist()
    kinds = {type(found.levels[place]) for place in used}
    if len(kinds) > 1 or not kinds <= {str, int, bool, float, np.str_}:
        raise DataError(
            f"{name_column(name)} holds values of type {', '.join(sorted(kind.__name__ for kind in kinds))}; texts are "
            "expected, or numbers. Convert it, e.g. with .astype(str) or .astype(float)."
        )
    if not found.in_order:
        used.sort(key=lambda place: found.levels[place])
    rank = np.zeros(len(found.levels), np.int32)
    rank[used] = np.arange(len(used), dtype=np.int32)
    levels = tuple(str(level) if isinstance(level, str) else level for level in (found.levels[i] for i in used))
    return rank[codes], levels


def read_text(values: object) -> TextColumn | None:
    """Return a column of text or categories as codes; None if it is neither."""
    if isinstance(values, np.ndarray):
        return read_text_array(values) if values.dtype.kind in "UOT" and values.ndim == 1 else None
    if is_from("pandas", "Series", values):
        return read_text_pandas(cast("pandas.Series", values), sys.modules["pandas"])
    if is_from("polars", "Series", values):
        return read_text_polars(cast("polars.Series", values), sys.modules["polars"])
    return read_text_arrow(cast("pyarrow.ChunkedArray", values))


def read_text_array(values: NDArray[np.generic]) -> TextColumn:
    """Return an array of texts as codes."""
    number: dict[Level, int] = {}
    codes = (-1 if is_missing_value(value) else number.setdefault(value, len(number)) for value in values.tolist())
    return TextColumn(np.fromiter(codes, np.int32, len(values)), list(number), False)


def is_missing_value(value: object) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or (isinstance(value, float) and value != value)


def read_text_pandas(values: "pandas.Series", pandas: ModuleType) -> TextColumn | None:
    """Return a pandas Series as codes; categories keep their order."""
    if isinstance(values.dtype, pandas.CategoricalDtype):
        return TextColumn(values.cat.codes.to_numpy(), values.cat.categories.tolist(), True)
    kinds = pandas.api.types
    if not (kinds.is_string_dtype(values.dtype) or kinds.is_object_dtype(values.dtype)):
        return None
    codes, levels = pandas.factorize(values)
    return TextColumn(codes, list(levels), False)


def read_text_polars(values: "polars.Series", polars: ModuleType) -> TextColumn | None:
    """Return a polars Series as codes; an Enum keeps its order."""
    kind = values.dtype
    if isinstance(kind, polars.Enum):
        codes = values.to_physical().cast(polars.Int32).fill_null(-1).to_numpy()
        return TextColumn(codes, kind.categories.to_list(), True)
    if kind not in (polars.String, polars.Categorical):
        return None
    texts = values.cast(polars.String)
    levels = texts.drop_nulls().unique().sort()
    if texts.null_count():
        return TextColumn(texts.is_null().to_numpy() * -1, levels.to_list() or [""], False)
    return TextColumn(levels.search_sorted(texts).to_numpy().astype(np.int32), levels.to_list(), False)


def read_text_arrow(values: "pyarrow.ChunkedArray | pyarrow.Array") -> TextColumn | None:
    """Return an Arrow array, chunked or not, as codes."""
    pyarrow = load_arrow()
    types = pyarrow.types
    if not (is_text(values.type) or types.is_dictionary(values.type)):
        return None
    whole = values if isinstance(values, pyarrow.ChunkedArray) else pyarrow.chunked_array([values])
    if types.is_string_view(whole.type):
        whole = whole.cast(pyarrow.string())
    encoded = (whole if types.is_dictionary(whole.type) else whole.dictionary_encode()).unify_dictionaries()
    codes = [chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    levels = encoded.chunk(0).dictionary.to_pylist() if encoded.num_chunks else []
    return TextColumn(np.concatenate([np.zeros(0, np.int32), *codes]), levels, False)
