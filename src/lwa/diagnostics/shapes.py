"""What draws q are compared with π by: functions f of a draw y, in units of π's mean and sd, with their Stein partners.

Each f has mean 0 under N(0, 1), and φ solves f = φ' - y φ. For every π that vanishes at infinity E_π[φ' + φ u] = 0 with
u = ∂ log π/∂y (Stein). So gradients at draws measure the mean of f under π, whatever π is: if it is N(0, 1), u = -y and
nothing is left to measure.

| quantity | f(y) | φ(y) |
|---|---|---|
| mean | y | -1 |
| variance | y² - 1 | -y |
| variance, bounded | φ' - y φ | -y w(y) / k |
| skewness | φ' - y φ | (1 - y²) w(y) / k |
| below, above | 1{y < t} - Φ(t) | Φ(min(y, t)) (1 - Φ(max(y, t))) / N(y) |

t is an end of the draws' central 90 % interval. w(y) = exp(-y²/(2·3²)) takes draws beyond three sds less and less into
account: no number of draws settles the third powers of a heavy tail. k is such that a law near the Gaussian,
N(y) (1 + γ (y³ - 3y)/6), has skewness γ.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

QUANTITIES = ("mean", "variance", "skewness", "below", "above")
"""The columns of all arrays with one entry per quantity."""
REACH = 3.0
"""Sds beyond which draws count less and less."""
TAIL = 0.05
"""Share of the draws beyond either end of their central 90 % interval."""
FURTHEST_END = 6.0
"""Sds beyond which the end of an interval is taken as this far: the tails of N(0, 1) hold nothing there."""


class Ends(NamedTuple):
    """The ends of the central 90 % interval of the draws, and whether the variance is bounded: for heavy tails."""

    low: float
    high: float
    bounded: bool


def find_ends(y: Float64[np.ndarray, " n"], *, bounded: bool) -> Ends:
    """Return the ends of the draws' interval."""
    low, high = np.clip(np.quantile(y, [TAIL, 1 - TAIL]), -FURTHEST_END, FURTHEST_END)
    return Ends(float(low), float(high), bounded)


def evaluate_tests(
    y: NDArray[np.float64], ends: Ends, quantities: int = len(QUANTITIES)
) -> Float64[np.ndarray, "*n q"]:
    """Return f of each quantity, or of the first two."""
    variance = weigh_variance(y) / VARIANCE_SCALE if ends.bounded else y**2 - 1
    if quantities == 2:
        return np.stack([y, variance], axis=-1)
    below, above = (y < ends.low) - ndtr(ends.low), (y > ends.high) - ndtr(-ends.high)
    return np.stack([y, variance, weigh_skewness(y) / SKEWNESS_SCALE, below, above], axis=-1)


def evaluate_partners(
    y: NDArray[np.float64], ends: Ends, quantities: int = len(QUANTITIES)
) -> Float64[np.ndarray, "*n q"]:
    """Return φ of each quantity, or of the first two."""
    w = weigh(y)
    variance = -y * w / VARIANCE_SCALE if ends.bounded else -y
    if quantities == 2:
        return np.stack([-np.ones_like(y), variance], axis=-1)
    below, above = solve_tail(y, ends.low), -solve_tail(-y, -ends.high)
    return np.stack([-np.ones_like(y), variance, (1 - y**2) * w / SKEWNESS_SCALE, below, above], axis=-1)


def weigh(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return w(y)."""
    return np.exp(-0.5 * (y / REACH) ** 2)


def weigh_variance(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return k f of the bounded variance."""
    return (y**2 - 1 + (y / REACH) ** 2) * weigh(y)


def weigh_skewness(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return k f of the skewness."""
    return (-2 * y - y * (1 - y**2) * (1 + 1 / REACH**2)) * weigh(y)


def solve_tail(y: NDArray[np.float64], end: float) -> NDArray[np.float64]:
    """Return Φ(min(y, t)) (1 - Φ(max(y, t))) / N(y), which stays below √(2π)/4."""
    log = log_ndtr(np.minimum(y, end)) + log_ndtr(-np.maximum(y, end)) + 0.5 * y**2
    return np.sqrt(2 * np.pi) * np.exp(log)


def integrate(f: NDArray[np.float64]) -> float:
    """Return the mean over N(0, 1) of f, given on `GRID`."""
    density = np.exp(-0.5 * GRID**2)
    return float((f * density).sum() / density.sum())


GRID = np.linspace(-10.0, 10.0, 4001)
VARIANCE_SCALE = integrate(weigh_variance(GRID) * (GRID**2 - 1)) / 2
SKEWNESS_SCALE = integrate(weigh_skewness(GRID) * (GRID**3 - 3 * GRID)) / 6
