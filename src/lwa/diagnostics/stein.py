"""What gradients of log π at some draws show of the mean and covariance of π, and how far the draws are from these.

Let g = ∇log π. For every π that vanishes at infinity, E_π[g] = 0 and E_π[g (θ - Eθ)ᵀ] = -I (Stein). So if the draws
come from π, the regression of g on θ has the slope -Cov_π(θ)⁻¹ and its root at E_π[θ], Gaussian or not: exact draws
show no effect. If they do not, and π is Gaussian, g is exactly linear: the regression finds π's own precision and mean
whatever the draws' law and with no noise at all. In between, the fit depends on where the points lie. So it is repeated
with weights that move the points' mean and covariance to those found for π, and the change counts as uncertainty.

In all functions the draws have mean 0 and covariance I. Effects are measured along contrasts: a parameter is one, and
so are the directions in which draws and π differ the most.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from lwa.diagnostics.autocorrelation import standard_error_of_mean

REWEIGHTINGS = 3
"""Times the weights follow the fit: each changes effects by a fiftieth of the one before (logistic), or a seventh
(8 Poisson counts), and the third by 0.003 sd at most."""
LEAST_SHARE_KEPT, LEAST_POINTS_PER_COEFFICIENT = 0.1, 4
"""Points that weights must leave, as an effective share of all and per coefficient: a few points must never decide."""
WIDEST_VARIANCE = 100.0
"""Largest variance claimed for π, in units of the draws'. Beyond it, or if log π bends upward, the draws see no end."""


class Evidence(NamedTuple):
    """Draws, and points among them with the gradients there."""

    draws: Float64[np.ndarray, "chains draws d"]
    points: Float64[np.ndarray, "M d"]
    gradients: Float64[np.ndarray, "M d"]


class Fit(NamedTuple):
    """The mean and precision of π by the regression of g on θ, and what each point contributes."""

    mean: Float64[np.ndarray, " d"]  # μ
    precision: Float64[np.ndarray, "d d"]  # H
    covariance: Float64[np.ndarray, "d d"]  # H⁻¹
    residuals: Float64[np.ndarray, "M d"]  # r = g + H (θ - μ), with H before it was made positive definite
    on_mean: Float64[np.ndarray, " M"]  # how much H⁻¹ r of each point moves μ
    on_slope: Float64[np.ndarray, "M d"]  # how much r of each point moves the slope: (Σ w x xᵀ)⁻¹ w x
    explained: float  # R² of g, in units of π's precision


class Effects(NamedTuple):
    """Along each contrast: the shift of the draws in sds of π, and log(sd of the draws / sd of π)."""

    shift: Float64[np.ndarray, " k"]
    log_ratio: Float64[np.ndarray, " k"]
    shift_error: Float64[np.ndarray, " k"]  # standard errors: Monte Carlo of the draws, and of the regression
    log_ratio_error: Float64[np.ndarray, " k"]
    shift_doubt: Float64[np.ndarray, " k"]  # what fitting nearer to π changed
    log_ratio_doubt: Float64[np.ndarray, " k"]


def regress(
    points: Float64[np.ndarray, "M d"], gradients: Float64[np.ndarray, "M d"], weights: Float64[np.ndarray, " M"]
) -> Fit:
    """Fit g = -H (θ - μ) + r by weighted least squares, with H symmetric and positive definite."""
    M, d = points.shape
    centre, level = weights @ points, weights @ gradients
    x, y = points - centre, gradients - level
    spread = (x * weights[:, None]).T @ x
    slope = np.linalg.solve(spread, (x * weights[:, None]).T @ y)
    slope = (slope + slope.T) / 2
    bend, axes = np.linalg.eigh(-slope)
    bend = np.maximum(bend, 1.0 / WIDEST_VARIANCE)
    precision, covariance = (axes * bend) @ axes.T, (axes / bend) @ axes.T
    mean = centre + covariance @ level
    residuals = y - x @ slope
    lever = x @ np.linalg.inv(spread)
    used = effective_number(weights)
    influence = M * weights * np.sqrt(used / (used - d - 1))  # residuals of fitted points are smaller than errors
    left, there = (weights @ ((part @ covariance) * part).sum(1) for part in (residuals, y))
    return Fit(
        mean=mean, precision=precision, covariance=covariance, residuals=residuals,
        on_mean=influence * (1.0 + lever @ (mean - centre)), on_slope=influence[:, None] * lever,
        explained=float(1.0 - left / there),
    )  # fmt: skip


