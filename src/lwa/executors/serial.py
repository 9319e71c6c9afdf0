"""Compute in this process, a few pieces in parallel."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from lwa.executors.executor import Work


class Serial:
    """Compute in threads of this process. The default, `executor=None`.

    Parameters
    ----------
    threads
        Number of pieces computed in parallel. Results do not depend on it.
    """

    def __init__(self, threads: int = 2) -> None:
        self.threads = threads

    @property
    def workers(self) -> int:
        """Number of pieces computed in parallel."""
        return self.threads

    def map(self, work: Work, pieces: Sequence[Any], near: Sequence[float] | None = None) -> Iterator[Any]:
        """Yield the result of each piece, in order; compute at most two pieces per thread ahead."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="lwa-pass")
        waiting: deque[Future[Any]] = deque()
        try:
            for piece in pieces:
                waiting.append(pool.submit(compute_piece, work, piece))
                if len(waiting) > 2 * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def compute_piece(work: Work, piece: object) -> Any:
    """Compute one piece in float64, which JAX sets per thread."""
    import jax

    with jax.enable_x64(True):
        return work(piece)
