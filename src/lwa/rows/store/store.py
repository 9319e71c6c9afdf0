"""Rows of a table, converted once to files from which any row can be read directly."""

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.memory import Chunked, NpyRows, RangedRows, open_npy, scan
from lwa.rows.protocol import Batch
from lwa.rows.store.encoding import Level
from lwa.rows.store.files import JsonRecord, read_manifest
from lwa.rows.store.places import SourceFile, find_files


@dataclass(frozen=True, eq=False)
class StoredColumn:
    """One column: where it lies, and what the conversion saw of it.

    On disk, codes are in the order in which levels were first seen, so that one pass suffices; `ranks` has the sorted
    code of each, or is None if they are the same.
    """

    name: str
    type: str  # in the source
    kind: str  # "number", "flag", "category" (codes of `levels`) or "days" (dates and times as float64 days)
    dtype: str  # of the files it is in
    position: int  # which of their columns it is
    missing: int  # values in the source; those rows are not here
    minimum: float | None  # over all rows; None for categories
    maximum: float | None
    levels: tuple[Level, ...] | None  # what codes 0, 1, … stand for, in sorted order; None for numbers
    ranks: NDArray[np.int32] | None

    def select(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the values of this column in rows of its dtype."""
        values = rows[:, self.position]
        try:
            return values if self.ranks is None else self.ranks[values]
        except IndexError:
            raise DataError(
                f"column {self.name!r} holds codes of levels that it does not have. Convert it again."
            ) from None


@dataclass(frozen=True, eq=False)
class StoreRows(RangedRows):
    """Rows of a store, mapped into memory: a dict of columns.

    Parameters
    ----------
    path
        The folder.
    columns
        By name, in the order of the source.
    groups
        The rows of each dtype, `(N, columns of that dtype)`, in shards.
    shards
        The mapped files.
    manifest
        What the conversion recorded.

    Examples
    --------
    >>> import pandas, tempfile
    >>> from lwa.rows import convert
    >>> table = pandas.DataFrame({"x": [0.5, 1.5, 2.5], "color": ["red", "blue", "red"]})
    >>> folder = tempfile.TemporaryDirectory()
    >>> rows = convert(table, folder.name, progress=False)
    >>> rows.levels
    {'color': ('blue', 'red')}
    >>> rows.take(np.array([2, 0]))
    {'x': array([2.5, 0.5]), 'color': array([1, 1], dtype=int32)}
    >>> folder.cleanup()
    """

    path: Path
    columns: dict[str, StoredColumn]
    groups: dict[str, Chunked]
    shards: tuple[NpyRows, ...]
    manifest: JsonRecord

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.groups.values())))

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """What the codes of each flag and category stand for."""
        return {name: column.levels for name, column in self.columns.items() if column.levels is not None}

    @property
    def dropped(self) -> int:
        """Rows of the source that are not here because a value was missing."""
        return int(self.manifest["dropped"])

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order."""
        self._require_whole()
        return self._split({dtype: group.take(indices) for dtype, group in self.groups.items()})

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time."""
        for at, end in scan(list(self.groups.values()), start, stop, size):
            self._require_whole()
            yield self._split({dtype: group.view(at, end) for dtype, group in self.groups.items()})

    def __reduce__(self) -> tuple[Callable[..., "StoreRows"], tuple[Path, tuple[str, ...]]]:
        """Have another process map the files itself."""
        return reopen_store, (self.path.absolute(), tuple(self.columns))

    def verify(self) -> None:
        """Read all rows and raise unless they are what was written."""
        held = {shard.path.name: shard for shard in self.shards}
        for entry in _list_files(self.manifest):
            if zlib.crc32(held[entry["file"]].rows.list_columns()[0].chunks[0]) != entry["crc32"]:
                what = f"the checksum of '{entry['file']}' is not the manifest's"
                raise _build_store_error(self.path, self.manifest, what)

    def _split(self, rows: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {name: column.select(rows[column.dtype]) for name, column in self.columns.items()}

    @property
    def is_whole(self) -> bool:
        """Whether no file has shrunk since it was mapped."""
        return all(shard.mapping.size() >= shard.size for shard in self.shards)

    def _require_whole(self) -> None:
        # A read past the end of a mapped file that shrank kills the process (SIGBUS).
        for shard in self.shards:
            if (size := shard.mapping.size()) < shard.size:
                what = f"'{shard.path.name}' shrank from {shard.size} to {size} bytes"
                raise _build_store_error(self.path, self.manifest, what)


def open_store(path: str | os.PathLike[str], *, check: bool = True) -> StoreRows:
    """Map the rows of a store. No row is read before it is needed.

    Parameters
    ----------
    path
        The folder that `convert` wrote.
    check
        Whether to compare the source, if it can be reached, with what it was.
    """
    folder = Path(path).expanduser()
    manifest = read_manifest(folder)
    try:
        if check and (changes := find_source_changes(manifest)):
            given = manifest["source"]["given"]
            raise DataError(
                f"the source of '{folder}' has changed since it was converted: {'; '.join(changes)}. Convert it again "
                f"with lwa.rows.convert({given!r}, {str(folder)!r}, overwrite=True), or use the rows as they were "
                f"with lwa.rows.open_store({str(folder)!r}, check=False)."
            )
        columns = {entry["name"]: read_column_entry(entry) for entry in manifest["columns"]}
        shards = tuple(_open_shard(folder, manifest, entry) for entry in _list_files(manifest))
        by_dtype: dict[str, list[NDArray[Any]]] = {}
        for entry, shard in zip(_list_files(manifest), shards, strict=True):
            by_dtype.setdefault(entry["dtype"], []).extend(shard.rows.list_columns()[0].chunks)
        groups = {dtype: Chunked(tuple(arrays)) for dtype, arrays in by_dtype.items()}
        lengths = {len(group) for group in groups.values()}
        if lengths != {manifest["rows"]} or {column.dtype for column in columns.values()} != set(groups):
            what = f"it holds {sorted(lengths)} rows, its manifest says {manifest['rows']}"
            raise _build_store_error(folder, manifest, what)
        for column in columns.values():
            _require_place(column, by_dtype[column.dtype][0].shape[1])
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise _build_store_error(folder, manifest, f"its manifest is not lwa's own ({error!r})") from error
    return StoreRows(folder, columns, groups, shards, manifest)


def reopen_store(path: Path, names: tuple[str, ...]) -> StoreRows:
    """A store as another process had it: its source was compared there."""
    rows = open_store(path, check=False)
    return replace(rows, columns={name: rows.columns[name] for name in names})


def find_source_changes(manifest: JsonRecord) -> list[str]:
    """Return how the files of the source have changed; nothing if they cannot be reached any more."""
    source = manifest["source"]
    if source["given"] is None:
        return []
    try:
        now = {file.path: file for file in find_files(source["given"])}
    except DataError:
        return []
    before = {entry["path"]: SourceFile(entry["path"], entry["size"], entry["modified"]) for entry in source["files"]}
    found = [f"'{path}' is new" for path in now if path not in before]
    found += [f"'{path}' is gone" for path in before if path not in now]
    for path, file in now.items():
        if path in before and file.size != before[path].size:
            found.append(f"'{path}' has {file.size} bytes, {before[path].size} then")
        elif path in before and file.modified != before[path].modified:
            found.append(f"'{path}' was written again")
    return found if len(found) <= 3 else [*found[:3], f"and {len(found) - 3} more"]


def _list_files(manifest: JsonRecord) -> list[JsonRecord]:
    return [entry for shard in manifest["shards"] for entry in shard["files"]]


def read_column_entry(entry: JsonRecord) -> StoredColumn:
    """Return the column that an entry of a manifest describes."""
    found = {field.name: entry[field.name] for field in fields(StoredColumn)}
    found["levels"] = None if found["levels"] is None else tuple(found["levels"])
    found["ranks"] = None if found["ranks"] is None else np.array(found["ranks"], np.int32)
    return StoredColumn(**found)


def _require_place(column: StoredColumn, width: int) -> None:
    """Raise if a column is not in its files, or if its codes do not fit its levels."""
    if not 0 <= column.position < width:
        raise ValueError(f"column {column.name!r} is at {column.position} of {width}")
    if column.ranks is not None and sorted(column.ranks) != list(range(len(column.levels or ()))):
        raise ValueError(f"column {column.name!r} has other codes than levels")


def _open_shard(folder: Path, manifest: JsonRecord, entry: JsonRecord) -> NpyRows:
    if Path(entry["file"]).name != entry["file"]:
        raise _build_store_error(folder, manifest, f"its manifest names a file outside of it, {entry['file']!r}")
    try:
        shard = open_npy(folder / entry["file"])
    except DataError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EMFILE:
            raise DataError(
                f"the store '{folder}' has {len(_list_files(manifest))} files, more than this process may open. Allow "
                "more with ulimit -n 65536 before you start Python."
            ) from error
        raise _build_store_error(folder, manifest, str(error).partition(". ")[0]) from error
    if shard.size != entry["bytes"] or not isinstance(shard.rows.columns, Chunked):
        raise _build_store_error(folder, manifest, f"'{entry['file']}' has {shard.size} bytes, {entry['bytes']} then")
    return shard


def _build_store_error(folder: Path, manifest: JsonRecord, what: str) -> DataError:
    source = manifest.get("source")
    given = (source.get("given") if isinstance(source, dict) else None) or "source"
    return DataError(
        f"the store '{folder}' is damaged: {what}. Convert it again with lwa.rows.convert({given!r}, {str(folder)!r}, "
        "overwrite=True)."
    )
