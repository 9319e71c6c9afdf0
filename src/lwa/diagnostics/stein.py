"""What gradients of log π at some draws show of how far all draws are from π.

Let u be the slope of log π along a contrast, in units of π, and y a draw along it. For each quantity of `shapes`

    E_q[f(y)] + E_q[φ(y) (u + y)]

is 0 if the draws q are draws of π, whatever π is (Stein), and E_q[f] - E_π[f] if π is Gaussian, whatever q is. In
between it is both to first order. The first mean is over all draws, the second over the points with gradients: near a
Gaussian u + y is small, so that a few hundred of them do.

The Gaussian that stands for π, its mean μ and precision H, comes from the regression of the gradients on θ: it is π
itself if π is Gaussian, and found with no noise. If a straight line explains less than half of the gradients, as
between two modes, the draws' own mean and covariance stand for it: the identity holds in the units of any Gaussian, and
nothing is divided by what is mostly noise.

In all functions the draws have mean 0 and covariance I. Effects are measured along contrasts: a parameter is one, and
so are the directions in which draws and π differ the most.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.diagnostics.autocorrelation import SCARCE_DRAWS, effective_draws, standard_error_of_mean
from lwa.diagnostics.shapes import QUANTITIES, evaluate_partners, evaluate_tests, find_ends

EXPLAINED = 0.5
"""R² below which the regression says nothing of π."""
NEAR_GAUSSIAN = 0.9
"""R² below which π may have heavy tails: then draws beyond three sds count less in the variance too."""
MISFIT = 0.5
"""If draws are elsewhere than π, or much wider, the straight line fits the gradients there, not those of π. So much of
what it leaves unexplained then counts as one standard error."""
FLATTEST = 0.01
"""Smallest curvature of π believed, in units of the draws' own. Below it the draws see no end of π."""


class Evidence(NamedTuple):
    """Draws, points among them with the gradients there, and gradients from each of several batches of rows.

    `noise` is each batch's gradient less their mean; it has no batches if the gradients are those of all rows.
    """

    draws: Float64[np.ndarray, "chains draws d"]
    points: Float64[np.ndarray, "M d"]
    gradients: Float64[np.ndarray, "M d"]
    noise: Float64[np.ndarray, "B M d"] | None = None


class Frame(NamedTuple):
    """The Gaussian that stands for π, and R² of the gradients about a straight line."""

    mean: Float64[np.ndarray, " d"]  # μ
    precision: Float64[np.ndarray, "d d"]  # H
    covariance: Float64[np.ndarray, "d d"]  # H⁻¹
    explained: float


class Effects(NamedTuple):
    """Along each contrast and for each quantity: E_q[f] - E_π[f], and its standard errors by where they come from."""

    size: Float64[np.ndarray, "k q"]
    of_draws: Float64[np.ndarray, "k q"]  # Monte Carlo error of all draws
    of_points: Float64[np.ndarray, "k q"]  # gradients at some draws stand for those at all, and at draws of π
    of_rows: Float64[np.ndarray, "k q"]  # some rows stand for all rows
    scale: Float64[np.ndarray, " k"]  # sd of the Gaussian that stands for π
    own_shift: Float64[np.ndarray, " k"]  # square of the shift between it and the draws, in its sds

    @property
    def error(self) -> Float64[np.ndarray, "k q"]:
        """Standard errors in all."""
        return np.sqrt(self.of_draws**2 + self.of_points**2 + self.of_rows**2)


def find_frame(evidence: Evidence) -> Frame:
    """Fit g = -H (θ - μ) by least squares, with H symmetric; if that explains little, return that of the draws."""
    points, gradients = evidence.points, evidence.gradients
    d = points.shape[1]
    centre, level = points.mean(0), gradients.mean(0)
    x, y = points - centre, gradients - level
    slope = np.linalg.lstsq(x, y, rcond=None)[0]
    slope = (slope + slope.T) / 2
    explained = float(1.0 - ((y - x @ slope) ** 2).sum() / max((y**2).sum(), 1e-300))
    bend, axes = np.linalg.eigh(-slope)
    if explained < EXPLAINED or bend[0] < FLATTEST:
        return Frame(np.zeros(d), np.eye(d), np.eye(d), explained)
    covariance = (axes / bend) @ axes.T
    return Frame(centre + covariance @ level, (axes * bend) @ axes.T, covariance, explained)


