"""What this machine is like: the speed of its disk, its free memory, and the memory that this process holds."""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

MEASURED_BYTES = 64 * 2**20
"""Bytes that are read to measure the speed of a disk."""
READ_CHUNK_BYTES = 4 * 2**20
CGROUP_FOLDER = Path("/sys/fs/cgroup")
"""Folder in which Linux reports what a container may use."""
UNKNOWN_DISK_SPEED = 200e6
"""Bytes per second of a disk that cannot be measured: a slow one."""


def measure_disk_speed(files: Sequence[Path]) -> float:
    """Return the bytes per second of the disk, read at the end of the largest file after its page cache is dropped."""
    largest = max(files, key=lambda path: path.stat().st_size, default=None)
    if largest is None or not hasattr(os, "posix_fadvise"):
        return UNKNOWN_DISK_SPEED
    handle = os.open(largest, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        begin = max(0, size - MEASURED_BYTES)
        os.posix_fadvise(handle, begin, size - begin, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        for at in range(begin, size, READ_CHUNK_BYTES):
            os.pread(handle, READ_CHUNK_BYTES, at)
        return (size - begin) / max(time.perf_counter() - began, 1e-6)
    finally:
        os.close(handle)


def read_reported_memory(report: str, name: str, *, unknown: float) -> float:
    """Return the bytes that a file in /proc reports under a name; `unknown` if the system has no such file."""
    try:
        return 1024.0 * int(Path(report).read_text().split(f"{name}:")[1].split()[0])
    except OSError:
        return unknown


def read_free_memory() -> float:
    """Return the bytes that the system could still give, page cache included; infinite if it does not report them."""
    available = read_reported_memory("/proc/meminfo", "MemAvailable", unknown=float("inf"))
    return min(available, read_cgroup_memory(CGROUP_FOLDER))


def read_cgroup_memory(folder: Path) -> float:
    """Return the bytes that a container may still use, inactive page cache included; infinite without a limit."""
    try:
        most, used = ((folder / f"memory.{what}").read_text().strip() for what in ("max", "current"))
        of_files = (folder / "memory.stat").read_text().split("inactive_file ")[1].split()[0]
        return max(0.0, float(int(most) - int(used) + int(of_files)))
    except (OSError, ValueError, IndexError):  # "max" is no number: there is no limit
        return float("inf")


class PeakMemory(threading.Thread):
    """A thread that records the most anonymous memory of this process, sampled a hundred times per second."""

    def __init__(self) -> None:
        super().__init__(name="lwa-peak", daemon=True)
        self.bytes, self.over = 0.0, threading.Event()

    def run(self) -> None:
        """Sample until the `with` block ends."""
        while not self.over.wait(0.01):
            self.sample()

    def sample(self) -> None:
        """Read the anonymous memory of this process: what it holds, mapped files apart."""
        self.bytes = max(self.bytes, read_reported_memory("/proc/self/status", "RssAnon", unknown=0.0))

    def __enter__(self) -> Self:
        """Start to sample."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Sample a last time, and stop."""
        self.over.set()
        self.join()
        self.sample()
