"""The state of a run on disk: the last two generations of it, each written whole or not at all.

A generation is one file, `state-00000012.lwa`:

    magic, 8 bytes | length of the rest | its CRC-32 | a ZIP of `.npy` arrays, one of which is JSON

It is written under another name, synced and renamed. Nothing in it is pickled, and nothing is executed.
"""

import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"lwastate"
HEADER = struct.Struct("<8sQI")
NAMES = "state-" + 8 * "[0-9]" + ".lwa"
PARTIAL = "state.partial"
HEAD = "head"
"""The array that holds JSON."""
KEPT = 2
"""Generations: should the last be damaged, the one before goes on."""

type Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Generation:
    """What was true at one moment."""

    number: int
    head: dict[str, Any]
    arrays: Arrays


def write(folder: Path, number: int, head: dict[str, Any], arrays: Arrays) -> None:
    """Write a generation; older ones go once it is safe."""
    content = packed(head, arrays)
    write_whole(folder / f"state-{number:08d}.lwa", content, folder / PARTIAL)
    for old in sorted(folder.glob(NAMES))[:-KEPT]:
        old.unlink(missing_ok=True)


def generations(folder: Path) -> Iterator[tuple[Generation | None, str]]:
    """Those that are there, the last one first; None and what is wrong where one is damaged."""
    for path in sorted(folder.glob(NAMES), reverse=True):
        try:
            yield Generation(int(path.stem.removeprefix("state-")), *unpacked(path.read_bytes())), ""
        except (OSError, ValueError) as error:
            yield None, f"{path.name} is damaged ({error})"


def packed(head: dict[str, Any], arrays: Arrays) -> bytes:
    """A generation as bytes."""
    told = np.frombuffer(json.dumps(head, default=plain).encode(), np.uint8)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, values in ({HEAD: told} | arrays).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)
    content = buffer.getvalue()
    return HEADER.pack(MAGIC, len(content), zlib.crc32(content)) + content


def unpacked(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """The generation that these bytes are; ValueError where they are not one, or not as they were written."""
    if len(content) < HEADER.size:
        raise ValueError("it was cut off")
    magic, length, checksum = HEADER.unpack_from(content)
    body = content[HEADER.size :]
    if magic != MAGIC:
        raise ValueError("it is no checkpoint of lwa")
    if len(body) != length:
        raise ValueError("it was cut off")
    if zlib.crc32(body) != checksum:
        raise ValueError("its checksum is not its own")
    try:
        with zipfile.ZipFile(BytesIO(body)) as archive:
            arrays = {one.filename.removesuffix(".npy"): _array(archive, one) for one in archive.infolist()}
        head = json.loads(arrays.pop(HEAD).tobytes())
    except Exception as error:  # whatever readers of ZIP, NumPy and JSON make of bytes that are not lwa's
        raise ValueError(f"it cannot be read: {error or type(error).__name__}") from None
    if not isinstance(head, dict):
        raise ValueError("its head is no description")
    return head, arrays


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, in memory that its file has paid for: nothing is unpacked, to memory or to disk."""
    if member.compress_type != zipfile.ZIP_STORED or {"", "..", "."} & set(member.filename.split("/")):
        raise ValueError(f"{member.filename!r} is nothing that lwa writes")
    file = BytesIO(archive.read(member))
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"{member.filename!r} is of a version that lwa does not write")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(file.getbuffer()) - file.tell():
        raise ValueError(f"{member.filename!r} does not hold the numbers that it promises")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def plain(value: Any) -> Any:
    """What JSON has no word for: labels of axes may be NumPy's numbers, or dates."""
    return value.item() if isinstance(value, np.generic) else str(value)


def write_whole(path: Path, content: bytes, partial: Path) -> None:
    """Under another name, synced, renamed, and the folder synced: after a power cut the file is whole or not there."""
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """What was renamed in a folder stays renamed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
