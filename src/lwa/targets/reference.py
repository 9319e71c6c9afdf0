"""A point in the bulk, and what all rows say there: θ̂, g_N = Σ ∇ℓ_k(θ̂) and H_N = -Σ ∇²ℓ_k(θ̂), from few passes.

Newton's method on log p(θ) + Σ ℓ_k(θ), first on growing subsets, where steps are cheap, then on all rows, streamed,
with float64 sums. It stops when the next step is small against the posterior's own width, not against zero.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator
from lwa.errors import ModelError
from lwa.models import numerical, predictors
from lwa.models.check import labelled, named
from lwa.models.model import Model
from lwa.models.on_host import log_priors
from lwa.rows import Rows
from lwa.rows.passes import over_pieces, power_of_two
from lwa.rows.slots import fill_up, to_rows
from lwa.rows.units import unit_length

BLOCK = 16_384
"""Rows in one compiled evaluation; a last block that is shorter is filled up and masked."""
UNIT_ROWS = 2**16
"""The same for units of several rows: a recursion over the steps of a unit runs for all of a block side by side, so
that a block should hold some tens of them."""
EVALUATIONS = 2**20
"""Rows × θ in one such evaluation at the most: 8 MiB a temporary array."""
FIRST_ROWS = 2_000
"""Rows of the first subset; each next one has ten times as many."""
MOST_ROWS = 2**18
"""... but no more than this: they are held in memory, which must not grow with N, and larger ones save no pass."""
FEWEST_UNITS = 8
CLOSE_ENOUGH = 0.01
"""Newton decrement, in posterior sds, at which θ̂ is in the bulk for good."""
MOST_STEPS = 100
SLOW_STEPS = 5
"""Near a mode each Newton step squares the distance. So many steps that only shorten it by a constant factor run
towards a mode at infinity, as in perfect separation, however short they are against a posterior sd that grows too."""


class Sums(NamedTuple):
    """log likelihood, gradient and negative Hessian, summed over rows."""

    value: Any
    gradient: Any
    curvature: Any


TOGETHER = 2048
"""θ that are looked at together: what is found of them stays in a processor's cache."""


@dataclass(frozen=True)
class Reference:
    """θ̂ and the expansion of the log posterior there, in float64."""

    theta: NDArray[np.float64]  # θ̂
    gradient: NDArray[np.float64]  # g_N, of the log-likelihood alone
    curvature: NDArray[np.float64]  # H_N, of the log-likelihood alone
    prior_curvature: NDArray[np.float64]
    passes: int  # over all rows

    @property
    def precision(self) -> NDArray[np.float64]:
        """H_N and the prior's: the inverse covariance of the Gaussian approximation."""
        return self.curvature + self.prior_curvature

    @cached_property
    def factor(self) -> NDArray[np.float64]:
        """F with F Fᵀ = precision⁻¹."""
        return np.linalg.inv(np.linalg.cholesky(self.precision)).T

    @cached_property
    def whitening(self) -> NDArray[np.float64]:
        """F⁻¹: F⁻¹ (θ - θ̂) is standard normal where the posterior is Gaussian."""
        return np.linalg.cholesky(self.precision).T

    def furthest(self, theta: NDArray[Any]) -> float:
        """The largest distance from θ̂ among many θ, `(..., d)`, in posterior sds; some at a time, in θ's precision."""
        flat, worst = theta.reshape(-1, theta.shape[-1]), 0.0
        centre, across = self.theta.astype(theta.dtype), self.whitening.T.astype(theta.dtype)
        for start in range(0, len(flat), TOGETHER):
            away = (flat[start : start + TOGETHER] - centre) @ across
            worst = max(worst, float(np.einsum("ij,ij->i", away, away).max()))
        return float(np.sqrt(worst))


@partial(jax.jit, static_argnames=("model",))
def block_sums(model: Model, theta: Array, columns: Any, counts: Array) -> Sums:
    """Sums over the rows of one block, each counted so many times: 0 where a row only fills it up."""
    if model.predictors is not None:
        return Sums(*predictors.sums(model.predictors, theta, to_rows(columns), counts))

    def value(theta: Array) -> Array:
        return jnp.where(counts > 0, counts * model.log_likelihood_at(theta, columns), 0.0).sum()

    gradient = jax.grad(value)
    return Sums(value(theta), gradient(theta), -jax.jacfwd(gradient)(theta))


