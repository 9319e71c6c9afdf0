"""Lower bounds of each row's likelihood that are quadratic in θ, so that their sum over all rows is known."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float64, Int, PyTree

from lwa.errors import InputError, ModelError
from lwa.models.check import describe_theta, report_user_errors
from lwa.models.model import sum_over_units
from lwa.rivals.problem import RivalProblem
from lwa.rows.slots import to_float64
from lwa.rows.units import Stretch
from lwa.user.validate import require_positive

type RowBound = Callable[[PyTree, PyTree, PyTree], Array]
"""`(theta, rows, mode) -> (n,)`: b_k(θ). Only b_k(θ) - b_k(θ̂) matters: at the mode θ̂ it is made to touch."""

TRIED_ROWS = 1000
TRIED_SDS = (1.0, 3.0, 10.0)
TRIED_WAYS = 4
"""Directions from the mode in which a bound is tried, at each of these distances and on so many rows."""
BOUND_ROUNDING = 1e-10
"""How far a bound may exceed or bend, relative to the size of the terms: about 10⁵ times one operation's rounding."""


@dataclass(frozen=True)
class JaakkolaJordan:
    """The bound of a logistic regression, which touches at the mode.

    With s = (2y - 1) xᵀβ, y being 0 or 1, ξ = |xᵀβ̂| and λ(ξ) = tanh(ξ/2) / 4ξ,

        log σ(s) ≥ log σ(ξ) + (s - ξ)/2 - λ(ξ) (s² - ξ²).

    Parameters
    ----------
    x, y
        The columns of the covariates and of the outcome.
    beta
        The parameter of the coefficients; None if θ is that array itself.

    References
    ----------
    Jaakkola and Jordan (2000), Bayesian parameter estimation via variational methods.
    """

    x: str | int = "x"
    y: str | int = "y"
    beta: str | None = "beta"

    def __call__(self, theta: PyTree, rows: PyTree, mode: PyTree) -> Array:
        """Return b_k(θ) of each row."""
        sign = 2.0 * find_column(rows, self.y, "y", self) - 1.0
        s = sign * compute_predictor(self, theta, rows)
        xi = jnp.abs(compute_predictor(self, mode, rows))
        safe = jnp.where(xi > 0.0, xi, 1.0)
        bend = jnp.where(xi > 0.0, jnp.tanh(safe / 2.0) / (4.0 * safe), 0.125)
        return jax.nn.log_sigmoid(xi) + (s - xi) / 2.0 - bend * (s**2 - xi**2)


@dataclass(frozen=True)
class StudentT:
    """The bound of a linear regression with Student's t errors of known scale, which touches at the mode.

    With u = (y - xᵀβ)² / (df scale²) and u₀ the same at the mode,

        -(df + 1)/2 log(1 + u) ≥ -(df + 1)/2 [log(1 + u₀) + (u - u₀) / (1 + u₀)],

    because the logarithm lies under its tangents.

    Parameters
    ----------
    df, scale
        Degrees of freedom and scale of the errors.
    x, y, beta
        As `JaakkolaJordan` takes them.

    References
    ----------
    Maclaurin and Adams (2014), Firefly Monte Carlo: exact MCMC with subsets of data.
    """

    df: float
    scale: float
    x: str | int = "x"
    y: str | int = "y"
    beta: str | None = "beta"

    def __post_init__(self) -> None:
        """Check degrees of freedom and scale."""
        require_positive("df", self.df, example=4.0)
        require_positive("scale", self.scale, example=1.0)

    def __call__(self, theta: PyTree, rows: PyTree, mode: PyTree) -> Array:
        """Return b_k(θ) of each row."""
        y = find_column(rows, self.y, "y", self)
        u, at_mode = ((y - compute_predictor(self, at, rows)) ** 2 / (self.df * self.scale**2) for at in (theta, mode))
        return -(self.df + 1.0) / 2.0 * (jnp.log1p(at_mode) + (u - at_mode) / (1.0 + at_mode))


