"""`lwa.certify`: how far are draws from the posterior π of all rows?"""

import jax
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.backend.xla import full_precision
from lwa.data.data import Data, lay_out
from lwa.data.lead_in import extend_lead_in
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.certificate import RESOLUTION, Certificate, standard_errors_per_bar
from lwa.diagnostics.draws import Spread, arrange_chains, choose_points, collect_draws, measure_spread
from lwa.diagnostics.gradients import score_places, spread_evenly
from lwa.diagnostics.stein import Effects, Evidence, fit_gradients, measure_effects, measure_worst_directions
from lwa.diagnostics.transitions import ExactMoves, draw_proposals, measure_transition, score_moves
from lwa.executors import Executor
from lwa.executors.executor import require_executor
from lwa.models.check import label_entries
from lwa.models.likelihood import Places
from lwa.models.model import Model, Unbound, require_model
from lwa.user.progress import Display

MOST_STARTS = 500
"""Draws from which exact moves start, a second opinion: more parameters need more gradients, but no more moves."""
MORE_TIMES_POINTS, MOST_POINTS = 4, 6000
"""Gradients of a second pass: this many times those of the first, or up to `MOST_POINTS` if the first bars are long."""


@full_precision()
def certify(
    model: Model | Unbound,
    data: object,
    idata: object,
    *,
    points: int | None = None,
    progress: bool = True,
    executor: Executor | None = None,
) -> Certificate:
    """Measure how far draws of any sampler are from the posterior π of all rows, in one pass over the data, or two.

    The gradient g = ∇log π is taken at `points` of the draws, all at once, and regressed on θ. Its slope is -H and its
    root μ, the precision and mean of π if π is near Gaussian: they come with almost no noise and do not inherit the
    draws' error. The mean and covariance of all draws are compared with them.

    A second opinion, which assumes nothing of π's shape, comes with the same pass: exact Metropolis-Hastings moves from
    those draws to as many draws of a Gaussian with their mean and covariance, made from random numbers with a fixed
    seed. Such moves leave π as it is: if they change the mean or variance of the draws, these are not draws of π.

    If the first pass cannot decide although the draws are many, a second one takes gradients at four times as many
    draws, or more. No check sees a mode that was never visited.

    Parameters
    ----------
    model
        The `lwa.Model` whose posterior the draws should follow.
    data
        All rows, in any form that `lwa.sample` takes.
    idata
        The draws: a `lwa.Result`, an `xarray.DataTree` with a group `posterior`, or a dict of arrays
        `(chain, draw, *shape)` by parameter. A model whose θ is one bare array calls it `theta`. Parameters with
        constraints are passed as the model's functions take them, and judged on the unconstrained scale.
    points
        Draws at which to take the gradient and to start moves, spread evenly over all; 300, or 8 per parameter, if
        None. If it is given, there is only one pass.
    progress
        Show a bar.
    executor
        What computes the pass: `lwa.executors.Dask(client)`, for example; this process if None.

    Examples
    --------
    >>> import numpy as np, lwa
    >>> y = np.random.default_rng(0).normal(3.0, 1.0, 1000)
    >>> model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: 0.0 * mu, init=0.0)
    >>> draws = y.mean() + np.random.default_rng(1).normal(size=(4, 1000)) / np.sqrt(1000)
    >>> lwa.certify(model, y, {"theta": draws}, progress=False).passed
    True
    >>> lwa.certify(model, y, {"theta": draws + 0.2 / np.sqrt(1000)}, progress=False).passed
    False
    """
    require_model(model)
    require_executor(executor)
    layout = lay_out(model, data, progress, executor)
    model = layout.given
    draws = arrange_chains(collect_draws(model, idata))
    where = choose_points(draws, points)
    spread = measure_spread(model, draws)
    with Display(progress) as display, jax.enable_x64(True):
        if layout.ordered:
            layout, _ = extend_lead_in(layout, *spread)
        found = judge(layout, draws, where, spread, display)
        more = min(count_gradients(found), int(found.effective_draws))
        if points is None and found.outcome == "warn" and more >= 2 * len(where):
            display.say(f"{len(where)} gradients are too few to decide. A second pass takes {more}.")
            found = judge(layout, draws, choose_points(draws, more), spread, display)
    return found


