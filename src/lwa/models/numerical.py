"""Derivatives of models that JAX cannot trace: central differences of the rows' log-likelihoods, in float64.

With d parameters, value, gradient and curvature take d² + d + 1 evaluations of the rows, the gradient alone 2d. Steps
are eps^¼ (eps^⅓ for gradients alone) of the length over which a row's term changes by about one, found on a few rows;
errors are then about 10⁻⁸ of a row's own curvature. A kink within a step is not seen for what it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.models.model import Model
from lwa.models.on_host import log_prior, row_terms
from lwa.rows.units import unit_length

type Vector = NDArray[np.float64]
type Function = Callable[[Vector], Vector]
"""θ -> (m,), the terms of some rows."""

EPS = float(np.finfo(np.float64).eps)
SECOND, FIRST = EPS**0.25, EPS ** (1 / 3)
"""Steps in units of that length: rounding and truncation are then of one size."""
FEW_ROWS = 64
TRIES, STRETCH, CLOSE = 6, 100.0, 3.0
"""The length is looked for in so many tries, each at most so many times longer or shorter, until it is right to 3."""
SMALLEST, LARGEST = 1e-3, 1e4
"""Of max(|θ_i|, 10⁻³) it begins with, since parameters may have a boundary near; of max(1, |θ_i|) it ends at."""
NOISE = 100 * EPS


class Derivatives(NamedTuple):
    """Of each row, leaves `(m, ...)`, or of their sum."""

    value: Any
    gradient: Any
    hessian: Any


def few_of(model: Model, rows: Any) -> Any:
    """Rows that tell how long steps must be: from everywhere, or the first where they depend on those before."""
    count = len(jax.tree.leaves(rows)[0])
    few = min(count, max(1, FEW_ROWS // unit_length(rows)))
    consecutive = model.ordered is not False or model.groups is not None
    chosen = np.arange(few) if consecutive else np.linspace(0, count - 1, few).astype(np.int64)
    return jax.tree.map(lambda leaf: leaf[chosen], rows)


def row_lengths(model: Model, theta: Vector, rows: Any, directions: Vector | None = None) -> Vector:
    """`lengths` of a few rows; the terms of units are sums, and as precise as a row's for each of theirs."""
    function, length = terms_of(model, few_of(model, rows)), unit_length(rows)
    return lengths(lambda theta: function(theta) / length, theta, directions)


def lengths(function: Function, theta: Vector, directions: Vector | None = None) -> Vector:
    """Of each direction, `(r, d)`, or parameter: how many times it a term must move to change by about one.

    Where nothing bends at all, as in a parameter that none of these rows depend on, max(1, |θ_i|).
    """
    size = np.abs(theta) if directions is None else np.zeros(len(directions))
    directions = np.eye(len(theta)) if directions is None else directions
    base = function(theta)
    usable = np.isfinite(base)
    found = np.maximum(1.0, size)
    if not usable.any():
        return found
    magnitude = max(1.0, float(np.abs(base[usable]).mean()))
    wanted = (EPS * magnitude) ** 0.5  # where rounding, eps |ℓ|/h², and truncation, h², cost the same
    for i, direction in enumerate(directions):
        length = max(float(size[i]), SMALLEST)
        for _ in range(TRIES):
            step = SECOND * length * direction
            with np.errstate(invalid="ignore"):
                bend = np.abs(function(theta + step) + function(theta - step) - 2.0 * base)[usable]
            mean = float(bend.mean()) if np.isfinite(bend).all() else np.inf
            factor = float(np.clip(np.sqrt(wanted / max(mean, 1e-300)), 1.0 / STRETCH, STRETCH))
            if NOISE * magnitude < mean < np.inf:
                found[i] = length
            if 1.0 / CLOSE < factor < CLOSE:
                break
            length = min(length * factor, LARGEST * max(1.0, float(size[i])))
    return found


def row_scores(model: Model, theta: Vector, rows: Any) -> Vector:
    """∇ℓ_k, one a row, `(m, d)`."""
    return slopes(terms_of(model, rows), theta, FIRST * row_lengths(model, theta, rows))


def row_derivatives(model: Model, theta: Vector, rows: Any) -> Derivatives:
    """ℓ_k, ∇ℓ_k and ∇²ℓ_k, one a row."""
    steps = SECOND * row_lengths(model, theta, rows)
    return differences(terms_of(model, rows), theta, steps, lambda terms: terms)


