"""Escapes: draws further out than the error of subsets was measured, where subsets alone may have led them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import LwaWarning
from lwa.models.model import Model
from lwa.run.begin import Run
from lwa.run.pilot import expand_some, gather_pool
from lwa.run.settings import MOST_ROWS
from lwa.targets.reference import PAIRS, REACH, Points, Reference, sum_remainders_at

FAR_SHARE = 0.005
"""Share of draws beyond the measured reach, from which they are looked at: a Gaussian has none there."""
LED_ASTRAY = 1.0
"""Variance of the log target over subsets, at such draws, from which they are no draws of the posterior."""


def stack_theta(model: Model, draws: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return draws by parameter, unconstrained, as one array `(draws, d)`."""
    flat = [np.asarray(draws[name], np.float64) for name in model.shapes]
    return np.concatenate([values.reshape(values.shape[0] * values.shape[1], -1) for values in flat], axis=1)


def find_escape(run: Run, theta: NDArray[np.float64]) -> LwaWarning | None:
    """Return a warning if draws went where what a subset adds is mostly chance; None if they did not."""
    subsets, reference = run.problem.subsets, run.problem.reference
    if reference is None or run.data.ordered or subsets.n == len(subsets.rows) or not len(theta):
        return None
    distance = np.sqrt((((theta - reference.theta) @ reference.whitening.T) ** 2).sum(1))
    far = np.flatnonzero(distance > REACH * theta.shape[1] ** 0.5 + 1.0)
    if len(far) <= FAR_SHARE * len(theta):
        return None
    some = far[np.linspace(0, len(far) - 1, PAIRS).astype(int)]
    variance = float(np.median(measure_variance(run, reference, theta[some] - reference.theta)))
    if variance <= LED_ASTRAY:
        return None
    N = len(subsets.rows)
    advice: dict[str, Any] = {"subset_size": N} if len(run.data) <= MOST_ROWS else {"exact": True}
    call = ", ".join(f"{name}={value}" for name, value in advice.items())
    return LwaWarning(
        f"{len(far) / len(theta):.1%} of the draws left the region in which subsets of {subsets.size} rows stand for "
        f"all rows: there the log posterior of a subset varies by {variance**0.5:.2g} from subset to subset. They are "
        f"an escape and no draws of the posterior. Pass {call}, which takes all rows into account.",
        advice=advice,
    )


def measure_variance(run: Run, reference: Reference, away: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return v at θ̂ + `away` for the subsets of the run."""
    subsets, model = run.problem.subsets, run.data.model
    if subsets.leverage is not None:
        pool = gather_pool(model, subsets.rows, reference, subsets.leverage, run.settings.seed)
        terms = expand_some(model, subsets.rows, pool.rows, Points(reference.theta, away))
        return pool.vary_at(terms, subsets.n, subsets.leverage)[: len(away)]
    sums = sum_remainders_at(model, subsets.rows, Points(reference.theta, away))
    return sums.vary(subsets.n)[: len(away)]
