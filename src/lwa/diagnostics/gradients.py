"""log π of all rows at many parameter values, and ∇log π at some of them, in one streamed pass."""

from collections.abc import Iterable
from typing import Self

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.data.data import Data
from lwa.errors import InputError, ModelError
from lwa.models.check import describe_theta
from lwa.models.likelihood import AnyScores, NumpyPlaces, NumpyScores, Places, ScoreSums, find_likelihood, map_strata
from lwa.models.model import FloatType, Model
from lwa.rows import Rows, survey
from lwa.rows.passes import count_unit_rows, floor_power_of_two, visit_rows
from lwa.rows.units import AnyBatch
from lwa.user.progress import Display

TRIAL_SHARE, FEWEST_TRIAL_ROWS, MOST_TRIAL_ROWS = 1 / 16, 4096, 65_536
"""Rows on which the rounding of float32 is measured. If a sixteenth of all rows are fewer than 4096, use float64. The
error of T rows is taken N/T times, as if all rows erred alike. Errors that do not are overrated by √(N/T): so T grows
with N, or a logistic regression would seem to need float64 from N = 5·10⁷ instead of 2·10⁸."""
TRIAL_POINTS = 30
GRADIENT_ROUNDING = 0.005
"""What float32 may add to a shift, in sds of the draws. Unlike a log ratio, a gradient is no small difference of large
numbers: for a logistic regression at N = 10⁶ no gradient moves by more than 2·10⁻⁵ sd, at a third of the cost."""
LOG_RATIO_ROUNDING = 0.05
"""What float32 may add to a log ratio of posterior densities, as a root mean square: acceptance probabilities change by
a twentieth, either way, which does not matter in a mean over hundreds. Logistic, N = 10⁶: 5·10⁻⁵; 2·10⁻⁴ by trial."""


def spread_evenly(of: int, count: int) -> NDArray[np.int64]:
    """Return `count` positions, spread evenly over `of`."""
    return np.linspace(0, of - 1, count).astype(np.int64)


def score_places(
    layout: Data, places: NumpyPlaces, factor: NDArray[np.float64], display: Display,
    precision: FloatType | None = None,
) -> NumpyScores:  # fmt: skip
    """Return ∇log π at the points, and log π at starts and proposals, which may be infinite or NaN.

    F, `factor`, is the factor of the draws' covariance: gradients times F are in units of their own spread. Rows are
    scored in the precision that this needs, or in a given one.
    """
    model, rows = layout.model, layout.full
    likelihood = find_likelihood(model)
    if precision is None:
        precision = choose_score_precision(model, rows, places, factor)
    prior = likelihood.score_prior(places)
    require_finite_scores(model, places, prior, "log_prior")
    if count_unit_rows(rows) == 1:
        size = floor_power_of_two(likelihood.choose_block(places))
        total: AnyScores = visit_rows(
            rows, ScoreAdder, size, shared=(model,), own=(places, precision, size), here=model.in_python,
            progress=lambda done: display.show("gradients", done, len(rows)),
        )[1].total  # fmt: skip
    else:
        survey(layout.rows)
        total = score_units(layout, places, precision, display)
    require_finite_scores(model, places, total, "log_likelihood")
    return ScoreSums(*(np.asarray(a) + np.asarray(b) for a, b in zip(prior, total, strict=True)))


def blank_scores(places: NumpyPlaces) -> AnyScores:
    """Return zeros for the scores at some places."""
    return ScoreSums(np.zeros(len(places.begun)), np.zeros(places.points.shape), np.zeros(len(places.proposals)))


class ScoreAdder:
    """Adds up the scores of rows, block by block."""

    def __init__(self, model: Model, places: NumpyPlaces, precision: FloatType, size: int) -> None:
        self.likelihood, self.places, self.size, self.precision = find_likelihood(model), places, size, precision
        self.total: AnyScores = jax.device_put(blank_scores(places))

    def visit(self, block: AnyBatch) -> None:
        """Add the scores of a block."""
        add = self.likelihood.add_scores
        self.total = add(self.total, self.places, block, size=self.size, precision=self.precision)

    def join(self, later: Self) -> None:
        """Add the scores of the next piece."""
        self.total = jax.tree.map(lambda a, b: np.asarray(a) + np.asarray(b), self.total, later.total)

    def __getstate__(self) -> dict[str, NumpyScores]:
        """Return the sums alone: nothing else comes back from a worker."""
        return {"total": jax.tree.map(np.asarray, self.total)}


