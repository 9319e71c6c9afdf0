"""log π of all rows at many parameter values, and ∇log π at some of them, in one streamed pass."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.errors import InputError, ModelError
from lwa.layout import Layout
from lwa.models import numerical
from lwa.models.check import named, users_function
from lwa.models.model import Model
from lwa.models.on_host import log_priors
from lwa.progress import Display
from lwa.rows import Batch, Rows, survey
from lwa.rows.slots import fill_up
from lwa.rows.units import unit_length

EVALUATIONS = 2**20
"""Points and proposals × rows in one compiled call: 4 MiB a temporary array. At 300 of each, blocks of 1024 to 4096
rows are equally fast and 16,384 half as fast (logistic, d = 10, 2 cores)."""
PYTHON_ROWS = 2**14
"""Rows in one call of a function that runs in Python, one θ at a time."""
TRIAL_SHARE, FEWEST_TRIAL_ROWS, MOST_TRIAL_ROWS = 1 / 16, 4096, 65_536
"""Rows on which the rounding of float32 is measured. Where a sixteenth of all are fewer than 4096, float64 it is. The
error of T rows is taken N/T times, as if all rows erred alike. Errors that do not are overrated by √(N/T): so T grows
with N, or a logistic regression would seem to need float64 from N = 5·10⁷ instead of 2·10⁸."""
TRIAL_POINTS = 30
ROUNDING = 0.005
"""What float32 may add to a shift, in sds of the draws. Unlike a log ratio, a gradient is no small difference of large
numbers: for a logistic regression at N = 10⁶ no gradient moves by more than 2·10⁻⁵ sd, at a third of the cost."""
LOG_RATIO_ROUNDING = 0.05
"""What float32 may add to a log ratio of posterior densities, as a root mean square: acceptance probabilities change by
a twentieth, either way, which is not felt in a mean over hundreds. Logistic, N = 10⁶: 5·10⁻⁵, and 2·10⁻⁴ by trial."""


class Scores(NamedTuple):
    """The log posterior at M points and at K proposals, and its gradient at the points."""

    log_density: NDArray[np.float64]  # (M,)
    gradient: NDArray[np.float64]  # (M, d)
    proposed: NDArray[np.float64]  # (K,)  log density again; may be infinite or NaN


class Sums(NamedTuple):
    """Scores of the rows seen so far, in float64; on the device where JAX computes them."""

    log_density: Any
    gradient: Any
    proposed: Any


def score(
    layout: Layout,
    points: NDArray[np.float64],
    proposals: NDArray[np.float64],
    factor: NDArray[np.float64],
    display: Display,
) -> Scores:
    """log π at each of the `points` (M, d) and `proposals` (K, d), ∇log π at the points.

    `factor` F is that of the draws' covariance: gradients times F are in units of their own spread.
    """
    model, rows, length = layout.model, layout.full, unit_length(layout.full)
    size = max(1, (PYTHON_ROWS if model.host else EVALUATIONS // (len(points) + len(proposals))) // length)
    if model.host:
        prior, add_rows = numerically(model, points, proposals)
    else:
        precision = choose_precision(model, rows, points, proposals, factor)
        prior, add_rows = by_jax(model, points, proposals, size, precision)
    require_finite(model, points, prior, "log_prior")
    total = jax.tree.map(jnp.zeros_like, prior)

    def add(batch: Batch) -> None:
        nonlocal total
        total = add_rows(total, batch)

    if length == 1:
        survey(rows, [add], size, lambda done: display.show("gradients", done, len(rows)))
    else:
        survey(layout.rows)
        for done, batch in enumerate(rows.blocks(size)):
            add(batch)
            display.show("gradients", min(len(rows), (done + 1) * size), len(rows), layout.units_in_words)
    require_finite(model, points, total, "log_likelihood")
    return Scores(*(np.asarray(a + b) for a, b in zip(prior, total, strict=True)))


type Add = Callable[[Sums, Batch], Sums]
"""What has been summed so far and some rows -> the sums with theirs."""


def by_jax(
    model: Model, points: NDArray[np.float64], proposals: NDArray[np.float64], size: int, precision: Any
) -> tuple[Sums, Add]:
    """Scores of the prior, and how those of rows are added, `size` at the most."""
    with users_function("log_prior", "theta to be differentiated"):
        prior = prior_scores(model, jnp.asarray(points), jnp.asarray(proposals))
    places = points.astype(precision), proposals.astype(precision)

    def add(total: Sums, batch: Batch) -> Sums:
        with users_function("log_likelihood", "theta to be differentiated"):
            return add_block(model, total, *places, *fill_up(batch, size, precision))

    return prior, add


def numerically(model: Model, points: NDArray[np.float64], proposals: NDArray[np.float64]) -> tuple[Sums, Add]:
    """The same of a model that runs in Python, by differences; what it raises is the user's."""

    def add(total: Sums, batch: Batch) -> Sums:
        here = numerical.gradient_sums(model, points, batch)
        there = numerical.value_sums(model, proposals, batch)
        return Sums(*(a + b for a, b in zip(total, (*here, there), strict=True)))

    return Sums(*numerical.prior_gradients(model, points), log_priors(model, proposals)), add


