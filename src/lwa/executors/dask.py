"""On a cluster that Dask operates."""

import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lwa.errors import ExecutorError, InputError
from lwa.executors.executor import Work
from lwa.executors.shipping import Packing, Parcel, carry_out, rest_of, versions

if TYPE_CHECKING:
    from distributed import Client, Future

SMALL = 2**18
"""Bytes that each task may carry; larger parcels are tasks of their own, which workers hand on to each other."""
LOOK = 0.5
"""Seconds between two looks at whether anybody is left to wait for."""


class Dask:
    """A cluster of Dask's. A worker that dies changes nothing but the time: others do its work again.

    Parameters
    ----------
    client
        A `distributed.Client`, connected. Its workers need lwa, in the version used here.
    patience
        Seconds to wait for a worker where there is none, before the run ends with what it has.

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
            raise InputError(f"patience={patience!r} is no time to wait. Pass seconds, such as 30.")
        self.client, self.patience = client, patience
        self.packing = Packing(self._keep)
        self.missed: float | None = None  # since when nobody answers
        self.there: list[str] = []
        self.asked = -1e9  # when it was asked who is there

    @property
    def workers(self) -> int:
        """How many pieces are computed side by side."""
        return max(1, len(self._lately()))

    def _lately(self) -> list[str]:
        """The workers that there were a moment ago: to ask costs some milliseconds."""
        if time.monotonic() - self.asked > LOOK:
            self.there, self.asked = self._addresses(), time.monotonic()
        return self.there

    def _addresses(self) -> list[str]:
        """Of the workers that there are."""
        try:
            return sorted(self.client.nthreads(callback_timeout=max(5.0, self.patience)))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ExecutorError(
                f"The scheduler of the Dask cluster does not answer ({type(error).__name__}: {error}). Start it again "
                "and connect a new distributed.Client to it."
            ) from error

    def _keep(self, parcel: Parcel) -> "Parcel | Future[Parcel]":
        assert isinstance(parcel.content, bytes)
        if len(parcel.content) <= SMALL:
            return parcel
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # data in the caller's memory are sent once
            return self.client.submit(handed_on, parcel, key=f"lwa-parcel-{parcel.digest}")

    def map(self, work: Work, pieces: Sequence[Any], near: Sequence[float] | None = None) -> Iterator[Any]:
        """What becomes of each piece, in order."""
        shared, made = self.packing.of(work.shared), versions()
        preferred = self._preferred(near, len(pieces))
        waiting: deque[Waiting] = deque()
        try:
            for piece, worker in zip(pieces, preferred, strict=True):
                waiting.append(Waiting(self.client, (shared, rest_of(work, piece), made), worker))
            while waiting:
                yield self._result(waiting[0])
                waiting.popleft().future.release()
        finally:
            for one in waiting:
                one.future.cancel()

    def _preferred(self, near: Sequence[float] | None, count: int) -> list[str | None]:
        """The worker for each piece, where one is better than others."""
        if near is None:
            return [None] * count
        there = self._lately()
        if not there:
            return [None] * count
        return [there[min(int(at * len(there)), len(there) - 1)] for at in near]

    def _result(self, waiting: "Waiting") -> Any:
        """What came of a task, as soon as it is there; an error where nobody is left to compute it."""
        while True:  # a result that is there may be lost again with the worker that holds it
            try:
                return waiting.future.result(timeout=LOOK)
            except Exception as error:
                if waiting.future.status == "error":
                    raise explained(error) from None
                if not isinstance(error, TimeoutError):
                    raise ExecutorError(
                        f"The Dask cluster dropped the work that it was given ({type(error).__name__}): its scheduler "
                        "ended, or its client was closed. Start it again and connect a new distributed.Client to it."
                    ) from error
            waiting.look_at(self._somebody())

    def _somebody(self) -> list[str]:
        """The workers that there are; raises once there has been none for as long as patience lasts."""
        if self.client.status not in ("running", "connecting"):
            raise ExecutorError(
                "The client of the Dask cluster is closed. Connect a new distributed.Client to the scheduler."
            )
        if there := self._addresses():
            self.missed = None
            return there
        self.missed = self.missed or time.monotonic()
        if time.monotonic() - self.missed > self.patience:
            raise ExecutorError(
                f"The Dask cluster has had no worker for {self.patience:.0f} s. Start workers (dask worker ADDRESS) "
                "and go on."
            )
        return []


@contextmanager
def dask_at(address: str | None, patience: float = 30.0) -> Iterator[Dask | None]:
    """The cluster whose scheduler has this address; nobody, where there is none."""
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
            "pass the address that it prints, such as tcp://10.0.0.1:8786."
        ) from error
    with client:
        yield Dask(client, patience)


class Waiting:
    """A task that a cluster was given, for one worker rather than another where that is said."""

    def __init__(self, client: "Client", task: tuple[Any, ...], worker: str | None) -> None:
        self.client, self.task, self.worker = client, task, worker
        self.future = self._submitted()

    def _submitted(self) -> Any:
        more = {} if self.worker is None else {"workers": [self.worker], "allow_other_workers": True}
        return self.client.submit(carry_out, *self.task, pure=False, **more)

    def look_at(self, there: Sequence[str]) -> None:
        """Ask anybody, where the worker that was asked is gone: a task given to one while there was no other is never
        given to those that come later."""
        if there and self.worker is not None and self.worker not in there:
            self.future.cancel()
            self.worker = None
            self.future = self._submitted()


def handed_on(parcel: Parcel) -> Parcel:
    """A parcel as a task of its own: the scheduler can have it made again when the worker that holds it dies."""
    return parcel


def explained(error: Exception) -> Exception:
    """What a task raised, or why it could not be carried out."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return ExecutorError(
            f"Workers of the Dask cluster died again and again over the same task: {error}. Most often they ran out of "
            "memory: give them more, or fewer threads."
        )
    if isinstance(error, ModuleNotFoundError):
        return ExecutorError(
            f"A worker has no module {error.name!r}. Install it on all workers (lwa itself with pip install "
            "'lwa[dask]'), or send your own with client.upload_file('my_model.py')."
        )
    return error
