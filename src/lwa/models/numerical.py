"""Central differences in float64, of functions that give one term per row.

Steps are eps^¼ (eps^⅓ for gradients alone) of the length over which a term changes by about one. Errors are then about
10⁻⁸ of a term's own curvature. A kink within a step goes unnoticed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.models.sums import RowNumbers, Vector, Vectors

type Function = Callable[[Vector], RowNumbers]
"""θ -> the terms of some rows."""

EPS = float(np.finfo(np.float64).eps)
SECOND, FIRST = EPS**0.25, EPS ** (1 / 3)
"""Steps for second and for first derivatives, in units of that length: rounding and truncation are then of one size."""
LENGTH_TRIES, STRETCH, CLOSE_FACTOR = 6, 100.0, 3.0
"""The length is searched in so many tries, each at most 100 times longer or shorter, until it is right to a factor of
3."""
SHORTEST, LONGEST_LENGTH = 1e-3, 1e4
"""The search begins at max(|θ_i|, 10⁻³), since a boundary may be near, and ends at 10⁴ max(1, |θ_i|)."""
ROUNDING_NOISE = 100 * EPS


class Derivatives(NamedTuple):
    """Value and derivatives of each row, arrays `(m, ...)`, or of their sum."""

    value: NDArray[np.float64]
    gradient: NDArray[np.float64]
    hessian: NDArray[np.float64]


def find_lengths(function: Function, theta: Vector, directions: Vectors | None = None) -> Vector:
    """Return how far to move along each parameter, or direction `(r, d)`, until a term changes by about one.

    If nothing bends at all, as in a parameter that none of these rows depend on, it is max(1, |θ_i|).
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
        length = max(float(size[i]), SHORTEST)
        for _ in range(LENGTH_TRIES):
            step = SECOND * length * direction
            with np.errstate(invalid="ignore"):
                bend = np.abs(function(theta + step) + function(theta - step) - 2.0 * base)[usable]
            mean = float(bend.mean()) if np.isfinite(bend).all() else np.inf
            factor = float(np.clip(np.sqrt(wanted / max(mean, 1e-300)), 1.0 / STRETCH, STRETCH))
            if ROUNDING_NOISE * magnitude < mean < np.inf:
                found[i] = length
            if 1.0 / CLOSE_FACTOR < factor < CLOSE_FACTOR:
                break
            length = min(length * factor, LONGEST_LENGTH * max(1.0, float(size[i])))
    return found


def find_slopes(function: Function, theta: Vector, steps: Vector) -> Float64[np.ndarray, "m d"]:
    """Return (f(θ + h_i) - f(θ - h_i)) / 2h_i."""
    moves = np.diag(steps)
    with np.errstate(invalid="ignore"):
        apart = [function(theta + move) - function(theta - move) for move in moves]
    return np.stack(apart, axis=-1) / (2.0 * steps)


def differentiate(
    function: Function, theta: Vector, steps: Vector, reduce: Callable[[RowNumbers], NDArray[np.float64]]
) -> Derivatives:
    """Return value, gradient and Hessian of what `reduce` makes of the terms, which must be linear in them.

    Off the diagonal, the Hessian is (f(+i+j) + f(-i-j) - f(+i) - f(-i) - f(+j) - f(-j) + 2f) / 2 h_i h_j. Terms are
    reduced after f is subtracted, so that no large sums cancel.
    """
    d, moves, base = len(theta), np.diag(steps), function(theta)

    def change(move: Vector) -> NDArray[np.float64]:
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
