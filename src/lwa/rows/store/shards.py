"""Writing rows in whole shards."""

import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lwa.rows.store.manifest import name_shard
from lwa.storage.atomic import PARTIAL, publish, sync_folder


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
                self.files[dtype] = self._path(dtype, PARTIAL).open("wb")
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
            entries.append(
                {"file": path.name, "dtype": dtype, "bytes": path.stat().st_size, "crc32": self.checksums[dtype]}
            )
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
        return self.folder / (name_shard(self.number, dtype) + end)

    def _write_header(self, dtype: str) -> None:
        # NumPy pads headers for a first axis of any length, so the number of rows can be overwritten at the end.
        shape = (self.rows, len(self.groups[dtype]))
        np.lib.format.write_array_header_1_0(
            self.files[dtype], {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        )


def write_rows(file: BinaryIO, rows: NDArray[Any]) -> None:
    """Write the bytes of rows as they are in memory."""
    file.write(rows.data)
