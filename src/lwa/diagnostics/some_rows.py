"""log π and its gradient at many θ from some of the rows: a certificate whose cost does not grow with N.

With gradient g and curvature H of all rows at one θ̂, δ = θ - θ̂,

    ∇ log f(Y|θ) = g - H δ + Σ_k ∇T_k(δ),

and T_k, what row k adds beyond second order, is small within the posterior's reach. The sum of ∇T_k is estimated from
some rows, drawn by influence if the run that made the draws drew its subsets so: rows that matter much are among them.
They come in batches whose differences measure the error, which goes into every error bar.

A few gradients of all rows, at the draws that are furthest out and at some others, guard the estimate: if one differs
by more than the error says, all gradients are taken on all rows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator
from lwa.data.data import Data
from lwa.diagnostics.gradients import require_finite_scores, score_places, spread_evenly
from lwa.errors import ModelError
from lwa.models.likelihood import JaxLikelihood, NumpyPlaces, NumpyScores, Places, ScoreSums, find_likelihood
from lwa.models.model import Model
from lwa.rows import Rows
from lwa.rows.passes import count_unit_rows, find_strata
from lwa.subsets.strata import Drawing
from lwa.targets.reference import Reference, expand_at
from lwa.user.progress import Display

BATCHES, BATCH_ROWS, DRAWN_ROWS = 16, 256, 512
"""Batches of the first estimate, and rows of each: uniform ones, and ones drawn by influence."""
THETAS_AT_ONCE = 100
"""θ in one call: one compiled program serves any number of them."""
ROUNDS = (1, 4, 16)
"""If the error of the rows matters, so many times as many batches are read."""
WORTHWHILE = 8
"""Some rows stand for all if these are at least so many times as many."""
GUARDS = 24
"""Points at which gradients are taken on all rows too."""
HARMLESS, BEYOND_CHANCE = 0.02, 5.0
"""A difference of gradients that does no harm, in sds of the draws, and standard errors that it may be besides."""
GRADIENT_NOISE, LOG_NOISE = 0.05, 0.1
"""Error of gradients, in sds of the draws, and of log densities, as root mean squares, from which on more rows are
read."""


SEED = 1503_04178
"""Seed of the rows, fixed so that a certificate can be repeated."""


class Known(NamedTuple):
    """What is known of all rows: their expansion at θ̂, and q of the run's subsets, None if it is uniform."""

    reference: Reference
    drawing: Drawing | None = None


class Estimate(NamedTuple):
    """Scores at some places from some rows, and by how much each batch's gradients differ from their mean."""

    scores: NumpyScores
    noise: Float64[np.ndarray, "B M d"]
    log_noise: float  # of the log density at a place, as a root mean square
    read: int


def is_worthwhile(layout: Data) -> bool:
    """Return whether some rows could stand for all: there are many, in single rows, of a model in JAX."""
    single = count_unit_rows(layout.full) == 1 and find_strata(layout.full) is None
    return single and not layout.model.in_python and len(layout.full) >= WORTHWHILE * BATCHES * BATCH_ROWS


def expand_at_mean(layout: Data, mean: Float64[np.ndarray, " d"]) -> Known | None:
    """Return the expansion of all rows at the mean of the draws, from one pass; None if they have none."""
    try:
        return Known(expand_at(layout.model, layout.full, mean))
    except ModelError:
        return None


def estimate_scores(
    layout: Data, known: Known, places: NumpyPlaces, factor: Float64[np.ndarray, "d d"], display: Display
) -> Estimate | None:
    """Return scores at all places from some rows; None if they cannot stand for all rows.

    F, `factor`, is the factor of the draws' covariance: gradients times F are in units of their own spread.
    """
    prior = find_likelihood(layout.model).score_prior(places)
    require_finite_scores(layout.model, places, prior, "log_prior")
    for times in ROUNDS:
        if times * BATCHES * BATCH_ROWS * WORTHWHILE > len(layout.full):
            return None
        found = score_batches(layout, known, places, times * BATCHES)
        error = found.noise.std(0, ddof=1) / np.sqrt(len(found.noise)) @ np.abs(factor)
        if not np.isfinite(error).all():
            return None
        if np.sqrt((error**2).mean(0)).max() <= GRADIENT_NOISE and found.log_noise <= LOG_NOISE:
            break
    else:
        return None
    parts = (np.asarray(own) + rest for own, rest in zip(prior, found.scores, strict=True))
    found = found._replace(scores=ScoreSums(*parts))
    return found if agrees_with_all_rows(layout, found, places, factor, display) else None


