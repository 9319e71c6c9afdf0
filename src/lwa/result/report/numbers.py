"""Numbers as the report writes them."""

import math

import numpy as np


def count_decimals(size: float, digits: int) -> int:
    """Return how many decimals show so many digits of a number of this size: from 0 to 9."""
    if not (np.isfinite(size) and size > 0):
        return digits
    return int(min(9, max(0, digits - 1 - math.floor(math.log10(size)))))


def format_fixed(value: float, decimals: int) -> str:
    """Return a number with so many decimals, unless that would be too long or show only zeros."""
    if not np.isfinite(value):
        return str(float(value))
    if abs(value) >= 1e7 or (value and decimals == 9 and abs(value) < 1e-6):
        return f"{value:.5g}"
    return f"{value + 0.0:.{decimals}f}"


def format_short(value: float) -> str:
    """Return a number with three digits, or with commas between thousands."""
    if not np.isfinite(value):
        return str(float(value))
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def format_share(part: float) -> str:
    """Return a share of 1 in per cent."""
    return f"{100 * part:.3g} %" if np.isfinite(part) else "not known"


def place_ticks(low: float, high: float, most: int = 4) -> list[tuple[float, str]]:
    """Return round numbers between two, with their labels."""
    if not high > low:
        return []
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= most)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    places = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [(place * step, format_fixed(place * step, min(9, decimals))) for place in places]
