"""How far from the posterior the draws made so far are, as time goes by."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.draws import collect_draws
from lwa.models.model import Model
from lwa.result.result import Result

CURVE_POINTS = 60
"""Points of a curve at the most."""
FEWEST_DRAWS = 2


class PosteriorMoments(NamedTuple):
    """Mean and sd of the posterior, one entry a parameter (unconstrained), and where they come from."""

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    source: str


class ErrorEstimate(NamedTuple):
    """What draws say of the posterior, in its own sds."""

    shift: NDArray[np.float64]  # (..., d)
    ratio: NDArray[np.float64]  # (..., d)

    @property
    def error(self) -> NDArray[np.float64]:
        """Root mean square over parameters of the mean's shift and of what the sd is off, as a share."""
        return np.sqrt(np.mean((self.shift**2 + (self.ratio - 1.0) ** 2) / 2.0, axis=-1))


def find_weights(fit: Result) -> NDArray[np.float64]:
    """1 for each draw; its sign where the method gives draws a sign."""
    some = next(iter(fit.posterior.values()))
    return np.asarray(fit.sample_stats.get("sign", np.ones(some.shape[:2])), np.float64)


def estimate_errors(model: Model, fit: Result, moments: PosteriorMoments, counts: NDArray[np.int64]) -> ErrorEstimate:
    """From the first so many draws of every chain."""
    away = (collect_draws(model, fit) - moments.mean) / moments.sd
    weight = find_weights(fit)[..., None]

    def so_far(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.cumsum(values.sum(0), axis=0)[counts - 1]

    total = so_far(weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = so_far(weight * away) / total
        variance = so_far(weight * away**2) / total - shift**2
    return ErrorEstimate(shift, np.sqrt(np.maximum(variance, 0.0)))


def build_curve(model: Model, fit: Result, moments: PosteriorMoments) -> list[tuple[float, float]]:
    """(seconds, error), at times spread evenly in their logarithm."""
    clock = [(draws, seconds) for draws, seconds in fit.attributes["clock"] if draws >= FEWEST_DRAWS]
    if not clock:
        return []
    draws, seconds = (np.array(one) for one in zip(*clock, strict=True))
    wanted = np.geomspace(seconds[0], seconds[-1], CURVE_POINTS)
    at = np.unique(np.searchsorted(seconds, wanted).clip(0, len(seconds) - 1))
    errors = estimate_errors(model, fit, moments, draws[at]).error
    return [(float(s), float(e)) for s, e in zip(seconds[at], errors, strict=True) if np.isfinite(e)]


def count_effective(model: Model, fit: Result) -> float:
    """Effective draws of the parameter that mixed worst; where draws have signs, what is left of them."""
    if fit.draws < 8:
        return float("nan")
    sign = find_weights(fit).mean()
    return float(np.nanmin(effective_draws(collect_draws(model, fit))) * sign**2)
