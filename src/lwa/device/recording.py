"""Draws that are summarised on the device: nothing of them but the last few ever leaves it."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.diagnostics.running import Running, update
from lwa.pipeline import Moves
from lwa.recording import Kept, Recorder


class RecorderOnDevice(Recorder):
    """A recorder of chains that move in step, of whose draws a summary is kept and the `last` few of each chain."""

    def __init__(self, chains: int, thinning: int, n: int, extra: Mapping[str, np.generic], last: int) -> None:
        super().__init__(chains, thinning, n, extra, 2 * last)
        self.last = last
        self.pending: Moves | None = None  # since the last kept draw
        self.fresh: list[Kept] = []  # draws that no summary has seen, on the device

    def add(self, moves: Moves, first: int = 0) -> None:
        """Thin these moves where they are."""
        joined = moves if self.pending is None else jax.tree.map(lambda *p: jnp.concatenate(p), self.pending, moves)
        groups, rest = divmod(len(joined.theta), self.thinning)
        self.pending = None if not rest else jax.tree.map(lambda leaf: leaf[-rest:], joined)
        self.open[3] = rest
        if groups:
            self.fresh.append(thinned(joined, groups, self.thinning, self.n))

    def summarised(self, running: Running) -> Running:
        """The summary with the draws that it has not seen; the last of them are kept here."""
        for draws in self.fresh:
            running = updated(running, draws.theta)
            new = draws.lp.shape[1]
            last = jax.tree.map(lambda leaf: np.asarray(leaf[:, -min(new, self.last) :]), draws)
            if new > last.lp.shape[1]:
                self._skip(new - last.lp.shape[1])
            self.put(last._replace(theta=last.theta.astype(np.float64)))
        self.fresh = []
        return running

    def _skip(self, draws: int) -> None:
        """So many draws go by, and with them all that are held: newer ones take their place."""
        self.drop(self.held)
        self.counts += draws
        self.taken += draws


@partial(jax.jit, static_argnames=("groups", "thinning"))
def thinned(moves: Moves, groups: int, thinning: int, n: int) -> Kept:
    """One draw in so many moves, `(chains, draws, ...)`."""

    def by_group(leaf: Array) -> Array:
        return leaf[: groups * thinning].reshape(groups, thinning, *leaf.shape[1:])

    def last(leaf: Array) -> Array:
        return jnp.swapaxes(by_group(leaf)[:, -1], 0, 1)

    def total(leaf: Array) -> Array:
        return jnp.swapaxes(by_group(leaf).sum(1), 0, 1)

    return Kept(
        last(moves.theta), last(moves.log_density), total(moves.acceptance) / thinning, last(moves.accepted),
        total(moves.refreshed) / thinning, last(moves.distance), total(moves.evaluations).astype(jnp.int64) * n,
        {name: last(values) for name, values in moves.extra.items()},
    )  # fmt: skip


@partial(jax.jit, donate_argnames=("running",))
def updated(running: Running, theta: Array) -> Running:
    """The summary with more draws, `(chains, draws, k)`."""
    return update(running, jnp.swapaxes(theta, 0, 1).astype(jnp.float64))
