"""Draws on their way to disk: one file of records, appended to and never rewritten.

`draws.rows` holds, draw after draw, one record a chain: a structured array `(draws, chains)` without a header. How many
of them count, and their checksum, is what the last checkpoint says; whatever follows was written after it.
"""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import RunFolderError

FILE = "draws.rows"
CHUNK = 1 << 24
"""Bytes checked at a time."""


@dataclass
class Stream:
    """A file of draws that grows."""

    path: Path
    record: np.dtype[Any]  # of one draw of one chain
    chains: int
    draws: int = 0
    checksum: int = 0

    @property
    def draw_bytes(self) -> int:
        """Bytes of one draw of all chains."""
        return self.record.itemsize * self.chains

    def append(self, variables: dict[str, NDArray[Any]]) -> None:
        """More draws, arrays `(chains, draws, ...)` by name, synced before this returns."""
        count = next(iter(variables.values())).shape[1]
        records = np.empty((count, self.chains), self.record)
        for name in self.record.names or ():
            records[name] = np.swapaxes(variables[name], 0, 1)
        content = records.tobytes()
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            # Over what an ended process may have left. What follows stays: it may be mapped, and will be written over.
            file.seek(self.draws * self.draw_bytes)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.draws += count
        self.checksum = zlib.crc32(content, self.checksum)

    def verify(self) -> str:
        """What is wrong with the file; nothing where it holds the draws that it should."""
        size = self.draws * self.draw_bytes
        try:
            if size == 0:
                return ""
            if self.path.stat().st_size < size:
                return "it was cut off"
            checksum = 0
            with self.path.open("rb") as file:
                for first in range(0, size, CHUNK):
                    checksum = zlib.crc32(file.read(min(CHUNK, size - first)), checksum)
        except OSError as error:
            return error.strerror or str(error)
        return "" if checksum == self.checksum else "its checksum is not the checkpoint's"

    def variables(self) -> dict[str, NDArray[Any]]:
        """All draws, `(chains, draws, ...)` by name: views of the mapped file, so that memory does not grow."""
        if self.draws == 0:
            return {
                name: np.empty((self.chains, 0, *self.record[name].shape), self.record[name].base)
                for name in self.record.names or ()
            }
        mapped = np.memmap(self.path, self.record, "r", shape=(self.draws, self.chains))
        return {name: np.swapaxes(mapped[name], 0, 1) for name in self.record.names or ()}

    def segment(self) -> dict[str, Any]:
        """What a manifest says of it."""
        described = [list(field) for field in self.record.descr]
        return {
            "file": self.path.name, "draws": self.draws, "chains": self.chains, "crc32": self.checksum,
            "record": described,
        }  # fmt: skip


def stream_of(folder: Path, segment: dict[str, Any]) -> Stream:
    """The file that a manifest, or a checkpoint, speaks of."""
    if segment["file"] != FILE:
        raise RunFolderError(f"{folder} names {segment['file']!r} as its draws, not {FILE!r}. It is not lwa's own.")
    record = np.dtype([(name, kind, tuple(rest[0]) if rest else ()) for name, kind, *rest in segment["record"]])
    if record.hasobject or record.itemsize == 0:
        raise RunFolderError(f"{folder} says that its draws are no numbers. It is not lwa's own.")
    chains, draws = int(segment["chains"]), int(segment["draws"])
    if chains < 1 or draws < 0:
        raise RunFolderError(f"{folder} says that it has {draws} draws of {chains} chains. It is not lwa's own.")
    return Stream(folder / FILE, record, chains, draws, int(segment["crc32"]))


def record_of(variables: dict[str, NDArray[Any]]) -> np.dtype[Any]:
    """The record that holds one draw of one chain, of arrays `(chains, draws, ...)` by name."""
    return np.dtype([(name, values.dtype.str, values.shape[2:]) for name, values in variables.items()])
