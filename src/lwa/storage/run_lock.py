"""One process at a time writes to a run's folder."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lwa.errors import RunFolderError

PATIENCE = 0.5
"""Seconds: somebody who only asks whether a run goes on holds the lock for a moment."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Refuse a folder in which another process keeps a run, and let none come in."""
    lock = _lock(folder)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def require_idle(folder: Path) -> None:
    """Refuse a folder in which another process keeps a run."""
    if folder.is_dir():
        with alone_in(folder):
            pass


def goes_on(folder: Path) -> bool:
    """Whether a process keeps a run there."""
    try:
        require_idle(folder)
    except RunFolderError:
        return True
    return False


def _lock(folder: Path) -> int | None:
    """A lock on the folder itself, which ends with the process that holds it; None where there are no such locks."""
    try:
        import fcntl
    except ImportError:  # Windows locks no folders
        return None
    lock, until = os.open(folder, os.O_RDONLY), time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() < until:
                time.sleep(0.02)
                continue
            os.close(lock)
            raise RunFolderError(
                f"Another process keeps its run in {folder}. Wait until it is over, or end it; lwa watch {folder} "
                "shows how far it is."
            ) from None
        except OSError:  # a file system without locks
            os.close(lock)
            return None