def row_sizes(model: Model, theta: Vector, rows: Any, factor: Vector) -> Vector:
    """|f_jᵀ ∇²ℓ_k f_j| for the columns of F, `(d, m)`, in 2d + 1 evaluations."""
    function = terms_of(model, rows)
    base, found = function(theta), []
    steps = SECOND * row_lengths(model, theta, rows, factor.T)
    for direction, step in zip(factor.T, steps, strict=True):
        with np.errstate(invalid="ignore"):
            bend = function(theta + step * direction) + function(theta - step * direction) - 2.0 * base
        found.append(np.abs(bend) / step**2)
    return np.stack(found)


def sums(model: Model, theta: Vector, rows: Any, counts: Vector | None = None) -> Derivatives:
    """Of Σ c_k ℓ_k; only single numbers are kept of each evaluation."""
    weight = np.ones(len(jax.tree.leaves(rows)[0])) if counts is None else counts
    steps = SECOND * row_lengths(model, theta, rows)
    return differences(terms_of(model, rows), theta, steps, lambda terms: weight @ terms)


def prior_sums(model: Model, theta: Vector) -> Derivatives:
    """Of log p."""
    function = prior_of(model)
    return differences(function, theta, SECOND * lengths(function, theta), lambda terms: terms[0])


def gradient_sums(model: Model, thetas: Vector, rows: Any) -> tuple[Vector, Vector]:
    """Σ ℓ_k and Σ ∇ℓ_k at many θ of one posterior, which share their steps."""
    function = terms_of(model, rows)
    steps = FIRST * row_lengths(model, thetas[0], rows)
    gradient = np.array([slopes(function, theta, steps).sum(0) for theta in thetas])
    return value_sums(model, thetas, rows), gradient


def value_sums(model: Model, thetas: Vector, rows: Any) -> Vector:
    """Σ ℓ_k at many θ."""
    return np.array([row_terms(model, theta, rows).sum() for theta in thetas])


def prior_gradients(model: Model, thetas: Vector) -> tuple[Vector, Vector]:
    """log p and its gradient at many θ."""
    function = prior_of(model)
    steps = FIRST * lengths(function, thetas[0])
    gradient = np.array([slopes(function, theta, steps)[0] for theta in thetas])
    return np.concatenate([function(theta) for theta in thetas]), gradient


def terms_of(model: Model, rows: Any) -> Function:
    """θ -> ℓ_k of these rows."""
    return lambda theta: row_terms(model, theta, rows)


def prior_of(model: Model) -> Function:
    """θ -> log p, as the term of one row."""
    return lambda theta: np.array([log_prior(model, theta)])


def slopes(function: Function, theta: Vector, steps: Vector) -> Vector:
    """(f(θ + h_i) - f(θ - h_i)) / 2h_i, `(m, d)`."""
    moves = np.diag(steps)
    with np.errstate(invalid="ignore"):
        apart = [function(theta + move) - function(theta - move) for move in moves]
    return np.stack(apart, axis=-1) / (2.0 * steps)


def differences(function: Function, theta: Vector, steps: Vector, reduce: Callable[[Vector], Any]) -> Derivatives:
    """Value, gradient and Hessian of what `reduce` makes of the terms, which must be linear in them.

    Off the diagonal, (f(+i+j) + f(-i-j) - f(+i) - f(-i) - f(+j) - f(-j) + 2f) / 2 h_i h_j. Terms are reduced once f is
    taken off, so that no large sums cancel.
    """
    d, moves, base = len(theta), np.diag(steps), function(theta)

    def change(move: Vector) -> Any:
        with np.errstate(invalid="ignore"):  # -inf on both sides
            return reduce(function(theta + move) - base)

    ahead, behind = ([change(sign * move) for move in moves] for sign in (1.0, -1.0))
    gradient = np.stack([a - b for a, b in zip(ahead, behind, strict=True)], axis=-1) / (2.0 * steps)
    hessian = np.empty((*gradient.shape, d))
    for i in range(d):
        hessian[..., i, i] = (ahead[i] + behind[i]) / steps[i] ** 2
        for j in range(i):
            both = change(moves[i] + moves[j]) + change(-moves[i] - moves[j])
            both = both - ahead[i] - behind[i] - ahead[j] - behind[j]
            hessian[..., i, j] = hessian[..., j, i] = both / (2.0 * steps[i] * steps[j])
    with np.errstate(invalid="ignore"):
        return Derivatives(reduce(base), gradient, hessian)