def score_units(layout: Data, places: NumpyPlaces, precision: FloatType, display: Display) -> AnyScores:
    """Return the scores of all segments or groups, from one pass."""
    rows, most = layout.full, find_likelihood(layout.model).choose_block(places)
    pieces = map_strata(
        layout.model, rows, score_piece, places, precision,
        choose=lambda stratum: floor_power_of_two(most // count_unit_rows(stratum)),
        progress=lambda done: display.show("gradients", done, len(rows), layout.units_in_words),
    )  # fmt: skip
    first = next(pieces)
    for piece in pieces:
        first.join(piece)
    return first.total


def score_piece(
    model: Model, places: NumpyPlaces, precision: FloatType, size: int, start: int, blocks: Iterable[AnyBatch]
) -> ScoreAdder:
    """Return the scores of all units of a piece."""
    adding = ScoreAdder(model, places, precision, size)
    for block in blocks:
        adding.visit(block)
    return adding


def choose_score_precision(model: Model, rows: Rows, places: NumpyPlaces, factor: NDArray[np.float64]) -> FloatType:
    """Return float32 for the rows' own terms if its rounding, measured on some rows, hardly matters; else float64."""
    likelihood, N = find_likelihood(model), len(rows)
    T = min(int(TRIAL_SHARE * N), MOST_TRIAL_ROWS)
    if T < FEWEST_TRIAL_ROWS or count_unit_rows(rows) > 1 or np.float32 not in likelihood.precisions:
        return np.float64
    batch = rows.take(np.linspace(0, N - 1, T).astype(np.int64))
    count = min(TRIAL_POINTS, len(places.begun), len(places.proposals))
    few = Places(*(part[spread_evenly(len(part), min(count, len(part)))] for part in places))
    zero = blank_scores(few)
    single, double = (
        jax.tree.map(np.asarray, likelihood.add_scores(zero, few, batch, size=T, precision=precision))
        for precision in (np.float32, np.float64)
    )
    with np.errstate(invalid="ignore"):
        here, there = single.log_density - double.log_density, single.proposed - double.proposed
        off = (there - here)[np.isfinite(double.proposed)]  # other moves are refused, with or without rounding
    moved = np.abs((single.gradient - double.gradient) @ factor).max() * N / T
    noise = np.sqrt((off**2).sum() / max(1, len(off))) * N / T
    # If it is NaN, float64 explains why.
    return np.float32 if moved <= GRADIENT_ROUNDING and noise <= LOG_RATIO_ROUNDING else np.float64


def require_finite_scores(model: Model, places: NumpyPlaces, scores: AnyScores, function: str) -> None:
    """Refuse draws of zero density, and gradients that are not finite."""

    def locate(points: NDArray[np.float64], bad: NDArray[np.bool_]) -> str:
        first = describe_theta(model, points[bad][0])
        return f"at {bad.sum()} of {len(points)} draws, the first being theta = {first}"

    if (bad := ~np.isfinite(np.asarray(scores.log_density))).any():
        raise InputError(
            f"{function} is not finite {locate(places.begun, bad)}. Draws of this posterior have a positive density: "
            "pass the model and the data that they were drawn from, with parameters on the same scale."
        )
    if (bad := ~np.isfinite(np.asarray(scores.gradient)).all(1)).any():
        raise ModelError(
            f"The gradient of {function} is not finite {locate(places.points, bad)}, though its value is. JAX must be "
            "able to differentiate it there: often a jnp.where hides the value but not the gradient of the branch not "
            "taken (use a safe argument inside it), or sqrt or a norm is taken at zero."
        )