def score_batches(layout: Data, known: Known, places: NumpyPlaces, batches: int) -> Estimate:
    """Return the log-likelihood and its gradient at all places, from so many batches of rows."""
    model, reference = layout.model, known.reference
    thetas = np.concatenate([places.points, places.starts, places.proposals])
    away = thetas - reference.theta
    beyond = [
        expand_batch(model, layout.full, reference, away, one) for one in draw_batches(known, layout.full, batches)
    ]
    values, gradients = (np.stack(parts) for parts in zip(*beyond, strict=True))
    bent = away @ reference.curvature
    value = values.mean(0) + away @ reference.gradient - 0.5 * (bent * away).sum(1)
    ends = np.cumsum([len(places.points), len(places.starts)])
    at_points, at_starts, at_proposals = np.split(value, ends)
    density = at_starts if len(places.starts) else at_points
    slope = (gradients.mean(0) + reference.gradient - bent)[: ends[0]]
    noise = gradients[:, : ends[0]] - gradients[:, : ends[0]].mean(0)
    log_noise = np.sqrt((values.var(0, ddof=1) / batches).mean())
    rows = DRAWN_ROWS if known.drawing is not None else BATCH_ROWS
    return Estimate(ScoreSums(density, slope, at_proposals), noise, float(log_noise), batches * rows)


def draw_batches(known: Known, rows: Rows, batches: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield batches of rows, and what each row counts in an estimate of the sum over all rows from its batch alone."""
    N = len(rows)
    drawing = None if known.drawing is None else known.drawing.cut(DRAWN_ROWS)
    for batch in range(batches):
        rng = generator(SEED, Purpose.CERTIFICATE, batch)
        if drawing is None:
            yield np.sort(rng.integers(0, N, BATCH_ROWS)), np.full(BATCH_ROWS, N / BATCH_ROWS)
        else:
            drawn = np.sort(drawing.draw(rng, np.arange(DRAWN_ROWS)))
            yield drawn, N / DRAWN_ROWS * drawing.counts(drawn)


def expand_batch(
    model: Model, rows: Rows, reference: Reference, away: Float64[np.ndarray, "P d"],
    batch: tuple[NDArray[np.int64], NDArray[np.float64]]
) -> tuple[Float64[np.ndarray, " P"], Float64[np.ndarray, "P d"]]:  # fmt: skip
    """Return what a batch adds beyond second order, and its gradient, at each δ."""
    drawn, counts = batch
    taken, likelihood = rows.take(drawn), JaxLikelihood(model)
    padded = np.concatenate([away, np.zeros((-len(away) % THETAS_AT_ONCE, away.shape[1]))])
    parts = [
        likelihood.score_beyond_second_order(reference.theta, some, taken, counts)
        for some in np.split(padded, len(padded) // THETAS_AT_ONCE)
    ]
    values, gradients = (np.concatenate(part)[: len(away)] for part in zip(*parts, strict=True))
    return values, gradients


def agrees_with_all_rows(
    layout: Data, found: Estimate, places: NumpyPlaces, factor: Float64[np.ndarray, "d d"], display: Display
) -> bool:
    """Return whether the gradients of all rows at some points are what was estimated."""
    guards = choose_guards(places.points, factor)
    none = places.points[:0]
    single = Places(places.points[guards], none, none)
    right = score_places(layout, single, factor, display, precision=np.float32).gradient
    error = np.sqrt(found.noise[:, guards].var(0, ddof=1) / len(found.noise))
    apart = np.abs((right - found.scores.gradient[guards]) @ factor)
    allowed = HARMLESS + BEYOND_CHANCE * np.sqrt((error**2) @ (factor**2))
    return bool((apart <= allowed).all())


def choose_guards(points: Float64[np.ndarray, "M d"], factor: Float64[np.ndarray, "d d"]) -> NDArray[np.int64]:
    """Return the points that are furthest out, in all and along the first axes, and others, spread evenly."""
    white = np.linalg.solve(factor, (points - points.mean(0)).T).T
    order = np.argsort((white**2).sum(1))
    far = [*order[-GUARDS // 4 :], *white.argmin(0)[: GUARDS // 8], *white.argmax(0)[: GUARDS // 8]]
    evenly = spread_evenly(len(points), min(GUARDS - len(far), len(points)))
    return np.array([*far, *evenly])
