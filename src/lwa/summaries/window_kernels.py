"""S of one window, as plain functions that write into `out`; `lwa.backend.numba_jit` compiles them.

Sums run in a fixed order, four at a time: fast without leave to reorder, so every machine finds the same bits.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Vector = NDArray[np.float64]


def interpolated(low: float, high: float, share: float) -> float:
    """Between two order statistics, as np.quantile does by default: exact at both ends."""
    return high - (high - low) * (1.0 - share) if share >= 0.5 else low + (high - low) * share


def quantiles(window: NDArray[Any], levels: Vector, out: Vector) -> None:
    """Quantiles at ascending levels, with linear interpolation between order statistics."""
    values = window.astype(np.float64)
    last = len(values) - 1
    ranks = np.empty(2 * len(levels), np.int64)
    for i in range(len(levels)):
        ranks[2 * i] = int(last * levels[i])
        ranks[2 * i + 1] = min(ranks[2 * i] + 1, last)
    place(values, ranks)
    for i in range(len(levels)):
        low = ranks[2 * i]
        out[i] = interpolated(values[low], values[ranks[2 * i + 1]], last * levels[i] - low)


def place(values: Vector, ranks: NDArray[np.int64]) -> None:
    """Bring the order statistics of ascending ranks to their places: quickselect, for all ranks in one go."""
    pending = np.empty((len(ranks) + 1, 2), np.int64)  # ranges known to hold ranks that are not in place
    pending[0, 0], pending[0, 1] = 0, len(values)
    count = 1
    while count:
        count -= 1
        start, stop = pending[count]
        while stop - start > 1:
            first, beyond = ranks_within(ranks, start, stop)
            if first == beyond:
                break
            pivot = middle_of_three(values, start, stop)
            cut = smaller_first(values, start, stop, pivot)
            if cut == start:  # nothing is smaller: then what equals the pivot is in place once it is in front
                start = max(start + 1, smaller_first(values, start, stop, np.nextafter(pivot, np.inf)))
            elif ranks[first] >= cut:
                start = cut
            elif ranks[beyond - 1] < cut:
                stop = cut
            else:
                pending[count, 0], pending[count, 1] = cut, stop
                count += 1
                stop = cut


def ranks_within(ranks: NDArray[np.int64], start: int, stop: int) -> tuple[int, int]:
    """Which of the ascending ranks lie from start to stop."""
    first = 0
    while first < len(ranks) and ranks[first] < start:
        first += 1
    beyond = first
    while beyond < len(ranks) and ranks[beyond] < stop:
        beyond += 1
    return first, beyond


def middle_of_three(values: Vector, start: int, stop: int) -> float:
    """The median of three values, at the quarters of a range: a good pivot also for sorted ones."""
    step = (stop - start) // 4
    a, b, c = values[start + step], values[start + 2 * step], values[stop - 1 - step]
    return max(min(a, b), min(max(a, b), c))


def smaller_first(values: Vector, start: int, stop: int, pivot: float) -> int:
    """Bring what is smaller than the pivot to the front, without a branch; returns where the rest begins."""
    cut = start
    for i in range(start, stop):
        value = values[i]
        values[i] = values[cut]
        values[cut] = value
        cut += value < pivot
    return cut


def total(values: Vector) -> float:
    """Σ values."""
    whole = len(values) // 4 * 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(0, whole, 4):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
    for i in range(whole, len(values)):
        a += values[i]
    return (a + b) + (c + d)


def product_at(values: Vector, lag: int) -> float:
    """Σ_t values[t] values[t + lag]."""
    terms = max(len(values) - lag, 0)
    whole = terms // 4 * 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(0, whole, 4):
        a += values[i] * values[i + lag]
        b += values[i + 1] * values[i + lag + 1]
        c += values[i + 2] * values[i + lag + 2]
        d += values[i + 3] * values[i + lag + 3]
    for i in range(whole, terms):
        a += values[i] * values[i + lag]
    return (a + b) + (c + d)


def centred(window: NDArray[Any]) -> tuple[float, Vector]:
    """The mean, and what is left without it."""
    values = window.astype(np.float64)
    mean = total(values) / len(values)
    for i in range(len(values)):
        values[i] -= mean
    return mean, values


def autocorrelations(window: NDArray[Any], out: Vector) -> None:
    """ρ_p = Σ_t (y_t - ȳ)(y_{t+p} - ȳ) / Σ_t (y_t - ȳ)² for p = 1, 2, …; 0 where y never varies."""
    _, values = centred(window)
    square = product_at(values, 0)
    for i in range(len(out)):
        out[i] = product_at(values, i + 1) / square if square > 0.0 else 0.0


def extremes(window: NDArray[Any], out: Vector) -> None:
    """The smallest and the largest value."""
    low, high = float(window[0]), float(window[0])
    for i in range(1, len(window)):
        value = float(window[i])
        low = min(low, value)
        high = max(high, value)
    out[0], out[1] = low, high


def moments(window: NDArray[Any], out: Vector) -> None:
    """Mean, standard deviation, then standardised moments of order 3, 4, …; 0 where y never varies."""
    mean, values = centred(window)
    out[0] = mean
    powers = values * values
    for order in range(2, len(out) + 1):
        out[order - 1] = total(powers) / len(values)
        for i in range(len(values)):
            powers[i] *= values[i]
    standardise(out)


def standardise(out: Vector) -> None:
    """Central moments, behind the mean, into what `moments` promises."""
    if len(out) < 2:
        return
    sd = math.sqrt(out[1])
    out[1] = sd
    for i in range(2, len(out)):
        out[i] = out[i] / sd ** (i + 1) if sd > 0.0 else 0.0
