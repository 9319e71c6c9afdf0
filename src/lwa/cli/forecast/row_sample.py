"""A sample of the rows, and the number of all rows, without a pass over them."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.rows import Rows
from lwa.rows.memory import ArrayRows
from lwa.rows.passes import name_arrays
from lwa.rows.store.cache import find_ready_rows
from lwa.rows.store.conversion import write_store
from lwa.rows.store.formats import TooNarrow
from lwa.rows.store.places import find_compression, make_absolute, open_bytes
from lwa.rows.store.store import StoreRows
from lwa.rows.store.table_source import FilesSource, RowSource, open_source

MOST_SAMPLED_ROWS = 100_000
"""Rows of the sample; all rows if there are fewer."""
SAMPLED_PLACES = 4
"""Places of a table from which the sample is read, if the number of its rows is known."""
COUNTED_BYTES = 2**20
"""Bytes of a CSV file in which lines are counted."""


@dataclass(frozen=True, eq=False)
class RowSample:
    """A sample of the rows, and what is known about all rows."""

    rows: Rows
    length: int  # N
    counted: bool  # whether N is known rather than estimated
    row_bytes: int  # bytes of a row as a pass reads it
    files: tuple[Path, ...] = ()  # that passes read; none before the conversion
    source_bytes: int = 0  # that a conversion would read; 0 if none is needed
    converted_in: float = 0.0  # seconds per row to convert the sample
    everything: Rows | None = None  # all rows, if they can be read at random


@contextmanager
def open_sample(data: str, columns: Iterable[str] | None, missing: str) -> Iterator[RowSample]:
    """Sample what `lwa fit` accepts: a `.npy` file, a store, or a table, converted or not."""
    ready = find_ready_rows(data, columns=columns, missing=missing)
    with tempfile.TemporaryDirectory(prefix="lwa-plan-") as folder:
        if ready is not None:
            yield sample_rows(ready, Path(folder))
        else:
            yield sample_table(open_source(make_absolute(data), columns), Path(folder), missing)


def sample_rows(rows: Rows, folder: Path) -> RowSample:
    """Sample rows that can be read at random."""
    N, rng = len(rows), np.random.default_rng(0)
    chosen = np.arange(N) if N <= MOST_SAMPLED_ROWS else np.sort(rng.choice(N, MOST_SAMPLED_ROWS, replace=False))
    batch = rows.take(chosen)
    if isinstance(rows, StoreRows) and isinstance(batch, dict):
        files = tuple(shard.path for shard in rows.shards)
        size = sum(group.chunks[0][:1].nbytes for group in rows.groups.values())
        sample = write_store([decode_levels(rows, batch)], folder)
        return RowSample(sample, N, counted=True, row_bytes=size, files=files, everything=rows)
    size = sum(array[:1].nbytes for array in name_arrays(batch).values())
    path = getattr(rows, "path", None)
    files = () if path is None else (path,)
    return RowSample(ArrayRows(batch), N, counted=True, row_bytes=size, files=files, everything=rows)


def decode_levels(rows: StoreRows, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any] | list[object]]:
    """Return the columns with levels in place of codes, so that the sample has no levels but its own."""
    return {
        name: np.array(column.levels, object)[batch[name]].tolist() if column.kind == "category" else batch[name]
        for name, column in rows.columns.items()
    }


def sample_table(table: RowSource, folder: Path, missing: str) -> RowSample:
    """Sample a table that a fit would convert first."""
    assert isinstance(table, FilesSource)
    began, reading = perf_counter(), TableReading(table)
    try:
        rows = write_store(reading.batches(), folder, missing=missing)
    except TooNarrow as error:
        return sample_table(table.widen(error.column, error.wider), folder, missing)
    seconds = perf_counter() - began
    size = sum(group.chunks[0][:1].nbytes for group in rows.groups.values())
    length, counted = reading.length()
    source_bytes = sum(file.size for file, _ in table.stamps)
    per_row = seconds / len(rows)
    return RowSample(rows, length, counted=counted, row_bytes=size, source_bytes=source_bytes, converted_in=per_row)


@dataclass(eq=False)
class TableReading:
    """Reads the sample of a table, and counts or estimates the rows of the table."""

    table: FilesSource
    rows: int = 0
    share: float = 0.0  # of the bytes of the table that have been read, from its beginning

    def batches(self) -> Iterator[Any]:
        """Yield all rows if they are few, else some from several places; the first ones if their number is unknown."""
        N = self.table.rows
        every = range(SAMPLED_PLACES)
        places = [0] if N is None or N <= MOST_SAMPLED_ROWS else [N * place // SAMPLED_PLACES for place in every]
        for place in places:
            left = MOST_SAMPLED_ROWS // len(places)
            for batch, _, share in self.table.read(place):
                yield batch.slice(0, left)
                self.rows, self.share, left = self.rows + min(left, batch.num_rows), share, left - batch.num_rows
                if left <= 0:
                    break

    def length(self) -> tuple[int, bool]:
        """Return the number of rows, and whether it is known; for CSV it is estimated by the lines in a mebibyte."""
        if self.table.rows is not None:
            return self.table.rows, True
        if self.rows < MOST_SAMPLED_ROWS:
            return self.rows, True
        first = self.table.stamps[0][0].path
        if self.table.format != "csv" or find_compression(first):
            return round(self.rows / self.share), False
        with open_bytes(first) as opened:
            head = opened.read(COUNTED_BYTES)
        bytes_in_all = sum(file.size for file, _ in self.table.stamps)
        return max(self.rows, round(bytes_in_all * head.count(b"\n") / len(head))), False
