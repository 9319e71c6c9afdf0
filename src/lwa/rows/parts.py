"""Rows that belong together: the rows of a group, the steps of a series."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.memory import ArrayRows, Chunked, name_column, select_column
from lwa.rows.protocol import Batch, Rows
from lwa.rows.tables import read_index

LABEL_BLOCK_ROWS = 2**20
"""How many labels are compared at a time."""


@dataclass(frozen=True, eq=False)
class Parts:
    """A partition of all rows: part g is rows `order[offsets[g]] … order[offsets[g + 1] - 1]`, in this order."""

    offsets: NDArray[np.int64]
    order: NDArray[np.int64] | None = None  # None for the order of the rows; else on disk, not in memory

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.offsets) - 1

    @property
    def rows(self) -> int:
        """N, the rows of all parts."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each part."""
        return np.diff(self.offsets)

    def take(self, rows: Rows, positions: NDArray[np.int64]) -> Batch:
        """Return the rows at positions counted part after part."""
        return rows.take(positions if self.order is None else self.order[positions])

    def take_runs(self, rows: Rows, first: NDArray[np.int64], length: int) -> Batch:
        """Return `length` consecutive rows from each of these positions, leaves `(m, length, *shape)`."""
        if self.order is None and isinstance(rows, ArrayRows):
            return rows.take_runs(first, length)
        return split_runs(self.take(rows, (first[:, None] + np.arange(length)).ravel()), length)

    def blocks(self, rows: Rows, size: int) -> Iterator[Batch]:
        """Yield all rows, part after part, `size` at a time."""
        if self.order is None:
            yield from rows.blocks(size)
            return
        for start in range(0, self.rows, size):
            yield rows.take(self.order[start : start + size])


def split_runs(batch: Batch, length: int) -> Batch:
    """Return rows of consecutive runs as leaves `(m, length, *shape)`."""
    if isinstance(batch, dict):
        return {name: leaf.reshape(-1, length, *leaf.shape[1:]) for name, leaf in batch.items()}
    return batch.reshape(-1, length, *batch.shape[1:])


def as_one_part(rows: Rows) -> Parts:
    """Return all rows as one series."""
    return Parts(np.array([0, len(rows)]))


def find_parts(rows: Rows, column: str | int) -> Parts:
    """Return one part per value of a column, in the order in which values first appear.

    This takes one pass if the rows of every part are together. Else a second pass sorts row numbers by counting, into a
    temporary file: memory holds one number per part, never one per row.
    """
    first_of: dict[float, int] = {}
    counts: list[int] = []
    together, last = True, None
    for values in read_labels(rows, column):
        runs = np.count_nonzero(values[1:] != values[:-1]) + 1
        names, first, found = np.unique(values, return_index=True, return_counts=True)
        together &= runs == len(names)
        for i in np.argsort(first).tolist():
            name = names[i].item()
            number = first_of.setdefault(name, len(first_of))
            if number == len(counts):
                counts.append(0)
            else:
                together &= name == last and first[i] == 0
            counts[number] += int(found[i])
        last = values[-1].item()
    require_no_missing_code(first_of, column)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Parts(offsets, None if together else sort_by_counting(rows, column, first_of, offsets))


def read_labels(rows: Rows, column: str | int) -> Iterator[NDArray[Any]]:
    """Yield the column, block by block; raise if a value is missing."""
    start = 0
    for batch in rows.blocks(LABEL_BLOCK_ROWS):
        values = select_column(batch, column, f"groups={column!r}")
        if values.dtype.kind == "f" and (missing := np.isnan(values)).any():
            raise DataError(
                f"{name_column(column)} defines groups and has {missing.sum()} missing values (NaN) among rows {start} "
                f"to {start + len(values) - 1}, the first in row {start + int(missing.argmax())}. Drop those rows, or "
                "give them a group of their own."
            )
        yield values
        start += len(values)


