"""Kept steps of one chain: all of them, or every second, fourth, … if they would become too many."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.typing import NDArray


class RecordedSteps(NamedTuple):
    """Steps of one chain. A `Record` adds up acceptance and rows from the chain's first step on."""

    theta: Float64[np.ndarray, "steps d"]
    lp: Float64[np.ndarray, " steps"]
    accepted: Bool[np.ndarray, " steps"]
    acceptance: Float64[np.ndarray, " steps"]
    rows: Int64[np.ndarray, " steps"]
    extra: dict[str, NDArray[Any]]


class Record:
    """Every `thinning`-th step; the thinning doubles whenever more than `most` are kept."""

    def __init__(self, thinning: int, most: int | None) -> None:
        self.thinning, self.most = thinning, most
        self.parts: list[RecordedSteps] = []
        self.steps = self.kept = self.rows = 0
        self.acceptance = 0.0

    def add(self, made: RecordedSteps) -> None:
        """Add the next steps, with acceptance and rows of each."""
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
            everything, self.parts, self.kept = self.join(), [], 0
            self._append(jax.tree.map(lambda leaf: leaf[1::2], everything))

    def _append(self, made: RecordedSteps) -> None:
        self.parts.append(made)
        self.kept += len(made.theta)

    def join(self) -> RecordedSteps:
        """Return everything kept so far."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.parts)


def stack_chains(records: Sequence[Record], draws: int) -> RecordedSteps | None:
    """Return the first `draws` kept steps of every chain, arrays `(chains, draws, ...)`; None if no step was made."""
    if not records[0].parts:
        return None
    return jax.tree.map(lambda *leaves: np.stack([leaf[:draws] for leaf in leaves]), *(one.join() for one in records))
