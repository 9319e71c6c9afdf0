"""ε: how representative a subset must be. It is found on the subset chain alone, before θ exists, so without bias."""

import math
from dataclasses import replace

import numpy as np

from lwa.backend.random import Purpose
from lwa.subsets.chain import Chain

REFRESH_RATE = 0.25
"""What "auto" aims at: the smallest ε at which the subset still changes at about every fourth proposal."""
HALVINGS = 12
"""Bisection of log ε over 10⁶: 12 halvings leave a factor of 1.003, far inside the pilot's own noise."""

RANDOM_SUBSETS, ROWS_OF_RANDOM_SUBSETS = 256, 10**6
"""Random subsets whose distances are averaged, and the rows that they may have together; never under 16 subsets. The sd
of a distance is 0.76 of its mean for one normal statistic, less for several: the mean is right to 5 %, at worst 19 %.
"""


def find_epsilon(chain: Chain) -> float:
    """Return the ε whose refresh rate is `REFRESH_RATE`, by bisection on short pilots of one subset chain.

    Infinite if no ε matters: a move that Φ does not weigh, no statistic, one that never varies, or U = all rows.
    """
    if not chain.weighs or chain.n == len(chain.rows):
        return math.inf
    typical = float(chain.start([0]).distance[0])  # of a random subset
    if not typical > 0:
        return math.inf
    pages = max(1, math.ceil(5 * chain.renewing / chain.page))

    def refresh_rate(epsilon: float) -> float:
        pilot = chain.with_epsilon(epsilon)
        U, rates = pilot.start([0]), []
        for page in range(2 * pages):  # the first half forgets the random start
            U, done = pilot.advance(U, [0], page, Purpose.SUBSET_PILOT)
            rates.append(done.accepted.mean())
        return float(np.mean(rates[pages:]))

    low, high = math.log(typical * 1e-4), math.log(typical * 1e2)
    if refresh_rate(math.exp(high)) < REFRESH_RATE:  # rows repeat too often for any ε: n is close to N
        return math.exp(high)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if refresh_rate(math.exp(middle)) > REFRESH_RATE else (middle, high)
    return math.exp(high)


def find_random_distance(chain: Chain) -> float | None:
    """Return the mean of ‖S̄(Y_U) - s_N‖ over subsets drawn as before Φ; None if no statistic compares subsets."""
    if chain.statistic.dimension == 0:
        return None
    bare, count = replace(chain, calibration=None), max(16, min(RANDOM_SUBSETS, ROWS_OF_RANDOM_SUBSETS // chain.size))
    found = [np.asarray(bare.start(range(first, first + 16)).distance) for first in range(0, count, 16)]
    return float(np.mean(found))
