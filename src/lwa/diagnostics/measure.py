"""From draws, gradients and exact moves to the numbers of a certificate."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.certificate import (
    LONGEST,
    SHARE,
    TOLERATED_SHIFT,
    TOLERATED_SKEWNESS,
    TOLERATED_TAIL,
    TOLERATED_WIDTH,
    TOLERATED_WORST_SHIFT,
    TOLERATED_WORST_WIDTH,
    Certificate,
    MadeBy,
    standard_errors_per_bar,
)
from lwa.diagnostics.draws import Spread
from lwa.diagnostics.shapes import TAIL
from lwa.diagnostics.stein import (
    Effects,
    Evidence,
    find_frame,
    measure_effects,
    measure_worst_directions,
    read_log_width,
)
from lwa.diagnostics.transitions import ExactMoves, measure_transition
from lwa.models.check import label_entries
from lwa.models.model import Model

TOLERANCES = (TOLERATED_SHIFT, 2 * np.log(TOLERATED_WIDTH), TOLERATED_SKEWNESS, TOLERATED_TAIL, TOLERATED_TAIL)
"""Of the effects, in the order of `shapes`; an error of the variance is twice that of log(sd)."""
PER_PARAMETER, BESIDES = 11, 2
"""Error bars: five effects, five changes by exact moves and a direction per parameter, and two more."""


class RowsRead(NamedTuple):
    """Rows of the data, and of these those that stood for all; 0 if all were read at every point."""

    all: int
    read: int


def build_certificate(
    model: Model, evidence: Evidence, tried: ExactMoves, *, where: NDArray[np.int64], spread: Spread, rows: RowsRead,
    made_by: MadeBy,
) -> Certificate:  # fmt: skip
    """Measure along the parameters and along the worst directions, in the coordinates z of θ = mean + factor z."""
    mean, factor = spread
    chains, draws, _ = evidence.draws.shape
    odd = where // draws % 2  # whether a point is of an odd chain
    halves = [split_evidence(evidence, odd, half) for half in (0, 1)]
    frame = find_frame(evidence)
    plainly, worst = measure_effects(evidence, factor.T, frame), measure_worst_directions(*halves)
    change = measure_transition(tried, evidence.draws, factor.T)
    standard_errors = standard_errors_per_bar(PER_PARAMETER * model.dimension + BESIDES)
    bars = standard_errors * plainly.error
    log_ratio, log_ratio_bar = read_log_width(plainly, standard_errors)
    log_widths, log_widths_bar = read_log_width(worst, standard_errors)
    centre = mean - plainly.size[:, 0] * plainly.scale
    chance = find_chance(plainly, log_ratio_bar, standard_errors)
    worst_chance = find_chance(worst, log_widths_bar, standard_errors)
    lacking = [
        find_lacking(plainly, TOLERANCES, standard_errors),
        find_lacking(worst, (TOLERATED_WORST_SHIFT, 2 * np.log(TOLERATED_WORST_WIDTH)), standard_errors),
    ]
    lacking_draws, lacking_points = map(max, zip(*lacking, strict=True))
    worst_by_chance = np.array([worst_chance[0, 0], *worst_chance[1:, 1]])
    return Certificate(
        names=label_entries(model), mean=centre, sd=np.sqrt((factor**2).sum(1)) / np.exp(log_ratio),
        shift=plainly.size[:, 0], shift_error=bars[:, 0], log_ratio=log_ratio, log_ratio_error=log_ratio_bar,
        skewness=plainly.size[:, 2], skewness_error=bars[:, 2], outside=TAIL - plainly.size[:, 3:],
        outside_error=bars[:, 3:], overall_shift=max(0.0, float(worst.size[0, 0])),
        overall_shift_error=float(standard_errors * worst.error[0, 0]), log_widths=log_widths[1:],
        log_widths_error=log_widths_bar[1:], by_chance=chance, worst_by_chance=worst_by_chance,
        moved=change.change, moved_error=standard_errors * change.error,
        total_variation=change.rejected, total_variation_error=standard_errors * change.rejected_error,
        r_squared=frame.explained, effective_draws=float(effective_draws(evidence.draws).min()),
        lacking_draws=lacking_draws, lacking_points=lacking_points, chains=chains, draws=draws,
        points=len(evidence.points), rows=rows.all, read=rows.read, made_by=made_by,
    )  # fmt: skip


def split_evidence(evidence: Evidence, odd: NDArray[np.int64], half: int) -> Evidence:
    """Return the evidence of every other chain."""
    noise = None if evidence.noise is None else evidence.noise[:, odd == half]
    return Evidence(evidence.draws[half::2], evidence.points[odd == half], evidence.gradients[odd == half], noise)


def find_chance(found: Effects, log_width_bar: NDArray[np.float64], standard_errors: float) -> NDArray[np.float64]:
    """Return the part of every bar that is the Monte Carlo error of the draws; that of the variance as of log(sd)."""
    chance = standard_errors * found.of_draws
    chance[:, 1] = log_width_bar * found.of_draws[:, 1] / np.maximum(found.error[:, 1], 1e-300)
    return chance


def find_lacking(found: Effects, tolerances: Sequence[float], standard_errors: float) -> tuple[float, float]:
    """Return how many times as many draws and gradients would do; at least 1.

    Where an effect is beyond tolerance, but maybe by chance, draws must be so many that it is not.
    """
    size = found.size.copy()
    size[:, 1] -= found.own_shift
    own, other = standard_errors * found.of_draws, standard_errors * np.hypot(found.of_points, found.of_rows)
    allowed = SHARE * np.where(np.abs(size) > tolerances, 1.0, LONGEST) * tolerances
    return max(1.0, float((own / allowed).max() ** 2)), max(1.0, float((other / tolerances).max() / SHARE) ** 2)
