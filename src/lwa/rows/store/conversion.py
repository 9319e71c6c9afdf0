"""Convert a table to a store: one pass over the source, which can be interrupted and resumed."""

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from lwa.errors import DataError, one_of
from lwa.rows.store import files
from lwa.rows.store.encoding import ColumnFacts, Encoder, Level, find_storage
from lwa.rows.store.files import JsonRecord, read_record, write_record
from lwa.rows.store.formats import ArrowBatch, ArrowType, TooNarrow, load_arrow
from lwa.rows.store.places import OutOfReach
from lwa.rows.store.store import StoreRows, find_source_changes, open_store
from lwa.rows.store.table_source import FilesSource, RowSource, open_batches, open_source
from lwa.storage.atomic import PARTIAL
from lwa.storage.locks import LOCK_FILE, lock_conversion
from lwa.user.progress import Display, open_display

SHARD_BYTES = 512 * 2**20
"""Of a shard. A kill loses the shard being written. More shards are more open files, and gathers ask every one."""
MISSING_OPTIONS = ["error", "drop"]
OWN_FILES = re.compile(
    rf"(rows-\d{{5}}(-\w+\.npy|\.json)|{files.CONVERSION_FILE}|{files.STORE_MANIFEST})"
    rf"((\.[0-9a-f]{{16}})?{re.escape(PARTIAL)})?"
)


def convert(
    source: object,
    destination: str | os.PathLike[str],
    *,
    columns: Iterable[str] | None = None,
    missing: str = "error",
    overwrite: bool = False,
    progress: bool | Display = True,
) -> StoreRows:
    """Write the rows of a table to a folder from which any row can be read directly.

    This is one pass, in batches: memory does not grow with the table. A conversion that was stopped resumes at the
    first shard that is not finished. A finished one is opened, and nothing is read, if its source has not changed.

    Parameters
    ----------
    source
        A Parquet, Arrow IPC (file or stream) or CSV file, a folder of them, a pattern (``"part-*.parquet"``) or a URL
        (``"s3://..."``, by fsspec), or a pandas, polars or Arrow table. Folders named ``key=value`` become columns.
    destination
        A new or empty folder, or one in which an earlier conversion of the same source was not finished.
    columns
        The columns to keep, all of them by default. Numbers stay as they are (decimals become float64), flags are
        bool, text and categories are codes of their sorted levels, dates and times are float64 days since 1970-01-01.
    missing
        What to do about nulls and NaN in these columns: ``"error"`` raises and lists columns and counts, ``"drop"``
        leaves those rows out and records how many.
    overwrite
        Whether to replace converted rows that are already there. They are removed first, so that disks need not hold
        both.
    progress
        Whether to show a bar, or the display to show it in.
    """
    if missing not in MISSING_OPTIONS:
        raise one_of("missing", missing, MISSING_OPTIONS)
    table = open_source(source, columns)
    if table.rows == 0:
        raise build_empty_error(table.given)
    return write_source(table, destination, missing, overwrite, progress)


