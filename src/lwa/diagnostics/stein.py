"""What gradients of log π at some draws say of the mean and covariance of π, and how far the draws are from these.

Let g = ∇log π. For every π that vanishes at infinity, E_π[g] = 0 and E_π[g (θ - Eθ)ᵀ] = -I (Stein). So if the draws
come from π, the regression of g on θ has the slope -Cov_π(θ)⁻¹ and its root at E_π[θ], Gaussian or not: exact draws
show no effect. If they do not, and π is Gaussian, g is exactly linear: the regression finds π's own precision and mean
whatever the draws' law and with no noise at all. In between, the fit depends on where the points lie. So it is repeated
with weights that move the points' mean and covariance to those found for π, and the change is counted as uncertainty.

All is written in coordinates in which the draws have mean 0 and covariance I, and measured along contrasts: a parameter
is one, so are the directions in which draws and π differ the most.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.monte_carlo_error import standard_error_of_mean

type Vector = NDArray[np.float64]
type Matrix = NDArray[np.float64]

ROUNDS = 3
"""Times the weights follow the fit: each round changes effects by a fiftieth of the one before (logistic), or a seventh
(8 Poisson counts), and the third by 0.003 sd at most."""
KEPT, KEPT_A_COEFFICIENT = 0.1, 4
"""Points that weights must leave, as an effective share of all and for each coefficient: a few must never decide."""
WIDEST = 100.0
"""Largest variance of π claimed, in units of the draws'. Beyond it, or where log π bends upward, they see no end."""


class Evidence(NamedTuple):
    """Draws, and points among them with the gradients there."""

    draws: NDArray[np.float64]  # (chains, draws, d)
    points: Matrix  # (M, d)
    gradients: Matrix  # (M, d)


class Fit(NamedTuple):
    """π as the regression of g on θ sees it, and what each point has to do with that."""

    mean: Vector  # μ
    precision: Matrix  # H
    covariance: Matrix  # H⁻¹
    residuals: Matrix  # r = g + H (θ - μ), of H before it was made positive definite
    on_mean: Vector  # (M,)   how much H⁻¹ r of each point moves μ
    on_slope: Matrix  # (M, d) how much r of each point moves the slope: Σ w x xᵀ inverted, times w x
    explained: float  # R² of g, in units of π's precision


class Effects(NamedTuple):
    """Along each contrast: by how many of π's sds the draws are shifted, log of how many times too wide they are."""

    shift: Vector
    log_ratio: Vector
    shift_error: Vector  # standard errors: Monte Carlo of the draws, and of the regression
    log_ratio_error: Vector
    shift_doubt: Vector  # what fitting nearer to π changed
    log_ratio_doubt: Vector


def regress(points: Matrix, gradients: Matrix, weights: Vector) -> Fit:
    """g = -H (θ - μ) + r by weighted least squares, H symmetric and positive definite."""
    M, d = points.shape
    centre, level = weights @ points, weights @ gradients
    x, y = points - centre, gradients - level
    spread = (x * weights[:, None]).T @ x
    slope = np.linalg.solve(spread, (x * weights[:, None]).T @ y)
    slope = (slope + slope.T) / 2
    bend, axes = np.linalg.eigh(-slope)
    bend = np.maximum(bend, 1.0 / WIDEST)
    precision, covariance = (axes * bend) @ axes.T, (axes / bend) @ axes.T
    mean = centre + covariance @ level
    residuals = y - x @ slope
    lever = x @ np.linalg.inv(spread)
    used = effective(weights)
    influence = M * weights * np.sqrt(used / (used - d - 1))  # residuals are smaller than errors where they were fitted
    left, there = (weights @ ((part @ covariance) * part).sum(1) for part in (residuals, y))
    return Fit(
        mean,
        precision,
        covariance,
        residuals,
        influence * (1.0 + lever @ (mean - centre)),
        influence[:, None] * lever,
        float(1.0 - left / there),
    )


