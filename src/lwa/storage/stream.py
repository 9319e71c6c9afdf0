"""Draws on their way to disk: one file of records, appended to and never rewritten.

`draws.rows` holds, draw after draw, one record per chain: a structured array `(draws, chains)` without a header. The
last checkpoint says how many of them count and what their checksum is; what follows was written after it.
"""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import RunFolderError
from lwa.storage.atomic import create_file, open_regular

STREAM_FILE = "draws.rows"
VERIFIED_BYTES = 1 << 24
"""How many bytes are checked at a time."""


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
        """The bytes of one draw of all chains."""
        return self.record.itemsize * self.chains

    def append(self, variables: dict[str, NDArray[Any]]) -> None:
        """Append draws, arrays `(chains, draws, ...)` by name, and sync the file."""
        count = next(iter(variables.values())).shape[1]
        records = np.empty((count, self.chains), self.record)
        for name in self.record.names or ():
            records[name] = np.swapaxes(variables[name], 0, 1)
        content = records.tobytes()
        there = os.path.lexists(self.path)
        with open_regular(self.path, writing=True) if there else create_file(self.path) as file:
            # This overwrites what an ended process may have left. The rest of it stays until it is overwritten too:
            # it may be mapped.
            file.seek(self.draws * self.draw_bytes)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.draws += count
        self.checksum = zlib.crc32(content, self.checksum)

    def verify(self) -> str:
        """Return what is wrong with the file, or "" if it holds the draws that it should."""
        size = self.draws * self.draw_bytes
        try:
            if size == 0:
                return ""
            if self.path.stat().st_size < size:
                return "it was cut off"
            checksum = 0
            with open_regular(self.path) as file:
                for first in range(0, size, VERIFIED_BYTES):
                    checksum = zlib.crc32(file.read(min(VERIFIED_BYTES, size - first)), checksum)
        except OSError as error:
            return error.strerror or str(error)
        return "" if checksum == self.checksum else "its checksum is not the checkpoint's"

    def variables(self) -> dict[str, NDArray[Any]]:
        """Return all draws, `(chains, draws, ...)` by name: views of the mapped file, so that memory does not grow."""
        if self.draws == 0:
            return {
                name: np.empty((self.chains, 0, *self.record[name].shape), self.record[name].base)
                for name in self.record.names or ()
            }
        with open_regular(self.path) as file:
            mapped = np.memmap(file, self.record, "r", shape=(self.draws, self.chains))
        return {name: np.swapaxes(mapped[name], 0, 1) for name in self.record.names or ()}

    def describe(self) -> dict[str, Any]:
        """Return the entry of the file in a manifest or a checkpoint."""
        fields = [list(field) for field in self.record.descr]
        return {
            "file": self.path.name, "draws": self.draws, "chains": self.chains, "crc32": self.checksum,
            "record": fields,
        }  # fmt: skip


def load_stream(folder: Path, segment: dict[str, Any]) -> Stream:
    """Return the stream that a manifest or a checkpoint describes."""
    if segment["file"] != STREAM_FILE:
        raise RunFolderError(
            f"{folder} names {segment['file']!r} as its draws, not {STREAM_FILE!r}. It is not lwa's own."
        )
    record = np.dtype([(name, kind, tuple(rest[0]) if rest else ()) for name, kind, *rest in segment["record"]])
    if record.hasobject or record.itemsize == 0:
        raise RunFolderError(f"{folder} says that its draws are no numbers. It is not lwa's own.")
    chains, draws = int(segment["chains"]), int(segment["draws"])
    if chains < 1 or draws < 0:
        raise RunFolderError(f"{folder} says that it has {draws} draws of {chains} chains. It is not lwa's own.")
    return Stream(folder / STREAM_FILE, record, chains, draws, int(segment["crc32"]))


def build_record(variables: dict[str, NDArray[Any]]) -> np.dtype[Any]:
    """Return the dtype of one draw of one chain, for arrays `(chains, draws, ...)` by name."""
    return np.dtype([(name, values.dtype.str, values.shape[2:]) for name, values in variables.items()])