def compute_predictor(bound: JaakkolaJordan | StudentT, theta: PyTree, rows: PyTree) -> Array:
    """Return xᵀβ of each row."""
    beta = theta
    if bound.beta is not None:
        if not isinstance(theta, Mapping) or bound.beta not in theta:
            has = f"the parameters {sorted(theta)}" if isinstance(theta, Mapping) else "no named parameters"
            raise ModelError(
                f"{type(bound).__name__} looks for the parameter beta={bound.beta!r}, but theta has {has}. Pass "
                "beta= the name of the coefficients, or beta=None if theta is that array."
            )
        beta = theta[bound.beta]
    if isinstance(beta, Mapping):
        raise ModelError(
            f"{type(bound).__name__}(beta=None) takes theta for the array of coefficients, but it has the parameters "
            f"{sorted(beta)}. Pass beta= the name of one of them."
        )
    x = find_column(rows, bound.x, "x", bound)
    x, beta = x.reshape(len(x), math.prod(x.shape[1:])), jnp.ravel(beta)
    if x.shape[1] != len(beta):
        raise ModelError(
            f"{type(bound).__name__} multiplies column {bound.x!r}, of {x.shape[1]} entries per row, with {len(beta)} "
            "coefficients. Pass x= the column that has an entry for each of them, or a bound of your own."
        )
    return x @ beta


def find_column(rows: PyTree, name: str | int, role: str, bound: JaakkolaJordan | StudentT) -> Array:
    """Return a column by name, or by its position in a tuple."""
    held = dict(rows) if isinstance(rows, Mapping) else dict(enumerate(rows)) if isinstance(rows, tuple | list) else {}
    if name not in held:
        has = f"has the columns {list(held)}" if held else "is a single array"
        raise ModelError(
            f"{type(bound).__name__} looks for the column {role}={name!r}, but the data {has}. Pass {role}= the right "
            "one, or a bound of your own: (theta, rows, mode) -> (n,)."
        )
    return held[name]


class CollapsedBounds(NamedTuple):
    """The bounds of all rows: what makes each touch its log-likelihood at θ̂, and their sum, which is quadratic."""

    lift: Float64[Array, " N"]  # log f(Y_k|θ̂) - b_k(θ̂)
    slope: Float64[Array, " d"]  # Σ ∇b_k(θ̂)
    bend: Float64[Array, "d d"]  # Σ ∇²b_k(θ̂)


def evaluate_bound(
    bound: RowBound, theta: Float64[Array, " d"], rows: PyTree, problem: RivalProblem
) -> Float64[Array, " m"]:
    """Return b_k(θ) of some rows; of units, the sum over their rows."""
    here, mode = problem.model.unravel(theta), problem.model.unravel(problem.mode.theta)
    rows = jax.tree.map(to_float64, rows)
    if isinstance(rows, Stretch):
        return sum_over_units(lambda theta, rows: bound(theta, rows, mode), here, rows)
    return jnp.asarray(bound(here, rows, mode), jnp.float64)


def sum_bounds(theta: Float64[Array, " d"], collapsed: CollapsedBounds, problem: RivalProblem) -> Float64[Array, ""]:
    """Return Σ log B_k(θ) over all rows, up to a constant, in O(d²)."""
    away = theta - problem.mode.theta
    return collapsed.slope @ away + 0.5 * away @ (collapsed.bend @ away)


def expected_gap(collapsed: CollapsedBounds, problem: RivalProblem) -> Float64[Array, ""]:
    """Return E Σ log f(Y_k|θ)/B_k(θ) over all rows, for draws of the Gaussian at the mode: ½ tr[(J_N - H_N) F Fᵀ]."""
    F = problem.mode.factor
    return 0.5 * jnp.trace(F.T @ (-collapsed.bend - problem.mode.curvature) @ F)


def find_gaps(
    bound: RowBound, theta: Float64[Array, " d"], places: Int[Array, " m"], collapsed: CollapsedBounds,
    problem: RivalProblem,
) -> tuple[Float64[Array, " m"], Bool[Array, " m"]]:  # fmt: skip
    """Return log f(Y_k|θ) - log B_k(θ) ≥ 0 of the rows in these places, and which of them break it beyond rounding."""
    rows, lift = problem.take(places), collapsed.lift[places]
    term, value = problem.terms(theta, rows), evaluate_bound(bound, theta, rows, problem)
    gap = term - value - lift
    return gap, ~(gap >= -BOUND_ROUNDING * (1.0 + jnp.abs(term) + jnp.abs(value) + jnp.abs(lift)))


