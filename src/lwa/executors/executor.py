"""The executor protocol: compute pieces of work anywhere, and return their results in order. The default: threads."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax

from lwa.errors import InputError


@dataclass(frozen=True)
class Work:
    """The computation for each piece: `function(*shared, *own, piece)`.

    Parameters
    ----------
    function
        Any function that cloudpickle can send.
    shared
        What many calls need, such as a model and its rows. It is sent to each worker once and held there, so that the
        worker finds the programs that it compiled for it.
    own
        What only this call needs.
    """

    function: Callable[..., Any]
    shared: tuple[Any, ...] = ()
    own: tuple[Any, ...] = ()

    def __call__(self, piece: object) -> Any:
        """Compute the result of one piece."""
        return self.function(*self.shared, *self.own, piece)


@runtime_checkable
class Executor(Protocol):
    """Computes pieces of work. Results depend on work and pieces alone, so every executor returns the same bits."""

    @property
    def workers(self) -> int:
        """Number of pieces computed in parallel."""

    def map(self, work: Work, pieces: Sequence[Any], near: Sequence[float] | None = None) -> Iterator[Any]:
        """Yield the result of each piece, in the order of `pieces`.

        `near` holds one ascending number from 0 to 1 per piece. Pieces with similar numbers should go to the same
        worker in every call, since it may have cached what they need.
        """


class Serial:
    """Compute in threads of this process. The default, `executor=None`.

    Parameters
    ----------
    threads
        Number of pieces computed in parallel. Results do not depend on it.
    """

    def __init__(self, threads: int = 2) -> None:
        self.workers = threads

    def map(self, work: Work, pieces: Sequence[Any], near: Sequence[float] | None = None) -> Iterator[Any]:
        """Yield the result of each piece, in order; compute at most two pieces per thread ahead."""
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="lwa-pass")
        waiting: deque[Future[Any]] = deque()
        try:
            for piece in pieces:
                waiting.append(pool.submit(compute_piece, work, piece))
                if len(waiting) > 2 * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def compute_piece(work: Work, piece: object) -> Any:
    """Compute one piece in float64, which JAX sets per thread."""
    with jax.enable_x64(True):
        return work(piece)


def require_executor(executor: object) -> None:
    """Raise `InputError` if this is neither an executor nor None."""
    if executor is None or (isinstance(executor, Executor) and not isinstance(executor, type)):
        return
    raise InputError(
        f"executor is of type {type(executor).__name__}. Pass lwa.executors.Dask(client), "
        "lwa.executors.Processes(2), or None."
    )
