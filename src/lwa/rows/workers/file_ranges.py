"""Ranges of rows of Parquet files, each converted where it is read. Only facts about its columns are sent back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from lwa.errors import DataError
from lwa.rows.store.conversion import MissingValues, describe_request, group_by_dtype, write_source
from lwa.rows.store.encoding import ColumnFacts, find_storage
from lwa.rows.store.files import STORE_MANIFEST
from lwa.rows.store.formats import ArrowType, FileHeader, Parquet, ReadBatch
from lwa.rows.store.places import SourceFile, find_files, find_rows_cache, is_url
from lwa.rows.store.store import StoredColumn, StoreRows, open_store
from lwa.rows.store.table_source import RowSource, add_keys

RANGE_ROWS = 2**22
"""The most rows of a range, if row groups allow it: some 100 MiB to convert again if a worker is lost."""


@dataclass(frozen=True)
class FileRange:
    """Rows `start` to `stop` - 1 of a file: whole row groups."""

    file: SourceFile
    start: int
    stop: int
    before: int  # rows of the source before these

    def __len__(self) -> int:
        """Return the number of rows in the file; some may be left out because a value is missing."""
        return self.stop - self.start


def cut_ranges(files: Sequence[SourceFile], headers: Sequence[FileHeader]) -> tuple[FileRange, ...]:
    """Return one range per file, or several if it is large."""
    ranges: list[FileRange] = []
    before = 0
    for file, header in zip(files, headers, strict=True):
        start = stop = 0
        for rows in header.groups:
            if stop > start and stop + rows - start > RANGE_ROWS:
                ranges.append(FileRange(file, start, stop, before + start))
                start = stop
            stop += rows
        if stop > start:
            ranges.append(FileRange(file, start, stop, before + start))
        before += stop
    return tuple(ranges)


@dataclass(frozen=True, eq=False)
class RangeRequest:
    """What is read of every range: columns with their types, those that folders are named by, and `missing`."""

    types: dict[str, ArrowType]
    keys: dict[str, ArrowType]
    missing: str


@dataclass(frozen=True, eq=False, kw_only=True)
class FileRangeSource(RowSource):
    """A range as a table to convert. Nothing compares the file with what it was: its stamp is in the fingerprint."""

    file_range: FileRange
    keys: dict[str, ArrowType]

    def read(self, skip: int) -> Iterator[ReadBatch]:
        """Yield all rows but the first `skip`."""
        within = self.file_range
        require_unchanged(within.file)
        held = {name: kind for name, kind in self.types.items() if name not in self.keys}
        at = within.start + skip
        for batch, start, _ in Parquet().read(within.file, held, at, within.stop):
            kept = batch.slice(min(max(at - start, 0), batch.num_rows))
            if kept.num_rows:
                begin = max(at, start) - within.start
                share = (begin + kept.num_rows) / len(within)
                yield ReadBatch(add_keys(kept, within.file, self.types, self.keys), begin, share)


def build_range_source(request: RangeRequest, within: FileRange) -> FileRangeSource:
    """Return a range as a table. Its fingerprint changes with the file, its size, time of writing and the types."""
    types, keys = ({name: str(kind) for name, kind in found.items()} for found in (request.types, request.keys))
    facts = (within.file, within.start, within.stop, types, keys)
    return FileRangeSource(
        file_range=within, types=request.types, keys=request.keys, rows=len(within),
        stamps=((within.file, len(within)),), fingerprint=blake2b(repr(facts).encode(), digest_size=16).hexdigest(),
    )  # fmt: skip


def require_unchanged(file: SourceFile) -> None:
    """Raise if a file was written again since it was listed."""
    (now,) = find_files(file.path)
    # What services report of a file besides its size depends on whether the file or its folder is listed.
    if now.size != file.size or (now.modified != file.modified and not is_url(file.path)):
        raise DataError(
            f"'{file.path}' was written again while its rows were in use: it has {now.size} bytes, {file.size} then. "
            "Start again, so that all of its rows are of one version."
        )


@dataclass(frozen=True, eq=False)
class RangeFacts:
    """What a conversion saw of a range: the number of complete rows, and facts about each column."""

    rows: int
    seen: dict[str, ColumnFacts]


def convert_range(request: RangeRequest, within: FileRange) -> RangeFacts:
    """Convert a range on this machine unless that is done; return what was seen. Missing values are no error yet."""
    try:
        rows = open_range(request, within)
    except MissingValues as error:
        return RangeFacts(0, error.seen)
    seen = {}
    for name, column in rows.columns.items():
        levels = list(column.levels or ()) if column.kind == "category" else []
        seen[name] = ColumnFacts(column.missing, None, column.minimum, column.maximum, levels)
    return RangeFacts(len(rows), seen)


def open_range(request: RangeRequest, within: FileRange) -> StoreRows:
    """Return the rows of a range from this machine's cache; read the file if they are not there or damaged."""
    source = build_range_source(request, within)
    name = repr(("part", source.fingerprint, request.missing))
    folder = find_rows_cache() / blake2b(name.encode(), digest_size=12).hexdigest()
    # If they are not there, another process may be converting them: then its rows are used.
    if overwrite := (folder / STORE_MANIFEST).exists():
        try:
            rows = open_store(folder, check=False)
            require_range_rows(rows, source, request.missing)
            return rows
        except DataError:  # damaged, of another version, or not what a conversion wrote
            pass
    return write_source(source, folder, request.missing, overwrite=overwrite, progress=False)


def require_range_rows(rows: StoreRows, source: FileRangeSource, missing: str) -> None:
    """Raise if a conversion of this range would not have written this store, whatever its manifest says."""
    groups = group_by_dtype(source.types)
    complete = len(rows) == len(source.file_range) if missing == "error" else len(rows) <= len(source.file_range)
    good = (
        rows.manifest.get("asked") == describe_request(source, missing)
        and complete
        and list(rows.columns) == list(source.types)
        and set(rows.groups) == set(groups)
        and all(
            (chunk.dtype, chunk.shape[1:]) == (np.dtype(dtype), (len(groups[dtype]),))
            for dtype, group in rows.groups.items()
            for chunk in group.chunks
        )
        and all(is_range_column(column, source.types[name], groups) for name, column in rows.columns.items())
    )
    if not good:
        raise DataError(f"'{rows.path}' does not hold the rows that its name stands for.")


def is_range_column(column: StoredColumn, kind: ArrowType, groups: Mapping[str, list[str]]) -> bool:
    """Return whether a conversion describes a column of this type in this way."""
    how = find_storage(kind)
    assert how is not None
    if (column.kind, column.dtype, column.type) != (how.kind, how.dtype, str(kind)):
        return False
    if column.position != groups[how.dtype].index(column.name) or not isinstance(column.missing, int):
        return False
    if how.kind != "category":
        return column.ranks is None and all(
            value is None or isinstance(value, int | float) for value in (column.minimum, column.maximum)
        )
    levels = column.levels or ()
    one_kind = all(isinstance(level, str) for level in levels) or all(isinstance(level, int) for level in levels)
    ascending = one_kind and all(low < high for low, high in pairwise(levels))  # type: ignore[operator]
    return ascending and (
        column.ranks is None or np.array_equal(np.sort(column.ranks), np.arange(len(levels), dtype=np.int32))
    )
