"""s_N of window summaries: their numbers over all N rows, block by block, whether in memory or mapped."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.backend.numba_jit import jit_compile
from lwa.summaries.window_kernels import Doubles, add_products_at, interpolate, standardise_moments

COLUMN_BLOCK = 2**18
"""Rows held in memory at once: a few MiB."""
DIGIT_BITS = 16
"""Bits that one pass of `find_order_statistics` finds: 2^16 counters per rank, four passes for 64 bits."""
SIGN_BIT = np.uint64(1 << 63)


def read_column_blocks(
    column: NDArray[Any], start: int = 0, stop: int | None = None, overlap: int = 0
) -> Iterator[Doubles]:
    """Yield rows in float64, `COLUMN_BLOCK` at a time; each block also has the first `overlap` rows of the next."""
    end = len(column) if stop is None else stop
    for first in range(start, end, COLUMN_BLOCK):
        yield column[first : min(first + COLUMN_BLOCK + overlap, end)].astype(np.float64)


def find_column_mean(column: NDArray[Any]) -> float:
    """Return ȳ."""
    return sum(float(block.sum()) for block in read_column_blocks(column)) / len(column)


def find_column_extremes(column: NDArray[Any]) -> Doubles:
    """Return the smallest and the largest value."""
    ends = np.array([(block.min(), block.max()) for block in read_column_blocks(column)])
    return np.array([ends[:, 0].min(), ends[:, 1].max()])


def find_column_moments(column: NDArray[Any], order: int) -> Doubles:
    """Return mean, standard deviation, standardised moments: one pass for the mean, one for the others."""
    mean, sums = find_column_mean(column), np.zeros(order)
    for block in read_column_blocks(column):
        centred = block - mean
        power = centred
        for k in range(1, order):
            power = power * centred
            sums[k] += power.sum()
    found = sums / len(column)
    found[0] = mean
    standardise_moments(found)
    return found


def find_column_autocorrelations(column: NDArray[Any], series_ends: NDArray[np.int64], lags: int) -> Doubles:
    """Return ρ_p over all series; 0 if y never varies. Products are summed within each, around the mean of all rows."""
    mean, products, start = find_column_mean(column), np.zeros(lags + 1), 0
    product = jit_compile(add_products_at)  # not BLAS, whose threads wait for each other when all cores are busy
    for end in series_ends.tolist():
        for block in read_column_blocks(column, start, end, overlap=lags):
            block -= mean
            for lag in range(lags + 1):
                products[lag] += product(block[: COLUMN_BLOCK + lag], lag)
        start = end
    return products[1:] / products[0] if products[0] > 0 else np.zeros(lags)


def find_column_quantiles(column: NDArray[Any], levels: Doubles) -> Doubles:
    """Return exactly what np.quantile returns for all rows."""
    at = (len(column) - 1) * levels
    low = at.astype(np.int64)
    ranks = np.concatenate([low, np.minimum(low + 1, len(column) - 1)])
    below, above = find_order_statistics(column, ranks).reshape(2, -1)
    return np.array([interpolate(*three) for three in zip(below, above, at - low, strict=True)])


def find_order_statistics(column: NDArray[Any], ranks: NDArray[np.int64]) -> Doubles:
    """Return the values of these ranks among all rows.

    Each pass finds 16 of the 64 bits of each value, by counting the rows that share the bits found so far. Memory is a
    block and 2^16 counters per rank, whatever N.
    """
    prefixes, left = np.zeros(len(ranks), np.uint64), ranks.copy()  # bits found; rank among rows that share them
    for shift in range(64 - DIGIT_BITS, -1, -DIGIT_BITS):
        counts = {prefix: np.zeros(2**DIGIT_BITS, np.int64) for prefix in prefixes.tolist()}
        for block in read_column_blocks(column):
            heads = to_ordered_bits(block) >> np.uint64(shift)
            digits, settled = (heads & np.uint64(2**DIGIT_BITS - 1)).astype(np.int64), heads >> np.uint64(DIGIT_BITS)
            for prefix, count in counts.items():
                count += np.bincount(digits[settled == np.uint64(prefix)], minlength=2**DIGIT_BITS)
        for i, prefix in enumerate(prefixes.tolist()):
            reached = np.cumsum(counts[prefix])
            digit = int(np.searchsorted(reached, left[i], side="right"))
            left[i] -= reached[digit - 1] if digit else 0
            prefixes[i] = (prefix << DIGIT_BITS) | digit
    return from_ordered_bits(prefixes)


def to_ordered_bits(values: Doubles) -> NDArray[np.uint64]:
    """Map floats to whole numbers in the same order: flip all bits of negative floats, the sign bit of others."""
    bits = values.view(np.uint64)
    return np.where(bits & SIGN_BIT, ~bits, bits | SIGN_BIT)


def from_ordered_bits(numbers: NDArray[np.uint64]) -> Doubles:
    """Map the whole numbers of `to_ordered_bits` back to floats."""
    return np.where(numbers & SIGN_BIT, numbers ^ SIGN_BIT, ~numbers).view(np.float64)
