"""The likelihood of a model that runs in Python, by central differences of its rows' terms in float64.

Steps are eps^¼ (eps^⅓ for gradients alone) of the length over which a term changes by about one, found on a few rows.
Errors are then about 10⁻⁸ of a term's own curvature. A kink within a step goes unnoticed. With d parameters, value,
gradient and curvature take d² + d + 1 evaluations of the rows, the gradient alone 2d.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.models.likelihood import AnyScores, NumpyPlaces, NumpyScores, NumpySums, ScoreSums, Sums, split_into_blocks
from lwa.models.model import FloatType, Matrix, Model, RowNumbers, RowSizes, RowVectors, Vector, Vectors
from lwa.models.python_model import cut_unit, evaluate_prior, evaluate_priors, evaluate_rows
from lwa.rows.passes import count_unit_rows
from lwa.rows.units import Stretch

type Function = Callable[[Vector], RowNumbers]
"""θ -> the terms of some rows."""

EPS = float(np.finfo(np.float64).eps)
SECOND, FIRST = EPS**0.25, EPS ** (1 / 3)
"""Steps for second and for first derivatives, in units of that length: rounding and truncation are then of one size."""
LENGTH_TRIES, STRETCH, CLOSE_FACTOR = 6, 100.0, 3.0
"""Tries to find the length, by at most which factor it changes in each, and to which factor it must be right."""
SHORTEST, LONGEST_LENGTH = 1e-3, 1e4
"""The search begins at max(|θ_i|, 10⁻³), since a boundary may be near, and ends at 10⁴ max(1, |θ_i|)."""
ROUNDING_NOISE = 100 * EPS
STEP_ROWS = 64
"""Rows on which steps are found."""
ROWS_PER_CALL = 2**14
"""Rows in one call of a user's function, one θ at a time."""


