"""Draws that are summarised on the device: only the last few leave it."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.diagnostics.running import RunningSummary, count_in_cells, merge_moments
from lwa.engine.cohort import Moves
from lwa.engine.recorder import Kept, Recorder

COUNTED = 2**19
"""About how many draws of a block are counted by cell: threads that count in one cell wait for each other, and more
than half a million per block add nothing to quantiles."""


class RecorderOnDevice(Recorder):
    """A recorder of chains that move in step; it keeps a summary of their draws and the `last` few of each chain."""

    def __init__(self, chains: int, thinning: int, n: int, last: int) -> None:
        super().__init__(chains, thinning, n, {}, last)
        self.last = last
        self.pending: Moves | None = None  # since the last kept draw
        self.fresh: list[Kept] = []  # draws on the device that are not in the summary yet
        self.tail: list[Kept] = []  # the last of those that are

    def add(self, moves: Moves, first: int = 0) -> None:
        """Thin these moves on the device."""
        joined = moves if self.pending is None else jax.tree.map(lambda *p: jnp.concatenate(p), self.pending, moves)
        groups, rest = divmod(len(joined.theta), self.thinning)
        self.pending = None if not rest else jax.tree.map(lambda leaf: leaf[-rest:], joined)
        self.open[3] = rest
        if groups:
            self.fresh.append(thin_moves(joined, groups, self.thinning, self.n))

    def summarise(self, running: RunningSummary) -> RunningSummary:
        """Return the summary with all new draws. The last ones stay on the device."""
        for draws in self.fresh:
            running = update_running(running, draws.theta)
            self.counts += draws.lp.shape[1]
            self.tail.append(draws)
            while sum(part.lp.shape[1] for part in self.tail[1:]) >= self.last:
                self.tail.pop(0)
        self.fresh = []
        return running

    def bring_home(self) -> None:
        """Copy the last draws of each chain from the device."""
        if self.tail:
            draws = jax.tree.map(lambda *parts: np.concatenate(parts, 1)[:, -self.last :], *self.tail)
            self.tail = []
            self.counts -= draws.lp.shape[1]
            self.taken = self.count
            self.put(draws._replace(theta=draws.theta.astype(np.float64)))


@partial(jax.jit, static_argnames=("groups", "thinning"))
def thin_moves(moves: Moves, groups: int, thinning: int, n: int) -> Kept:
    """Keep one draw in every `thinning` moves, `(chains, draws, ...)`."""

    def by_group(leaf: Array) -> Array:
        return leaf[: groups * thinning].reshape(groups, thinning, *leaf.shape[1:])

    def last(leaf: Array) -> Any:
        return jnp.swapaxes(by_group(leaf)[:, -1], 0, 1)

    def total(leaf: Array) -> Any:
        return jnp.swapaxes(by_group(leaf).sum(1), 0, 1)

    there: Any = moves  # JAX's arrays here
    return Kept(
        theta=last(there.theta), lp=last(there.log_density), acceptance_rate=total(there.acceptance) / thinning,
        accepted=last(there.accepted), subset_accepted=total(there.refreshed) / thinning,
        subset_distance=last(there.distance), n_rows_read=total(there.evaluations).astype(jnp.int64) * n, extra={},
    )  # fmt: skip


@partial(jax.jit, donate_argnames=("running",))
def update_running(running: RunningSummary, theta: Array) -> RunningSummary:
    """Add draws, `(chains, draws, k)`, to a summary. Of very many, only some spread over all are counted by cell."""
    draws = jnp.swapaxes(theta, 0, 1).astype(jnp.float64)
    every = -(-draws.shape[0] * draws.shape[1] // COUNTED)
    some = count_in_cells(running.sketch, draws[-1::-every])
    ends = some._replace(low=jnp.minimum(some.low, draws.min((0, 1))), high=jnp.maximum(some.high, draws.max((0, 1))))
    return RunningSummary(merge_moments(running.moments, draws), ends)