def count_gradients(found: Certificate) -> int:
    """Return how many gradients would make bars short enough: they fall like 1/√points, and half as many more."""
    vague = [(one.bar / (RESOLUTION * one.tolerance)) ** 2 for one in found.findings if one.unclear]
    asked = int(1.5 * max(vague, default=0.0) * found.points)
    return max(MORE_TIMES_POINTS * found.points, min(asked, MOST_POINTS))


def judge(
    layout: Data,
    draws: Float64[np.ndarray, "chains draws d"],
    where: NDArray[np.int64],
    spread: Spread,
    display: Display,
) -> Certificate:
    """Make one pass, with gradients at the draws at positions `where`, and return the certificate."""
    d, factor = len(spread.mean), spread.factor
    scored = draws.reshape(-1, d)[where]
    begun = spread_evenly(len(where), min(len(where), MOST_STARTS))
    ends = draw_proposals(len(begun), d)
    places = Places(scored, scored[begun] if len(begun) < len(where) else scored[:0], spread.mean + ends @ factor.T)
    scores = score_places(layout, places, factor, display)
    white = np.linalg.solve(factor, (draws - spread.mean).reshape(-1, d).T).T
    evidence = Evidence(white.reshape(draws.shape), white[where], scores.gradient @ factor)
    tried = score_moves(white[where][begun], ends, scores.log_density, scores.proposed)
    return build_certificate(layout.given, evidence, tried, where=where, spread=spread, rows=len(layout))


def build_certificate(
    model: Model, evidence: Evidence, tried: ExactMoves, *, where: NDArray[np.int64], spread: Spread, rows: int
) -> Certificate:
    """Measure along the parameters and along the worst directions, in the coordinates z of θ = mean + factor z."""
    mean, factor = spread
    chains, draws, _ = evidence.draws.shape
    odd = where // draws % 2  # whether a point is of an odd chain
    halves = [Evidence(evidence.draws[i::2], evidence.points[odd == i], evidence.gradients[odd == i]) for i in (0, 1)]
    plainly, worst = measure_effects(evidence, factor.T), measure_worst_directions(*halves)
    fit = fit_gradients(evidence)[1]
    sd = np.sqrt(((factor @ fit.covariance) * factor).sum(1))
    change = measure_transition(tried, evidence.draws, factor.T)
    standard_errors = standard_errors_per_bar(5 * model.dimension + 2)
    shift_bar, width_bar = find_error_bars(plainly, standard_errors)
    worst_shift_bar, worst_width_bar = find_error_bars(worst, standard_errors)
    ratio, eigenvalues = np.exp(plainly.log_ratio), np.exp(2 * worst.log_ratio[1:])
    return Certificate(
        names=label_entries(model), mean=mean + factor @ fit.mean, sd=sd, shift=plainly.shift, shift_error=shift_bar,
        sd_ratio=ratio, sd_ratio_error=ratio * np.expm1(width_bar), overall_shift=max(0.0, float(worst.shift[0])),
        overall_shift_error=float(worst_shift_bar[0]), eigenvalues=eigenvalues,
        eigenvalues_error=eigenvalues * np.expm1(2 * worst_width_bar[1:]), moved=change.moved / sd,
        moved_error=standard_errors * change.moved_error / sd, widened=change.widened,
        widened_error=standard_errors * change.widened_error, total_variation=change.rejected,
        total_variation_error=standard_errors * change.rejected_error, r_squared=fit.explained,
        effective_draws=float(effective_draws(evidence.draws).min()), chains=chains, draws=draws,
        points=len(evidence.points), rows=rows,
    )  # fmt: skip


def find_error_bars(found: Effects, standard_errors: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the error bars of shifts and of log ratios."""
    shift = standard_errors * found.shift_error + found.shift_doubt
    return shift, standard_errors * found.log_ratio_error + found.log_ratio_doubt
