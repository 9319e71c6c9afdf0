"""How many moves a chain needs to forget where it was."""

import numpy as np
from numpy.typing import NDArray


def autocorrelation_time(path: NDArray[np.floating]) -> float:
    """The worst integrated autocorrelation time over parameters, averaged over chains.

    τ = 1 + 2 Σ_t ρ_t, summed over pairs of lags while a pair's sum is positive (Geyer's initial positive sequence).

    Parameters
    ----------
    path
        θ at consecutive moves, `(moves, chains, d)`.
    """
    moves = len(path)
    if moves < 4:
        return 1.0
    centred = path.astype(np.float64) - path.mean(0, dtype=np.float64)
    transform = np.fft.rfft(centred, n=2 * moves, axis=0)
    covariance = np.fft.irfft(np.abs(transform) ** 2, axis=0)[:moves]
    still = covariance[0] <= 0  # a chain that never moved says nothing
    rho = (covariance / np.where(still, 1.0, covariance[0])).mean(1)  # (lags, d)
    pairs = rho[: moves // 2 * 2].reshape(moves // 2, 2, -1).sum(1)
    positive = np.cumprod(pairs > 0, axis=0).astype(bool)
    return float(max(1.0, (2.0 * (pairs * positive).sum(0) - 1.0).max()))
