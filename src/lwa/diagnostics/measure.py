"""From draws, gradients and exact moves to the numbers of a certificate."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.certificate import (
    OTHER_SHARE,
    OWN_SHARE,
    TOLERATED_SHIFT,
    TOLERATED_SKEWNESS,
    TOLERATED_TAIL,
    TOLERATED_WIDTH,
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
    lacking_draws, lacking_points = find_lacking(plainly, standard_errors)
    return Certificate(
        names=label_entries(model), mean=centre, sd=np.sqrt((factor**2).sum(1)) / np.exp(log_ratio),
        shift=plainly.size[:, 0], shift_error=bars[:, 0], log_ratio=log_ratio, log_ratio_error=log_ratio_bar,
        skewness=plainly.size[:, 2], skewness_error=bars[:, 2], outside=TAIL - plainly.size[:, 3:],
        outside_error=bars[:, 3:], overall_shift=max(0.0, float(worst.size[0, 0])),
        overall_shift_error=float(standard_errors * worst.error[0, 0]), log_widths=log_widths[1:],
        log_widths_error=log_widths_bar[1:], moved=change.change, moved_error=standard_errors * change.error,
        total_variation=change.rejected, total_variation_error=standard_errors * change.rejected_error,
        r_squared=frame.explained, effective_draws=float(effective_draws(evidence.draws).min()),
        lacking_draws=lacking_draws, lacking_points=lacking_points, chains=chains, draws=draws,
        points=len(evidence.points), rows=rows.all, read=rows.read, made_by=made_by,
    )  # fmt: skip


def split_evidence(evidence: Evidence, odd: NDArray[np.int64], half: int) -> Evidence:
    """Return the evidence of every other chain."""
    noise = None if evidence.noise is None else evidence.noise[:, odd == half]
    return Evidence(evidence.draws[half::2], evidence.points[odd == half], evidence.gradients[odd == half], noise)


def find_lacking(found: Effects, standard_errors: float) -> tuple[float, float]:
    """Return how many times as many draws and gradients would leave bars within tolerance; at least 1."""
    tolerances = (TOLERATED_SHIFT, 2 * np.log(TOLERATED_WIDTH), TOLERATED_SKEWNESS, TOLERATED_TAIL, TOLERATED_TAIL)
    beside = np.hypot(found.of_points, found.of_rows)
    own, other = (standard_errors * errors / tolerances for errors in (found.of_draws, beside))
    return max(1.0, float((own / OWN_SHARE).max() ** 2)), max(1.0, float((other / OTHER_SHARE).max() ** 2))
