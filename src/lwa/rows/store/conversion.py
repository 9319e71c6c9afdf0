"""From a table to a store: one pass over the source, which can be interrupted and goes on where it stopped."""

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lwa.errors import DataError, one_of
from lwa.rows.store.encoding import Encoder, Seen, stored_as
from lwa.rows.store.formats import arrow
from lwa.rows.store.manifest import (
    CONVERSION,
    STORE_FORMAT,
    STORE_MANIFEST,
    STORE_VERSION,
    is_store,
    read_json,
    record_name,
    write_json,
)
from lwa.rows.store.places import OutOfReach
from lwa.rows.store.shards import ShardWriter
from lwa.rows.store.store import StoreRows, open_store, source_changes
from lwa.rows.store.table_source import FilesSource, Source, TooNarrow, open_source, open_stream
from lwa.storage.atomic import PARTIAL
from lwa.storage.locks import LOCK_FILE, lock_conversion
from lwa.user.progress import Display, open_display

SHARD_BYTES = 512 * 2**20
"""Of a shard. A kill loses the one being written; but each holds open a file a dtype, and gathers ask every shard."""
MISSING = ["error", "drop"]
OWN_FILES = re.compile(rf"(rows-\d{{5}}(-\w+\.npy|\.json)|{CONVERSION}|{STORE_MANIFEST})({re.escape(PARTIAL)})?")


def convert(
    source: object,
    destination: str | os.PathLike[str],
    *,
    columns: Iterable[str] | None = None,
    missing: str = "error",
    overwrite: bool = False,
    progress: bool | Display = True,
) -> StoreRows:
    """Write the rows of a table to a folder from which any of them can be read at once.

    One pass, in batches: memory does not grow with the table. A conversion that was stopped goes on with the first
    shard that is not finished; one that is finished, of a source that has not changed, is opened and nothing is read.

    Parameters
    ----------
    source
        A Parquet, Arrow IPC (file or stream) or CSV file, a folder of them, a pattern (``"part-*.parquet"``) or a URL
        (``"s3://..."``, through fsspec), or a pandas, polars or Arrow table. Folders called ``key=value`` are columns.
    destination
        A folder: a new or empty one, or one that an earlier conversion of the same source left unfinished.
    columns
        The columns to keep, all of them by default. Numbers stay as they are (decimals become float64), flags are
        bool, text and categories are codes of their sorted levels, dates and times are float64 days since 1970-01-01.
    missing
        What to do about nulls and NaN in these columns: ``"error"`` lists columns and counts, ``"drop"`` leaves those
        rows out and notes down how many.
    overwrite
        Whether to replace rows that are already there, whatever they are of. They go first: disks need not hold both.
    progress
        Whether to show a bar, or the display to show it in.
    """
    if missing not in MISSING:
        raise one_of("missing", missing, MISSING)
    table = open_source(source, columns)
    if table.rows == 0:
        raise no_rows(table.given)
    return stored(table, destination, missing, overwrite, progress)


def write_store(
    batches: Iterable[object],
    destination: str | os.PathLike[str],
    *,
    missing: str = "error",
    overwrite: bool = False,
    progress: bool | Display = False,
) -> StoreRows:
    """Write rows that come in batches, such as simulated ones, to a folder from which any can be read at once.

    Parameters
    ----------
    batches
        Dicts of columns, one number or text a row, or tables; all with the same columns. One is held at a time.
    destination
        A new or an empty folder.
    missing
        `"error"`, or `"drop"` to leave out rows with missing values.
    overwrite
        Whether to replace rows that are already there.
    progress
        Whether to show a bar, or the display to show it in.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> rows = write_store(({"x": np.arange(3.0) + start} for start in (0, 3)), folder.name)
    >>> rows.take(np.array([4, 0]))
    {'x': array([4., 0.])}
    >>> folder.cleanup()
    """
    if missing not in MISSING:
        raise one_of("missing", missing, MISSING)
    return stored(open_stream(batches), destination, missing, overwrite, progress)


def stored(
    table: Source, destination: str | os.PathLike[str], missing: str, overwrite: bool, progress: bool | Display
) -> StoreRows:
    """The rows of a table in a folder, as `convert` writes them."""
    folder = Path(destination).expanduser()
    with open_display(progress) as display:
        try:
            with lock_conversion(folder, display):
                return _convert(table, folder, missing, overwrite, display)
        except OSError as error:
            raise _cannot_write(folder, error) from error


def _convert(table: Source, folder: Path, missing: str, overwrite: bool, display: Display) -> StoreRows:
    finished = _finished(table, folder, missing, overwrite)
    if finished is not None:
        return finished
    display.say(f"Converting {table.given or 'the table'} to rows that can be read at random, once, in {folder}.")
    while True:
        conversion = Conversion(table, folder, missing, display)
        try:
            conversion.run()
            break
        except TooNarrow as error:
            clear(folder)
            if not isinstance(conversion.table, FilesSource):
                raise  # whoever made the batches can make wider ones
            table = conversion.table.widened(error.column, error.wider)
        except BaseException as error:
            # A disk or a server may do better another time, and after Ctrl-C too: finished shards stay, to go on with.
            hopeless = isinstance(error, DataError) and not isinstance(error, OutOfReach)
            if hopeless or not conversion.records:
                clear(folder)
            raise
    return open_store(folder, check=False)


