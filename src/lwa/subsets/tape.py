"""The subset chain as a tape: pages of θ moves, each with the rows of U that changed just before it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import DTypeLike, NDArray

from lwa.algorithm import Subset, spread
from lwa.rows.slots import Columns, to_columns
from lwa.subsets.chain import Chain, Page
from lwa.targets.target import Given, as_held

ADAPT_EVERY = 32
"""Moves between two looks at the path during tune; a power of two, as pages are, so that none straddles a page."""
MOST_MOVES = 1024
PAGE_BYTES = 4 * 2**20
"""A page holds at most so many moves, and so many bytes per chain."""
PAGES_BYTES = 64 * PAGE_BYTES
"""Pages of all chains hold at most so many, as long as adaptation has a page to look at."""


def count_page_moves(entry_bytes: int, chains: int) -> int:
    """Return the moves per page: a power of two that depends on the problem alone, since keys count pages."""

    def within(room: int) -> int:
        return 1 << (max(1, room // max(1, entry_bytes)).bit_length() - 1)

    return min(MOST_MOVES, within(PAGE_BYTES), max(ADAPT_EVERY, within(PAGES_BYTES // chains)))


def count_page_proposals(subsets: Chain, d: int, chains: int) -> int:
    """Return the proposals per page, from the bytes that one move of one chain takes on the tape and among draws."""
    rows = sum(leaf.nbytes for leaf in jax.tree.leaves(subsets.take_examples(incoming=True)))
    calibration, statistic = subsets.calibration, subsets.statistic.dimension
    carried = 0 if calibration is None else calibration.width
    matrix = 8 * d**2 if calibration is not None and calibration.frame is not None else 0
    entry = rows + subsets.replaced * (8 * (statistic + carried) + 12) + 16 * d + matrix
    return max(1, count_page_moves(entry, chains) // subsets.move.every)


class Entries(NamedTuple):
    """A page of θ moves, and what U does before each; arrays are `(moves, chains, ...)`."""

    refreshed: NDArray[np.bool_]  # U changed just before this move
    ends: NDArray[np.bool_]  # this move ends its transition of Algorithm 1
    distance: NDArray[np.float64]
    slots: NDArray[np.int32]  # (..., k); out of range if U did not change
    rows: Columns  # leaves (..., *shape, k)
    given: Given | None
    counts: NDArray[np.float64] | None  # (..., k)


class Queue(NamedTuple):
    """The moves that one chain has still to play, in order."""

    source: NDArray[np.intp]  # the transition each belongs to, counted in the store
    refreshed: NDArray[np.bool_]
    ends: NDArray[np.bool_]

    def join(self, more: "Queue") -> "Queue":
        """Return the queue with more moves at its end."""
        return Queue(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))

    def cut(self, start: int | None, stop: int | None) -> "Queue":
        """Return the moves from start to stop."""
        return Queue(self.source[start:stop], self.refreshed[start:stop], self.ends[start:stop])


class Written(NamedTuple):
    """The state of a tape between two pages: all that the next ones depend on."""

    U: Subset
    store: Page | None
    queues: list[Queue]
    pages: int  # of transitions


class TapeWriter:
    """The subset chains of a cohort, a page of moves per call.

    After a refresh come L moves, otherwise one, so chains pass through transitions at their own pace: each has a queue
    of moves, and transitions stay in store until every chain has played them.
    """

    def __init__(self, subsets: Chain, chains: Sequence[int], U: Subset, L: int, dtype: DTypeLike) -> None:
        self.subsets, self.chains, self.U, self.L, self.dtype = subsets, chains, U, L, dtype
        self.known = None if subsets.replaced else subsets.given(U)
        self.written = 0  # pages of transitions
        self.store: Page | None = None
        self.queues = [Queue(np.empty(0, np.intp), np.empty(0, bool), np.empty(0, bool)) for _ in chains]

    def __call__(self) -> Entries:
        """Return the next page."""
        with jax.enable_x64(True):
            while min(len(queue.source) for queue in self.queues) < self.subsets.moves:
                self._advance()
            return self._cut()

    def held(self) -> Written:
        """Return the state. U is copied, since the next page takes its memory."""
        return Written(jax.tree.map(np.array, self.U), self.store, list(self.queues), self.written)

    def go_back(self, written: Written) -> None:
        """Return to an earlier state."""
        self.U, self.store = jax.tree.map(np.array, written.U), written.store
        self.queues, self.written = list(written.queues), written.pages

    def _advance(self) -> None:
        """Add a page of transitions to those in store."""
        self.U, page = self.subsets.advance(self.U, self.chains, self.written, known=self.known)
        page = page._replace(given=as_held(page.given, self.dtype))
        self.written += 1
        before = 0 if self.store is None else len(self.store.accepted)
        self.store = page if not before else jax.tree.map(lambda a, b: np.concatenate([a, b]), self.store, page)
        for c, queue in enumerate(self.queues):
            source, refreshed, ends = spread(page.accepted[:, c], self.L, self.subsets.move.every)
            self.queues[c] = queue.join(Queue(before + source, refreshed, ends))

    def _cut(self) -> Entries:
        """Cut a page of moves off the front of every queue."""
        assert self.store is not None
        length = self.subsets.moves
        front = [queue.cut(None, length) for queue in self.queues]
        source, refreshed, ends = (np.stack(leaves, axis=1) for leaves in zip(*front, strict=True))
        of: slice | NDArray[np.intp] | tuple[NDArray[np.intp], ...] = (source, np.arange(len(self.chains)))
        if (source == source[:, :1]).all():  # chains are level: whole transitions are taken, or all as they are
            of = np.s_[:length] if (source[:, 0] == np.arange(length)).all() else source[:, 0]
        taken = jax.tree.map(lambda leaf: leaf[of], self.store)
        ignored = self.subsets.n + np.arange(taken.slots.shape[-1], dtype=np.int32)
        slots = np.where(refreshed[..., None], taken.slots, ignored)
        self._forget(length)
        return Entries(
            refreshed, ends, distance=taken.distance, slots=slots, rows=to_columns(taken.rows, self.dtype, axis=2),
            given=taken.given, counts=taken.counts,
        )  # fmt: skip

    def _forget(self, played: int) -> None:
        """Drop played moves, and transitions that no queue refers to any more."""
        assert self.store is not None
        rest = [queue.cut(played, None) for queue in self.queues]
        oldest = min(queue.source[0] if len(queue.source) else len(self.store.accepted) for queue in rest)
        self.store = jax.tree.map(lambda leaf: leaf[oldest:], self.store)
        self.queues = [queue._replace(source=queue.source - oldest) for queue in rest]
