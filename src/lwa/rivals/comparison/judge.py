"""Measures the runs of a comparison against the posterior, as they come, and their errors over time."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.data.data import Data
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.certify import certify
from lwa.diagnostics.draws import collect_draws
from lwa.errors import LwaError
from lwa.models.model import Model
from lwa.result.result import Result
from lwa.rivals.comparison.table import Line

MOST_SAVED = 10_000
"""Draws per chain that a comparison keeps of each run, once it is measured."""
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


class Judge:
    """Measures runs as they come: once the posterior is known, a run becomes a line and few of its draws are kept.

    Until then, for example if the first methods gave too few draws for a certificate, runs wait whole.
    """

    def __init__(self, model: Model, data: Data, moments: PosteriorMoments | None, progress: bool) -> None:
        self.model, self.data, self.moments, self.progress = model, data, moments, progress
        self.waiting: dict[str, tuple[bool, Result]] = {}
        self.lines: dict[str, Line] = {}
        self.fits: dict[str, Result] = {}

    def add(self, label: str, exact: bool, fit: Result) -> None:
        """Take the next run."""
        self.waiting[label] = (exact, fit)
        if self.moments is None:
            self.moments = self._certify(label, fit)
        if self.moments is not None:
            self._measure(self.moments)

    def finish(self) -> str:
        """Measure the runs that still wait; return what errors were measured against."""
        if self.moments is None and self.waiting:
            label, (_, fit) = max(self.waiting.items(), key=lambda item: (item[1][0], item[1][1].draws))
            self.moments = compute_moments(self.model, fit, f"the draws of {label}, for lack of gradients")
        if self.moments is None:
            return "nothing: no method ran"
        self._measure(self.moments)
        return self.moments.source

    def _certify(self, label: str, fit: Result) -> PosteriorMoments | None:
        """Return mean and sd of the posterior from gradients of all rows, if draws and model allow it."""
        try:
            found = certify(self.model, self.data, fit, progress=self.progress)
        except (LwaError, KeyboardInterrupt):  # too few draws, no derivatives, or no patience: the draws are kept
            return None
        source = f"gradients of all rows at the draws of {label} (R² {found.r_squared:.3f})"
        return PosteriorMoments(found.mean, found.sd, f"the posterior's mean and sd by {source}")

    def _measure(self, moments: PosteriorMoments) -> None:
        for label, (exact, fit) in self.waiting.items():
            self.lines[label] = build_line(label, exact, self.model, fit, moments)
            self.fits[label] = thin_result(fit)
        self.waiting = {}


def read_moments(model: Model, reference: object) -> PosteriorMoments | None:
    """Return mean and sd of draws that the user passed, if there are any."""
    if reference is None:
        return None
    chains, draws = collect_draws(model, reference).shape[:2]
    return compute_moments(model, reference, f"{chains * draws:,} given draws")


def compute_moments(model: Model, idata: object, source: str) -> PosteriorMoments:
    """Return mean and sd of draws."""
    draws = collect_draws(model, idata)
    draws = draws.reshape(-1, draws.shape[-1])
    return PosteriorMoments(draws.mean(0), draws.std(0), source)


def thin_result(fit: Result) -> Result:
    """Return a run with only as many draws as a folder should hold, spread evenly."""
    every = -(-fit.draws // MOST_SAVED)
    if every <= 1:
        return fit

    def thin(variables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {name: values[:, every - 1 :: every] for name, values in variables.items()}

    def combine(name: str, values: NDArray[Any]) -> NDArray[Any]:
        groups = values[:, : fit.draws // every * every].reshape(len(values), -1, every)
        if name == "n_rows_read":
            return groups.sum(-1)
        return groups.mean(-1) if name in ("acceptance_rate", "subset_accepted") else groups[..., -1]

    clock = [[draws // every, at] for draws, at in fit.attributes["clock"]]
    return replace(
        fit, posterior=thin(fit.posterior),
        sample_stats={name: combine(name, values) for name, values in fit.sample_stats.items()},
        attributes={**fit.attributes, "clock": clock, "thinning": fit.attributes["thinning"] * every},
        unconstrained=None if fit.unconstrained is None else thin(fit.unconstrained),
    )  # fmt: skip


def build_line(label: str, exact: bool, model: Model, fit: Result, moments: PosteriorMoments) -> Line:
    """Return the line of a run in the table."""
    held, stats = fit.attributes, fit.sample_stats
    last = ErrorEstimate(*(values[0] for values in estimate_errors(model, fit, moments, np.array([fit.draws]))))
    count = count_effective(model, fit)
    return Line(
        method=label, exact=exact, steps=float(held["moves"]),
        rows_per_step=float(stats["n_rows_read"].mean() / held["thinning"]),
        acceptance=float(stats["acceptance_rate"].mean()), effective_draws=count,
        effective_draws_per_second=count / held["seconds"], shift=float(np.abs(last.shift).max()),
        sd_ratio_lowest=float(last.ratio.min()), sd_ratio_highest=float(last.ratio.max()), error=float(last.error),
        seconds=float(held["seconds"]), curve=tuple(build_curve(model, fit, moments)), remarks=tuple(held["warnings"]),
    )  # fmt: skip


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