@partial(jax.jit, static_argnames=("model",))
def add_block(model: Model, total: Sums, points: Array, proposals: Array, columns: Any, mask: Array) -> Sums:
    """`total` and what one block of rows adds to it; `mask` is False where a row only fills the block up."""

    def value(theta: Array) -> Array:
        # Rows are added up in float64: log ratios are small differences of such sums.
        return jnp.where(mask, model.log_likelihood_at(theta, columns), 0.0).sum(dtype=jnp.float64)

    return jax.tree.map(jnp.add, total, sums_at(value, points, proposals))


@partial(jax.jit, static_argnames=("model",))
def prior_scores(model: Model, points: Array, proposals: Array) -> Sums:
    """The log prior and its gradient."""
    return sums_at(lambda theta: model.log_prior_at(theta).astype(jnp.float64), points, proposals)


def sums_at(value: Callable[[Array], Array], points: Array, proposals: Array) -> Sums:
    """Value and gradient at the points, value alone at the proposals."""
    density, gradient = jax.vmap(jax.value_and_grad(value))(points)
    return Sums(density, gradient.astype(jnp.float64), jax.vmap(value)(proposals))


def choose_precision(
    model: Model,
    rows: Rows,
    points: NDArray[np.float64],
    proposals: NDArray[np.float64],
    factor: NDArray[np.float64],
) -> Any:
    """float32 for the rows' own terms if its rounding, measured on some rows, would not be felt; else float64."""
    N = len(rows)
    T = min(int(TRIAL_SHARE * N), MOST_TRIAL_ROWS)
    if T < FEWEST_TRIAL_ROWS or unit_length(rows) > 1:
        return np.float64
    batch = rows.take(np.linspace(0, N - 1, T).astype(np.int64))
    count = min(TRIAL_POINTS, len(points), len(proposals))
    few = [places[np.linspace(0, len(places) - 1, count).astype(np.int64)] for places in (points, proposals)]

    def sums(precision: Any) -> Sums:
        zero = Sums(jnp.zeros(count), jnp.zeros(few[0].shape), jnp.zeros(count))
        places = (part.astype(precision) for part in few)
        return jax.tree.map(np.asarray, add_block(model, zero, *places, *fill_up(batch, T, precision)))

    with users_function("log_likelihood", "theta to be differentiated"):
        single, double = sums(np.float32), sums(np.float64)
    with np.errstate(invalid="ignore"):
        here, there = single.log_density - double.log_density, single.proposed - double.proposed
        off = (there - here)[np.isfinite(double.proposed)]  # elsewhere, rounding or not, nothing moves there
    moved = np.abs((single.gradient - double.gradient) @ factor).max() * N / T
    noise = np.sqrt((off**2).sum() / max(1, len(off))) * N / T
    # NaN is float64's to explain.
    return np.float32 if moved <= ROUNDING and noise <= LOG_RATIO_ROUNDING else np.float64


def require_finite(model: Model, points: NDArray[np.float64], scores: Sums, function: str) -> None:
    """Refuse draws that the model calls impossible, and gradients that JAX cannot take."""
    for values, what in ((np.asarray(scores.log_density)[:, None], "value"), (np.asarray(scores.gradient), "gradient")):
        bad = ~np.isfinite(values).all(1)
        if not bad.any():
            continue
        where = f"at {bad.sum()} of {len(points)} draws, the first being theta = {named(model, points[bad][0])}"
        if what == "value":
            raise InputError(
                f"{function} is not finite {where}. Draws of this posterior have a positive density: pass the model "
                "and the data that they were drawn from, with parameters on the same scale."
            )
        raise ModelError(
            f"The gradient of {function} is not finite {where}, though its value is. JAX must be able to "
            "differentiate it there: often a jnp.where hides the value but not the gradient of the branch not taken "
            "(use a safe argument inside it), or sqrt or a norm is taken at zero."
        )
