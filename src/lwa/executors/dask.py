"""Compute on a Dask cluster."""

import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lwa.errors import ExecutorError, InputError
from lwa.executors.executor import Work
from lwa.executors.shipping import Packing, Parcel, find_versions, pack_task, run_task

if TYPE_CHECKING:
    from distributed import Client, Future

MOST_INLINE_BYTES = 2**18
"""Bytes of a parcel that each task may carry. A larger parcel is a task of its own; workers copy it to each other."""
POLL_SECONDS = 0.5
"""Seconds between two checks whether any worker is left."""


class Dask:
    """Compute on a Dask cluster. If a worker dies, others repeat its work: only the time changes.

    Parameters
    ----------
    client
        A connected `distributed.Client`. Its workers need the same version of lwa as this process.
    patience
        Seconds to wait for a worker if there is none, before the run ends with what it has.

    Examples
    --------
    >>> import lwa
    >>> from distributed import Client  # doctest: +SKIP
    >>> executor = lwa.executors.Dask(Client("tcp://scheduler:8786"))  # doctest: +SKIP
    >>> fit = lwa.sample(model, "/shared/rows", executor=executor, checkpoint="run/")  # doctest: +SKIP
    """

    def __init__(self, client: "Client", patience: float = 30.0) -> None:
        if not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
            raise InputError(
                f"client is of type {type(client).__name__}. Pass a distributed.Client, e.g. "
                "lwa.executors.Dask(distributed.Client('tcp://scheduler:8786'))."
            )
        if client.asynchronous:
            raise InputError("client is asynchronous. Pass distributed.Client(address), without asynchronous=True.")
        if not patience > 0:
            raise InputError(f"patience={patience!r} must be a positive number of seconds. Pass patience=30.")
        self.client, self.patience = client, patience
        self.packing = Packing(self._keep)
        self.missed: float | None = None  # since when there has been no worker
        self.addresses: list[str] = []
        self.checked = -1e9  # when the addresses were last read

    @property
    def workers(self) -> int:
        """Number of pieces computed in parallel."""
        return max(1, len(self._find_workers()))

    def _find_workers(self) -> list[str]:
        """Return the addresses of the workers, at most a moment old: to ask takes some milliseconds."""
        if time.monotonic() - self.checked > POLL_SECONDS:
            self.addresses, self.checked = self._ask_for_workers(), time.monotonic()
        return self.addresses

    def _ask_for_workers(self) -> list[str]:
        """Ask the scheduler for the addresses of its workers."""
        try:
            return sorted(self.client.nthreads(callback_timeout=max(5.0, self.patience)))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ExecutorError(
                f"The scheduler of the Dask cluster does not answer ({type(error).__name__}: {error}). Restart it and "
                "connect a new distributed.Client to it."
            ) from error

    def _keep(self, parcel: Parcel) -> "Parcel | Future[Parcel]":
        assert isinstance(parcel.content, bytes)
        if len(parcel.content) <= MOST_INLINE_BYTES:
            return parcel
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # data in memory are sent once
            return self.client.submit(hold_parcel, parcel, key=f"lwa-parcel-{parcel.digest}")

    def map(self, work: Work, pieces: Sequence[Any], near: Sequence[float] | None = None) -> Iterator[Any]:
        """Yield the result of each piece, in order."""
        shared, installed = self.packing.pack_all(work.shared), find_versions()
        preferred = self._choose_workers(near, len(pieces))
        waiting: deque[Task] = deque()
        try:
            for piece, worker in zip(pieces, preferred, strict=True):
                waiting.append(Task(self.client, (shared, pack_task(work, piece), installed), worker))
            while waiting:
                yield self._await_result(waiting[0])
                waiting.popleft().future.release()
        finally:
            for one in waiting:
                one.future.cancel()

    def _choose_workers(self, near: Sequence[float] | None, count: int) -> list[str | None]:
        """Return the preferred worker of each piece; None if any will do."""
        if near is None or not (there := self._find_workers()):
            return [None] * count
        return [there[min(int(at * len(there)), len(there) - 1)] for at in near]

    def _await_result(self, waiting: "Task") -> Any:
        """Wait for the result of a task; raise `ExecutorError` once no worker is left to compute it."""
        while True:  # a result may be lost again with the worker that holds it
            try:
                return waiting.future.result(timeout=POLL_SECONDS)
            except Exception as error:
                if waiting.future.status == "error":
                    raise explain_error(error) from None
                if not isinstance(error, TimeoutError):
                    raise ExecutorError(
                        f"The Dask cluster dropped a task ({type(error).__name__}): its scheduler ended, or its client "
                        "was closed. Restart it and connect a new distributed.Client to it."
                    ) from error
            waiting.resubmit_if_lost(self._require_workers())

    def _require_workers(self) -> list[str]:
        """Return the addresses of the workers; raise `ExecutorError` if there was none for `patience` seconds."""
        if self.client.status not in ("running", "connecting"):
            raise ExecutorError("The client of the Dask cluster is closed. Connect a new distributed.Client.")
        if there := self._ask_for_workers():
            self.missed = None
            return there
        self.missed = self.missed or time.monotonic()
        if time.monotonic() - self.missed > self.patience:
            raise ExecutorError(
                f"The Dask cluster has had no worker for {self.patience:.0f} s. Start workers (dask worker ADDRESS) "
                "and resume the run."
            )
        return []


@contextmanager
def connect_dask(address: str | None, patience: float = 30.0) -> Iterator[Dask | None]:
    """Yield an executor for the cluster whose scheduler has this address; None if there is no address."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise InputError(f"--dask {address} needs Dask. Install it with pip install 'lwa[dask]'.") from None
    try:
        client = Client(address, timeout=max(1.0, patience / 3))  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise ExecutorError(
            f"No Dask scheduler answers at {address!r} ({type(error).__name__}). Start one with dask scheduler, and "
            "pass the address it prints, such as tcp://10.0.0.1:8786."
        ) from error
    with client:
        yield Dask(client, patience)


class Task:
    """A task submitted to a cluster, with the worker that should compute it, if any."""

    def __init__(self, client: "Client", arguments: tuple[Any, ...], worker: str | None) -> None:
        self.client, self.arguments, self.worker = client, arguments, worker
        self.future = self._submit()

    def _submit(self) -> Any:
        more = {} if self.worker is None else {"workers": [self.worker], "allow_other_workers": True}
        return self.client.submit(run_task, *self.arguments, pure=False, **more)

    def resubmit_if_lost(self, there: Sequence[str]) -> None:
        """Let any worker compute the task if its own is gone.

        Dask never gives a task that was assigned while its worker was the only one to workers that join later.
        """
        if there and self.worker is not None and self.worker not in there:
            self.future.cancel()
            self.worker = None
            self.future = self._submit()


def hold_parcel(parcel: Parcel) -> Parcel:
    """Return the parcel. As the result of a task, Dask can restore it if the worker that holds it dies."""
    return parcel


def explain_error(error: Exception) -> Exception:
    """Return what a task raised, or an `ExecutorError` that says why it could not run."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return ExecutorError(
            f"Workers of the Dask cluster died again and again over the same task: {error}. Most often they run out of "
            "memory. Start them with more memory, or with fewer threads."
        )
    if isinstance(error, ModuleNotFoundError):
        return ExecutorError(
            f"A worker has no module {error.name!r}. Install it on all workers (lwa itself with pip install "
            "'lwa[dask]'), or send your own with client.upload_file('my_model.py')."
        )
    return error
