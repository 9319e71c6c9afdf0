"""Rows of Parquet files that workers read. Only the rows that this process takes come to it.

Files are cut into ranges of rows. A worker converts each range, into the cache of its machine, and returns what it saw:
how many rows, which levels. Together that is what a conversion of the whole source would have found.
"""

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError, InputError, one_of
from lwa.executors import Executor, Work
from lwa.rows.memory import RangedRows, require_positions
from lwa.rows.passes import unwrap_rows
from lwa.rows.protocol import Batch, Rows
from lwa.rows.store import conversion
from lwa.rows.store.encoding import ColumnFacts, Level, require_few_levels
from lwa.rows.store.formats import FORMATS, FileHeader
from lwa.rows.store.places import OutOfReach, SourceFile, make_absolute
from lwa.rows.store.store import StoredColumn, StoreRows, read_column_entry
from lwa.rows.store.table_source import combine_files, find_table_files, list_once
from lwa.rows.workers import file_ranges
from lwa.rows.workers.file_ranges import FileRange, RangeFacts, RangeRequest
from lwa.user.progress import Display, open_display

HEADER_FILES = 16
"""Files per task that reads footers."""
OPEN_RANGES = 128
"""Ranges that a process holds open, each with one file per dtype: systems allow 1,024 files."""