def weigh_towards(fit: Fit, points: Float64[np.ndarray, "M d"]) -> Float64[np.ndarray, " M"]:
    """Return weights that move standard normal points towards N(μ, H⁻¹), as far as enough of them are left."""
    M, d = points.shape
    away, enough = points - fit.mean, max(LEAST_SHARE_KEPT * M, LEAST_POINTS_PER_COEFFICIENT * (d + 1))
    log_weight = 0.5 * (points**2).sum(1) - 0.5 * ((away @ fit.precision) * away).sum(1)
    for power in 0.8 ** np.arange(40):
        weights = np.exp((log_weight - log_weight.max()) * power)
        weights /= weights.sum()
        if effective_number(weights) >= enough:
            return weights
    return np.full(M, 1.0 / M)


def effective_number(weights: Float64[np.ndarray, " M"]) -> float:
    """Return how many equal weights are worth as much as these, which add up to 1."""
    return float(1.0 / (weights**2).sum())


def fit_gradients(evidence: Evidence) -> tuple[Fit, Fit]:
    """Return the regression at the points as they are, and the one with weights that move them nearer to π."""
    even = np.full(len(evidence.points), 1.0 / len(evidence.points))
    plain = nearer = regress(evidence.points, evidence.gradients, even)
    for _ in range(REWEIGHTINGS):
        nearer = regress(evidence.points, evidence.gradients, weigh_towards(nearer, evidence.points))
    return plain, nearer


def measure_effects(evidence: Evidence, contrasts: Float64[np.ndarray, "d k"]) -> Effects:
    """Return shift and width of the draws against π along each contrast."""
    plain, fit = fit_gradients(evidence)
    mean = evidence.draws.mean((0, 1))
    values = (evidence.draws - mean) @ contrasts
    variance = (values**2).mean((0, 1))

    def compare_with(fit: Fit) -> tuple[Float64[np.ndarray, " k"], ...]:
        scale = np.sqrt(((contrasts.T @ fit.covariance) * contrasts.T).sum(1))
        return scale, (mean - fit.mean) @ contrasts / scale, 0.5 * np.log(variance) - np.log(scale)

    scale, shift, log_ratio = compare_with(fit)
    _, plain_shift, plain_log_ratio = compare_with(plain)
    along = fit.covariance @ contrasts
    pulled = fit.residuals @ along
    # In the order of chains and draws, so that errors of neighbours may be alike.
    root_error = standard_error_of_mean((pulled * fit.on_mean[:, None])[None]) / scale
    # On the log scale a precision p ± e reaches up to log(1 + e/p) from log p, which is much less than e/p if p is
    # near zero: draws whose π hardly bends are certainly too narrow, though by an uncertain factor.
    scale_error = 0.5 * np.log1p(standard_error_of_mean((pulled * (fit.on_slope @ along))[None]) / scale**2)
    width_error = standard_error_of_mean(values**2) / (2 * variance)
    mean_error = standard_error_of_mean(values) / scale
    return Effects(
        shift=shift,
        log_ratio=log_ratio,
        shift_error=np.sqrt(mean_error**2 + root_error**2 + (shift * scale_error) ** 2),
        log_ratio_error=np.hypot(width_error, scale_error),
        shift_doubt=np.abs(shift - plain_shift),
        log_ratio_doubt=np.abs(log_ratio - plain_log_ratio),
    )


def find_worst_directions(evidence: Evidence) -> Float64[np.ndarray, "d d+1"]:
    """Return contrasts, one per column: first HΔ, along which the shift √(ΔᵀHΔ) is largest, then those of eigen-widths.

    The latter, c with Σ c = λ H⁻¹ c, are the eigenvectors of H^½ Σ H^½ in other coordinates; λ increases.
    """
    fit = fit_gradients(evidence)[1]
    mean = evidence.draws.mean((0, 1))
    flat = (evidence.draws - mean).reshape(-1, len(mean))
    root = np.linalg.cholesky(fit.precision)  # H = R Rᵀ
    _, axes = np.linalg.eigh(root.T @ (flat.T @ flat / len(flat)) @ root)
    return np.column_stack([fit.precision @ (mean - fit.mean), root @ axes])


def measure_worst_directions(one: Evidence, other: Evidence) -> Effects:
    """Return effects along the worst directions, each found from one half of the draws and measured on the other.

    The largest of d noisy eigenvalues is large even if all are 1, by 2√(d / draws). A direction that was found
    on the other half is not chosen for its noise, so its effect is unbiased.
    """
    there = (measure_effects(other, find_worst_directions(one)), measure_effects(one, find_worst_directions(other)))
    mean = {name: (getattr(there[0], name) + getattr(there[1], name)) / 2 for name in Effects._fields}
    for name in ("shift_error", "log_ratio_error"):
        mean[name] = np.hypot(getattr(there[0], name), getattr(there[1], name)) / 2
    return Effects(**mean)
