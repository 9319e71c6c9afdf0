"""How long chains remember: autocorrelation times, effective draws and the standard error of a mean.

Autocorrelations are summed as Geyer (1992) does: over pairs of neighbouring lags, while the sum of a pair is positive.
"""

import numpy as np
from jaxtyping import Float, Float64
from numpy.typing import NDArray

SCARCE_DRAWS = 50.0
"""Effective draws at which errors are doubled: with so few, the error itself is hardly known. Without this, the
certificate failed exact draws worth 20 (10) in 6 (23) of 100 runs; with it in none. It adds 1 % to the errors of draws
worth 4000."""
LONG_CHAIN, FEWEST_BATCHES = 4096, 2048
"""Draws per chain above which means of neighbouring draws replace the draws, and the least number of these means. They
vary over a chain as much as its draws do, and many draws of many parameters need no longer transforms."""


def autocovariances(centred: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return Σ_t x_t x_{t+lag} at every lag along an axis, by FFT, of series with mean 0."""
    length = centred.shape[axis]
    transform = np.fft.rfft(centred, n=2 * length, axis=axis)
    return np.fft.irfft(np.abs(transform) ** 2, axis=axis)[(slice(None),) * axis + (slice(length),)]


def integrate_positive_pairs(
    correlation: Float64[np.ndarray, "lags k"], *, decreasing: bool = False
) -> Float64[np.ndarray, " k"]:
    """Return τ = 1 + 2 Σ_t ρ_t, summed over pairs of lags while a pair's sum is positive.

    With `decreasing`, no pair counts for more than the one before it (Geyer's initial monotone sequence).
    """
    count = len(correlation) // 2
    pairs = correlation[: 2 * count].reshape(count, 2, -1).sum(1)
    positive = np.cumprod(pairs > 0, axis=0)
    if decreasing:
        pairs = np.minimum.accumulate(pairs, axis=0)
    return 2.0 * (pairs * positive).sum(0) - 1.0


def autocorrelation_time(path: Float[np.ndarray, "moves chains d"]) -> float:
    """Return the largest integrated autocorrelation time of all parameters, in moves; ρ_t is the mean over chains."""
    if len(path) < 4:
        return 1.0
    covariance = autocovariances(path.astype(np.float64) - path.mean(0, dtype=np.float64), axis=0)
    still = covariance[0] <= 0  # a chain that never moved carries no information
    correlation = (covariance / np.where(still, 1.0, covariance[0])).mean(1)  # (lags, d)
    return float(max(1.0, integrate_positive_pairs(correlation).max()))


def effective_draws(values: Float64[np.ndarray, "chains draws k"]) -> Float64[np.ndarray, " k"]:
    """Return how many independent draws would give the mean of each column with the same error; NaN if nothing varies.

    Chains are cut in half. Both the variance and the autocorrelation time τ include the variance between the halves.
    So chains that disagree with each other, or with their own past, are worth little even if each looks settled (as
    in Stan and ArviZ; Vehtari, Gelman, Simpson, Carpenter and Bürkner, 2021). τ is at least 1. Pass at least eight
    draws per chain.
    """
    if values.shape[1] > LONG_CHAIN:
        means = batch_means(values)
        with np.errstate(invalid="ignore", divide="ignore"):
            worth = effective_draws(means) * values.var((0, 1)) / means.var((0, 1))
        return np.minimum(worth, values.shape[0] * values.shape[1])
    half = values.shape[1] // 2
    parts = np.concatenate([values[:, :half], values[:, -half:]])
    covariance = autocovariances(parts - parts.mean(1, keepdims=True), axis=1).mean(0) / half  # (lags, k)
    within = covariance[0] * half / (half - 1)
    total = covariance[0] + parts.mean(1).var(0, ddof=1)
    correlation = 1.0 - (within - covariance) / np.where(total > 0, total, np.nan)
    correlation[0] = 1.0
    return len(parts) * half / np.maximum(1.0, integrate_positive_pairs(correlation, decreasing=True))


def batch_means(values: Float64[np.ndarray, "chains draws k"]) -> Float64[np.ndarray, "chains batches k"]:
    """Return means of neighbouring draws, at least `FEWEST_BATCHES` per chain; the first draws may be left over."""
    chains, draws, k = values.shape
    size = draws // FEWEST_BATCHES
    return values[:, draws % size :].reshape(chains, draws // size, size, k).mean(2)


def standard_error_of_mean(values: Float64[np.ndarray, "chains draws k"]) -> Float64[np.ndarray, " k"]:
    """Return the standard error of the mean over chains and draws of each column: sd / √(effective draws)."""
    worth = effective_draws(values)
    error = values.std((0, 1)) / np.sqrt(worth) * (1.0 + SCARCE_DRAWS / worth)
    return np.where(np.isnan(worth), 0.0, error)  # what does not vary has no error