@dataclass(frozen=True, eq=False)
class FileRangeRows(RangedRows):
    """Rows in ranges of files, which a process opens one by one: from its machine's cache, or from the source."""

    request: RangeRequest
    ranges: tuple[FileRange, ...]
    starts: NDArray[np.int64]  # the number of each range's first row, and at the end N
    columns: dict[str, StoredColumn]  # as those of a store, over all ranges
    dropped: int  # rows of the source that are not here because a value was missing
    digest: str  # that no other rows have

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.starts[-1])

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """What the codes of each flag and category stand for."""
        return {name: column.levels for name, column in self.columns.items() if column.levels is not None}

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order."""
        taken = self.allocate(len(indices))
        for number, where, positions in self.split(indices):
            put_rows(taken, where, self.open(number).take(positions))
        return taken

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time. Only the ranges that they lie in are opened."""
        for at in range(start, stop, size):
            end = min(at + size, stop)
            first = int(np.searchsorted(self.starts, at, side="right")) - 1
            last = int(np.searchsorted(self.starts, end, side="left"))
            pieces: list[Batch] = []
            for number in range(first, last):
                offset, over = self.starts[number : number + 2].tolist()
                begin, finish = max(at, offset) - offset, min(end, over) - offset
                if finish > begin:
                    pieces.extend(self.open(number).between(begin, finish, finish - begin))
            yield pieces[0] if len(pieces) == 1 else join_batches(pieces)

    def split(self, indices: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield, for each range that has some of these rows, its number, which of the indices, and the rows in it."""
        positions = require_positions(np.asarray(indices), len(self))
        order = np.argsort(positions, kind="stable")
        bounds = np.searchsorted(positions[order], self.starts)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            where = order[bounds[number] : bounds[number + 1]]
            yield number, where, positions[where] - self.starts[number]

    def allocate(self, count: int) -> dict[str, NDArray[Any]]:
        """Return columns for this many rows, not yet filled in."""
        return {name: np.empty(count, column.dtype) for name, column in self.columns.items()}

    def open(self, number: int) -> StoreRows:
        """Return the rows of one range, with the codes that levels have over all ranges."""
        key = self.digest, number
        with _OPEN_LOCK:
            held = _OPEN.get(key)
            if held is not None and held.is_whole:
                _OPEN.move_to_end(key)
                return held
        rows = self._recode(number, file_ranges.open_range(self.request, self.ranges[number]))
        with _OPEN_LOCK:
            _OPEN[key] = rows
            while len(_OPEN) > OPEN_RANGES:
                _OPEN.popitem(last=False)
        return rows

    def _recode(self, number: int, rows: StoreRows) -> StoreRows:
        expected = int(self.starts[number + 1] - self.starts[number])
        if len(rows) != expected:
            raise build_changed_error(self.ranges[number], f"{len(rows)} complete rows, {expected} then")
        columns = {}
        for name, column in rows.columns.items():
            levels, ranks = self.columns[name].levels, column.ranks
            if column.kind == "category" and column.levels != levels:
                assert levels is not None
                assert column.levels is not None
                places = np.array([find_level(level, levels) for level in column.levels], np.int32)
                if (places < 0).any():
                    level = column.levels[int((places < 0).argmax())]
                    now = f"the level {level!r} in column {name!r}, which was not there"
                    raise build_changed_error(self.ranges[number], now)
                ranks = places if ranks is None else places[ranks]
            columns[name] = replace(column, levels=levels, ranks=ranks)
        return replace(rows, columns=columns)


_OPEN_LOCK = threading.Lock()
_OPEN: OrderedDict[tuple[str, int], StoreRows] = OrderedDict()


def find_level(level: Level, levels: Sequence[Level]) -> int:
    """Return the position of a level among sorted ones; -1 if it is not among them."""
    at = bisect_left(levels, level)
    return at if at < len(levels) and levels[at] == level else -1


def build_changed_error(within: FileRange, now: str) -> DataError:
    """Return the error for a range that is not what it was when it was first read."""
    return DataError(
        f"rows {within.start} to {within.stop - 1} of '{within.file.path}' are not what they were: {now}. Start "
        "again, so that all rows are of one version."
    )


def put_rows(taken: dict[str, NDArray[Any]], where: NDArray[np.int64], batch: Batch) -> None:
    """Put the rows of a batch in their places."""
    assert isinstance(batch, dict)
    for name, values in batch.items():
        taken[name][where] = values


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Return the rows of batches of columns, one after the other."""
    named = [batch for batch in batches if isinstance(batch, dict)]
    return {name: np.concatenate([batch[name] for batch in named]) for name in named[0]}


@dataclass(frozen=True, eq=False)
class RowsOnWorkers(RangedRows):
    """Rows that workers hold. This process takes rows by one task per range."""

    rows: FileRangeRows  # as a worker reads them
    executor: Executor

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @property
    def columns(self) -> dict[str, StoredColumn]:
        """By name, as those of a store."""
        return self.rows.columns

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """What the codes of each flag and category stand for."""
        return self.rows.levels

    @property
    def dropped(self) -> int:
        """Rows of the source that are not here because a value was missing."""
        return self.rows.dropped

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order: one task per range that has any of them."""
        taken, wanted = self.rows.allocate(len(indices)), list(self.rows.split(indices))
        work = Work(take_from_range, (self.rows,))
        pieces = [(number, positions) for number, _, positions in wanted]
        near = [locate_range(self.rows.ranges, number) for number, _ in pieces]
        for (_, where, _), batch in zip(wanted, self.executor.map(work, pieces, near), strict=True):
            put_rows(taken, where, batch)
        return taken

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time, in this process: for what workers cannot do."""
        # A few million are requested at a time, so that no more of them wait in memory.
        together = size * max(1, file_ranges.RANGE_ROWS // size)
        for begin in range(start, stop, together):
            end = min(begin + together, stop)
            pieces = [(at, min(at + size, end)) for at in range(begin, end, size)]
            near = [(at + over) / 2 / len(self) for at, over in pieces]
            yield from self.executor.map(Work(read_block, (self.rows,)), pieces, near)

    def __reduce__(self) -> tuple[Callable[[Rows], Rows], tuple[Rows]]:
        """Send a worker rows that it can read itself."""
        return unwrap_rows, (self.rows,)


def locate_range(ranges: Sequence[FileRange], number: int) -> float:
    """Return how far into all rows a range lies, so that the worker that converted it reads it again."""
    return (ranges[number].before + len(ranges[number]) / 2) / (ranges[-1].before + len(ranges[-1]))


def take_from_range(rows: FileRangeRows, piece: tuple[int, NDArray[np.int64]]) -> Batch:
    """Return some rows of one range, on a worker."""
    number, positions = piece
    return rows.open(number).take(positions)


def read_block(rows: FileRangeRows, piece: tuple[int, int]) -> Batch:
    """Return one block, on a worker."""
    start, stop = piece
    return next(rows.between(start, stop, stop - start))


def read_on_workers(
    where: str | PathLike[str], executor: Executor, *,
    columns: Iterable[str] | None = None, missing: str = "error", progress: bool | Display = False,
) -> RowsOnWorkers:  # fmt: skip
    """Return the rows of Parquet files, read by workers: the rows that `convert` writes, bit for bit.

    All workers must be able to read `where` under this name: a file, a folder, a pattern or a URL. They keep what they
    read in the cache folder of their machine. The other arguments are those of `convert`.
    """
    if missing not in conversion.MISSING_OPTIONS:
        raise one_of("missing", missing, conversion.MISSING_OPTIONS)
    given = make_absolute(where)
    format, files = find_table_files(given)
    if format != "parquet":
        raise InputError(
            f"'{given}' holds {format.upper()} files, and workers read only Parquet. Convert it first, with lwa "
            f"convert SOURCE DESTINATION, to a folder that all workers can read, and pass that folder."
        )
    with open_display(progress) as display, display.stages("conversion"), explain_on_worker():
        pieces = [files[at : at + HEADER_FILES] for at in range(0, len(files), HEADER_FILES)]
        headers = list(chain.from_iterable(executor.map(Work(read_headers), pieces)))
        source = combine_files(given, format, files, headers, list_once(columns))
        if source.rows == 0:
            raise conversion.build_empty_error(given)
        request, ranges = RangeRequest(source.types, source.keys, missing), file_ranges.cut_ranges(files, headers)
        total, done, found = source.rows or 0, 0, []
        display.say(f"Workers read {given} once, each its share.")
        near = [locate_range(ranges, number) for number in range(len(ranges))]
        results = executor.map(Work(file_ranges.convert_range, (request,)), ranges, near)
        for within, facts in zip(ranges, results, strict=True):
            found.append(facts)
            done += len(within)
            display.show("converting", done, total)
    return RowsOnWorkers(combine_ranges(request, ranges, found), executor)


@contextmanager
def explain_on_worker() -> Iterator[None]:
    """Add to the error for a file out of reach that a worker could not reach it."""
    try:
        yield
    except OutOfReach as error:
        raise OutOfReach(
            f"On a worker: {error} Workers read files themselves: pass a place that all of them can reach under the "
            "same name, on a shared disk or behind a URL."
        ) from error


def read_headers(files: Sequence[SourceFile]) -> list[FileHeader]:
    """Return the headers of some files, on a worker."""
    return [FORMATS["parquet"].look(file) for file in files]


def combine_ranges(request: RangeRequest, ranges: tuple[FileRange, ...], found: Sequence[RangeFacts]) -> FileRangeRows:
    """Return all rows, by what was seen of each range; raise if a conversion of the whole source would."""
    seen = {name: ColumnFacts() for name in request.types}
    levels: dict[str, dict[Level, None]] = {name: {} for name in request.types}
    for within, one in zip(ranges, found, strict=True):
        for name, own in one.seen.items():
            first = None if own.first_missing is None else own.first_missing + within.before
            levels[name].update(dict.fromkeys(own.levels))
            seen[name] = seen[name].join(replace(own, first_missing=first, levels=[]))
    rows, read = sum(one.rows for one in found), sum(map(len, ranges))
    if request.missing == "error" and any(one.missing for one in seen.values()):
        raise conversion.build_missing_error(seen)
    if not rows:
        raise conversion.build_incomplete_error(read, seen)
    for name, distinct in levels.items():
        require_few_levels(name, len(distinct))
    groups = conversion.group_by_dtype(request.types)
    columns = {}
    for name, kind in request.types.items():
        entry = conversion.describe_column(name, kind, groups, replace(seen[name], levels=list(levels[name])))
        columns[name] = replace(read_column_entry(entry), ranks=None)
    starts = np.cumsum([0, *(one.rows for one in found)], dtype=np.int64)
    kinds = [(str(column.type), column.levels) for column in columns.values()]
    facts = (request.missing, ranges, starts.tolist(), kinds, list(columns))
    digest = blake2b(repr(facts).encode(), digest_size=16).hexdigest()
    return FileRangeRows(request, ranges, starts, columns, dropped=read - rows, digest=digest)
