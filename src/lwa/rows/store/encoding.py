"""Columns of a table as numbers: which number stands for what, and what a conversion sees of each column."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.store.formats import ArrowBatch, ArrowType, is_text, load_arrow

MOST_STORED_LEVELS = 2**20
"""More distinct texts than this name rows, not levels. All of them must also fit in memory."""
SECONDS_PER_DAY = 86_400
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""By Arrow's units of time."""

if TYPE_CHECKING:
    import pyarrow

type ArrowArray = pyarrow.Array
type Level = str | int | float | bool


class ColumnStorage(NamedTuple):
    """How a column is stored.

    A number is stored as it is, a decimal as float64. Text and categories are codes 0, 1, … of their levels in sorted
    order. Dates, times and durations are float64 days: since 1970-01-01 (UTC if there is a zone), since midnight, or
    long.
    """

    kind: str  # "number", "flag", "category" or "days"
    dtype: str  # of NumPy


def find_storage(kind: ArrowType) -> ColumnStorage | None:
    """Return how values of an Arrow type are stored; None if they are no numbers and cannot be coded as any."""
    types = load_arrow().types
    if types.is_boolean(kind):
        return ColumnStorage("flag", "bool")
    if types.is_integer(kind) or types.is_floating(kind):
        return ColumnStorage("number", np.dtype(kind.to_pandas_dtype()).name)
    if types.is_decimal(kind) or types.is_null(kind):
        return ColumnStorage("number", "float64")
    if types.is_temporal(kind) and not types.is_interval(kind):
        return ColumnStorage("days", "float64")
    if types.is_dictionary(kind) and types.is_floating(kind.value_type):
        return find_storage(kind.value_type)
    held = _find_value_type(kind)
    named = is_text(held) or types.is_integer(held) or types.is_boolean(held)
    return ColumnStorage("category", "int32") if named else None


@dataclass
class ColumnFacts:
    """What was seen of a column, in one shard or in all. All but the missing values is over the rows kept."""

    missing: int = 0
    first_missing: int | None = None  # by row of the source
    minimum: float | None = None
    maximum: float | None = None
    levels: list[Level] = field(default_factory=list)  # that were not seen before, in the order of codes

    def join(self, later: "ColumnFacts") -> "ColumnFacts":
        """Return the facts of these rows and of later ones."""
        lows = [low for low in (self.minimum, later.minimum) if low is not None]
        highs = [high for high in (self.maximum, later.maximum) if high is not None]
        return ColumnFacts(
            self.missing + later.missing, later.first_missing if self.first_missing is None else self.first_missing,
            min(lows, default=None), max(highs, default=None), self.levels + later.levels,
        )  # fmt: skip


