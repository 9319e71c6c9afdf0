"""Files that are whole or not there, also after a power cut, and that are written and read through no link."""

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"
"""The end of the name of a file that is being written."""
LARGEST_TEXT = 2**28
"""Bytes of a file of JSON, at most. A longer one is not lwa's."""
NOT_HERE = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0), getattr(os, "O_BINARY", 0)
"""Flags that only some systems have: follow no link, do not wait for a pipe, change no byte."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a new file under a random name, sync it, rename it and sync its folder; leave nothing if that fails."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")
    file = create_file(partial)
    try:
        with file:
            file.write(content)
            publish(file, partial, path)
        sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def create_file(path: Path) -> BinaryIO:
    """Open a new file for writing. A file or a link of that name is an error: nothing is overwritten."""
    follow, _, binary = NOT_HERE
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | follow | binary, 0o666), "wb")


def open_regular(path: Path, *, most: int | None = None, writing: bool = False) -> BinaryIO:
    """Open a file that is there, neither a link nor a pipe or a device, and that has no more than `most` bytes."""
    follow, wait, binary = NOT_HERE
    try:
        handle = os.open(path, (os.O_RDWR if writing else os.O_RDONLY) | follow | wait | binary)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link to somewhere else") from None
        raise
    found = os.fstat(handle)
    wrong = "it is not a regular file" if not stat.S_ISREG(found.st_mode) else ""
    if most is not None and found.st_size > most:
        wrong = wrong or f"it has {found.st_size:,} bytes, more than lwa writes"
    if wrong:
        os.close(handle)
        raise OSError(errno.EINVAL, wrong)
    return os.fdopen(handle, "r+b" if writing else "rb")


def read_regular(path: Path, *, most: int | None = None) -> bytes:
    """Return the bytes of a regular file."""
    with open_regular(path, most=most) as file:
        return file.read()


def is_partial(path: Path, names: tuple[str, ...]) -> bool:
    """Return whether a killed process left this file while it wrote one whose name begins like one of these."""
    return path.name.endswith(PARTIAL) and path.name.startswith(names)


def publish(file: BinaryIO, partial: Path, path: Path) -> None:
    """Sync a file that was written as `partial`, close it and rename it to `path`."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    partial.replace(path)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that files renamed in it stay renamed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
