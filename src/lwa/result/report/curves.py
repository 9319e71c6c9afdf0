"""The numbers behind the pictures: densities, ranks, traces and autocorrelations, as few as a small picture shows."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.diagnostics.autocorrelation import autocovariances

DENSITY_POINTS = 80
"""Points of a density: more would not be seen in a panel of some 250 pixels."""
RANK_BINS = 20
"""Bins of ranks, as Vehtari et al. (2021) draw them."""
TRACE_COLUMNS = 120
"""Columns of a trace: a longer chain is shown by the smallest and largest draw of each of so many stretches."""
LAGS = 40
"""Lags of an autocorrelation."""
TAIL_LEFT_OUT = 1e-3
"""Share of the draws that a picture may leave out at either end, so that one outlier does not flatten the rest."""


class Densities(NamedTuple):
    """Kernel density estimates at the same places, relative to the largest."""

    low: float
    high: float
    places: Float64[np.ndarray, " places"]
    pooled: Float64[np.ndarray, " places"]
    chains: Float64[np.ndarray, "chains places"]


def find_bounds(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return between which values to draw; None if nothing varies."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    low, high = np.quantile(finite, [TAIL_LEFT_OUT, 1 - TAIL_LEFT_OUT])
    margin = 0.05 * (high - low)
    low, high = max(low - margin, finite.min()), min(high + margin, finite.max())
    return (float(low), float(high)) if high - low > 1e-12 * max(abs(low), abs(high)) else None


def estimate_densities(
    values: Float64[np.ndarray, "chains draws"], shown: NDArray[np.int64] | None = None
) -> Densities | None:
    """Return densities of all draws and of each chain that is `shown`; None if nothing varies.

    Silverman's bandwidth of all draws serves every chain, so that curves differ only if draws do. Beyond both ends
    draws are mirrored, so that a density that is cut off at a boundary does not fall to zero there.
    """
    between = find_bounds(values)
    if between is None:
        return None
    low, high = between
    finite = values[np.isfinite(values)]
    quartiles = np.subtract(*np.quantile(finite, [0.75, 0.25])) / 1.349
    spread = min(finite.std(), quartiles) if quartiles > 0 else finite.std()
    width = (high - low) / DENSITY_POINTS
    bandwidth = max(0.9 * spread * finite.size**-0.2 / width, 0.5)  # in bins
    reach = min(DENSITY_POINTS, int(np.ceil(4 * bandwidth)))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / bandwidth) ** 2)

    def one(draws: NDArray[np.float64]) -> NDArray[np.float64]:
        counts = np.histogram(draws, DENSITY_POINTS, (low, high))[0] / max(1, draws.size)
        return np.convolve(np.pad(counts, reach, "symmetric"), kernel, "valid")

    some = values if shown is None else values[shown]
    pooled, chains = one(finite), np.stack([one(chain[np.isfinite(chain)]) for chain in some])
    top = max(pooled.max(), chains.max())
    places = np.linspace(low + width / 2, high - width / 2, DENSITY_POINTS)
    return Densities(low, high, places, pooled / top, chains / top)


def count_ranks(values: Float64[np.ndarray, "chains draws"]) -> Float64[np.ndarray, "chains bins"]:
    """Return how often each chain's draws have a low, a medium or a high rank among all draws.

    Counts are relative to their average if chains agree, which is 1. Ties share their mean rank.
    """
    _, place, counts = np.unique(values.ravel(), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * counts)[place].reshape(values.shape)
    bins = min(RANK_BINS, max(2, values.shape[1] // 10))
    edges = np.linspace(0, values.size, bins + 1)
    return np.stack([np.histogram(chain, edges)[0] for chain in ranks]) * (bins / values.shape[1])


def thin_trace(chain: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when, as a share of its length, and where a chain was: every draw, or the extremes of each stretch."""
    draws = len(chain)
    if draws <= 2 * TRACE_COLUMNS:
        return (np.arange(draws) + 0.5) / draws, chain
    starts = np.linspace(0, draws, TRACE_COLUMNS, endpoint=False).astype(int)
    ends = np.stack([np.minimum.reduceat(chain, starts), np.maximum.reduceat(chain, starts)], axis=1)
    return np.repeat((np.arange(TRACE_COLUMNS) + 0.5) / TRACE_COLUMNS, 2), ends.ravel()


def autocorrelation(values: Float64[np.ndarray, "chains draws"]) -> Float64[np.ndarray, " lags"]:
    """Return ρ at lags from 0 on, the mean over chains that move; empty if none does."""
    with np.errstate(invalid="ignore"):  # what is not finite does not move
        covariance = autocovariances(values - values.mean(1, keepdims=True), axis=1)
    moving = covariance[:, 0] > 0
    if not moving.any():
        return np.empty(0)
    covariance = covariance[moving, : LAGS + 1]
    return (covariance / covariance[:, :1]).mean(0)
