"""From θ moves to kept draws: every `thinning`-th transition of Algorithm 1, with statistics since the last one."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.running import RunningSummary
from lwa.engine.cohort import Moves
from lwa.kernels.kernel import ADDED_UP


class Kept(NamedTuple):
    """Kept draws; arrays are `(chains, draws, ...)`."""

    theta: NDArray[np.float64]
    lp: NDArray[np.float64]  # log target given the current subset
    acceptance_rate: NDArray[np.float64]  # mean over the θ moves since the last kept draw
    accepted: NDArray[np.bool_]  # the last of those moves
    subset_accepted: NDArray[np.float64]  # share of U proposals accepted since the last kept draw
    subset_distance: NDArray[np.float64]
    n_rows_read: NDArray[np.int64]  # by the log-likelihood since the last kept draw
    extra: dict[str, NDArray[Any]]  # the kernel's own: sums since the last kept draw, or values of the last move


class Recorder:
    """Collects the kept draws of all chains; `extra` has a zero of the type of each of the kernel's own statistics.

    Draws lie in one buffer `(chains, room, ...)`, which grows if `room` is too small. Chains may be some draws apart,
    since only the end of a transition is kept.
    """

    def __init__(self, chains: int, thinning: int, n: int, extra: Mapping[str, np.generic], room: int = 0) -> None:
        self.thinning, self.n, self.room = thinning, n, room
        self.added = [name for name in extra if name in ADDED_UP]
        self.buffer: Kept | None = None  # until there are draws
        self.counts: NDArray[np.int64] = np.zeros(chains, np.int64)  # draws of each chain so far
        self.taken = 0  # how many of them are stored elsewhere
        # Since the last kept draw: moves, acceptance, refreshes, transitions, evaluations, and the kernel's own sums.
        self.open: NDArray[np.int64] = np.zeros((5 + len(self.added), chains), np.int64)

    def add(self, moves: Moves, first: int = 0) -> None:
        """Keep the draws among these moves of a cohort, whose chains begin with the `first`-th.

        Sums are of integers, acceptance in units of 2⁻³², so cutting a run into blocks changes no bit. A cohort may be
        filled up with chains that the run does not have.
        """
        chains = min(moves.ends.shape[1], len(self.counts) - first)
        own = slice(first, first + chains)
        moves = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :chains], moves)
        if moves.ends.all() and all(len(np.unique(held[own])) == 1 for held in (self.counts, self.open[3])):
            self._add_in_step(moves, own)
            return
        acceptance = np.rint(moves.acceptance * 2.0**32).astype(np.int64)
        counts = [moves.refreshed, moves.ends, moves.evaluations, *(moves.extra[name] for name in self.added)]
        running = np.stack([np.ones_like(acceptance), acceptance, *counts]).cumsum(axis=1) + self.open[:, None, own]
        chain, move = np.nonzero((moves.ends & (running[3] % self.thinning == 0)).T)
        due = running[:, move, chain]
        new = np.bincount(chain, minlength=chains)
        firsts = (np.cumsum(new) - new)[new > 0]
        since = np.diff(due, axis=1, prepend=0)
        since[:, firsts] = due[:, firsts]  # the first of each chain counts from the block before
        draws = self._collect(moves, (move, chain), since)
        draws = draws._replace(theta=draws.theta.astype(np.float64))
        ordinal = np.arange(len(chain)) - np.repeat(np.cumsum(new) - new, new)
        self._write(draws, first + chain, self.counts[first + chain] - self.taken + ordinal)
        self.counts[own] += new
        self.open[:, own] = running[:, -1]
        lasts = (np.cumsum(new) - 1)[new > 0]
        self.open[:, first + chain[lasts]] -= due[:, lasts]

    def summarise(self, running: RunningSummary) -> RunningSummary | None:
        """Return the summary with all new draws, if they are on the same device; otherwise None."""
        return None

    def bring_home(self) -> None:
        """Fetch the draws that are on a device."""

    def _add_in_step(self, moves: Moves, own: slice) -> None:
        """Keep draws if every move ends a transition and all chains have equally many, so that all keep the same."""
        every, opened = self.thinning, int(self.open[3, own.start])
        last = slice(every - 1 - opened, None, every)
        acceptance = np.rint(moves.acceptance * 2.0**32)
        counts = [moves.refreshed, moves.ends, moves.evaluations, *(moves.extra[name] for name in self.added)]
        since: Sequence[Any] | NDArray[np.int64] = [1, acceptance, *counts]
        if every > 1:
            all_counts = np.stack([np.ones_like(moves.evaluations), acceptance, *counts]).astype(np.int64)
            running = all_counts.cumsum(axis=1) + self.open[:, None, own]
            due = running[:, last]
            since = np.diff(due, axis=1, prepend=0)
            self.open[:, own] = running[:, -1] - (due[:, -1] if due.shape[1] else 0)
        draws = self._collect(moves, last, since)
        new, start = len(draws.lp), int(self.counts[own.start]) - self.taken
        if not new:
            return
        one = jax.tree.map(lambda leaf: leaf[:1, 0], draws)
        self._make_room(start + new, one._replace(theta=one.theta.astype(np.float64)))
        for room, leaf in zip(jax.tree.leaves(self.buffer), jax.tree.leaves(draws), strict=True):
            room[own, start : start + new] = np.swapaxes(leaf, 0, 1)
        self.counts[own] += new

    def _collect(self, moves: Moves, at: Any, since: Any) -> Kept:
        """Return the draws at some of these moves, with the sums since the draw before each."""
        made, accepted, refreshes, transitions, evaluations, *sums = since
        extra = {name: values[at] for name, values in moves.extra.items()}
        return Kept(
            theta=moves.theta[at], lp=moves.log_density[at], acceptance_rate=accepted / (2.0**32 * made),
            accepted=moves.accepted[at], subset_accepted=refreshes / transitions, subset_distance=moves.distance[at],
            n_rows_read=evaluations.astype(np.int64) * self.n,
            extra=extra | {name: sum_or_any(name, total) for name, total in zip(self.added, sums, strict=True)},
        )  # fmt: skip

    def put(self, draws: Kept) -> None:
        """Add equally many draws of all chains, unchanged."""
        chains, new = draws.lp.shape
        chain, ordinal = np.divmod(np.arange(chains * new), new)
        flat = jax.tree.map(lambda leaf: leaf.reshape(chains * new, *leaf.shape[2:]), draws)
        self._write(flat, chain, self.counts[chain] - self.taken + ordinal)
        self.counts += new

    def _write(self, draws: Kept, chain: NDArray[np.int64], place: NDArray[np.int64]) -> None:
        """Write each of these draws to its place in the buffer."""
        if not len(place):
            return
        self._make_room(int(place.max()) + 1, draws)
        jax.tree.map(lambda own, new: own.__setitem__((chain, place), new), self.buffer, draws)

    def _make_room(self, needed: int, like: Kept) -> None:
        """Make room for `needed` draws per chain, of the shapes and types of `like`, `(draws, ...)`."""
        there = 0 if self.buffer is None else self.buffer.lp.shape[1]
        if needed <= there:
            return
        room = max(needed, self.room, 2 * there)
        larger = jax.tree.map(lambda leaf: np.empty((len(self.counts), room, *leaf.shape[1:]), leaf.dtype), like)
        if self.buffer is not None:
            jax.tree.map(lambda new, old: new.__setitem__((slice(None), slice(there)), old), larger, self.buffer)
        self.buffer = larger

    @property
    def count(self) -> int:
        """The number of draws that every chain has."""
        return int(self.counts.min())

    @property
    def held(self) -> int:
        """The number of draws in the buffer that every chain has."""
        return self.count - self.taken

    def count_missing(self, draws: int) -> int:
        """Return the transitions until every chain has `draws` draws; they take at least as many θ moves."""
        done = int((self.counts * self.thinning + self.open[3]).min())
        return draws * self.thinning - done  # in Python's integers: an unlimited number of draws would overflow others

    def slice_draws(self, start: int, stop: int) -> Kept:
        """Return views of the draws `start` to before `stop` of the buffer, valid until more are added."""
        assert self.buffer is not None
        return jax.tree.map(lambda leaf: leaf[:, start:stop], self.buffer)

    def drop(self, draws: int) -> None:
        """Drop the first draws from the buffer."""
        used = int(self.counts.max()) - self.taken
        for leaf in jax.tree.leaves(self.buffer):
            leaf[:, : used - draws] = leaf[:, draws:used]
        self.taken += draws

    def get_all(self) -> Kept:
        """Return the whole buffer; the last places of chains with fewer draws hold nothing."""
        return self.slice_draws(0, int(self.counts.max()) - self.taken)


def sum_or_any(name: str, total: NDArray[np.int64]) -> NDArray[Any]:
    """Return the total, or for trajectories that diverged whether there was any."""
    return total > 0 if name == "diverging" else total


def select_kept(recorder: Recorder, dimension: int, most: int, extra: Mapping[str, np.generic]) -> Kept:
    """Return the draws that every chain has, at most `most`."""
    length = min(most, recorder.held)
    return recorder.slice_draws(0, length) if length else make_blank_draws(len(recorder.counts), dimension, extra)


def make_blank_draws(chains: int, dimension: int, extra: Mapping[str, np.generic]) -> Kept:
    """Return no draws, with the shapes and types of draws."""
    none = np.empty((chains, 0))
    return Kept(
        theta=np.empty((chains, 0, dimension)), lp=none, acceptance_rate=none, accepted=none.astype(bool),
        subset_accepted=none, subset_distance=none, n_rows_read=none.astype(np.int64),
        extra={name: none.astype(zero.dtype) for name, zero in extra.items()},
    )  # fmt: skip
