"""The verb: how far are these draws from the full posterior π?"""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.backend.xla import full_precision
from lwa.data.data import Data, lay_out
from lwa.data.lead_in import measure_lead_in
from lwa.diagnostics.certificate import RESOLUTION, Certificate, standard_errors_a_bar
from lwa.diagnostics.draws import at_least_two_chains, draws_of, spread, spread_evenly
from lwa.diagnostics.gradients import Places, evenly, score
from lwa.diagnostics.monte_carlo_error import effective_draws
from lwa.diagnostics.stein import Effects, Evidence, effects, effects_in_worst_directions, fits
from lwa.diagnostics.transitions import Moves, moves, proposals, transition
from lwa.executors import Executor
from lwa.executors.executor import require_executor
from lwa.models.check import labelled
from lwa.models.model import Model
from lwa.models.unbound import Unbound, require_model
from lwa.user.progress import Display

MOST_STARTS = 500
"""Draws from which moves start. More parameters need more gradients, but no more moves: these are a second opinion."""
MORE, MOST_POINTS = 4, 6000
"""Gradients of a second pass: as many times those of the first, or so many if the first one's bars ask for them."""


@full_precision()
def certify(
    model: Model | Unbound,
    data: Any,
    idata: Any,
    *,
    points: int | None = None,
    progress: bool = True,
    executor: Executor | None = None,
) -> Certificate:
    """How far are these draws, whoever made them, from the posterior of all rows? One pass over the data tells, or two.

    The gradient g = ∇log π is taken at `points` of the draws, all at once, and regressed on θ. Its slope is -H and its
    root μ, the precision and mean of π where π is near Gaussian: they come with almost no noise and do not inherit the
    draws' error. The mean and covariance of all draws are compared with them.

    A second opinion, which assumes nothing of π's shape, comes with the same pass: exact Metropolis-Hastings moves from
    those draws to as many of a Gaussian with their mean and covariance, made from random numbers with a fixed seed.
    Such moves leave π as it is: if they change the mean or variance of the draws, these are not π's.

    Where the first pass cannot tell though the draws are many, a second one takes gradients at four times as many, or
    more. No check sees a mode never visited.

    Parameters
    ----------
    model
        The `lwa.Model` whose posterior is meant.
    data
        All rows, in any form that `lwa.sample` takes.
    idata
        The draws: a `lwa.Result`, an `xarray.DataTree` with a group `posterior`, or a dict of arrays
        `(chain, draw, *shape)` by parameter. A model whose θ is one bare array calls it `theta`. Parameters with
        constraints are given as the model's functions take them, and judged on the unconstrained scale.
    points
        Draws at which to take the gradient and to start moves, spread evenly over all; 300, or 8 a parameter, when not
        given. Where it is, there is one pass.
    progress
        Show a bar.
    executor
        Who computes the pass: `lwa.executors.Dask(client)`, for example; this process where None.

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
    draws = at_least_two_chains(draws_of(model, idata))
    where = spread_evenly(draws, points)
    mean, factor = spread(model, draws)
    with Display(progress) as display, jax.enable_x64(True):
        layout = layout.checked(np.float64)
        if layout.ordered:
            layout, _ = measure_lead_in(layout, mean, factor)
        found = judged(layout, draws, where, mean, factor, display)
        more = min(enough(found), int(found.effective_draws))
        if points is None and found.outcome == "warn" and more >= 2 * len(where):
            display.say(f"{len(where)} gradients cannot tell. Another pass takes {more}.")
            found = judged(layout, draws, spread_evenly(draws, more), mean, factor, display)
    return found


def enough(found: Certificate) -> int:
    """Gradients with which bars would be short enough to tell: they fall like 1/√points, and half as many more."""
    vague = [(one.bar / (RESOLUTION * one.tolerance)) ** 2 for one in found.findings if one.unclear]
    asked = int(1.5 * max(vague, default=0.0) * found.points)
    return max(MORE * found.points, min(asked, MOST_POINTS))


def judged(
    layout: Data,
    draws: NDArray[np.float64],
    where: NDArray[np.int64],
    mean: NDArray[np.float64],
    factor: NDArray[np.float64],
    display: Display,
) -> Certificate:
    """One pass, with gradients at the draws `where` says."""
    d = len(mean)
    scored = draws.reshape(-1, d)[where]
    begun = evenly(len(where), min(len(where), MOST_STARTS))
    ends = proposals(len(begun), d)
    places = Places(scored, scored[begun] if len(begun) < len(where) else scored[:0], mean + ends @ factor.T)
    scores = score(layout, places, factor, display)
    white = np.linalg.solve(factor, (draws - mean).reshape(-1, d).T).T
    evidence = Evidence(white.reshape(draws.shape), white[where], scores.gradient @ factor)
    tried = moves(white[where][begun], ends, scores.log_density, scores.proposed)
    return certificate(layout.given, evidence, tried, where, mean, factor, len(layout))


def certificate(
    model: Model,
    evidence: Evidence,
    tried: Moves,
    where: NDArray[np.int64],
    mean: NDArray[np.float64],
    factor: NDArray[np.float64],
    rows: int,
) -> Certificate:
    """Measure along the parameters and along the worst directions, in the coordinates z of θ = mean + factor z."""
    chains, draws, _ = evidence.draws.shape
    chain_of = where // draws
    halves = [
        Evidence(evidence.draws[i::2], *(part[chain_of % 2 == i] for part in (evidence.points, evidence.gradients)))
        for i in (0, 1)
    ]
    plainly, worst = effects(evidence, factor.T), effects_in_worst_directions(*halves)
    fit = fits(evidence)[1]
    sd = np.sqrt(((factor @ fit.covariance) * factor).sum(1))
    change = transition(tried, evidence.draws, factor.T)
    standard_errors = standard_errors_a_bar(5 * model.dimension + 2)
    shift_bar, width_bar = bars(plainly, standard_errors)
    worst_shift_bar, worst_width_bar = bars(worst, standard_errors)
    ratio, eigenvalues = np.exp(plainly.log_ratio), np.exp(2 * worst.log_ratio[1:])
    return Certificate(
        names=labelled(model),
        mean=mean + factor @ fit.mean,
        sd=sd,
        shift=plainly.shift,
        shift_error=shift_bar,
        sd_ratio=ratio,
        sd_ratio_error=ratio * np.expm1(width_bar),
        overall_shift=max(0.0, float(worst.shift[0])),
        overall_shift_error=float(worst_shift_bar[0]),
        eigenvalues=eigenvalues,
        eigenvalues_error=eigenvalues * np.expm1(2 * worst_width_bar[1:]),
        moved=change.moved / sd,
        moved_error=standard_errors * change.moved_error / sd,
        widened=change.widened,
        widened_error=standard_errors * change.widened_error,
        total_variation=change.rejected,
        total_variation_error=standard_errors * change.rejected_error,
        r_squared=fit.explained,
        effective_draws=float(effective_draws(evidence.draws).min()),
        chains=chains,
        draws=draws,
        points=len(evidence.points),
        rows=rows,
    )


def bars(found: Effects, standard_errors: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Error bars of shifts and log ratios."""
    shift = standard_errors * found.shift_error + found.shift_doubt
    return shift, standard_errors * found.log_ratio_error + found.log_ratio_doubt
