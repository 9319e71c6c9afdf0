"""How far the draws made so far are from the posterior, over time."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.draws import collect_draws
from lwa.models.model import Model
from lwa.result.result import Result

CURVE_POINTS = 60
"""Points of a curve at most."""
FEWEST_DRAWS = 2
"""Draws per chain before a curve begins."""
FEWEST_FOR_EFFECTIVE = 8
"""Draws per chain before effective draws are counted."""


class PosteriorMoments(NamedTuple):
    """Mean and sd of the posterior of each unconstrained parameter, and where they come from."""

    mean: Float64[np.ndarray, " d"]
    sd: Float64[np.ndarray, " d"]
    source: str


class ErrorEstimate(NamedTuple):
    """How far means of draws are off, in posterior sds, and sds of draws as multiples of the posterior's."""

    shift: Float64[np.ndarray, "*counts d"]
    ratio: Float64[np.ndarray, "*counts d"]

    @property
    def error(self) -> Float64[np.ndarray, "*counts"]:
        """Root mean square over parameters of the mean's shift and of the sd's relative error."""
        return np.sqrt(np.mean((self.shift**2 + (self.ratio - 1.0) ** 2) / 2.0, axis=-1))


def find_weights(fit: Result) -> Float64[np.ndarray, "chains draws"]:
    """Return 1 for each draw, or its sign if the method gives draws a sign."""
    some = next(iter(fit.posterior.values()))
    return np.asarray(fit.sample_stats.get("sign", np.ones(some.shape[:2])), np.float64)


def estimate_errors(model: Model, fit: Result, moments: PosteriorMoments, counts: NDArray[np.int64]) -> ErrorEstimate:
    """Estimate errors from the first so many draws of every chain, for each count."""
    away = (collect_draws(model, fit) - moments.mean) / moments.sd
    weight = find_weights(fit)[..., None]

    def add_up(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.cumsum(values.sum(0), axis=0)[counts - 1]

    total = add_up(weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = add_up(weight * away) / total
        variance = add_up(weight * away**2) / total - shift**2
    return ErrorEstimate(shift, np.sqrt(np.maximum(variance, 0.0)))


def build_curve(model: Model, fit: Result, moments: PosteriorMoments) -> list[tuple[float, float]]:
    """Return (seconds, error) at times spread evenly in their logarithm."""
    clock = [(draws, seconds) for draws, seconds in fit.attributes["clock"] if draws >= FEWEST_DRAWS]
    if not clock:
        return []
    draws, seconds = (np.array(one) for one in zip(*clock, strict=True))
    wanted = np.geomspace(seconds[0], seconds[-1], CURVE_POINTS)
    at = np.unique(np.searchsorted(seconds, wanted).clip(0, len(seconds) - 1))
    errors = estimate_errors(model, fit, moments, draws[at]).error
    return [(float(s), float(e)) for s, e in zip(seconds[at], errors, strict=True) if np.isfinite(e)]


def count_effective(model: Model, fit: Result) -> float:
    """Return the effective draws of the parameter that mixed worst, less those that negative signs cancel."""
    if fit.draws < FEWEST_FOR_EFFECTIVE:
        return float("nan")
    sign = find_weights(fit).mean()
    return float(np.nanmin(effective_draws(collect_draws(model, fit))) * sign**2)
