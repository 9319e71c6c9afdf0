"""Compute in other processes of this machine. They are spawned, since JAX does not survive a fork."""

import multiprocessing
import os
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lwa.errors import ExecutorError
from lwa.executors.executor import Work
from lwa.executors.shipping import Packing, Parcel, find_versions, pack_task, run_task

MOST_TRIES = 3
"""Number of processes that may die over the same piece before the run ends with an error."""


class Processes(AbstractContextManager["Processes"]):
    """Compute in other processes of this machine. A process that dies is replaced, and its work repeated.

    A script that uses it must keep its work under `if __name__ == "__main__":`, since each process imports the script.

    Parameters
    ----------
    count
        Number of processes. The default is the number of cores.

    Examples
    --------
    >>> import lwa
    >>> with lwa.executors.Processes(2) as executor:  # doctest: +SKIP
    ...     fit = lwa.sample(model, "rows.npy", executor=executor)
    """

    def __init__(self, count: int | None = None) -> None:
        self.workers = count or os.cpu_count() or 1
        self.folder = Path(tempfile.mkdtemp(prefix="lwa-processes-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.packing = Packing(self._write)
        self.pool: ProcessPoolExecutor | None = None

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        self.close()

    def close(self) -> None:
        """End all processes and delete their files."""
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)
            self.pool = None
        self.remove()

    def _write(self, parcel: Parcel) -> Parcel:
        path = self.folder / parcel.digest  # each process reads it once, however many tasks need it
        assert isinstance(parcel.content, bytes)
        path.write_bytes(parcel.content)
        return replace(parcel, content=path)

    def map(self, work: Work, pieces: Sequence[Any], near: Sequence[float] | None = None) -> Iterator[Any]:
        """Yield the result of each piece, in order; `near` is not used."""
        shared = self.packing.pack_all(work.shared)
        tasks = [(shared, pack_task(work, piece)) for piece in pieces]
        waiting: deque[tuple[int, Future[Any]]] = deque()
        next_task, tries = 0, [0] * len(tasks)
        try:
            while waiting or next_task < len(tasks):
                while next_task < len(tasks) and len(waiting) < 4 * self.workers:
                    waiting.append((next_task, self._submit(tasks[next_task])))
                    next_task += 1
                at, future = waiting.popleft()
                try:
                    yield future.result()
                except BrokenProcessPool:
                    tries[at] += 1
                    if tries[at] == MOST_TRIES:
                        raise ExecutorError(
                            f"A process of lwa.executors.Processes({self.workers}) ended {MOST_TRIES} times while it "
                            "computed the same piece: killed, out of memory, or unable to start. Use fewer processes, "
                            'and keep the work of a script under if __name__ == "__main__":.'
                        ) from None
                    self.pool = None
                    again = [at, *(other for other, _ in waiting)]
                    waiting = deque((other, self._submit(tasks[other])) for other in again)
        finally:
            for _, future in waiting:
                future.cancel()

    def _submit(self, task: tuple[tuple[Parcel, ...], bytes]) -> Future[Any]:
        for _ in range(2):
            if self.pool is None:
                self.pool = ProcessPoolExecutor(self.workers, mp_context=multiprocessing.get_context("spawn"))
            try:
                return self.pool.submit(run_task, *task, find_versions())
            except BrokenProcessPool:
                self.pool = None
        raise ExecutorError("No process can be started. Close other programs, or leave executor out.")