def prior_sums(model: Model, theta: NDArray[np.float64]) -> Sums:
    """The same of the log prior."""
    if model.host:
        return negated(numerical.prior_sums(model, theta))
    return jax.tree.map(np.asarray, prior_sums_on_device(model, theta))


def negated(found: numerical.Derivatives) -> Sums:
    """Curvature is the negative Hessian."""
    return Sums(found.value, found.gradient, -found.hessian)


@partial(jax.jit, static_argnames=("model",))
def prior_sums_on_device(model: Model, theta: Array) -> Sums:
    """By JAX's derivatives."""
    gradient = jax.grad(model.log_prior_at)
    return Sums(model.log_prior_at(theta), gradient(theta), -jax.jacfwd(gradient)(theta))


def sums_over_all(model: Model, rows: Rows, theta: NDArray[np.float64]) -> Sums:
    """One pass: sums of each piece, added in order."""
    pieces = over_pieces(rows, sums_in_piece, block_size(rows), shared=(model,), own=(theta,), here=model.host)
    return reduce(added, pieces)


def sums_in_piece(model: Model, theta: NDArray[np.float64], start: int, blocks: Any) -> Sums:
    """Sums over the rows of a piece."""
    return sums_over(model, blocks, theta)


def added(one: Sums, other: Sums) -> Sums:
    """Both together."""
    return Sums(*(a + b for a, b in zip(one, other, strict=True)))


def sums_over(
    model: Model, batches: Any, theta: NDArray[np.float64], counts: NDArray[np.float64] | None = None
) -> Sums:
    """Sums over all batches of at most `block_size`, added in order in float64; each row counts once, or `counts`."""
    total, start = Sums(0.0, np.zeros(len(theta)), np.zeros((len(theta), len(theta)))), 0
    for batch in batches:
        size = len(jax.tree.leaves(batch)[0])
        weight = np.ones(size) if counts is None else counts[start : start + size]
        if model.host:
            done = negated(numerical.sums(model, theta, batch, weight))
        else:
            columns, own = fill_up(batch, block_size(batch), np.float64)
            filled = np.zeros(len(own))
            filled[own] = weight
            done = jax.tree.map(np.asarray, block_sums(model, theta, columns, filled))
        total, start = added(total, done), start + size
    return total


