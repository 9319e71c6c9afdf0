"""The files of a store of rows: one JSON file, the manifest, beside shards.

    store/
      manifest.json            format, columns with their levels, shards with their checksums, the source and its files
      rows-00000-float64.npy   the columns of one dtype, row after row, of the first shard
      rows-00000-int32.npy

The manifest is written last and by renaming, so a folder with a manifest is whole.
"""

import json
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.storage.atomic import LARGEST_TEXT, PARTIAL, create_file, publish, sync_folder, write_whole

STORE_FORMAT = "lwa-rows"
STORE_VERSION = 1
STORE_MANIFEST = "manifest.json"
CONVERSION_FILE = "conversion.json"
"""Says which conversion is under way in a folder that has no manifest yet."""

type JsonRecord = dict[str, Any]
"""What one of these JSON files holds."""


def name_record(number: int) -> str:
    """Return the name of the file that says, while a conversion goes on, that a shard is whole."""
    return f"rows-{number:05d}.json"


def write_record(path: Path, content: JsonRecord) -> None:
    """Write a JSON file that is either whole or not there."""
    write_whole(path, json.dumps(content, indent=1).encode())


def read_record(path: Path) -> JsonRecord | None:
    """Return what a JSON file holds; None if it does not exist or is no record."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_TEXT:  # a pipe would be waited for
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def is_store(folder: Path) -> bool:
    """Return whether a folder holds rows that lwa converted, or a conversion that is not finished."""
    found = read_record(folder / STORE_MANIFEST) or read_record(folder / CONVERSION_FILE) or {}
    return found.get("format") == STORE_FORMAT


def read_manifest(folder: Path) -> JsonRecord:
    """Return the manifest of a store; raise unless it is whole and of this version."""
    again = f"lwa.rows.convert(source, {str(folder)!r})"
    try:
        found, begun = read_record(folder / STORE_MANIFEST), read_record(folder / CONVERSION_FILE)
    except OSError as error:
        raise DataError(f"'{folder}' cannot be read: {error.strerror}. Check its permissions with ls -l.") from error
    if found is None and begun is not None:
        raise DataError(f"the conversion into '{folder}' is not finished. Go on with {again}.")
    if found is None or found.get("format") != STORE_FORMAT:
        raise DataError(f"'{folder}' holds no converted rows. Make them with {again}.")
    if found.get("version") != STORE_VERSION:
        raise DataError(
            f"'{folder}' is of version {found.get('version')!r}; version {STORE_VERSION} is expected. Convert the "
            f"source again: lwa.rows.convert(source, {str(folder)!r}, overwrite=True)."
        )
    return found


@dataclass(eq=False)
class ShardWriter:
    """One shard on its way to disk: a file per dtype, row after row, under names that no reader looks at."""

    folder: Path
    number: int
    groups: dict[str, list[str]]  # names of columns by dtype
    rows: int = 0
    files: dict[str, BinaryIO] = field(default_factory=dict)
    checksums: dict[str, int] = field(default_factory=dict)

    def append(self, columns: dict[str, NDArray[Any]]) -> None:
        """Append rows to the files."""
        count = len(next(iter(columns.values())))
        if not count:
            return
        if not self.files:
            for dtype in self.groups:
                self._path(dtype, PARTIAL).unlink(missing_ok=True)  # of a killed process
                self.files[dtype] = create_file(self._path(dtype, PARTIAL))
                self._write_header(dtype)
        for dtype, names in self.groups.items():
            rows = np.empty((count, len(names)), dtype)
            for position, name in enumerate(names):
                rows[:, position] = columns[name]
            write_rows(self.files[dtype], rows)
            self.checksums[dtype] = zlib.crc32(rows, self.checksums.get(dtype, 0))
        self.rows += count

    def finish(self) -> list[dict[str, Any]]:
        """Sync the files, give them their names, and return their entries in the manifest."""
        entries = []
        for dtype, file in self.files.items():
            file.seek(0)
            self._write_header(dtype)
            path = self._path(dtype)
            publish(file, self._path(dtype, PARTIAL), path)
            size, checksum = path.stat().st_size, self.checksums[dtype]
            entries.append({"file": path.name, "dtype": dtype, "bytes": size, "crc32": checksum})
        if entries:
            sync_folder(self.folder)
        return entries

    def discard(self) -> None:
        """Remove files that are not finished."""
        for dtype, file in self.files.items():
            with suppress(OSError):  # the disk is full: what was buffered cannot be written
                file.close()
            self._path(dtype, PARTIAL).unlink(missing_ok=True)

    def _path(self, dtype: str, end: str = "") -> Path:
        return self.folder / f"rows-{self.number:05d}-{dtype}.npy{end}"

    def _write_header(self, dtype: str) -> None:
        # NumPy pads headers for a first axis of any length, so the number of rows can be overwritten at the end.
        shape = (self.rows, len(self.groups[dtype]))
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self.files[dtype], header)


def write_rows(file: BinaryIO, rows: NDArray[Any]) -> None:
    """Write the bytes of rows as they are in memory."""
    file.write(rows.data)