def _finished(table: Source, folder: Path, missing: str, overwrite: bool) -> StoreRows | None:
    """The store that is already there, if it is what is asked for; else make room."""
    foreign = [
        entry.name for entry in folder.iterdir() if not (OWN_FILES.fullmatch(entry.name) or entry.name == LOCK_FILE)
    ]
    if foreign or ((folder / STORE_MANIFEST).exists() and not is_store(folder)):
        listed = ", ".join(sorted(foreign)[:3]) or STORE_MANIFEST
        raise DataError(f"'{folder}' holds other files ({listed}). Pass a new or an empty folder.")
    manifest = read_json(folder / STORE_MANIFEST)
    if manifest is None:
        return None
    if manifest.get("asked") == asked_of(table, missing) and not source_changes(manifest) and not overwrite:
        return open_store(folder, check=False)
    if not overwrite:
        given = manifest.get("source", {}).get("given")
        raise DataError(
            f"'{folder}' already holds rows, of {given or 'a table in memory'}, and not the ones that are asked for: "
            "the source, its files, columns or missing differ. Pass another folder, or overwrite=True."
        )
    clear(folder)
    return None


def asked_of(table: Source, missing: str) -> dict[str, Any]:
    """What makes two conversions the same; a table in memory is never known to be."""
    return {"fingerprint": table.fingerprint or os.urandom(8).hex(), "columns": list(table.types), "missing": missing}


