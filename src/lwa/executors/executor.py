"""What an executor is: pieces of work computed by somebody, their results in order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lwa.errors import InputError


@dataclass(frozen=True)
class Work:
    """What is done with each piece: `function(*shared, *own, piece)`.

    Parameters
    ----------
    function
        Of some module, or any other that cloudpickle can send.
    shared
        What many calls need, such as a model and its rows: sent to each worker once, and held there, so that programs
        compiled for it are found again.
    own
        What this call needs.
    """

    function: Callable[..., Any]
    shared: tuple[Any, ...] = ()
    own: tuple[Any, ...] = ()

    def __call__(self, piece: Any) -> Any:
        """Of one piece."""
        return self.function(*self.shared, *self.own, piece)


@runtime_checkable
class Executor(Protocol):
    """Whoever computes. Results depend on work and pieces alone, so every executor gives the same bits."""

    @property
    def workers(self) -> int:
        """How many pieces are computed side by side."""

    def map(self, work: Work, pieces: Sequence[Any], near: Sequence[float] | None = None) -> Iterator[Any]:
        """What becomes of each piece, in the order of `pieces`, whoever was first.

        `near`, numbers from 0 to 1 that ascend, says which pieces should be computed by the same worker again and
        again, where it may have kept something: those of like numbers.
        """


def require_executor(executor: object) -> None:
    """Refuse what cannot compute."""
    if executor is None or (isinstance(executor, Executor) and not isinstance(executor, type)):
        return
    raise InputError(
        f"executor is of type {type(executor).__name__}. Pass lwa.executors.Dask(client), "
        "lwa.executors.Processes(2), or None."
    )