def write_store(
    batches: Iterable[object],
    destination: str | os.PathLike[str],
    *,
    missing: str = "error",
    overwrite: bool = False,
    progress: bool | Display = False,
) -> StoreRows:
    """Write rows that come in batches, such as simulated ones, to a folder from which any row can be read directly.

    Parameters
    ----------
    batches
        Dicts of columns, one number or text per row, or tables; all with the same columns. One is held at a time.
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
    if missing not in MISSING_OPTIONS:
        raise one_of("missing", missing, MISSING_OPTIONS)
    return write_source(open_batches(batches), destination, missing, overwrite, progress)


def write_source(
    table: RowSource, destination: str | os.PathLike[str], missing: str, overwrite: bool, progress: bool | Display
) -> StoreRows:
    """Write the rows of a source to a folder, unless they are there already, and open them."""
    folder = Path(destination).expanduser()
    with open_display(progress) as display:
        try:
            with lock_conversion(folder, display):
                return _convert_source(table, folder, missing, overwrite, display)
        except OSError as error:
            raise _build_write_error(folder, error) from error


def _convert_source(table: RowSource, folder: Path, missing: str, overwrite: bool, display: Display) -> StoreRows:
    if (finished := _find_finished(table, folder, missing, overwrite)) is not None:
        return finished
    display.say(f"Converting {table.given or 'the table'} to rows that can be read at random, once, in {folder}.")
    while True:
        conversion = Conversion(table, folder, missing, display)
        try:
            conversion.run()
            break
        except TooNarrow as error:
            clear_store(folder)
            if not isinstance(conversion.table, FilesSource):
                raise  # batches come once; the caller can make wider ones
            table = conversion.table.widen(error.column, error.wider)
        except BaseException as error:
            # After Ctrl-C, or if a disk or a server failed, finished shards stay, so that the next call can resume.
            if not conversion.records or (isinstance(error, DataError) and not isinstance(error, OutOfReach)):
                clear_store(folder)
            raise
    return open_store(folder, check=False)


def _find_finished(table: RowSource, folder: Path, missing: str, overwrite: bool) -> StoreRows | None:
    """Return the store that is already there if it is the one requested; else make room for it."""
    inside = {entry.name for entry in folder.iterdir()} - {LOCK_FILE}
    foreign = [name for name in inside if not OWN_FILES.fullmatch(name)]
    if foreign or ((folder / files.STORE_MANIFEST).exists() and not files.is_store(folder)):
        listed = ", ".join(sorted(foreign)[:3]) or files.STORE_MANIFEST
        raise DataError(f"'{folder}' holds other files ({listed}). Pass a new or an empty folder.")
    manifest = read_record(folder / files.STORE_MANIFEST)
    if manifest is None:
        return None
    if not overwrite:
        if manifest.get("asked") == describe_request(table, missing) and not find_source_changes(manifest):
            return open_store(folder, check=False)
        given = manifest.get("source", {}).get("given")
        raise DataError(
            f"'{folder}' already holds other rows than the requested ones, of {given or 'a table in memory'}: the "
            "source, its files, columns or missing differ. Pass another folder, or overwrite=True."
        )
    clear_store(folder)
    return None


def describe_request(table: RowSource, missing: str) -> JsonRecord:
    """Return what two conversions have in common if they are the same; a table in memory is never known to be."""
    return {"fingerprint": table.fingerprint or os.urandom(8).hex(), "columns": list(table.types), "missing": missing}


@dataclass(eq=False)
class Conversion:
    """One conversion, from the first shard that is not finished."""

    table: RowSource
    folder: Path
    missing: str
    display: Display

    def __post_init__(self) -> None:
        """Find the shards that are already finished."""
        asked = describe_request(self.table, self.missing)
        begun = read_record(self.folder / files.CONVERSION_FILE) or {}
        if begun.get("asked") == asked:
            self._widen_as_before(begun["types"])
        self.groups = group_by_dtype(self.table.types)
        row_bytes = sum(np.dtype(dtype).itemsize * len(group) for dtype, group in self.groups.items())
        self.plan: JsonRecord = {
            "format": files.STORE_FORMAT, "version": files.STORE_VERSION, "asked": asked,
            "types": {name: str(kind) for name, kind in self.table.types.items()},
            "shard_rows": max(1, SHARD_BYTES // row_bytes),
        }  # fmt: skip
        self.records = list(self._find_whole_shards()) if begun == self.plan else []
        if not self.records:
            clear_store(self.folder)
        codes = {name: {level: i for i, level in enumerate(one.levels)} for name, one in self._join_facts().items()}
        self.encoder = Encoder(self.table.types, codes)

    def run(self) -> None:
        """Write the shards that are missing, then the manifest."""
        write_record(self.folder / files.CONVERSION_FILE, self.plan)
        self._write_shards()
        write_record(self.folder / files.STORE_MANIFEST, self._build_manifest())
        for entry in self.folder.glob("*.json"):
            if entry.name != files.STORE_MANIFEST:
                entry.unlink()

    def _write_shards(self) -> None:
        at, most = sum(record["source_rows"] for record in self.records), self.plan["shard_rows"]
        begin, writer = at, files.ShardWriter(self.folder, len(self.records), self.groups)
        try:
            for batch, _, share in self.table.read(at):
                while batch.num_rows:
                    piece = batch.slice(0, most - (at - begin))
                    batch = batch.slice(piece.num_rows)
                    self._append(writer, piece, at)
                    at += piece.num_rows
                    if at - begin == most:
                        self._finish(writer, at - begin)
                        begin, writer = at, files.ShardWriter(self.folder, len(self.records), self.groups)
                total = self.table.rows or max(round(at / max(share, 1e-9)), at)
                self.display.show("converting", at, total, "" if self.table.rows else "rows estimated")
            if self.missing == "error" and self._found_missing():
                raise build_missing_error(self.encoder.seen)
            if at > begin:
                self._finish(writer, at - begin)
        finally:
            writer.discard()
        self.display.show("converting", at, at)

    def _append(self, writer: files.ShardWriter, piece: ArrowBatch, at: int) -> None:
        columns, dropped = self.encoder.drop_incomplete(piece, at)
        # Once a missing value makes the conversion fail, the rest is only read to count all missing values.
        if self.missing == "drop" or not (dropped or self._found_missing()):
            writer.append(self.encoder.encode(columns))

    def _finish(self, writer: files.ShardWriter, source_rows: int) -> None:
        if self.missing == "error" and self._found_missing():
            return
        columns = {name: asdict(seen) for name, seen in self.encoder.take_facts().items()}
        record = {"source_rows": source_rows, "rows": writer.rows, "files": writer.finish(), "columns": columns}
        write_record(self.folder / files.name_record(len(self.records)), record)
        self.records.append(record)

    def _found_missing(self) -> bool:
        return any(seen.missing for seen in self.encoder.seen.values())

    def _build_manifest(self) -> JsonRecord:
        rows, read = (sum(record[count] for record in self.records) for count in ("rows", "source_rows"))
        seen, types = self._join_facts(), self.table.types
        if not rows:
            raise build_incomplete_error(read, seen) if read else build_empty_error(self.table.given)
        stamps = [
            {"path": file.path, "size": file.size, "modified": file.modified, "rows": count}
            for file, count in self.table.stamps
        ]
        return {
            "format": files.STORE_FORMAT, "version": files.STORE_VERSION, "rows": rows, "dropped": read - rows,
            "columns": [describe_column(name, kind, self.groups, seen[name]) for name, kind in types.items()],
            "shards": [{"rows": record["rows"], "files": record["files"]} for record in self.records],
            "source": {"given": self.table.given, "files": stamps},
            "asked": self.plan["asked"],
        }  # fmt: skip

    def _join_facts(self) -> dict[str, ColumnFacts]:
        """Return what was seen of each column in all finished shards."""
        total = {name: ColumnFacts() for name in self.table.types}
        for record in self.records:
            for name, seen in record["columns"].items():
                total[name] = total[name].join(ColumnFacts(**seen))
        return total

    def _find_whole_shards(self) -> Iterator[JsonRecord]:
        """Yield the records of finished shards up to the first that is missing or lacks a file."""
        number = 0
        while (record := read_record(self.folder / files.name_record(number))) is not None:
            paths = {self.folder / entry["file"]: entry["bytes"] for entry in record["files"]}
            if any(not path.exists() or path.stat().st_size != size for path, size in paths.items()):
                return
            yield record
            number += 1

    def _widen_as_before(self, types: dict[str, str]) -> None:
        """Widen CSV columns to the types that the first run found."""
        if isinstance(self.table, FilesSource) and self.table.format == "csv":
            for name, kind in types.items():
                if str(self.table.types[name]) != kind and kind in ("int64", "double", "string"):
                    self.table = self.table.widen(name, load_arrow().type_for_alias(kind))


def group_by_dtype(types: Mapping[str, ArrowType]) -> dict[str, list[str]]:
    """Return the columns that are stored together, by dtype."""
    groups: dict[str, list[str]] = {}
    for name, kind in types.items():
        stored = find_storage(kind)
        assert stored is not None
        groups.setdefault(stored.dtype, []).append(name)
    return groups


def clear_store(folder: Path) -> None:
    """Remove what conversions wrote, the manifest first: without it, the other files are no store."""
    (folder / files.STORE_MANIFEST).unlink(missing_ok=True)
    for entry in list(folder.iterdir()):
        if OWN_FILES.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def describe_column(name: str, kind: ArrowType, groups: dict[str, list[str]], seen: ColumnFacts) -> JsonRecord:
    """Return the entry of a column in a manifest."""
    stored = find_storage(kind)
    assert stored is not None
    levels: list[Level] | None = [False, True] if stored.kind == "flag" else None
    ranks = None
    if stored.kind == "category":
        levels = sorted(seen.levels)
        rank_of = {level: rank for rank, level in enumerate(levels)}
        ranks = None if levels == seen.levels else [rank_of[level] for level in seen.levels]
    return {
        "name": name, "type": str(kind), "kind": stored.kind, "dtype": stored.dtype,
        "position": groups[stored.dtype].index(name), "missing": seen.missing,
        "minimum": seen.minimum, "maximum": seen.maximum, "levels": levels, "ranks": ranks,
    }  # fmt: skip


class MissingValues(DataError):
    """Values are missing, in all rows or although none may be. `seen` holds how many per column."""

    def __init__(self, message: str, seen: Mapping[str, ColumnFacts] | None = None) -> None:
        super().__init__(message)
        self.seen = dict(seen or {})


def build_missing_error(seen: Mapping[str, ColumnFacts]) -> MissingValues:
    """Return the error for missing values."""
    lacking = [(name, one) for name, one in seen.items() if one.missing]
    found = [f"column {name!r} has {one.missing}, the first in row {one.first_missing}" for name, one in lacking]
    full = [name for name, one in seen.items() if not one.missing]
    others = f", or those columns with columns={full!r}" if full else ""
    remedy = f"Leave those rows out with missing='drop'{others}."
    return MissingValues(f"missing values: {'; '.join(found)}. None is expected. {remedy}", seen)


def build_incomplete_error(read: int, seen: Mapping[str, ColumnFacts]) -> MissingValues:
    """Return the error for a table in which no row is complete."""
    worst = max(seen, key=lambda name: seen[name].missing)
    found = f"each of the {read} rows lacks a value (column {worst!r} lacks {seen[worst].missing})"
    return MissingValues(f"no row is complete: {found}. Pass columns=[...] without it.", seen)


def build_empty_error(given: str | None) -> DataError:
    """Return the error for a table without rows."""
    return DataError(f"{repr(given) if given else 'the table'} has no rows. Pass at least one row.")


def _build_write_error(folder: Path, error: OSError) -> DataError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"the disk is full: {error.strerror} while rows were written to '{folder}'. What is there is whole. Free "
            "some space and convert again, which resumes where it stopped, or pass another folder."
        )
    reason = error.strerror or error
    return DataError(f"cannot write rows to '{folder}': {reason}. Pass a folder that you may write to.")
