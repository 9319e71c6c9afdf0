"""S of one window, as plain functions that write into `out`; `lwa.backend.numba_jit` compiles them.

Sums run in a fixed order, four at a time. That is fast without letting the compiler reorder them, so every machine
finds the same bits.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Doubles = NDArray[np.float64]


def interpolate(low: float, high: float, share: float) -> float:
    """Interpolate between two order statistics as np.quantile does by default: exact at both ends."""
    return high - (high - low) * (1.0 - share) if share >= 0.5 else low + (high - low) * share


def write_quantiles(window: NDArray[Any], levels: Doubles, out: Doubles) -> None:
    """Write the quantiles at ascending levels, with linear interpolation between order statistics."""
    values = window.astype(np.float64)
    last = len(values) - 1
    ranks = np.empty(2 * len(levels), np.int64)
    for i in range(len(levels)):
        ranks[2 * i] = int(last * levels[i])
        ranks[2 * i + 1] = min(ranks[2 * i] + 1, last)
    place_order_statistics(values, ranks)
    for i in range(len(levels)):
        low = ranks[2 * i]
        out[i] = interpolate(values[low], values[ranks[2 * i + 1]], last * levels[i] - low)


def place_order_statistics(values: Doubles, ranks: NDArray[np.int64]) -> None:
    """Move the order statistics of ascending ranks to their places: quickselect for all ranks at once."""
    pending = np.empty((len(ranks) + 1, 2), np.int64)  # ranges known to hold ranks that are not in place
    pending[0, 0], pending[0, 1] = 0, len(values)
    count = 1
    while count:
        count -= 1
        start, stop = pending[count]
        while stop - start > 1:
            first, beyond = find_ranks_within(ranks, start, stop)
            if first == beyond:
                break
            pivot = find_middle_of_three(values, start, stop)
            cut = put_smaller_first(values, start, stop, pivot)
            if cut == start:  # nothing is smaller: then what equals the pivot is in place once it is in front
                start = max(start + 1, put_smaller_first(values, start, stop, np.nextafter(pivot, np.inf)))
            elif ranks[first] >= cut:
                start = cut
            elif ranks[beyond - 1] < cut:
                stop = cut
            else:
                pending[count, 0], pending[count, 1] = cut, stop
                count += 1
                stop = cut


def find_ranks_within(ranks: NDArray[np.int64], start: int, stop: int) -> tuple[int, int]:
    """Return the first of the ascending ranks from start to stop, and the first beyond."""
    first = 0
    while first < len(ranks) and ranks[first] < start:
        first += 1
    beyond = first
    while beyond < len(ranks) and ranks[beyond] < stop:
        beyond += 1
    return first, beyond


def find_middle_of_three(values: Doubles, start: int, stop: int) -> float:
    """Return the median of three values at the quarters of a range: a good pivot for sorted values too."""
    step = (stop - start) // 4
    a, b, c = values[start + step], values[start + 2 * step], values[stop - 1 - step]
    return max(min(a, b), min(max(a, b), c))


def put_smaller_first(values: Doubles, start: int, stop: int, pivot: float) -> int:
    """Move values smaller than the pivot to the front, without a branch; return where the rest begins."""
    cut = start
    for i in range(start, stop):
        value = values[i]
        values[i] = values[cut]
        values[cut] = value
        cut += value < pivot
    return cut


def add_up(values: Doubles) -> float:
    """Return Σ values."""
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


def add_products_at(values: Doubles, lag: int) -> float:
    """Return Σ_t values[t] values[t + lag]."""
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


def centre(window: NDArray[Any]) -> tuple[float, Doubles]:
    """Return the mean, and the values minus it."""
    values = window.astype(np.float64)
    mean = add_up(values) / len(values)
    for i in range(len(values)):
        values[i] -= mean
    return mean, values


def write_autocorrelations(window: NDArray[Any], out: Doubles) -> None:
    """Write ρ_p = Σ_t (y_t - ȳ)(y_{t+p} - ȳ) / Σ_t (y_t - ȳ)² for p = 1, 2, …; 0 if y never varies."""
    _, values = centre(window)
    square = add_products_at(values, 0)
    for i in range(len(out)):
        out[i] = add_products_at(values, i + 1) / square if square > 0.0 else 0.0


def write_extremes(window: NDArray[Any], out: Doubles) -> None:
    """Write the smallest and the largest value."""
    low, high = float(window[0]), float(window[0])
    for i in range(1, len(window)):
        value = float(window[i])
        low = min(low, value)
        high = max(high, value)
    out[0], out[1] = low, high


def write_moments(window: NDArray[Any], out: Doubles) -> None:
    """Write mean, standard deviation, then standardised moments of order 3, 4, …; 0 if y never varies."""
    mean, values = centre(window)
    out[0] = mean
    powers = values * values
    for order in range(2, len(out) + 1):
        out[order - 1] = add_up(powers) / len(values)
        for i in range(len(values)):
            powers[i] *= values[i]
    standardise_moments(out)


def standardise_moments(out: Doubles) -> None:
    """Turn the central moments that follow the mean into what `write_moments` writes."""
    if len(out) < 2:
        return
    sd = math.sqrt(out[1])
    out[1] = sd
    for i in range(2, len(out)):
        out[i] = out[i] / sd ** (i + 1) if sd > 0.0 else 0.0