def block_size(of: Any) -> int:
    """Rows, or units of several, in one compiled evaluation."""
    length = unit_length(of)
    return BLOCK if length == 1 else power_of_two(UNIT_ROWS // length)


def in_blocks(batch: Any) -> list[Any]:
    """Rows in memory as batches of at most `block_size`."""
    count, size = len(jax.tree.leaves(batch)[0]), block_size(batch)
    return [jax.tree.map(lambda leaf, at=at: leaf[at : at + size], batch) for at in range(0, count, size)]


def require_derivatives(model: Model, one: Any) -> None:
    """Refuse a model that JAX cannot differentiate twice, before any pass over the rows.

    Raises
    ------
    ModelError
        With what JAX said, and which targets do without.
    """
    if fault := not_differentiable(model, one, lambda function: jax.jacfwd(jax.grad(function))):
        name, reason = fault
        raise ModelError(
            f"target='calibrated' needs derivatives of {name}, and JAX cannot take them: {reason}. "
            "Write it with functions that JAX differentiates twice, or pass target='powered' or 'subposterior', "
            "which need none."
        )


def require_gradients(model: Model, one: Any, kernel: str) -> None:
    """The same of gradients alone, which a kernel needs whatever the target.

    Raises
    ------
    ModelError
        With what JAX said, and which kernels do without.
    """
    if fault := not_differentiable(model, one, jax.grad):
        name, reason = fault
        raise ModelError(
            f"kernel={kernel}(...) needs the gradient of {name}, and JAX cannot take it: {reason}. Write it with "
            "functions that JAX differentiates, or pass kernel=lwa.kernels.RandomWalk(), which needs none."
        )


def not_differentiable(
    model: Model, one: Any, derivative: Callable[[Callable[[Array], Array]], Callable[[Array], Array]]
) -> tuple[str, str] | None:
    """Which of a model's functions has no such derivative, and what JAX says; None where both have."""
    theta = jnp.asarray(model.ravel(model.init))
    functions: dict[str, Callable[[Array], Array]] = {
        "log_likelihood": lambda theta: model.log_likelihood(model.unravel(theta), one).sum(),
        "log_prior": model.log_prior_at,
    }
    for name, function in functions.items():
        try:
            jax.eval_shape(derivative(function), theta)
        except Exception as error:
            return name, (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return None


def require_curved(model: Model, found: Sums) -> None:
    """Refuse a log-likelihood that depends on a parameter but has no second derivative in it."""
    flat = (np.asarray(found.curvature) == 0).all(1) & (np.asarray(found.gradient) != 0)
    if flat.any():
        names = ", ".join(name for name, is_flat in zip(model.scalar_names, flat, strict=True) if is_flat)
        raise ModelError(
            f"The second derivative of log_likelihood in {names} is zero for all rows though the first is not: it has "
            "kinks or steps (an absolute value, a maximum, a rounding), so there is no curvature to calibrate by. Pass "
            "target='powered' or 'subposterior', which need no derivatives."
        )


def require_finite(model: Model, theta: NDArray[np.float64], found: Sums, prior: Sums) -> None:
    """Refuse derivatives that are NaN or infinite at a θ where the log posterior is finite."""
    if np.isfinite(found.value + prior.value):
        for name, sums in (("log_likelihood", found), ("log_prior", prior)):
            if not (np.isfinite(sums.gradient).all() and np.isfinite(sums.curvature).all()):
                raise ModelError(
                    f"The derivatives of {name} are not finite at theta = {named(model, theta)}, though its value is: "
                    "the mode may lie at a boundary. Pass constraints, such as {'sigma': 'positive'}, "
                    "or target='powered' or 'subposterior', which need no derivatives."
                )


def find_reference(
    model: Model, rows: Rows, start: NDArray[np.float64], seed: int, progress: Callable[[int], None] = lambda _: None
) -> Reference:
    """θ̂ by Newton's method, on subsets first, then on all rows.

    Raises
    ------
    ModelError
        Where Newton's method does not settle, or the curvature at θ̂ has a direction that the data do not identify.
    """
    N, theta = len(rows), start
    size = max(FEWEST_UNITS, FIRST_ROWS // unit_length(rows))
    while 10 * size <= N and size * unit_length(rows) <= MOST_ROWS:
        drawn = np.sort(generator(seed, Purpose.REFERENCE, size).choice(N, size, replace=False))
        few = in_blocks(rows.take(drawn))
        with suppress(ModelError):  # a few rows may be separated where all are not: then the next ones begin here too
            theta = newton(model, partial(sums_over, model, few), theta, enough=0.3)[0]
        size *= 10
    passes = 0

    def over_all(theta: NDArray[np.float64]) -> Sums:
        nonlocal passes
        passes += 1
        progress(passes)
        return sums_over_all(model, rows, theta)

    theta, found, prior = newton(model, over_all, theta, enough=CLOSE_ENOUGH)
    require_identified(model, theta, found.curvature + prior.curvature)
    return Reference(theta, found.gradient, found.curvature, prior.curvature, passes)


def reference_at(model: Model, rows: Rows, theta: NDArray[np.float64]) -> Reference:
    """The expansion at a point that a user knows to be in the bulk: one pass."""
    found = sums_over_all(model, rows, theta)
    prior = prior_sums(model, theta)
    if not np.isfinite(found.value + prior.value):
        raise ModelError(f"The log posterior is not finite at reference theta = {named(model, theta)}. Pass another.")
    require_identified(model, theta, found.curvature + prior.curvature)
    return Reference(theta, found.gradient, found.curvature, prior.curvature, 1)


def newton(
    model: Model, sums: Callable[[NDArray[np.float64]], Sums], theta: NDArray[np.float64], enough: float
) -> tuple[NDArray[np.float64], Sums, Sums]:
    """Newton steps on log p + Σ ℓ_k, `sums` of θ, until the next would be shorter than `enough` posterior sds.

    Steps that do not increase the log target are halved. Directions of negative curvature are climbed as if it were
    positive: on the way, not at the end, that is as good a guess as any.
    """
    best, step, here, decrement, slow = -np.inf, np.zeros_like(theta), theta, np.inf, 0
    sds = np.zeros_like(theta)  # the last step in units of the parameters' own sds
    for _ in range(MOST_STEPS):
        found, prior = sums(here), prior_sums(model, here)
        value = prior.value + found.value
        if not value >= best - 1e-9 * abs(best):  # NaN too
            step = step / 2
            if np.abs(step).max() <= 1e-14 * (1 + np.abs(theta).max()):
                break
            here = theta + step
            continue
        require_curved(model, found)
        require_finite(model, here, found, prior)
        theta, best = here, value
        slope = prior.gradient + found.gradient
        curvature = prior.curvature + found.curvature
        # In units of each parameter's own sd: a year and a distance differ by 10⁶ in curvature, and more when squared.
        scale = np.sqrt(np.abs(np.diag(curvature)))
        scale = np.where(scale > 0, scale, 1.0)
        bend, axes = np.linalg.eigh(curvature / np.outer(scale, scale))
        along = axes.T @ (slope / scale)
        bend = np.maximum(np.abs(bend), 1e-12 * np.abs(bend).max())
        sds = axes @ (along / bend)
        step = sds / scale
        before, decrement = decrement, float(np.sqrt((along**2 / bend).sum()))
        slow = slow + 1 if 0.3 * before < decrement < 0.5 else 0
        if slow == SLOW_STEPS:
            break
        if decrement < enough and not slow:
            return theta, found, prior
        here = theta + step
    moving = [name for name, by in zip(labelled(model), sds, strict=True) if abs(by) >= 0.3 * np.abs(sds).max()]
    raise ModelError(
        f"No mode of the posterior was found: Newton's method came to theta = {named(model, theta)} and did not "
        f"settle: {', '.join(moving[:6])} moved on. If values keep growing, the data may be perfectly separated or a "
        "direction unidentified: give those parameters a proper prior, pass reference= a point in the bulk, or "
        "target='powered', which needs no mode."
    )


def require_identified(model: Model, theta: NDArray[np.float64], precision: NDArray[np.float64]) -> None:
    """Refuse a curvature that is not positive definite, naming the direction along which it is not."""
    scale = np.sqrt(np.abs(np.diag(precision)))
    scale = np.where(scale > 0, scale, 1.0)
    bend, axes = np.linalg.eigh(precision / np.outer(scale, scale))
    if bend[0] > 1e-9 * bend[-1]:
        return
    direction = axes[:, 0] / scale
    share = np.abs(axes[:, 0])
    names = [name for name, used in zip(labelled(model), share, strict=True) if used > 0.3 * share.max()]
    kind = "does not change" if bend[0] > -1e-9 * bend[-1] else "has no maximum"
    raise ModelError(
        f"The posterior {kind} along a direction that mixes {', '.join(names)} (at theta = {named(model, theta)}, "
        f"direction {np.round(direction / np.abs(direction).max(), 3).tolist()}). Drop one of these parameters or "
        "columns, or give them a proper prior."
    )


@partial(jax.jit, static_argnames=("model",))
def block_values(model: Model, thetas: Array, columns: Any, mask: Array) -> Array:
    """Σ ℓ_k(θ) over a block, for each θ."""
    return jax.vmap(lambda theta: jnp.where(mask, model.log_likelihood_at(theta, columns), 0.0).sum())(thetas)


@partial(jax.jit, static_argnames=("model",))
def prior_values(model: Model, thetas: Array) -> Array:
    """log p(θ), for each θ."""
    return jax.vmap(model.log_prior_at)(thetas)


def log_posterior(model: Model, rows: Rows, thetas: NDArray[Any]) -> NDArray[np.float64]:
    """log π of each θ up to a constant, from one streamed pass in float64; -inf where it is no density."""
    thetas = thetas.astype(np.float64)
    total = log_priors(model, thetas) if model.host else np.asarray(prior_values(model, thetas), np.float64)
    length = unit_length(rows)
    size = power_of_two(max(1, 64 // length, min(block_size(rows), EVALUATIONS // (len(thetas) * length))))
    for part in over_pieces(rows, values_in_piece, size, shared=(model,), own=(thetas, size), here=model.host):
        total = total + part
    return np.where(total < np.inf, total, -np.inf)


def values_in_piece(
    model: Model, thetas: NDArray[np.float64], size: int, start: int, blocks: Any
) -> NDArray[np.float64]:
    """Σ ℓ_k(θ) over the rows of a piece, for each θ."""
    total = np.zeros(len(thetas))
    for batch in blocks:
        if model.host:
            total = total + numerical.value_sums(model, thetas, batch)
        else:
            total = total + np.asarray(block_values(model, thetas, *fill_up(batch, size, np.float64)))
    return total