def weights_towards(fit: Fit, points: Matrix) -> Vector:
    """Weights that move standard normal points towards N(μ, H⁻¹), as far as enough of them are left."""
    M, d = points.shape
    away, enough = points - fit.mean, max(KEPT * M, KEPT_A_COEFFICIENT * (d + 1))
    log_weight = 0.5 * (points**2).sum(1) - 0.5 * ((away @ fit.precision) * away).sum(1)
    for power in 0.8 ** np.arange(40):
        weights = np.exp((log_weight - log_weight.max()) * power)
        weights /= weights.sum()
        if effective(weights) >= enough:
            return weights
    return np.full(M, 1.0 / M)


def effective(weights: Vector) -> float:
    """How many equal weights these, which add up to 1, are worth."""
    return float(1.0 / (weights**2).sum())


def fits(evidence: Evidence) -> tuple[Fit, Fit]:
    """The regression at the points as they are, and nearer to π."""
    even = np.full(len(evidence.points), 1.0 / len(evidence.points))
    plain = nearer = regress(evidence.points, evidence.gradients, even)
    for _ in range(ROUNDS):
        nearer = regress(evidence.points, evidence.gradients, weights_towards(nearer, evidence.points))
    return plain, nearer


def effects(evidence: Evidence, contrasts: Matrix) -> Effects:
    """Shift and width of the draws against π along each column of `contrasts` (d, k)."""
    plain, fit = fits(evidence)
    mean = evidence.draws.mean((0, 1))
    values = (evidence.draws - mean) @ contrasts
    variance = (values**2).mean((0, 1))

    def against(fit: Fit) -> tuple[Vector, Vector, Vector]:
        scale = np.sqrt(((contrasts.T @ fit.covariance) * contrasts.T).sum(1))
        return scale, (mean - fit.mean) @ contrasts / scale, 0.5 * np.log(variance) - np.log(scale)

    scale, shift, log_ratio = against(fit)
    _, plain_shift, plain_log_ratio = against(plain)
    along = fit.covariance @ contrasts
    pulled = fit.residuals @ along
    # In the order of chains and draws, so that errors of neighbours may be alike.
    root_error = standard_error_of_mean((pulled * fit.on_mean[:, None])[None]) / scale
    # On the log scale a precision p ± e reaches up to log(1 + e/p) from log p, which is much less than e/p where p is
    # near zero: draws whose π hardly bends are too narrow for certain, though by which factor is not.
    scale_error = 0.5 * np.log1p(standard_error_of_mean((pulled * (fit.on_slope @ along))[None]) / scale**2)
    width_error = standard_error_of_mean(values**2) / (2 * variance)
    return Effects(
        shift,
        log_ratio,
        np.sqrt((standard_error_of_mean(values) / scale) ** 2 + root_error**2 + (shift * scale_error) ** 2),
        np.hypot(width_error, scale_error),
        np.abs(shift - plain_shift),
        np.abs(log_ratio - plain_log_ratio),
    )


def worst_directions(evidence: Evidence) -> Matrix:
    """Contrasts, one a column: first HΔ, along which the shift √(ΔᵀHΔ) is largest, then those of eigen-widths.

    The latter, c with Σ c = λ H⁻¹ c, are the eigenvectors of H^½ Σ H^½ in other coordinates; λ increases.
    """
    fit = fits(evidence)[1]
    mean = evidence.draws.mean((0, 1))
    flat = (evidence.draws - mean).reshape(-1, len(mean))
    root = np.linalg.cholesky(fit.precision)  # H = R Rᵀ
    _, axes = np.linalg.eigh(root.T @ (flat.T @ flat / len(flat)) @ root)
    return np.column_stack([fit.precision @ (mean - fit.mean), root @ axes])


def effects_in_worst_directions(one: Evidence, other: Evidence) -> Effects:
    """Effects along the worst directions, each found from one half of the draws and measured on the other.

    The largest of d noisy eigenvalues is large even where all are 1, by 2√(d / draws). A direction that was found
    elsewhere is not chosen for its noise, so its effect is unbiased.
    """
    there = effects(other, worst_directions(one)), effects(one, worst_directions(other))
    mean = {name: (getattr(there[0], name) + getattr(there[1], name)) / 2 for name in Effects._fields}
    for name in ("shift_error", "log_ratio_error"):
        mean[name] = np.hypot(getattr(there[0], name), getattr(there[1], name)) / 2
    return Effects(**mean)
