"""ε: how representative a subset must be. Found on the U chain alone, before θ exists, so it biases nothing."""

import math

import numpy as np

from lwa.errors import InputError
from lwa.randomness import Purpose
from lwa.subsets.chain import Chain

REFRESH_RATE = 0.25
"""What "auto" aims at: the tightest ε at which U still moves about every fourth time."""
HALVINGS = 12
"""Bisection of log ε over 10⁶: 12 halvings leave a factor of 1.003, far inside the pilot's own noise."""


def as_epsilon(epsilon: object) -> float | None:
    """A positive number, or None where `"auto"` asks for `find_epsilon`."""
    if isinstance(epsilon, str) and epsilon == "auto":
        return None
    if isinstance(epsilon, int | float | np.number) and not isinstance(epsilon, bool) and epsilon > 0:
        return float(epsilon)
    raise InputError(
        f"epsilon={epsilon!r} must be a positive number (float('inf') weighs all subsets alike) or 'auto'. "
        "Pass epsilon='auto', for example."
    )


def find_epsilon(chain: Chain) -> float:
    """The ε whose refresh rate is `REFRESH_RATE`, by bisection on short pilots of one U chain.

    Infinite where no ε matters: a move that Φ does not weigh, no statistic, one that never varies, or U = all rows.
    """
    if not chain.move.weighted or chain.statistic.dimension == 0 or chain.n == len(chain.rows):
        return math.inf
    typical = float(chain.start([0]).distance[0])  # of a random subset
    if not typical > 0:
        return math.inf
    pages = max(1, math.ceil(5 * chain.renewing / chain.page))

    def refresh_rate(epsilon: float) -> float:
        pilot = chain.at(epsilon)
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