def measure_effects(
    evidence: Evidence, contrasts: Float64[np.ndarray, "d k"], frame: Frame, *, quantities: int = len(QUANTITIES)
) -> Effects:
    """Return by how much draws and π differ along each contrast, in all quantities or the first of them."""
    along = frame.covariance @ contrasts
    scale = np.sqrt((contrasts * along).sum(0))
    y = (evidence.draws - frame.mean) @ contrasts / scale
    at_points = (evidence.points - frame.mean) @ contrasts / scale
    residuals = evidence.gradients @ along / scale + at_points  # u + y
    found = np.zeros((4, len(scale), quantities))
    for j in range(len(scale)):
        ends = find_ends(y[..., j].ravel(), bounded=frame.explained < NEAR_GAUSSIAN)
        tests = evaluate_tests(y[..., j], ends, quantities)
        partners = evaluate_partners(at_points[:, j], ends, quantities)
        pulled = partners * residuals[:, j, None]
        # In the order of chains and draws, so that errors of neighbouring points may be alike.
        by_chance, moved = standard_error_of_mean(pulled[None]), pulled.mean(0)
        apart = float((y[..., j] ** 2).mean()) - 1.0
        beyond = MISFIT * min(1.0, apart**2) * np.sqrt((pulled**2).mean(0))
        of_points = np.hypot(by_chance, beyond)
        found[:3, j] = tests.mean((0, 1)) + moved, find_own_errors(tests), of_points
        if evidence.noise is not None:
            batches = (evidence.noise @ along[:, j] / scale[j]) @ partners / len(partners)
            found[3, j] = batches.std(0, ddof=1) / np.sqrt(len(batches))
    size, of_draws, of_points, of_rows = found
    own_shift = y.mean((0, 1)) ** 2
    return Effects(size, of_draws, of_points, of_rows, scale=scale, own_shift=own_shift)


def find_own_errors(tests: Float64[np.ndarray, "chains draws q"]) -> Float64[np.ndarray, " q"]:
    """Return the Monte Carlo error of the mean of each f over all draws.

    Draws are worth no more for any f than for their mean: with few of them, a share of them only seems to be known.
    """
    worth = effective_draws(tests)
    worth = np.fmin(worth, worth[0])
    error = tests.std((0, 1)) / np.sqrt(worth) * (1.0 + SCARCE_DRAWS / worth)
    return np.where(np.isnan(worth), 0.0, error)


def find_worst_directions(evidence: Evidence, frame: Frame) -> Float64[np.ndarray, "d d+1"]:
    """Return contrasts, one per column: first that along which the shift is largest, then those of extreme widths.

    With Δ the difference of the means the first is HΔ, along which √(ΔᵀHΔ) is found. The others, c with Σ c = λ H⁻¹ c,
    are the eigenvectors of H^½ Σ H^½ in other coordinates; λ increases.
    """
    mean = evidence.draws.mean((0, 1))
    flat = (evidence.draws - mean).reshape(-1, len(mean))
    pulled = evidence.gradients + (evidence.points - frame.mean) @ frame.precision
    root = np.linalg.cholesky(frame.precision)  # H = R Rᵀ
    _, axes = np.linalg.eigh(root.T @ (flat.T @ flat / len(flat)) @ root)
    return np.column_stack([frame.precision @ (mean - frame.mean) - pulled.mean(0), root @ axes])


def measure_worst_directions(one: Evidence, other: Evidence) -> Effects:
    """Return effects along the worst directions, each found from one half of the draws and measured on the other.

    The largest of d noisy eigenvalues is large even if all are 1, by 2√(d / draws). A direction that was found
    on the other half is not chosen for its noise, so its effect is unbiased.
    """
    frames = find_frame(one), find_frame(other)
    there = [
        measure_effects(other, find_worst_directions(one, frames[0]), frames[1], quantities=2),
        measure_effects(one, find_worst_directions(other, frames[1]), frames[0], quantities=2),
    ]
    means = {name: (getattr(there[0], name) + getattr(there[1], name)) / 2 for name in ("size", "scale", "own_shift")}
    errors = ("of_draws", "of_points", "of_rows")
    return Effects(**means, **{name: np.hypot(*(getattr(half, name) for half in there)) / 2 for name in errors})


def read_log_width(found: Effects, standard_errors: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log(sd of the draws / sd of π) along each contrast, and its bar.

    f of the variance is about the mean of the Gaussian that stands for π, so that the square of the shift comes off.
    The bar reaches as far towards 0 as the error allows: draws may be certainly too narrow, by an uncertain factor.
    """
    share = 1.0 + found.size[:, 1] - found.own_shift
    reach = standard_errors * found.error[:, 1]
    share = np.maximum(share, FLATTEST)
    nearer = np.where(share < 1.0, share + reach, np.maximum(share - reach, FLATTEST))
    return 0.5 * np.log(share), 0.5 * np.abs(np.log(nearer / share))
