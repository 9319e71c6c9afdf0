"""One conversion at a time into a folder, whatever processes there are."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lwa.user.progress import Display


@contextmanager
def alone_in(folder: Path, display: Display) -> Iterator[None]:
    """Wait until no other process converts into this folder, then let none. An empty folder does not stay behind."""
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = _lock(folder, display)
    try:
        yield
    finally:
        if made and not any(folder.iterdir()):
            folder.rmdir()
        if handle is not None:
            os.close(handle)


def _lock(folder: Path, display: Display) -> int | None:
    """A lock on the folder itself, which ends with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # Windows locks no folders
        return None
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            display.say(f"Waiting for another conversion into {folder}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Whoever held it may have removed the folder meanwhile: then this one is of no use.
        if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
            return handle
        os.close(handle)
