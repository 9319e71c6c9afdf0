"""T_k(δ): what a row adds to the log posterior beyond second order in δ = θ - θ̂, and how much that varies with U.

The calibrated target takes value, gradient and curvature from all rows. What is left to the subset is the sum S(δ) of
T_k(δ) over all rows, which it estimates with a variance v(δ). Its draws follow π(θ) exp(v(δ)/2), to first order in v:
where v is small within the posterior's reach, they are right.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator
from lwa.models.likelihood import block_size, find_likelihood
from lwa.models.model import Model
from lwa.rows import Rows
from lwa.rows.passes import map_pieces
from lwa.rows.units import AnyBatch
from lwa.targets.reference import Reference

PAIRS = 8
"""Pairs θ̂ ± δ at which all rows are expanded."""
REACH = 2.5
"""Sds of these δ along any direction: single rows see points up to five sds out."""
CUBIC = 160.0
"""If T_k is cubic along a direction, v = c z⁶ has mean 15·2.5⁶ c over these points, and exp(v/2) makes the sd larger by
22 c, a factor of 160 less."""


class Remainders(NamedTuple):
    """Sums over all rows at points within the posterior's reach, δ first, then -δ."""

    rows: int  # N
    total: NDArray[np.float64]  # (2 PAIRS,)  S(δ)
    squares: NDArray[np.float64]  # (2 PAIRS,)  Σ T_k(δ)²

    def vary(self, n: int) -> NDArray[np.float64]:
        """Return v(δ) for uniform subsets of n rows; infinite where a row has no density."""
        N = self.rows
        with np.errstate(invalid="ignore", over="ignore"):
            found = (N - n) * N / n * (self.squares / N - (self.total / N) ** 2)
        return np.where(np.isfinite(found), np.maximum(found, 0.0), np.inf)

    def predict_error(self, n: int) -> float:
        """Return a rough relative error of sds with uniform subsets of n rows, on the safe side."""
        return float(self.vary(n).mean() / CUBIC)


def draw_reach(reference: Reference, seed: int) -> NDArray[np.float64]:
    """Return the δ at which all rows are expanded, `(PAIRS, d)`."""
    z = generator(seed, Purpose.PREDICTION, 2).normal(size=(PAIRS, len(reference.theta)))
    return REACH * z @ reference.factor.T


def sum_remainders(model: Model, rows: Rows, reference: Reference, seed: int) -> Remainders:
    """Return the sums of T_k and T_k² over all rows, from one pass."""
    size, away = block_size(rows), draw_reach(reference, seed)
    own = (reference.theta, away, size)
    total, squares = np.zeros(2 * PAIRS), np.zeros(2 * PAIRS)
    for one in map_pieces(rows, sum_remainders_in_piece, size, shared=(model,), own=own, here=model.in_python):
        total, squares = total + one[0], squares + one[1]
    return Remainders(len(rows), total, squares)


def sum_remainders_in_piece(
    model: Model, theta: NDArray[np.float64], away: NDArray[np.float64], size: int, start: int,
    blocks: Iterable[AnyBatch],
) -> NDArray[np.float64]:  # fmt: skip
    """Return both sums over the rows of a piece, `(2, 2 PAIRS)`."""
    likelihood, found = find_likelihood(model), np.zeros((2, 2 * len(away)))
    for batch in blocks:
        terms = likelihood.expand_rows(theta, away, batch, size)
        with np.errstate(over="ignore", invalid="ignore"):
            found += terms.sum(1), (terms**2).sum(1)
    return found
