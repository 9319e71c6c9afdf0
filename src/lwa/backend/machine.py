"""What this machine is like: how fast its disk is, how much memory is free, how much this process holds."""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

READ_BYTES = 64 * 2**20
"""That a disk's speed is measured by."""
CHUNK = 4 * 2**20
GROUP = Path("/sys/fs/cgroup")
"""Where Linux says what a container may use."""
UNKNOWN_DISK = 200e6
"""Bytes a second of a disk that could not be tried: a slow one."""


def disk_speed(files: Sequence[Path]) -> float:
    """Bytes a second that come from the disk, not from memory: the end of the largest file, which was let go first."""
    largest = max(files, key=lambda path: path.stat().st_size, default=None)
    if largest is None or not hasattr(os, "posix_fadvise"):
        return UNKNOWN_DISK
    handle = os.open(largest, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        begin = max(0, size - READ_BYTES)
        os.posix_fadvise(handle, begin, size - begin, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        for at in range(begin, size, CHUNK):
            os.pread(handle, CHUNK, at)
        return (size - begin) / max(time.perf_counter() - began, 1e-6)
    finally:
        os.close(handle)


def free_memory() -> float:
    """Bytes that the system could still give, for pages of files too; infinite where it does not say."""
    try:
        said = Path("/proc/meminfo").read_text()
    except OSError:
        return float("inf")
    return min(1024.0 * int(said.split("MemAvailable:")[1].split()[0]), left_to_group(GROUP))


def left_to_group(folder: Path) -> float:
    """Bytes left to a container by what limits it, pages of files apart, which go first; infinite without one."""
    try:
        most, used = ((folder / f"memory.{what}").read_text().strip() for what in ("max", "current"))
        of_files = (folder / "memory.stat").read_text().split("inactive_file ")[1].split()[0]
        return max(0.0, float(int(most) - int(used) + int(of_files)))
    except (OSError, ValueError, IndexError):  # "max" is no number: there is no limit
        return float("inf")


def anonymous_memory() -> float:
    """Bytes that this process holds, pages of mapped files apart; 0 where the system does not say."""
    try:
        said = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    return 1024.0 * int(said.split("RssAnon:")[1].split()[0])


class Peak(threading.Thread):
    """The most anonymous memory that this process held while it was watched, looked at a hundred times a second."""

    def __init__(self) -> None:
        super().__init__(name="lwa-peak", daemon=True)
        self.bytes, self.over = 0.0, threading.Event()

    def run(self) -> None:
        """Until nobody wants to know any more."""
        while not self.over.wait(0.01):
            self.bytes = max(self.bytes, anonymous_memory())

    def __enter__(self) -> Self:
        """Begin to look."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look a last time."""
        self.over.set()
        self.join()
        self.bytes = max(self.bytes, anonymous_memory())