@dataclass(eq=False)
class Conversion:
    """One conversion, from where it stands."""

    table: Source
    folder: Path
    missing: str
    display: Display

    def __post_init__(self) -> None:
        """Find what is already done."""
        asked = asked_of(self.table, self.missing)
        begun = read_json(self.folder / CONVERSION) or {}
        if begun.get("asked") == asked:
            self._widen_as_before(begun["types"])
        self.groups = groups_by_dtype(self.table.types)
        self.plan: dict[str, Any] = {
            "format": STORE_FORMAT,
            "version": STORE_VERSION,
            "asked": asked,
            "types": {name: str(kind) for name, kind in self.table.types.items()},
            "shard_rows": max(1, SHARD_BYTES // sum(np.dtype(t).itemsize * len(g) for t, g in self.groups.items())),
        }
        self.records = list(self._whole_shards()) if begun == self.plan else []
        if not self.records:
            clear(self.folder)
        categories = [name for name, kind in self.table.types.items() if _kind(kind) == "category"]
        seen = self._seen()
        self.encoder = Encoder(
            self.table.types, {name: {level: i for i, level in enumerate(seen[name].levels)} for name in categories}
        )

    def run(self) -> None:
        """Write what is left, then the manifest."""
        write_json(self.folder / CONVERSION, self.plan)
        self._write_shards()
        manifest = self._manifest()
        write_json(self.folder / STORE_MANIFEST, manifest)
        for entry in self.folder.glob("*.json"):
            if entry.name != STORE_MANIFEST:
                entry.unlink()

    def _write_shards(self) -> None:
        at, most = sum(record["source_rows"] for record in self.records), self.plan["shard_rows"]
        begin, writer = at, ShardWriter(self.folder, len(self.records), self.groups)
        try:
            for batch, _, share in self.table.read(at):
                while batch.num_rows:
                    piece = batch.slice(0, most - (at - begin))
                    batch = batch.slice(piece.num_rows)
                    self._append(writer, piece, at)
                    at += piece.num_rows
                    if at - begin == most:
                        self._finish(writer, at - begin)
                        begin, writer = at, ShardWriter(self.folder, len(self.records), self.groups)
                total = self.table.rows or max(round(at / max(share, 1e-9)), at)
                self.display.show("converting", at, total, "" if self.table.rows else "rows estimated")
            self._refuse_missing()
            if at > begin:
                self._finish(writer, at - begin)
        finally:
            writer.discard()
        self.display.show("converting", at, at)

    def _append(self, writer: ShardWriter, piece: Any, at: int) -> None:
        columns, dropped = self.encoder.complete(piece, at)
        # Once a value is missing that must not be, the rest is only looked through, to count all of them.
        if self.missing == "drop" or not (dropped or self._found_missing()):
            writer.append(self.encoder.numbers(columns))

    def _finish(self, writer: ShardWriter, source_rows: int) -> None:
        if self.missing == "error" and self._found_missing():
            return
        record = {
            "source_rows": source_rows,
            "rows": writer.rows,
            "files": writer.finish(),
            "columns": {name: asdict(seen) for name, seen in self.encoder.told().items()},
        }
        write_json(self.folder / record_name(len(self.records)), record)
        self.records.append(record)

    def _found_missing(self) -> bool:
        return any(seen.missing for seen in self.encoder.seen.values())

    def _refuse_missing(self) -> None:
        if self.missing == "error" and self._found_missing():
            raise some_missing(self.encoder.seen)

    def _manifest(self) -> dict[str, Any]:
        rows = sum(record["rows"] for record in self.records)
        read = sum(record["source_rows"] for record in self.records)
        seen = self._seen()
        if not rows:
            raise none_complete(read, seen) if read else no_rows(self.table.given)
        return {
            "format": STORE_FORMAT,
            "version": STORE_VERSION,
            "rows": rows,
            "dropped": read - rows,
            "columns": [described(name, kind, self.groups, seen[name]) for name, kind in self.table.types.items()],
            "shards": [{"rows": record["rows"], "files": record["files"]} for record in self.records],
            "source": {
                "given": self.table.given,
                "files": [
                    {"path": file.path, "size": file.size, "modified": file.modified, "rows": count}
                    for file, count in self.table.stamps
                ],
            },
            "asked": self.plan["asked"],
        }

    def _seen(self) -> dict[str, Seen]:
        """What was seen of each column in all finished shards."""
        total = {name: Seen() for name in self.table.types}
        for record in self.records:
            for name, seen in record["columns"].items():
                total[name] = total[name].followed_by(Seen(**seen))
        return total

    def _whole_shards(self) -> Iterator[dict[str, Any]]:
        """The records of finished shards, as far as they follow each other and their files are all there."""
        number = 0
        while (record := read_json(self.folder / record_name(number))) is not None:
            sizes = {entry["file"]: entry["bytes"] for entry in record["files"]}
            if any(_size(self.folder / name) != size for name, size in sizes.items()):
                return
            yield record
            number += 1

    def _widen_as_before(self, types: dict[str, str]) -> None:
        """Types of CSV columns that the first run found to be wider than they began."""
        if isinstance(self.table, FilesSource) and self.table.format == "csv":
            for name, kind in types.items():
                if str(self.table.types[name]) != kind and kind in ("int64", "double", "string"):
                    self.table = self.table.widened(name, arrow().type_for_alias(kind))


def groups_by_dtype(types: dict[str, Any]) -> dict[str, list[str]]:
    """The columns that lie together, by the dtype they are kept as."""
    groups: dict[str, list[str]] = {}
    for name, kind in types.items():
        stored = stored_as(kind)
        assert stored is not None
        groups.setdefault(stored.dtype, []).append(name)
    return groups


def clear(folder: Path) -> None:
    """Remove what conversions wrote, the manifest first: without it nothing else is taken for rows."""
    (folder / STORE_MANIFEST).unlink(missing_ok=True)
    for entry in list(folder.iterdir()):
        if OWN_FILES.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def _kind(kind: Any) -> str:
    stored = stored_as(kind)
    return "" if stored is None else stored.kind


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def described(name: str, kind: Any, groups: dict[str, list[str]], seen: Seen) -> dict[str, Any]:
    """A column as manifests have it."""
    stored = stored_as(kind)
    assert stored is not None
    levels: list[Any] | None = None
    ranks = None
    if stored.kind == "flag":
        levels = [False, True]
    elif stored.kind == "category":
        levels = sorted(seen.levels)
        rank_of = {level: rank for rank, level in enumerate(levels)}
        ranks = None if levels == seen.levels else [rank_of[level] for level in seen.levels]
    return {
        "name": name,
        "type": str(kind),
        "kind": stored.kind,
        "dtype": stored.dtype,
        "position": groups[stored.dtype].index(name),
        "missing": seen.missing,
        "minimum": seen.minimum,
        "maximum": seen.maximum,
        "levels": levels,
        "ranks": ranks,
    }


class Lacking(DataError):
    """Values are missing, in all rows or where none may; `seen` says how many in each column."""

    def __init__(self, message: str, seen: Mapping[str, Seen] | None = None) -> None:
        super().__init__(message)
        self.seen = dict(seen or {})


def some_missing(seen: Mapping[str, Seen]) -> Lacking:
    """The error for missing values, which may not be."""
    found = [
        f"column {name!r} has {one.missing}, the first in row {one.first_missing}"
        for name, one in seen.items()
        if one.missing
    ]
    full = [name for name, one in seen.items() if not one.missing]
    others = f", or those columns with columns={full!r}" if full else ""
    return Lacking(
        f"missing values: {'; '.join(found)}. None is expected. Leave those rows out knowingly with "
        f"missing='drop'{others}.",
        seen,
    )


def none_complete(read: int, seen: Mapping[str, Seen]) -> Lacking:
    """The error where nothing is left."""
    worst = max(seen, key=lambda name: seen[name].missing)
    return Lacking(
        f"no row is complete: each of the {read} rows lacks a value (column {worst!r} lacks {seen[worst].missing}). "
        "Pass columns=[...] without it.",
        seen,
    )


def no_rows(given: str | None) -> DataError:
    """The error for a table without rows."""
    return DataError(f"{repr(given) if given else 'the table'} has no rows. Pass at least one row.")


def _cannot_write(folder: Path, error: OSError) -> DataError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"the disk is full: {error.strerror} while rows were written to '{folder}'. What is there is whole. Free "
            "some space and convert again, which goes on where it stopped, or pass another folder."
        )
    return DataError(
        f"cannot write rows to '{folder}': {error.strerror or error}. Pass a folder that you may write to."
    )
