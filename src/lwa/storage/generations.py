"""The state of a run on disk: its last two generations, each written whole or not at all.

A generation is one file, `state-00000012.lwa`:

    magic, 8 bytes | length of the rest | its CRC-32 | a ZIP of `.npy` arrays, one of which is JSON

Nothing in it is pickled, and nothing is executed. The checksum covers what those of the ZIP leave out: its headers.
"""

import json
import math
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

from lwa.storage.atomic import is_partial, open_regular, write_whole

MAGIC = b"lwastate"
HEADER = struct.Struct("<8sQI")
STATE_FILES = "state-" + 8 * "[0-9]" + ".lwa"
LARGEST_STATE = 2**33
"""Bytes of a state, at most. A larger one is not lwa's."""
HEAD_ARRAY = "head"
"""The array that holds JSON."""
KEPT_GENERATIONS = 2
"""If the last generation is damaged, the run goes on from the one before."""

type Arrays = dict[str, NDArray[Any]]
type Head = dict[str, Any]
"""What JSON can say about a run at one moment."""


@dataclass(frozen=True)
class Generation:
    """The state of a run at one moment."""

    number: int
    head: Head
    arrays: Arrays


def write_generation(folder: Path, number: int, head: Head, arrays: Arrays) -> None:
    """Write a generation, then remove all but the last two."""
    content = pack_generation(head, arrays)
    write_whole(folder / f"state-{number:08d}.lwa", content)
    for old in [*sorted(folder.glob(STATE_FILES))[:-KEPT_GENERATIONS], *find_partial_states(folder)]:
        old.unlink(missing_ok=True)


def find_partial_states(folder: Path) -> list[Path]:
    """Return what killed processes wrote of a state."""
    return [path for path in folder.glob("state-*") if is_partial(path, ("state-",))]


def read_generations(folder: Path) -> Iterator[tuple[Generation | None, str]]:
    """Read the generations of a run, the last one first; None and what is wrong if one is damaged."""
    for path in sorted(folder.glob(STATE_FILES), reverse=True):
        try:
            yield Generation(int(path.stem.removeprefix("state-")), *unpack_generation(read_state(path))), ""
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            yield None, f"{path.name} is damaged ({reason})"


def read_state(path: Path) -> bytes:
    """Return the bytes of a state whose header says how many they are."""
    with open_regular(path, most=LARGEST_STATE) as file:
        head = file.read(HEADER.size)
        length = HEADER.unpack(head)[1] if len(head) == HEADER.size and head.startswith(MAGIC) else 0
        return head + file.read(length)


def pack_generation(head: Head, arrays: Arrays) -> bytes:
    """Return the bytes of a generation."""
    text = np.frombuffer(json.dumps(head, default=encode_scalar).encode(), np.uint8)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, values in ({HEAD_ARRAY: text} | arrays).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)
    content = buffer.getvalue()
    return HEADER.pack(MAGIC, len(content), zlib.crc32(content)) + content


def unpack_generation(content: bytes) -> tuple[Head, Arrays]:
    """Return the generation in these bytes; raise ValueError if they are none or not as they were written."""
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
            arrays = {one.filename.removesuffix(".npy"): _read_member(archive, one) for one in archive.infolist()}
        head = json.loads(arrays.pop(HEAD_ARRAY).tobytes())
    except Exception as error:  # whatever readers of ZIP, NumPy and JSON make of bytes that are not lwa's
        raise ValueError(f"it cannot be read: {error or type(error).__name__}") from None
    if not isinstance(head, dict):
        raise ValueError("its head is no description")
    return head, arrays


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array into no more memory than its file has bytes. Nothing is decompressed or written to disk."""
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


def encode_scalar(value: object) -> object:
    """Return a value that JSON can hold: labels of axes may be NumPy's numbers, or dates."""
    return value.item() if isinstance(value, np.generic) else str(value)
