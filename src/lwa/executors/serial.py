"""In this process, a few pieces side by side."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from lwa.executors.executor import Work


class Serial:
    """This process, on threads of its own. What `executor=None` is.

    Parameters
    ----------
    threads
        Pieces side by side. Results do not depend on it.
    """

    def __init__(self, threads: int = 2) -> None:
        self.threads = threads

    @property
    def workers(self) -> int:
        """How many pieces are computed side by side."""
        return self.threads

    def map(self, work: Work, pieces: Sequence[Any], near: Sequence[float] | None = None) -> Iterator[Any]:
        """What becomes of each piece, in order; at most two for each thread wait to be asked for."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="lwa-pass")
        waiting: deque[Future[Any]] = deque()
        try:
            for piece in pieces:
                waiting.append(pool.submit(computed, work, piece))
                if len(waiting) > 2 * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def computed(work: Work, piece: Any) -> Any:
    """In float64, which is a setting of each thread's own."""
    import jax

    with jax.enable_x64(True):
        return work(piece)
