"""Columns of a table as numbers: which number stands for what, and what was seen on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.store.formats import arrow, is_text

MOST_LEVELS = 2**20
"""More distinct texts than this are names of rows, not levels; they would also have to stay in memory."""
SECONDS_A_DAY = 86_400
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Of each unit of time in a second."""

type Level = str | int | float | bool


class Stored(NamedTuple):
    """How a column is kept.

    A number is kept as it is, a decimal as float64. Text and categories are codes 0, 1, … of their levels in sorted
    order. Dates, times and durations are float64 days: since 1970-01-01 (UTC where there is a zone), since midnight,
    or long.
    """

    kind: str  # "number", "flag", "category" or "days"
    dtype: str  # of NumPy


def stored_as(kind: Any) -> Stored | None:
    """How values of an Arrow type are kept; None where they are no numbers and cannot stand for any."""
    types = arrow().types
    if types.is_boolean(kind):
        return Stored("flag", "bool")
    if types.is_integer(kind) or types.is_floating(kind):
        return Stored("number", np.dtype(kind.to_pandas_dtype()).name)
    if types.is_decimal(kind) or types.is_null(kind):
        return Stored("number", "float64")
    if types.is_temporal(kind) and not types.is_interval(kind):
        return Stored("days", "float64")
    if types.is_dictionary(kind) and types.is_floating(kind.value_type):
        return stored_as(kind.value_type)
    held = _value_type(kind)
    named = is_text(held) or types.is_integer(held) or types.is_boolean(held)
    return Stored("category", "int32") if named else None


@dataclass
class Seen:
    """What was seen of a column, in one shard or in all: over the rows kept, but for the missing values."""

    missing: int = 0
    first_missing: int | None = None  # by row of the source
    minimum: Any = None
    maximum: Any = None
    levels: list[Level] = field(default_factory=list)  # that were not seen before, in the order of codes

    def followed_by(self, other: "Seen") -> "Seen":
        """Both together, `other` being of later rows."""
        lows = [low for low in (self.minimum, other.minimum) if low is not None]
        highs = [high for high in (self.maximum, other.maximum) if high is not None]
        return Seen(
            self.missing + other.missing,
            other.first_missing if self.first_missing is None else self.first_missing,
            min(lows, default=None),
            max(highs, default=None),
            self.levels + other.levels,
        )


@dataclass(eq=False)
class Encoder:
    """Turns batches of a table into arrays of numbers, and keeps what it saw since it was last asked."""

    types: Mapping[str, Any]  # Arrow types by name
    codes: dict[str, dict[Level, int]]  # of categories, in the order in which levels were first seen
    seen: dict[str, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with nothing seen."""
        self.stored = {name: stored for name, kind in self.types.items() if (stored := stored_as(kind)) is not None}
        self.told()

    def told(self) -> dict[str, Seen]:
        """What was seen since this was last called."""
        told, self.seen = self.seen, {name: Seen() for name in self.types}
        return told

    def complete(self, batch: Any, start: int) -> tuple[dict[str, Any], int]:
        """The columns without the rows in which a value is missing, and how many those are; `start` numbers rows."""
        columns = {name: self._column(name, batch.column(name)) for name in self.types}
        drop = np.zeros(batch.num_rows, bool)
        for name, values in columns.items():
            gone = _missing(values)
            if gone is None:
                continue
            seen = self.seen[name]
            seen.missing += int(gone.sum())
            if seen.first_missing is None:
                seen.first_missing = start + int(gone.argmax())
            drop |= gone
        dropped = int(drop.sum())
        if dropped:
            keep = arrow().array(~drop)
            columns = {name: values.filter(keep) for name, values in columns.items()}
        return columns, dropped

    def numbers(self, columns: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Arrays of the dtypes that are kept."""
        return {name: self._numbers(name, values) for name, values in columns.items()}

    def _column(self, name: str, values: Any) -> Any:
        """The values as the Arrow type that numbers are taken from."""
        pyarrow = arrow()
        kind, types, stored = values.type, pyarrow.types, self.stored[name]
        if types.is_null(kind):
            held = _value_type(self.types[name])
            return values.cast(pyarrow.float64() if stored.kind == "days" or types.is_null(held) else held)
        if stored.kind == "days":
            return _days(values)
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

    def _numbers(self, name: str, values: Any) -> NDArray[Any]:
        stored, seen = self.stored[name], self.seen[name]
        if stored.kind == "category":
            return self._codes(name, values)
        array = values.to_numpy(zero_copy_only=False)
        if len(array):
            lows = [array.min().item()] + ([] if seen.minimum is None else [seen.minimum])
            highs = [array.max().item()] + ([] if seen.maximum is None else [seen.maximum])
            seen.minimum, seen.maximum = min(lows), max(highs)
        return array

    def _codes(self, name: str, values: Any) -> NDArray[np.int32]:
        encoded = values if arrow().types.is_dictionary(values.type) else values.dictionary_encode()
        places = encoded.indices.to_numpy(zero_copy_only=False)
        # Dictionaries may hold levels that no row has: those are no levels of the data.
        used = np.flatnonzero(np.bincount(places, minlength=len(encoded.dictionary)))
        codes, seen = self.codes[name], self.seen[name]
        code_at = np.zeros(len(encoded.dictionary), np.int32)
        for place, level in zip(used.tolist(), encoded.dictionary.take(arrow().array(used)).to_pylist(), strict=True):
            if level not in codes:
                codes[level] = len(codes)
                seen.levels.append(level)
            code_at[place] = codes[level]
        require_few(name, len(codes))
        return code_at[places]


def require_few(name: str, levels: int) -> None:
    """Refuse more levels than there can be."""
    if levels > MOST_LEVELS:
        raise DataError(
            f"column {name!r} has more than {MOST_LEVELS} different values: it names rows rather than groups of them. "
            "Leave it out with columns=[...], or number its values first."
        )


def _value_type(kind: Any) -> Any:
    return kind.value_type if arrow().types.is_dictionary(kind) else kind


def _missing(values: Any) -> NDArray[np.bool_] | None:
    """Which values are null or NaN; None where none is."""
    if arrow().types.is_floating(values.type):
        gone = np.isnan(values.to_numpy(zero_copy_only=False))  # here nulls have become NaN
        return gone if gone.any() else None
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None


def _days(values: Any) -> Any:
    pyarrow = arrow()
    kind, types = values.type, pyarrow.types
    if types.is_date32(kind):
        number, a_day = values.cast(pyarrow.int32()), 1
    elif types.is_date64(kind):
        number, a_day = values.cast(pyarrow.int64()), SECONDS_A_DAY * TICKS["ms"]
    else:
        whole = pyarrow.int32() if types.is_time32(kind) else pyarrow.int64()
        number, a_day = values.cast(whole), SECONDS_A_DAY * TICKS[kind.unit]
    # Not "safe": nanoseconds since 1970 exceed 2**53, and rounding them to 0.3 microseconds is what days can hold.
    days = number.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False) / a_day
    return pyarrow.array(days)
