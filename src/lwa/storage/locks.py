"""Locks on folders: one process at a time writes to a run or a store. A lock ends with the process that holds it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from lwa.errors import RunFolderError
from lwa.user.progress import Display

LOCK_FILE = ".lock"
"""Its name, in the folder. The file is there while a process writes. One left by a killed process is not locked."""
PATIENCE = 0.5
"""Seconds: a process that only asks whether a run goes on holds the lock for a moment."""


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run folder; raise if another one writes to it."""
    lock = _build_lock(folder)
    # A file system may have no locks. A folder that cannot be written to is refused later.
    with suppress(OSError):
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            raise RunFolderError(
                f"Another process keeps its run in {folder}. Wait until it is over, or end it; lwa watch {folder} "
                "shows how far it is."
            ) from None
    try:
        yield
    finally:
        _release(lock, folder)


def require_idle(folder: Path) -> None:
    """Raise if another process keeps a run in this folder."""
    if (folder / LOCK_FILE).exists():
        with lock_run(folder):
            pass


def is_running(folder: Path) -> bool:
    """Return whether a process keeps a run in this folder."""
    try:
        require_idle(folder)
    except RunFolderError:
        return True
    return False


@contextmanager
def lock_conversion(folder: Path, display: Display) -> Iterator[None]:
    """Wait until no other process converts into this folder, then keep others out. Leave no empty folder behind."""
    made = not folder.exists()
    lock = _build_lock(folder)
    while not lock.is_locked:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the process that held the lock has removed the folder
            try:
                lock.acquire(timeout=0)
            except Timeout:
                display.say(f"Waiting for another conversion into {folder}")
                lock.acquire()
    try:
        yield
    finally:
        _release(lock, folder)
        if made:
            with suppress(OSError):  # there are rows in it, or another process has come in
                folder.rmdir()


def _build_lock(folder: Path) -> FileLock:
    """Return the lock of a folder, which other users may try too: `lwa watch` shows runs of theirs."""
    return FileLock(folder / LOCK_FILE, mode=0o666)


def _release(lock: FileLock, folder: Path) -> None:
    """Remove the lock file and release the lock, in this order: a process that waits for it then makes a new file."""
    if not lock.is_locked:
        return
    with suppress(OSError):  # Windows removes no file that is open
        (folder / LOCK_FILE).unlink()
    lock.release()
