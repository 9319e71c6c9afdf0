"""Kept steps of one chain: all of them, or every second, fourth, … if they would become too many."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Shaped

from lwa.kernels.kernel import AnyArray
from lwa.rivals.rival import Info


class Steps(NamedTuple):
    """Steps of one chain, leaves `(steps, ...)`; or kept ones of all chains, leaves `(chains, draws, ...)`."""

    theta: Shaped[AnyArray, "*steps d"]
    info: Info


class Record:
    """Every `thinning`-th step, with acceptance and rows added up from the first step on.

    The thinning doubles whenever more than `most` are kept.
    """

    def __init__(self, thinning: int, most: int | None) -> None:
        self.thinning, self.most = thinning, most
        self.parts: list[Steps] = []
        self.steps = self.kept = self.rows = 0
        self.acceptance = 0.0

    def add(self, made: Steps) -> None:
        """Add the next steps, with acceptance and rows of each."""
        steps = np.arange(self.steps, self.steps + len(made.theta))
        info = made.info._replace(
            acceptance=self.acceptance + np.cumsum(made.info.acceptance), rows=self.rows + np.cumsum(made.info.rows)
        )
        if len(steps):
            self.acceptance, self.rows = float(info.acceptance[-1]), int(info.rows[-1])
        self.steps += len(steps)
        due = steps % self.thinning == self.thinning - 1
        self._append(jax.tree.map(lambda leaf: leaf[due], Steps(made.theta, info)))
        while self.most is not None and self.kept > self.most:
            self.thinning *= 2
            everything, self.parts, self.kept = self.join(), [], 0
            self._append(jax.tree.map(lambda leaf: leaf[1::2], everything))

    def _append(self, made: Steps) -> None:
        self.parts.append(made)
        self.kept += len(made.theta)

    def join(self) -> Steps:
        """Return everything kept so far."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.parts)


def stack_chains(records: Sequence[Record], draws: int) -> Steps | None:
    """Return the first `draws` kept steps of every chain, arrays `(chains, draws, ...)`; None if no step was made."""
    if not records[0].parts:
        return None
    return jax.tree.map(lambda *leaves: np.stack([leaf[:draws] for leaf in leaves]), *(one.join() for one in records))