@dataclass(eq=False)
class Encoder:
    """Turns batches of a table into arrays of numbers, and notes what it sees of each column."""

    types: Mapping[str, ArrowType]
    codes: dict[str, dict[Level, int]]  # of categories, in the order in which levels were first seen
    seen: dict[str, ColumnFacts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with nothing seen."""
        self.stored = {name: stored for name, kind in self.types.items() if (stored := find_storage(kind)) is not None}
        self.take_facts()

    def take_facts(self) -> dict[str, ColumnFacts]:
        """Return what was seen since the last call."""
        facts, self.seen = self.seen, {name: ColumnFacts() for name in self.types}
        return facts

    def drop_incomplete(self, batch: ArrowBatch, start: int) -> tuple[dict[str, ArrowArray], int]:
        """Return the columns without rows in which a value is missing, and how many those are; `start` numbers rows."""
        columns = {name: self._cast(name, batch.column(name)) for name in self.types}
        drop = np.zeros(batch.num_rows, bool)
        for name, values in columns.items():
            if (gone := _find_missing(values)) is None:
                continue
            seen = self.seen[name]
            seen.missing += int(gone.sum())
            if seen.first_missing is None:
                seen.first_missing = start + int(gone.argmax())
            drop |= gone
        dropped = int(drop.sum())
        if dropped:
            keep = load_arrow().array(~drop)
            columns = {name: values.filter(keep) for name, values in columns.items()}
        return columns, dropped

    def encode(self, columns: Mapping[str, ArrowArray]) -> dict[str, NDArray[Any]]:
        """Return arrays of the dtypes that are stored."""
        return {name: self._encode(name, values) for name, values in columns.items()}

    def _cast(self, name: str, values: ArrowArray) -> ArrowArray:
        """Return the values in the Arrow type that numbers are taken from."""
        pyarrow = load_arrow()
        kind, types, stored = values.type, pyarrow.types, self.stored[name]
        if types.is_null(kind):
            held = _find_value_type(self.types[name])
            return values.cast(pyarrow.float64() if stored.kind == "days" or types.is_null(held) else held)
        if stored.kind == "days":
            return _to_days(values)
        if types.is_decimal(kind):
            return values.cast(pyarrow.float64())
        if stored.kind == "number" and types.is_dictionary(kind):
            return values.cast(kind.value_type)
        if stored.kind == "category":
            # A null may hide in the dictionary, where no count of nulls sees it.
            if types.is_dictionary(kind) and values.dictionary.null_count:
                values = values.cast(kind.value_type)
            elif types.is_string_view(kind):
                values = values.cast(pyarrow.string())
        return values

    def _encode(self, name: str, values: ArrowArray) -> NDArray[Any]:
        stored, seen = self.stored[name], self.seen[name]
        if stored.kind == "category":
            return self._encode_levels(name, values)
        array = values.to_numpy(zero_copy_only=False)
        if len(array):
            self.seen[name] = seen.join(ColumnFacts(minimum=array.min().item(), maximum=array.max().item()))
        return array

    def _encode_levels(self, name: str, values: ArrowArray) -> NDArray[np.int32]:
        encoded = values if load_arrow().types.is_dictionary(values.type) else values.dictionary_encode()
        places = encoded.indices.to_numpy(zero_copy_only=False)
        # Dictionaries may hold levels that no row has. They are not levels of the data.
        used = np.flatnonzero(np.bincount(places, minlength=len(encoded.dictionary)))
        codes, seen = self.codes[name], self.seen[name]
        code_at = np.zeros(len(encoded.dictionary), np.int32)
        levels = encoded.dictionary.take(load_arrow().array(used)).to_pylist()
        for place, level in zip(used.tolist(), levels, strict=True):
            if level not in codes:
                codes[level] = len(codes)
                seen.levels.append(level)
            code_at[place] = codes[level]
        require_few_levels(name, len(codes))
        return code_at[places]


def require_few_levels(name: str, levels: int) -> None:
    """Raise if a column has more levels than can be stored."""
    if levels > MOST_STORED_LEVELS:
        raise DataError(
            f"column {name!r} has more than {MOST_STORED_LEVELS} different values: it names rows rather than groups of "
            "them. Leave it out with columns=[...], or number its values first."
        )


def _find_value_type(kind: ArrowType) -> ArrowType:
    return kind.value_type if load_arrow().types.is_dictionary(kind) else kind


def _find_missing(values: ArrowArray) -> NDArray[np.bool_] | None:
    """Return which values are null or NaN; None if none is."""
    if load_arrow().types.is_floating(values.type):
        gone = np.isnan(values.to_numpy(zero_copy_only=False))  # here nulls have become NaN
        return gone if gone.any() else None
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None


def _to_days(values: ArrowArray) -> ArrowArray:
    pyarrow = load_arrow()
    kind, types = values.type, pyarrow.types
    if types.is_date32(kind):
        number, per_day = values.cast(pyarrow.int32()), 1
    elif types.is_date64(kind):
        number, per_day = values.cast(pyarrow.int64()), SECONDS_PER_DAY * TICKS_PER_SECOND["ms"]
    else:
        whole = pyarrow.int32() if types.is_time32(kind) else pyarrow.int64()
        number, per_day = values.cast(whole), SECONDS_PER_DAY * TICKS_PER_SECOND[kind.unit]
    # Not "safe": nanoseconds since 1970 exceed 2**53, and float64 days can hold 0.3 microseconds.
    days = number.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False) / per_day
    return pyarrow.array(days)
