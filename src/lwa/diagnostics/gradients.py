"""log π and ∇log π of all rows at many parameter values, in one streamed pass."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.errors import InputError, ModelError
from lwa.models.check import named, users_function
from lwa.models.model import Model
from lwa.progress import Display
from lwa.rows import Batch, Rows, survey
from lwa.rows.slots import fill_up

EVALUATIONS = 2**20
"""Points × rows in one compiled call: 8 MiB a temporary array. At 300 points, blocks of 1024 to 4096 rows are equally
fast and 16,384 half as fast (logistic, d = 10, 2 cores)."""
TRIAL_ROWS = 4096
"""Rows on which the rounding of float32 is measured. With fewer than `WORTH_A_TRIAL` times as many, float64 it is."""
WORTH_A_TRIAL = 16
ROUNDING = 0.005
"""What float32 may add to a shift, in sds of the draws. Unlike a log ratio, a gradient is no small difference of large
numbers: for a logistic regression at N = 10⁶ no gradient moves by more than 2·10⁻⁵ sd, at a third of the cost."""


class Scores(NamedTuple):
    """The log posterior and its gradient at M points."""

    log_density: NDArray[np.float64]  # (M,)  good to 0.005 only at N = 10⁶, where rows were scored in float32
    gradient: NDArray[np.float64]  # (M, d)


class Sums(NamedTuple):
    """Scores of the rows seen so far, on the device, in float64."""

    log_density: Array
    gradient: Array


def score(
    model: Model, rows: Rows, points: NDArray[np.float64], factor: NDArray[np.float64], display: Display
) -> Scores:
    """log π and ∇log π at each of the `points` (M, d); `factor` Fᵀ maps gradients to units of the draws' own spread."""
    size = max(1, EVALUATIONS // len(points))
    precision = choose_precision(model, rows, points, factor)
    with users_function("log_prior", "theta to be differentiated"):
        prior = Sums(*prior_scores(model, jnp.asarray(points)))
    require_finite(model, points, prior, "log_prior")
    total = jax.tree.map(jnp.zeros_like, prior)

    def add(batch: Batch) -> None:
        nonlocal total
        with users_function("log_likelihood", "theta to be differentiated"):
            total = add_block(model, total, points.astype(precision), *fill_up(batch, size, precision))

    survey(rows, [add], size, lambda done: display.show("gradients", done, len(rows)))
    require_finite(model, points, total, "log_likelihood")
    return Scores(*(np.asarray(a + b) for a, b in zip(prior, total, strict=True)))


@partial(jax.jit, static_argnames=("model",))
def add_block(model: Model, total: Sums, points: Array, columns: Any, mask: Array) -> Sums:
    """`total` and what one block of rows adds to it; `mask` is False where a row only fills the block up."""

    def value(theta: Array) -> Array:
        return jnp.where(mask, model.log_likelihood_at(theta, columns), 0.0).sum()

    found = jax.vmap(jax.value_and_grad(value))(points)
    return Sums(*(a + b.astype(jnp.float64) for a, b in zip(total, found, strict=True)))


@partial(jax.jit, static_argnames=("model",))
def prior_scores(model: Model, points: Array) -> tuple[Array, Array]:
    """The log prior and its gradient."""
    return jax.vmap(jax.value_and_grad(lambda theta: model.log_prior_at(theta).astype(jnp.float64)))(points)


def choose_precision(model: Model, rows: Rows, points: NDArray[np.float64], factor: NDArray[np.float64]) -> Any:
    """float32 for the rows' own gradients if its rounding, measured on some rows, would not be felt; else float64."""
    N = len(rows)
    if N < WORTH_A_TRIAL * TRIAL_ROWS:
        return np.float64
    batch = rows.take(np.linspace(0, N - 1, TRIAL_ROWS).astype(np.int64))
    few = points[:: max(1, len(points) // 30)]
    zero = Sums(jnp.zeros(len(few)), jnp.zeros(few.shape))
    with users_function("log_likelihood", "theta to be differentiated"):
        single, double = (
            np.asarray(add_block(model, zero, few.astype(precision), *fill_up(batch, TRIAL_ROWS, precision)).gradient)
            for precision in (np.float32, np.float64)
        )
    moved = np.abs((single - double) @ factor).max() * N / TRIAL_ROWS
    return np.float32 if moved <= ROUNDING else np.float64  # NaN is float64's to explain


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
