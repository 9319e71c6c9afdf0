"""s_N of window summaries: the same numbers over all N rows, block by block, whether in memory or mapped."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.backend.numba_jit import compiled
from lwa.summaries.window_kernels import Vector, interpolated, product_at, standardise

BLOCK = 2**18
"""Rows held at once: a few MiB."""
DIGIT = 16
"""Bits settled by one pass of `order_statistics`: 2^16 counters a rank, four passes for 64 bits."""


def blocks(column: NDArray[Any], start: int = 0, stop: int | None = None, overlap: int = 0) -> Iterator[Vector]:
    """Rows from start to stop in float64, `BLOCK` at a time, each block with as many rows of the next as overlap."""
    end = len(column) if stop is None else stop
    for first in range(start, end, BLOCK):
        yield column[first : min(first + BLOCK + overlap, end)].astype(np.float64)


def mean_of(column: NDArray[Any]) -> float:
    """ȳ."""
    return sum(float(block.sum()) for block in blocks(column)) / len(column)


def extremes_of(column: NDArray[Any]) -> Vector:
    """The smallest and the largest value."""
    ends = np.array([(block.min(), block.max()) for block in blocks(column)])
    return np.array([ends[:, 0].min(), ends[:, 1].max()])


def moments_of(column: NDArray[Any], order: int) -> Vector:
    """Mean, standard deviation, standardised moments: one pass for the mean, one for the others."""
    mean, sums = mean_of(column), np.zeros(order)
    for block in blocks(column):
        centred = block - mean
        power = centred
        for k in range(1, order):
            power = power * centred
            sums[k] += power.sum()
    found = sums / len(column)
    found[0] = mean
    standardise(found)
    return found


def autocorrelations_of(column: NDArray[Any], series_ends: NDArray[np.int64], lags: int) -> Vector:
    """ρ_p over all series: products are summed within each, around the mean of all rows; 0 where y never varies."""
    mean, products, start = mean_of(column), np.zeros(lags + 1), 0
    product = compiled(product_at)  # not BLAS, whose threads wait for each other when all cores are busy
    for end in series_ends.tolist():
        for block in blocks(column, start, end, overlap=lags):
            block -= mean
            for lag in range(lags + 1):
                products[lag] += product(block[: BLOCK + lag], lag)
        start = end
    return products[1:] / products[0] if products[0] > 0 else np.zeros(lags)


def quantiles_of(column: NDArray[Any], levels: Vector) -> Vector:
    """np.quantile of all rows, exactly."""
    at = (len(column) - 1) * levels
    low = at.astype(np.int64)
    ranks = np.concatenate([low, np.minimum(low + 1, len(column) - 1)])
    below, above = order_statistics(column, ranks).reshape(2, -1)
    return np.array([interpolated(*three) for three in zip(below, above, at - low, strict=True)])


def order_statistics(column: NDArray[Any], ranks: NDArray[np.int64]) -> Vector:
    """The values of given ranks among all rows: the 64 bits of each, 16 a pass, by counting rows that share the rest.

    Memory is a block and 2^16 counters a rank, whatever N.
    """
    prefixes, left = np.zeros(len(ranks), np.uint64), ranks.copy()  # bits settled; rank among rows that share them
    for shift in range(64 - DIGIT, -1, -DIGIT):
        counts = {prefix: np.zeros(2**DIGIT, np.int64) for prefix in prefixes.tolist()}
        for block in blocks(column):
            heads = in_order(block) >> np.uint64(shift)
            digits, settled = (heads & np.uint64(2**DIGIT - 1)).astype(np.int64), heads >> np.uint64(DIGIT)
            for prefix, count in counts.items():
                count += np.bincount(digits[settled == np.uint64(prefix)], minlength=2**DIGIT)
        for i, prefix in enumerate(prefixes.tolist()):
            reached = np.cumsum(counts[prefix])
            digit = int(np.searchsorted(reached, left[i], side="right"))
            left[i] -= reached[digit - 1] if digit else 0
            prefixes[i] = (prefix << DIGIT) | digit
    return from_order(prefixes)


SIGN = np.uint64(1 << 63)


def in_order(values: Vector) -> NDArray[np.uint64]:
    """Floats as whole numbers in the same order: negative ones have all bits turned, others their sign."""
    bits = values.view(np.uint64)
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def from_order(numbers: NDArray[np.uint64]) -> Vector:
    """The floats again."""
    return np.where(numbers & SIGN, numbers ^ SIGN, ~numbers).view(np.float64)
