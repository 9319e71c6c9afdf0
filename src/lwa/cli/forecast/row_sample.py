"""Some rows of the data, and how many there are in all, without a pass over them."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from lwa.rows import Rows
from lwa.rows.memory import ArrayRows
from lwa.rows.protocol import named
from lwa.rows.store.cache import ready_rows
from lwa.rows.store.conversion import write_store
from lwa.rows.store.places import absolute, compression, open_bytes
from lwa.rows.store.store import StoreRows
from lwa.rows.store.table_source import FilesSource, Source, TooNarrow, open_source

MOST = 100_000
"""Rows of the sample; of fewer, all."""
PLACES = 4
"""Of a table that says how many rows it has, from which the sample is read."""
COUNTED_BYTES = 2**20
"""Of a CSV file, in which lines are counted."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Some rows, and what is known of all."""

    rows: Rows
    length: int  # N
    counted: bool  # whether N is known, and not estimated
    row_bytes: int  # of a row as a pass reads it
    files: tuple[Path, ...]  # that passes read; none where there is no conversion yet
    source_bytes: int  # that a conversion would read; 0 where none is needed
    converted_in: float  # seconds a row that converting the sample took
    everything: Rows | None  # all rows, where they can be read at random

    @property
    def whole(self) -> bool:
        """Whether the sample is everything."""
        return self.counted and len(self.rows) == self.length


@contextmanager
def sampled(data: str, columns: Iterable[str] | None, missing: str) -> Iterator[Sampled]:
    """Of whatever `lwa fit` takes: a `.npy` file, a store, or a table, converted or not."""
    ready = ready_rows(data, columns=columns, missing=missing)
    with tempfile.TemporaryDirectory(prefix="lwa-plan-") as folder:
        if ready is not None:
            yield of_rows(ready, Path(folder))
        else:
            yield of_table(open_source(absolute(data), columns), Path(folder), missing)


def of_rows(rows: Rows, folder: Path) -> Sampled:
    """Of rows that can be read at random."""
    N = len(rows)
    drawn = np.arange(N) if N <= MOST else np.sort(np.random.default_rng(0).choice(N, MOST, replace=False))
    batch = rows.take(drawn)
    if isinstance(rows, StoreRows):
        files = tuple(shard.path for shard in rows.shards)
        size = sum(group.chunks[0][:1].nbytes for group in rows.groups.values())
        return Sampled(write_store([decoded(rows, batch)], folder), N, True, size, files, 0, 0.0, rows)
    size = sum(array[:1].nbytes for array in named(batch).values())
    path = getattr(rows, "path", None)
    return Sampled(ArrayRows(batch), N, True, size, () if path is None else (path,), 0, 0.0, rows)


def decoded(rows: StoreRows, batch: Any) -> dict[str, Any]:
    """Levels in the place of codes, so that only those of the sample are levels of it."""
    return {
        name: np.array(column.levels, object)[batch[name]].tolist() if column.kind == "category" else batch[name]
        for name, column in rows.columns.items()
    }


def of_table(table: Source, folder: Path, missing: str) -> Sampled:
    """Of a table that would be converted first."""
    assert isinstance(table, FilesSource)
    began, reading = perf_counter(), Reading(table)
    try:
        rows = write_store(reading.batches(), folder, missing=missing)
    except TooNarrow as error:
        return of_table(table.widened(error.column, error.wider), folder, missing)
    took = perf_counter() - began
    size = sum(group.chunks[0][:1].nbytes for group in rows.groups.values())
    length, counted = reading.length()
    bytes_in_all = sum(file.size for file in table.files)
    return Sampled(rows, length, counted, size, (), bytes_in_all, took / len(rows), None)


@dataclass(eq=False)
class Reading:
    """A sample on its way out of a table."""

    table: FilesSource
    rows: int = 0
    share: float = 0.0  # of the table's bytes, as far as it has been read from its beginning

    def batches(self) -> Iterator[Any]:
        """All rows where they are few, else some from several places; the first ones where nobody knows how many."""
        N = self.table.rows
        places = [0] if N is None or N <= MOST else [N * place // PLACES for place in range(PLACES)]
        for place in places:
            left = MOST // len(places)
            for batch, _, share in self.table.read(place):
                yield batch.slice(0, left)
                self.rows, self.share, left = self.rows + min(left, batch.num_rows), share, left - batch.num_rows
                if left <= 0:
                    break

    def length(self) -> tuple[int, bool]:
        """How many rows there are, and whether that is known: of CSV it is estimated, by lines in a mebibyte."""
        if self.table.rows is not None:
            return self.table.rows, True
        if self.rows < MOST:
            return self.rows, True
        first = self.table.files[0].path
        if self.table.format != "csv" or compression(first):
            return round(self.rows / self.share), False
        with open_bytes(first) as opened:
            head = opened.read(COUNTED_BYTES)
        bytes_in_all = sum(file.size for file in self.table.files)
        return max(self.rows, round(bytes_in_all * head.count(b"\n") / len(head))), False
