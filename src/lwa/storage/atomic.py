"""Files that are either whole or not there, also after a power cut."""

import os
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"
"""The end of the name of a file that is being written."""


def write_whole(path: Path, content: bytes, partial: Path | None = None) -> None:
    """Write a file under another name, sync it, rename it and sync its folder; leave nothing if that fails.

    The other name is `partial`, or that of the file with `PARTIAL` at its end.
    """
    partial = partial or path.with_name(path.name + PARTIAL)
    try:
        with partial.open("wb") as file:
            file.write(content)
            publish(file, partial, path)
        sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


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
