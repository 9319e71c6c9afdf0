"""Kept steps of one chain: all of them, or every second, fourth, … where they would become too many."""

from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray


class Steps(NamedTuple):
    """Arrays `(steps, ...)`; acceptance and rows are summed up from the chain's first kept step on."""

    theta: NDArray[np.float64]
    lp: NDArray[np.float64]
    accepted: NDArray[np.bool_]
    acceptance: NDArray[np.float64]
    rows: NDArray[np.int64]
    extra: dict[str, NDArray[Any]]


class Record:
    """Every `thinning`-th step; the thinning doubles whenever more than `most` are kept."""

    def __init__(self, thinning: int, most: int | None) -> None:
        self.thinning, self.most = thinning, most
        self.parts: list[Steps] = []
        self.steps = self.kept = self.rows = 0
        self.acceptance = 0.0

    def add(self, made: Steps) -> None:
        """The next steps, with acceptance and rows of each."""
        steps = np.arange(self.steps, self.steps + len(made.theta))
        made = made._replace(
            acceptance=self.acceptance + np.cumsum(made.acceptance), rows=self.rows + np.cumsum(made.rows)
        )
        if len(steps):
            self.acceptance, self.rows = float(made.acceptance[-1]), int(made.rows[-1])
        self.steps += len(steps)
        self._append(jax.tree.map(lambda leaf: leaf[steps % self.thinning == self.thinning - 1], made))
        while self.most is not None and self.kept > self.most:
            self.thinning *= 2
            everything, self.parts, self.kept = self.all(), [], 0
            self._append(jax.tree.map(lambda leaf: leaf[1::2], everything))

    def _append(self, made: Steps) -> None:
        self.parts.append(made)
        self.kept += len(made.theta)

    def all(self) -> Steps:
        """Everything kept so far."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.parts)
