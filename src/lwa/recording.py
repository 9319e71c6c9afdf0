"""From θ moves to kept draws: every `thinning`-th transition of Algorithm 1, with what happened since the last one."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


class Recorder:
    """The kept draws of one chain, as its moves come in."""

    def __init__(self, thinning: int, n: int) -> None:
        self.thinning, self.n = thinning, n
        self.parts: list[Kept] = []
        self.count = 0
        self.open: NDArray[np.int64] = np.zeros(
            4, np.int64
        )  # since the last kept draw: moves, acceptance, refreshes, transitions

    def add(self, moves: Moves, chain: int) -> None:
        """Keep what is due among these moves of the cohort's `chain`-th chain.

        Sums are of whole numbers, acceptance in units of 2⁻³²: so where a run is cut into blocks changes no bit.
        """
        ends = moves.ends[:, chain]
        acceptance = np.rint(moves.acceptance[:, chain] * 2.0**32).astype(np.int64)
        running = np.stack([np.ones_like(acceptance), acceptance, moves.refreshed[:, chain], ends]).cumsum(axis=1)
        running += self.open[:, None]
        due = np.flatnonzero(ends & (running[3] % self.thinning == 0))
        made, accepted, refreshes, transitions = np.diff(running[:, due], axis=1, prepend=0)
        self.parts.append(
            Kept(
                moves.theta[due, chain].astype(np.float64),
                moves.log_density[due, chain],
                accepted / (2.0**32 * made),
                moves.accepted[due, chain],
                refreshes / transitions,
                moves.distance[due, chain],
                made * self.n,
            )
        )
        self.count += len(due)
        self.open = running[:, -1] - running[:, due[-1]] if len(due) else running[:, -1]

    def missing(self, draws: int) -> int:
        """Transitions still to come until so many draws are kept; at least as many θ moves."""
        return (draws - self.count) * self.thinning - int(self.open[3])

    def all(self) -> Kept:
        """Everything kept so far."""
        return Kept(*(np.concatenate(leaves) for leaves in zip(*self.parts, strict=True)))


def stack(recorders: list[Recorder], dimension: int, most: int) -> Kept:
    """The draws of all chains as `(chains, draws, ...)`; as many as every chain has, `most` at the most."""
    length = min([most, *(recorder.count for recorder in recorders)])
    if length == 0:
        none = np.empty((len(recorders), 0))
        theta = np.empty((len(recorders), 0, dimension))
        return Kept(theta, none, none, none.astype(bool), none, none, none.astype(np.int64))
    kept = [recorder.all() for recorder in recorders]
    return Kept(*(np.stack([leaf[:length] for leaf in leaves]) for leaves in zip(*kept, strict=True)))
