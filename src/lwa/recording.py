"""From θ moves to kept draws: every `thinning`-th transition of Algorithm 1, with what happened since the last one."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.parameters.kernel import ADDED_UP
from lwa.pipeline import Moves


class Kept(NamedTuple):
    """Kept draws; arrays are `(draws, ...)` of one chain, `(chains, draws, ...)` of all."""

    theta: NDArray[np.float64]
    lp: NDArray[np.float64]  # log target given the subset of that moment
    acceptance_rate: NDArray[np.float64]  # mean over the θ moves since the last kept draw
    accepted: NDArray[np.bool_]  # the last of those moves
    subset_accepted: NDArray[np.float64]  # share of U proposals accepted since the last kept draw
    subset_distance: NDArray[np.float64]
    n_rows_read: NDArray[np.int64]  # by the log-likelihood since the last kept draw
    extra: dict[str, NDArray[Any]]  # the kernel's own, added up since the last kept draw or that of the last move


class Recorder:
    """The kept draws of one chain, as its moves come in; `extra` has a zero of all that its kernel tells besides."""

    def __init__(self, thinning: int, n: int, extra: Mapping[str, np.generic]) -> None:
        self.thinning, self.n = thinning, n
        self.added = [name for name in extra if name in ADDED_UP]
        self.parts: list[Kept] = []
        self.count = self.taken = 0  # draws so far, and how many of them are held elsewhere
        # Since the last kept draw: moves, acceptance, refreshes, transitions, evaluations, and the kernel's own.
        self.open: NDArray[np.int64] = np.zeros(5 + len(self.added), np.int64)

    def add(self, moves: Moves, chain: int) -> None:
        """Keep what is due among these moves of the cohort's `chain`-th chain.

        Sums are of whole numbers, acceptance in units of 2⁻³²: so where a run is cut into blocks changes no bit.
        """
        ends = moves.ends[:, chain]
        acceptance = np.rint(moves.acceptance[:, chain] * 2.0**32).astype(np.int64)
        counts = [moves.refreshed, moves.ends, moves.evaluations, *(moves.extra[name] for name in self.added)]
        running = np.stack([np.ones_like(acceptance), acceptance, *(count[:, chain] for count in counts)])
        running = running.cumsum(axis=1) + self.open[:, None]
        due = np.flatnonzero(ends & (running[3] % self.thinning == 0))
        made, accepted, refreshes, transitions, evaluations, *sums = np.diff(running[:, due], axis=1, prepend=0)
        self.parts.append(
            Kept(
                moves.theta[due, chain].astype(np.float64),
                moves.log_density[due, chain],
                accepted / (2.0**32 * made),
                moves.accepted[due, chain],
                refreshes / transitions,
                moves.distance[due, chain],
                evaluations * self.n,
                {name: values[due, chain] for name, values in moves.extra.items()}
                | {name: added_up(name, total) for name, total in zip(self.added, sums, strict=True)},
            )
        )
        self.count += len(due)
        self.open = running[:, -1] - running[:, due[-1]] if len(due) else running[:, -1]

    def missing(self, draws: int) -> int:
        """Transitions still to come until so many draws are kept; at least as many θ moves."""
        return (draws - self.count) * self.thinning - int(self.open[3])

    def put(self, draws: Kept) -> None:
        """Draws as they are."""
        self.parts.append(draws)
        self.count += len(draws.lp)

    def first(self, draws: int) -> Kept:
        """The first so many of those that are here."""
        return jax.tree.map(lambda leaf: leaf[:draws], self.all())

    def drop(self, draws: int) -> None:
        """They are held elsewhere from now on."""
        self.parts = [jax.tree.map(lambda leaf: leaf[draws:], self.all())]
        self.taken += draws

    @property
    def held(self) -> int:
        """Draws that are here."""
        return self.count - self.taken

    def all(self) -> Kept:
        """Everything that is here."""
        return jax.tree.map(lambda *parts: np.concatenate(parts), *self.parts)


def added_up(name: str, total: NDArray[np.int64]) -> NDArray[Any]:
    """How often, or how many; of trajectories that diverged, whether there was any."""
    return total > 0 if name == "diverging" else total


def stack(recorders: list[Recorder], dimension: int, most: int, extra: Mapping[str, np.generic]) -> Kept:
    """The draws of all chains as `(chains, draws, ...)`; as many as every chain has, `most` at the most."""
    length = min([most, *(recorder.held for recorder in recorders)])
    if length == 0:
        none = np.empty((len(recorders), 0))
        theta = np.empty((len(recorders), 0, dimension))
        nothing = {name: none.astype(zero.dtype) for name, zero in extra.items()}
        return Kept(theta, none, none, none.astype(bool), none, none, none.astype(np.int64), nothing)
    kept = [recorder.all() for recorder in recorders]
    return jax.tree.map(lambda *leaves: np.stack([leaf[:length] for leaf in leaves]), *kept)
