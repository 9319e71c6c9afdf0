"""The exact law of Algorithm 1 on tiny data, in NumPy alone: all 56 subsets of 3 rows out of 8, θ on a grid.

Nothing here imports lwa: it is the yardstick that the sampler is held against.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Y = np.array([-3.1, -1.2, -0.4, 0.1, 0.7, 1.5, 2.2, 4.0])
"""Eight observations, Normal(θ, 1)."""
N, n = len(Y), 3
PRIOR_SD = 3.0
SUBSETS = [frozenset(subset) for subset in combinations(range(N), n)]
GRID = np.linspace(-7.0, 8.0, 301)
"""Fine against the proposals and posteriors: halving its step changes the law by less than 1e-4 (see tests)."""


def weights(epsilon: float) -> NDArray[np.float64]:
    """ν(U) ∝ exp(-(S̄(Y_U) - s_N)² / 2ε²) with S the mean."""
    distance = np.array([abs(Y[list(U)].mean() - Y.mean()) for U in SUBSETS])
    nu = np.exp(-0.5 * (distance / epsilon) ** 2)
    return nu / nu.sum()


def subset_kernel(epsilon: float) -> NDArray[np.float64]:
    """Lines 2-5 with `Swap(1)`: every exchange of one row has probability 1/(nN), accepted by the ratio of ν."""
    nu = weights(epsilon)
    kernel = np.zeros((len(SUBSETS), len(SUBSETS)))
    for i, U in enumerate(SUBSETS):
        for j, other in enumerate(SUBSETS):
            if len(U & other) == n - 1:
                kernel[i, j] = min(1.0, nu[j] / nu[i]) / (n * N)
        kernel[i, i] = 1.0 - kernel[i].sum()
    return kernel


def log_target(U: frozenset[int], power: float, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """log p(θ) + w Σ_U log f(Y_k|θ)."""
    rows = Y[sorted(U)]
    return -0.5 * (theta / PRIOR_SD) ** 2 - 0.5 * power * ((rows[:, None] - theta) ** 2).sum(0)


def subposterior(U: frozenset[int], power: float, grid: NDArray[np.float64] = GRID) -> NDArray[np.float64]:
    """π(θ|Y_U) on the grid."""
    value = np.exp((log := log_target(U, power, grid)) - log.max())
    return value / value.sum()


def theta_kernel(
    U: frozenset[int], power: float, scale: float, grid: NDArray[np.float64] = GRID
) -> NDArray[np.float64]:
    """Lines 7-9: a random walk Normal(θ, scale²), accepted by the ratio of π(·|Y_U)."""
    step = grid[1] - grid[0]
    propose = np.exp(-0.5 * ((grid[None, :] - grid[:, None]) / scale) ** 2) * step / (scale * np.sqrt(2 * np.pi))
    log = log_target(U, power, grid)
    kernel = propose * np.exp(np.minimum(0.0, log[None, :] - log[:, None]))
    np.fill_diagonal(kernel, 0.0)
    np.fill_diagonal(kernel, 1.0 - kernel.sum(1))
    return kernel


def stationary(
    epsilon: float, power: float, scale: float, L: int, grid: NDArray[np.float64] = GRID
) -> NDArray[np.float64]:
    """The stationary law of (U, θ) under Algorithm 1, `(56, grid)`, by power iteration."""
    refresh = subset_kernel(epsilon)
    stay = np.diag(refresh).copy()
    once = np.stack([theta_kernel(U, power, scale, grid) for U in SUBSETS])
    after = np.stack([np.linalg.matrix_power(kernel, L) for kernel in once])
    np.fill_diagonal(refresh, 0.0)
    law = weights(epsilon)[:, None] * np.stack([subposterior(U, power, grid) for U in SUBSETS])
    for _ in range(100_000):
        arrived = refresh.T @ law  # U changed: L moves follow
        new = np.matmul(arrived[:, None], after)[:, 0] + np.matmul((stay[:, None] * law)[:, None], once)[:, 0]
        if np.abs(new - law).sum() < 1e-12:
            return new
        law = new
    raise RuntimeError("power iteration did not converge")


def mixture(epsilon: float, power: float, grid: NDArray[np.float64] = GRID) -> NDArray[np.float64]:
    """Σ_U ν(U) π(θ|Y_U), the limit as L grows."""
    return weights(epsilon) @ np.stack([subposterior(U, power, grid) for U in SUBSETS])
