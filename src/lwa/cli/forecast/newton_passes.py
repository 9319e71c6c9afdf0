"""How many passes Newton's method will need to find the mode of all rows."""

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator
from lwa.data.data import Data
from lwa.models.sums import NumpySums
from lwa.targets.reference import CLOSE_ENOUGH, FIRST_MODE_ROWS, MOST_MODE_ROWS, Reference, climb_to_mode, sum_all_rows

NEWTON_STARTS = 5
"""Starts from which Newton's method is tried."""


def count_newton_passes(data: Data, reference: Reference, N: int, seed: int) -> int:
    """Return the passes over N rows that find θ̂, beginning at the mode of a subset.

    If the sample is all rows, its own run has counted them. Else the M rows of the sample stand for all rows, each
    counted N/M times: the posterior is √(M/N) times as wide as the sample's, and Newton's method starts at the mode of
    a subset of m rows, about √(N/m) sds from that of all rows.
    """
    if len(data.full) == N:
        return reference.passes
    generators = [generator(seed, Purpose.REFERENCE, start) for start in range(NEWTON_STARTS)]
    return int(np.median([count_passes_once(data, reference, N, rng) for rng in generators]))


def find_last_subset(N: int) -> int:
    """Return the rows of the largest subset whose mode Newton's method begins with."""
    m = FIRST_MODE_ROWS
    while 100 * m <= N and 10 * m <= MOST_MODE_ROWS:
        m *= 10
    return m


def count_passes_once(data: Data, reference: Reference, N: int, rng: np.random.Generator) -> int:
    """Return the passes from one random start."""
    M, m, passes = len(data.full), find_last_subset(N), 0
    away = np.sqrt(M * (1 / m - 1 / N)) * rng.normal(size=len(reference.theta))

    def count_and_sum(theta: NDArray[np.float64]) -> NumpySums:
        nonlocal passes
        passes += 1
        return sum_all_rows(data.model, data.full, theta)

    with jax.enable_x64(True):
        climb_to_mode(
            data.model, count_and_sum, reference.theta + reference.factor @ away, CLOSE_ENOUGH * np.sqrt(M / N)
        )
    return passes