@partial(jax.jit, static_argnames=("bound",))
def collapse(bound: RowBound, problem: RivalProblem) -> CollapsedBounds:
    """Collapse the bounds of all rows, in one pass at the mode."""
    mode, size = problem.mode.theta, problem.block

    def add(i: Array, found: CollapsedBounds) -> CollapsedBounds:
        first = jnp.minimum(i * size, problem.length - size)  # the last block overlaps the one before it
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), problem.rows)
        own = first + jnp.arange(size) >= i * size

        def total(theta: Array) -> Array:
            return jnp.where(own, evaluate_bound(bound, theta, rows, problem), 0.0).sum()

        lift = problem.terms(mode, rows) - evaluate_bound(bound, mode, rows, problem)
        lift, slope = lax.dynamic_update_slice(found.lift, lift, (first,)), jax.grad(total)
        return CollapsedBounds(lift, found.slope + slope(mode), found.bend + jax.jacfwd(slope)(mode))

    d = len(mode)
    none = CollapsedBounds(jnp.zeros(problem.length), jnp.zeros(d), jnp.zeros((d, d)))
    return lax.fori_loop(0, -(-problem.length // size), add, none)


@partial(jax.jit, static_argnames=("bound",))
def try_bound(
    bound: RowBound, theta: Float64[Array, " d"], rows: PyTree, problem: RivalProblem
) -> tuple[Float64[Array, ""], Float64[Array, ""]]:
    """Return how far a bound exceeds the log-likelihood, and bends, beyond rounding: both are at most 0 if it holds."""
    mode = problem.mode.theta
    away = theta - mode

    def along(at: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda x: evaluate_bound(bound, x, rows, problem), (at,), (away,))

    (touching, slope), (_, bend) = jax.jvp(along, (mode,), (away,))
    here, there = problem.terms(theta, rows), problem.terms(mode, rows)
    value = evaluate_bound(bound, theta, rows, problem)
    rounding = BOUND_ROUNDING * (1.0 + sum(jnp.abs(part) for part in (value, touching, slope, bend, there)))
    excess = (value - touching) - (here - there) - rounding
    crooked = jnp.abs(value - touching - slope - 0.5 * bend) - rounding
    return jnp.where(jnp.isnan(here), -jnp.inf, excess).max(), crooked.max()


def require_bound(key: Array, bound: RowBound, problem: RivalProblem) -> None:
    """Raise an InputError unless a bound is one, and quadratic, on a sample of rows and of θ around the mode."""
    model, mode = problem.model, problem.mode.theta
    m = min(problem.block, TRIED_ROWS)  # rows are in a random order
    rows = jax.tree.map(lambda leaf: leaf[:m], problem.rows)
    with report_user_errors("bound", "theta, rows and mode"):
        came = jax.eval_shape(lambda theta: evaluate_bound(bound, theta, rows, problem), mode).shape
    if came != (m,):
        raise InputError(f"bound returned shape {came} for {m} rows; one value per row, shape ({m},), is expected.")
    one_way = jax.random.normal(key, (TRIED_WAYS, len(mode))) @ problem.mode.factor.T
    directions = jnp.concatenate([one_way, -one_way])  # a bound that crosses is above on one side only
    for sds in TRIED_SDS:
        for direction in directions:
            theta = mode + sds * direction
            excess, crooked = try_bound(bound, theta, rows, problem)
            where = describe_theta(model, np.asarray(theta))
            if not crooked <= 0.0:
                raise InputError(
                    f"bound is not quadratic in theta: at theta = {where} a row's differs by {crooked:.3g} from "
                    "its second-order expansion at the mode. Their sum over all rows is then not known. Pass a bound "
                    "that is quadratic in the unconstrained parameters."
                )
            if not excess <= 0.0:
                raise InputError(
                    f"bound exceeds the log-likelihood by {excess:.3g} at theta = {where}: it must lie below "
                    "everywhere, and touch at the mode, to which lwa lifts it. Pass one that does, such as "
                    "lwa.rivals.JaakkolaJordan() for a logistic regression whose y is 0 or 1."
                )
