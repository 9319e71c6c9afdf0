"""Parquet files in parts, each converted where it is read: only what was seen of it travels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lwa.errors import DataError
from lwa.rows.store.conversion import MissingValues, describe_request, group_by_dtype, write_source
from lwa.rows.store.encoding import ColumnFacts, find_storage
from lwa.rows.store.formats import FileHeader, Parquet, ReadBatch
from lwa.rows.store.manifest import STORE_MANIFEST
from lwa.rows.store.places import SourceFile, find_files, find_rows_cache, is_url
from lwa.rows.store.store import StoredColumn, StoreRows, open_store
from lwa.rows.store.table_source import add_keys

RANGE_ROWS = 2**22
"""Rows of a part at the most, where row groups allow it: some 100 MiB to convert again when a worker is lost."""


@dataclass(frozen=True)
class FileRange:
    """Rows `start` to `stop` - 1 of a file: whole row groups."""

    file: SourceFile
    start: int
    stop: int
    before: int  # rows of the source that come before

    def __len__(self) -> int:
        """Rows in the file; some may be left out because a value is missing."""
        return self.stop - self.start


def cut_ranges(files: Sequence[SourceFile], looks: Sequence[FileHeader]) -> tuple[FileRange, ...]:
    """Each file a part, or several of them where it is large."""
    parts: list[FileRange] = []
    before = 0
    for file, look in zip(files, looks, strict=True):
        start = stop = 0
        for rows in look.groups:
            if stop > start and stop + rows - start > RANGE_ROWS:
                parts.append(FileRange(file, start, stop, before + start))
                start = stop
            stop += rows
        if stop > start:
            parts.append(FileRange(file, start, stop, before + start))
        before += stop
    return tuple(parts)


@dataclass(frozen=True, eq=False)
class RangeRequest:
    """What is wanted of every part: Arrow types of columns, those that folders are named by, and complete rows."""

    types: dict[str, Any]
    keys: dict[str, Any]
    missing: str


@dataclass(frozen=True, eq=False)
class FileRangeSource:
    """A part as a table to convert."""

    part: FileRange
    types: dict[str, Any]
    keys: dict[str, Any]
    given: None = None  # so that nobody looks whether the file is still the same: its stamp is in the fingerprint

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.part)

    @property
    def stamps(self) -> list[tuple[SourceFile, int | None]]:
        """The file with the rows of the part."""
        return [(self.part.file, len(self.part))]

    @property
    def fingerprint(self) -> str:
        """Another file, size, time of writing, stretch of rows or type makes another one."""
        types = {name: str(kind) for name, kind in self.types.items()}
        keys = {name: str(kind) for name, kind in self.keys.items()}
        told = (self.part.file, self.part.start, self.part.stop, types, keys)
        return blake2b(repr(told).encode(), digest_size=16).hexdigest()

    def read(self, skip: int) -> Iterator[ReadBatch]:
        """All rows but the first `skip`."""
        part = self.part
        require_unchanged(part.file)
        held = {name: kind for name, kind in self.types.items() if name not in self.keys}
        at = part.start + skip
        for batch, start, _ in Parquet().read(part.file, held, at, part.stop):
            kept = batch.slice(min(max(at - start, 0), batch.num_rows))
            if kept.num_rows:
                begin = max(at, start) - part.start
                share = (begin + kept.num_rows) / len(part)
                yield ReadBatch(add_keys(kept, part.file, self.types, self.keys), begin, share)


def require_unchanged(file: SourceFile) -> None:
    """Refuse a file that was written again since it was listed."""
    (now,) = find_files(file.path)
    # What services say of a file besides its size depends on whether they are asked for it or for its folder.
    if now.size != file.size or (now.modified != file.modified and not is_url(file.path)):
        raise DataError(
            f"'{file.path}' was written again while its rows were in use: it has {now.size} bytes, {file.size} then. "
            "Start anew, so that all of its rows are of one time."
        )


@dataclass(frozen=True, eq=False)
class RangeFacts:
    """What a conversion saw of a part: how many rows are complete, and of each column what `ColumnFacts` has."""

    rows: int
    seen: dict[str, ColumnFacts]


def convert_range(wanted: RangeRequest, part: FileRange) -> RangeFacts:
    """Convert a part on this machine unless that is done, and say what was seen; missing values are no error yet."""
    try:
        rows = open_range(wanted, part)
    except MissingValues as error:
        return RangeFacts(0, error.seen)
    seen = {}
    for name, column in rows.columns.items():
        levels = list(column.levels or ()) if column.kind == "category" else []
        seen[name] = ColumnFacts(column.missing, None, column.minimum, column.maximum, levels)
    return RangeFacts(len(rows), seen)


def open_range(wanted: RangeRequest, part: FileRange) -> StoreRows:
    """The rows of a part in this machine's cache; read from the file where they are not there, or damaged."""
    source = FileRangeSource(part, wanted.types, wanted.keys)
    folder = find_range_folder(source, wanted.missing)
    if (folder / STORE_MANIFEST).exists():
        try:
            rows = open_store(folder, check=False)
            require_range_rows(rows, source, wanted.missing)
        except DataError:  # damaged, of another version, or not what a conversion wrote
            return write_source(source, folder, wanted.missing, overwrite=True, progress=False)
        return rows
    # Where another process is at it, its rows are taken.
    return write_source(source, folder, wanted.missing, overwrite=False, progress=False)


def require_range_rows(rows: StoreRows, source: FileRangeSource, missing: str) -> None:
    """Refuse a store that a conversion of this part would not have written, whatever its manifest says."""
    groups = group_by_dtype(source.types)
    complete = len(rows) == len(source.part) if missing == "error" else len(rows) <= len(source.part)
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


def is_range_column(column: StoredColumn, kind: Any, groups: Mapping[str, list[str]]) -> bool:
    """Whether a column is described as a conversion describes one of this type."""
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
    levels: tuple[Any, ...] = column.levels or ()
    one_kind = all(isinstance(level, str) for level in levels) or all(isinstance(level, int) for level in levels)
    ascending = one_kind and all(low < high for low, high in pairwise(levels))
    return ascending and (
        column.ranks is None or np.array_equal(np.sort(column.ranks), np.arange(len(levels), dtype=np.int32))
    )


def find_range_folder(source: FileRangeSource, missing: str) -> Path:
    """Where this machine keeps the rows of a part."""
    asked = repr(("part", source.fingerprint, missing))
    return find_rows_cache() / blake2b(asked.encode(), digest_size=12).hexdigest()