@dataclass(frozen=True, eq=False)
class PythonLikelihood:
    """`Likelihood` by calls of a user's Python functions and their differences; batches are evaluated as they are."""

    model: Model
    precisions: ClassVar[tuple[type[np.floating], ...]] = (np.float64,)

    def compute_terms(self, theta: Array, rows: PyTree, dtype: FloatType) -> Array:
        """Return ℓ_k of some rows."""
        return jnp.asarray(evaluate_rows(self.model, np.asarray(theta), jax.tree.map(np.asarray, rows)))

    def compute_log_prior(self, theta: Array) -> Array:
        """Return log p(θ) in float64."""
        return jnp.asarray(evaluate_prior(self.model, np.asarray(theta)))

    def compute_log_priors(self, thetas: Vectors) -> RowNumbers:
        """Return log p at many θ."""
        return evaluate_priors(self.model, thetas)

    def sum_between(
        self, theta: Array, rows: PyTree, *, start: int | Array, stop: int | Array, size: int, dtype: FloatType
    ) -> Array:
        """Return Σ ℓ_k over rows `start` to `stop` - 1 of those in memory."""
        parts = split_into_blocks(jax.tree.map(lambda leaf: np.asarray(leaf)[int(start) : int(stop)], rows))
        return jnp.asarray(sum(evaluate_rows(self.model, np.asarray(theta), part).sum() for part in parts))

    def sum_values(self, thetas: Vectors, batch: PyTree, size: int = 0) -> RowNumbers:
        """Return Σ ℓ_k over a batch, at many θ."""
        return np.array([evaluate_rows(self.model, theta, batch).sum() for theta in thetas])

    def sum_block(self, theta: Vector, batch: PyTree, counts: RowNumbers) -> NumpySums:
        """Return value, gradient and curvature of Σ c_k ℓ_k; only single numbers are kept of each evaluation."""
        steps = SECOND * self.measure_lengths(theta, batch)
        return differentiate(self.terms_of(batch), theta, steps, lambda terms: counts @ terms)

    def sum_prior(self, theta: Vector) -> NumpySums:
        """Return value, gradient and curvature of log p."""
        steps = SECOND * find_lengths(self.prior, theta)
        return differentiate(self.prior, theta, steps, lambda terms: terms[0])

    def derivatives(self, theta: Vector, batch: PyTree) -> NumpySums:
        """Return ℓ_k, ∇ℓ_k and -∇²ℓ_k of each row."""
        steps = SECOND * self.measure_lengths(theta, batch)
        return differentiate(self.terms_of(batch), theta, steps, lambda terms: terms)

    def differentiate_rows(self, theta: Vector, batch: PyTree, *, curvature: bool) -> RowVectors:
        """Return ∇ℓ_k of each row and, if asked for, the upper triangle of -∇²ℓ_k beside it."""
        if not curvature:
            return self.score_steps(theta, batch)
        _, score, curvatures = self.derivatives(theta, batch)
        rows, columns = np.triu_indices(self.model.dimension)
        return np.concatenate([score, curvatures[:, rows, columns]], axis=1)

    def differentiate_steps(self, theta: Vector, units: Stretch, size: int, *, curvature: bool) -> RowVectors:
        """Return the derivatives of each scored step, unit by unit."""

        def one(i: int) -> RowVectors:
            rows, scored = cut_unit(units, i)
            return self.differentiate_rows(theta, rows, curvature=curvature)[scored]

        return np.concatenate([one(i) for i in range(len(units.scored))])

    def score_steps(self, theta: Vector, batch: PyTree) -> RowVectors:
        """Return ∇ℓ_k of each row, or step of one sequence."""
        return find_slopes(self.terms_of(batch), theta, FIRST * self.measure_lengths(theta, batch))

    def whiten_curvatures(self, theta: Vector, batch: PyTree, factor: Matrix) -> Float64[np.ndarray, "m d d"]:
        """Return -Fᵀ ∇²ℓ_k F of each row."""
        return factor.T @ self.derivatives(theta, batch).curvature @ factor

    def measure_rows(self, theta: Vector, batch: PyTree, factor: Matrix, size: int = 0) -> RowSizes:
        """Return h_k = Σ_j |f_jᵀ ∇²ℓ_k f_j| over the columns of F, and the j of the largest, of each row."""
        along = self.bend_along(theta, batch, factor)
        return along.sum(0), along.argmax(0)

    def bend_along(self, theta: Vector, batch: PyTree, factor: Matrix) -> Float64[np.ndarray, "d m"]:
        """Return |f_jᵀ ∇²ℓ_k f_j| for the columns of F, in 2d + 1 evaluations."""
        function = self.terms_of(batch)
        base, found = function(theta), []
        steps = SECOND * self.measure_lengths(theta, batch, factor.T)
        for direction, step in zip(factor.T, steps, strict=True):
            with np.errstate(invalid="ignore"):
                bend = function(theta + step * direction) + function(theta - step * direction) - 2.0 * base
            found.append(np.abs(bend) / step**2)
        return np.stack(found)

    def expand_rows(
        self, theta: Vector, away: Vectors, batch: PyTree, size: int = 0
    ) -> Float64[np.ndarray, "points m"]:
        """Return T_k(δ) = ℓ_k(θ+δ) - its expansion to second order at θ, for δ and -δ of each in `away`."""
        function = self.terms_of(batch)
        base, steps = function(theta), SECOND * self.measure_lengths(theta, batch, away)
        ahead, behind = list[RowNumbers](), list[RowNumbers]()
        for delta, step in zip(away, steps, strict=True):
            near, far = function(theta + step * delta), function(theta - step * delta)
            with np.errstate(invalid="ignore"):
                slope, even = (near - far) / (2 * step), base + (near + far - 2 * base) / (2 * step**2)
                ahead.append(function(theta + delta) - even - slope)
                behind.append(function(theta - delta) - even + slope)
        return np.stack(ahead + behind)

    def fill(self, batch: PyTree, size: int) -> PyTree:
        """Return a batch as it is: Python needs no filling."""
        return batch

    def choose_block(self, places: NumpyPlaces) -> int:
        """Return how many rows one call takes."""
        return ROWS_PER_CALL

    def score_prior(self, places: NumpyPlaces) -> NumpyScores:
        """Return log p and its gradient at some places; the points share their steps."""
        steps = FIRST * find_lengths(self.prior, places.points[0])
        gradient = np.array([find_slopes(self.prior, theta, steps)[0] for theta in places.points])
        here, there = (evaluate_priors(self.model, thetas) for thetas in (places.begun, places.proposals))
        return ScoreSums(here, gradient, there)

    def add_scores(
        self, total: AnyScores, places: NumpyPlaces, batch: PyTree, *, size: int = 0, precision: FloatType = np.float64
    ) -> AnyScores:
        """Return `total` with the values and gradients of some rows added; what a user's function raises is theirs."""
        here, there = (self.sum_values(thetas, batch) for thetas in (places.begun, places.proposals))
        found = (here, self.sum_gradients(places.points, batch), there)
        return ScoreSums(*(a + b for a, b in zip(total, found, strict=True)))

    def sum_gradients(self, thetas: Vectors, batch: PyTree) -> Vectors:
        """Return Σ ∇ℓ_k at many θ of one posterior, which share their steps."""
        steps = FIRST * self.measure_lengths(thetas[0], batch)
        return np.array([find_slopes(self.terms_of(batch), theta, steps).sum(0) for theta in thetas])

    def identify(self, one: PyTree) -> str:
        """Return one text for all models in Python: their log densities distinguish them."""
        return "in Python"

    def terms_of(self, rows: PyTree) -> Function:
        """Return θ -> ℓ_k of these rows."""
        return lambda theta: evaluate_rows(self.model, theta, rows)

    def prior(self, theta: Vector) -> RowNumbers:
        """Return log p, as the term of one row."""
        return np.array([evaluate_prior(self.model, theta)])

    def measure_lengths(self, theta: Vector, rows: PyTree, directions: Vectors | None = None) -> RowNumbers:
        """Return `find_lengths` of a few rows; a unit's term is divided by its rows, and as precise as a row's term."""
        function, length = self.terms_of(choose_few(self.model, rows)), count_unit_rows(rows)
        return find_lengths(lambda theta: function(theta) / length, theta, directions)


def choose_few(model: Model, rows: PyTree) -> PyTree:
    """Return rows that show how long steps must be: from everywhere, or the first if rows depend on those before."""
    count = len(jax.tree.leaves(rows)[0])
    few = min(count, max(1, STEP_ROWS // count_unit_rows(rows)))
    consecutive = model.ordered is not False or model.groups is not None
    chosen = np.arange(few) if consecutive else np.linspace(0, count - 1, few).astype(np.int64)
    return jax.tree.map(lambda leaf: leaf[chosen], rows)


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
    with np.errstate(invalid="ignore"):
        apart = [function(theta + move) - function(theta - move) for move in np.diag(steps)]
    return np.stack(apart, axis=-1) / (2.0 * steps)


def differentiate(
    function: Function, theta: Vector, steps: Vector, reduce: Callable[[RowNumbers], NDArray[np.float64]]
) -> NumpySums:
    """Return value, gradient and negative Hessian of what `reduce` makes of the terms, which must be linear in them.

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
        return Sums(reduce(base), gradient, -hessian)
