"""`lwa.certify`: how far are draws from the posterior π of all rows?"""

import jax
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.backend.xla import full_precision
from lwa.data.data import Data, lay_out
from lwa.data.lead_in import extend_lead_in
from lwa.diagnostics.certificate import ANOTHER, MARGIN, Certificate, MadeBy
from lwa.diagnostics.draws import Spread, arrange_chains, choose_points, collect_draws, measure_spread
from lwa.diagnostics.gradients import score_places, spread_evenly
from lwa.diagnostics.measure import RowsRead, build_certificate
from lwa.diagnostics.some_rows import Known, estimate_scores, expand_at_mean, is_worthwhile
from lwa.diagnostics.stein import Evidence
from lwa.diagnostics.transitions import draw_proposals, score_moves
from lwa.executors import Executor
from lwa.executors.executor import require_executor
from lwa.models.likelihood import Places
from lwa.models.model import Model, Unbound, require_model
from lwa.user.progress import Display

MOST_STARTS = 500
"""Draws from which exact moves start, a second opinion: more parameters need more gradients, but no more moves."""
MORE_TIMES_POINTS, MOST_POINTS = 4, 6000
"""Gradients of a second look: this many times those of the first, or as many as bars ask for."""


def certify(
    model: Model | Unbound,
    data: object,
    idata: object,
    *,
    points: int | None = None,
    progress: bool = True,
    executor: Executor | None = None,
) -> Certificate:
    """Measure how far draws of any sampler are from the posterior π of all rows.

    Gradients ∇log π at `points` of the draws tell by how much mean, sd, skewness and the shares beyond a 90 % interval
    of all draws differ from those of π: each is 0 for exact draws, whatever π is (Stein's identity).

    A second opinion are exact Metropolis-Hastings moves from those draws to draws of a Gaussian with their mean and
    covariance, made from random numbers with a fixed seed. Such moves leave π as it is: if they change the draws, these
    are not draws of π.

    Of many rows only some are read at each point: their gradient and curvature at one θ come from the run, or from one
    pass, and what they add beyond is estimated from a few thousand rows, with its error in every bar. A few gradients
    of all rows, in one more pass, guard the estimate. If it is off, or if there is none, every gradient is of all rows.

    If gradients are too few to decide although the draws are many, more are taken. No check sees a mode that was never
    visited, or a model that is wrong.

    Parameters
    ----------
    model
        The `lwa.Model` whose posterior the draws should follow.
    data
        All rows, in any form that `lwa.sample` takes.
    idata
        The draws: a `lwa.Result`, what PyMC or ArviZ return with a group `posterior`, NumPyro's `MCMC`, or a dict of
        arrays `(chain, draw, *shape)` by parameter, without `chain` if they are independent. A model whose θ is one
        bare array calls it `theta`. Parameters with constraints are passed as the model's functions take them, and
        judged on the unconstrained scale.
    points
        Draws at which to take the gradient and to start moves, spread evenly over all; 300, or 8 per parameter, if
        None, and more if that is too few. If it is given, it is as many.
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
    layout = lay_out_for(model, data, progress=progress, executor=executor)
    return certify_layout(layout, collect_draws(layout.given, idata), None, points=points, progress=progress)


@full_precision()
def lay_out_for(model: Model | Unbound, data: object, *, progress: bool, executor: Executor | None) -> Data:
    """Return the model bound to its data."""
    require_model(model)
    require_executor(executor)
    return lay_out(model, data, progress, executor)


@full_precision()
def certify_layout(
    layout: Data, draws: Float64[np.ndarray, "chains draws d"], known: Known | None, *, points: int | None,
    progress: bool, made_by: MadeBy = ANOTHER,
) -> Certificate:  # fmt: skip
    """Judge draws of a model bound to its data; `known` is what the run that made them knows of all rows."""
    draws = arrange_chains(draws)
    where = choose_points(draws, points)
    spread = measure_spread(layout.given, draws)
    with Display(progress) as display, jax.enable_x64(True):
        if layout.ordered:
            layout, _ = extend_lead_in(layout, *spread)
        if not is_worthwhile(layout):
            known = None
        elif known is None:
            known = expand_at_mean(layout, spread.mean)
        found, known = judge(layout, draws, where, spread, made_by, known=known, display=display)
        more = min(count_gradients(found), int(found.effective_draws))
        if points is None and found.outcome == "warn" and more > len(where):
            display.say(f"{len(where)} gradients are too few to decide, so {more} are taken.")
            found, _ = judge(layout, draws, choose_points(draws, more), spread, made_by, known=known, display=display)
    return found


def count_gradients(found: Certificate) -> int:
    """Return how many gradients would make bars short enough; no more than there are if these are not the cause."""
    if any(finding.off for finding in found.findings):  # it may be chance
        return MORE_TIMES_POINTS * found.points
    if found.lacking_points <= 1.0:
        return found.points
    return int(min(max(MORE_TIMES_POINTS, MARGIN * found.lacking_points) * found.points, MOST_POINTS))


def judge(
    layout: Data, draws: Float64[np.ndarray, "chains draws d"], where: NDArray[np.int64], spread: Spread,
    made_by: MadeBy, *, known: Known | None, display: Display,
) -> tuple[Certificate, Known | None]:  # fmt: skip
    """Take gradients at the draws at positions `where`; return the certificate, and `known` if it was enough."""
    d, factor = len(spread.mean), spread.factor
    scored = draws.reshape(-1, d)[where]
    begun = spread_evenly(len(where), min(len(where), MOST_STARTS))
    ends = draw_proposals(len(begun), d)
    places = Places(scored, scored[begun] if len(begun) < len(where) else scored[:0], spread.mean + ends @ factor.T)
    estimate = None if known is None else estimate_scores(layout, known, places, factor, display)
    scores = score_places(layout, places, factor, display) if estimate is None else estimate.scores
    white = np.linalg.solve(factor, (draws - spread.mean).reshape(-1, d).T).T
    noise = None if estimate is None else estimate.noise @ factor
    evidence = Evidence(white.reshape(draws.shape), white[where], scores.gradient @ factor, noise)
    tried = score_moves(white[where][begun], ends, scores.log_density, scores.proposed)
    rows = RowsRead(len(layout), 0 if estimate is None else estimate.read)
    found = build_certificate(layout.given, evidence, tried, where=where, spread=spread, rows=rows, made_by=made_by)
    return found, None if estimate is None else known