def require_no_missing_code(names: dict[float, int], column: str | int) -> None:
    """Raise for pandas' code of a missing category: it would make one group of all rows whose group is unknown."""
    if -1 in names and set(names) == set(range(-1, len(names) - 1)):
        raise DataError(
            f"{name_column(column)} has groups -1, 0, 1, …: in codes of categories -1 stands for a missing value. Drop "
            "those rows, or number groups from 0 if -1 is meant as one."
        )


def sort_by_counting(
    rows: Rows, column: str | int, numbers: dict[float, int], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return row numbers part after part, in a temporary file."""
    with tempfile.TemporaryFile(prefix="lwa-order-") as file:  # it has no name and lasts as long as its mapping
        order: NDArray[Any] = np.memmap(file, np.int64, "w+", shape=(int(offsets[-1]),))
    names = np.array(list(numbers))
    by_name = np.argsort(names)
    filled, start = offsets[:-1].copy(), 0
    for values in read_labels(rows, column):
        part = by_name[np.searchsorted(names[by_name], values)]
        sorted_rows = np.argsort(part, kind="stable")
        owners, first, counts = np.unique(part[sorted_rows], return_index=True, return_counts=True)
        rank = np.arange(len(values)) - np.repeat(first, counts)
        order[np.repeat(filled[owners], counts) + rank] = start + sorted_rows
        filled[owners] += counts
        start += len(values)
    return order


def require_ascending(rows: Rows, parts: Parts, column: str | int) -> None:
    """Raise unless the times in a column ascend from step to step within each series."""
    start, before = 0, None
    for batch in parts.blocks(rows, LABEL_BLOCK_ROWS):
        values = select_column(batch, column, f"ordered={column!r}")
        if before is not None:
            values = np.concatenate([[before], values])
        require_values_ascending(values, parts, start - (before is not None), name_column(column))
        start, before = start + len(values) - (before is not None), values[-1]


def require_index_ascending(data: object, parts: Parts) -> None:
    """Raise unless the index of a pandas object, if it does more than number rows, ascends within each series."""
    if (index := read_index(data)) is not None:
        values = index if parts.order is None else index[parts.order]
        require_values_ascending(values, parts, 0, "the index of the data")


def require_values_ascending(values: NDArray[Any], parts: Parts, start: int, what: str) -> None:
    """Raise unless values, those of the rows from `start` on, ascend within each part."""
    bad = np.flatnonzero(~(values[1:] > values[:-1])) + 1
    bad = bad[~np.isin(start + bad, parts.offsets)]
    if len(bad):
        at = int(bad[0])
        row = start + at if parts.order is None else int(parts.order[start + at])
        twice = values[at] == values[at - 1]
        kind = "the same time twice" if twice else "a step back in time"
        raise DataError(
            f"{what} has {kind}: {values[at]} after {values[at - 1]}, at row {row}. Steps of a series come in strictly "
            f"ascending order: {'drop or average duplicates' if twice else 'sort the data by time'} first, and pass "
            "groups=... if the rows hold several series."
        )


def join_series(series: Sequence[ArrayRows]) -> tuple[ArrayRows, Parts]:
    """Return several series as rows, one after the other, without a copy, and their parts."""
    first = series[0].columns
    for i, one in enumerate(series):
        if describe_columns(one) != describe_columns(series[0]):
            raise DataError(
                f"Series {i} has columns {describe_columns(one)}, the first has {describe_columns(series[0])}. "
                "Pass series with the same columns, dtypes and shapes."
            )
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in series])]).astype(np.int64)

    def chunks(name: str | None) -> Chunked:
        columns = [one.columns[name] if isinstance(one.columns, dict) and name else one.columns for one in series]
        return Chunked(tuple(chunk for column in columns if isinstance(column, Chunked) for chunk in column.chunks))

    whole = {name: chunks(name) for name in first} if isinstance(first, dict) else chunks(None)
    return ArrayRows(whole), Parts(offsets)


def describe_columns(rows: ArrayRows) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return names, types and shapes of columns."""
    columns = rows.columns if isinstance(rows.columns, dict) else {"": rows.columns}
    return {name: (str(column.chunks[0].dtype), column.chunks[0].shape[1:]) for name, column in columns.items()}
