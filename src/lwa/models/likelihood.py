"""What the rest of lwa computes of a model's rows, whether JAX compiles the model or Python calls it."""

from collections.abc import Callable
from typing import Protocol

import jax
import numpy as np
from jax import Array
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.models.jax_likelihood import JaxLikelihood
from lwa.models.model import Model
from lwa.models.python_likelihood import PythonLikelihood
from lwa.models.sums import (
    AnyScores,
    FloatType,
    Matrix,
    NumpyPlaces,
    NumpySums,
    RowNumbers,
    Vector,
    Vectors,
)
from lwa.rows.passes import count_unit_rows
from lwa.rows.slots import to_float64
from lwa.rows.units import Stretch

CHEAP_WIDTH = 200
"""Numbers per row, up to which filling up costs less than another program."""
PART_NUMBERS, PART_ROWS = 2**22, 4096
"""Numbers that per-row curvatures may take at once, 32 MiB, and rows."""


class Likelihood(Protocol):
    """Terms ℓ_k(θ) = log f(Y_k|θ) of rows, their sums and derivatives, and the log prior; θ is the flat vector.

    JAX evaluates blocks of one size, and fills batches up to `size` rows. Python takes batches as they are.
    """

    @property
    def precisions(self) -> tuple[type[np.floating], ...]:
        """The precisions in which terms can be computed."""

    def compute_terms(self, theta: Array, rows: PyTree, dtype: FloatType) -> Array:
        """Return ℓ_k of some rows, computed in a precision, in float64."""

    def compute_log_prior(self, theta: Array) -> Array:
        """Return log p(θ) in float64."""

    def compute_log_priors(self, thetas: Vectors) -> RowNumbers:
        """Return log p at many θ."""

    def sum_between(
        self, theta: Array, rows: PyTree, *, start: int | Array, stop: int | Array, size: int, dtype: FloatType
    ) -> Array:
        """Return Σ ℓ_k over rows `start` to `stop` - 1 of those in memory."""

    def sum_values(self, thetas: Vectors, batch: PyTree, size: int) -> RowNumbers:
        """Return Σ ℓ_k over a batch of at most `size` rows, at many θ."""

    def sum_block(self, theta: Vector, batch: PyTree, counts: RowNumbers) -> NumpySums:
        """Return value, gradient and curvature of Σ c_k ℓ_k over a batch of at most `block_size` rows."""

    def sum_prior(self, theta: Vector) -> NumpySums:
        """Return value, gradient and curvature of log p."""

    def differentiate_rows(self, theta: Vector, batch: PyTree, *, curvature: bool) -> Float64[np.ndarray, "m c"]:
        """Return ∇ℓ_k of each row and, if asked for, the upper triangle of -∇²ℓ_k beside it."""

    def differentiate_steps(
        self, theta: Vector, units: Stretch, size: int, *, curvature: bool
    ) -> Float64[np.ndarray, "steps c"]:
        """Return the derivatives of each scored step of at most `size` units."""

    def score_steps(self, theta: Vector, batch: PyTree) -> Float64[np.ndarray, "m d"]:
        """Return ∇ℓ_k of each step of one sequence."""

    def whiten_curvatures(self, theta: Vector, batch: PyTree, factor: Matrix) -> Float64[np.ndarray, "m d d"]:
        """Return -Fᵀ ∇²ℓ_k F of each row."""

    def measure_rows(
        self, theta: Vector, batch: PyTree, factor: Matrix, size: int
    ) -> tuple[RowNumbers, NDArray[np.int64]]:
        """Return h_k = Σ_j |f_jᵀ ∇²ℓ_k f_j| over the columns of F, and the j of the largest, of each row."""

    def fill(self, batch: PyTree, size: int) -> PyTree:
        """Return a batch as it is evaluated: of `size` rows, or as it is."""

    def choose_block(self, places: NumpyPlaces) -> int:
        """Return how many rows to score at some places in one call."""

    def score_prior(self, places: NumpyPlaces) -> AnyScores:
        """Return log p and its gradient at some places."""

    def add_scores(
        self, total: AnyScores, places: NumpyPlaces, batch: PyTree, *, size: int, precision: FloatType
    ) -> AnyScores:
        """Return `total` with the values and gradients of at most `size` rows added, in float64."""

    def identify(self, one: PyTree) -> str:
        """Return a fingerprint of the model's functions, traced with one row."""


def find_likelihood(model: Model) -> Likelihood:
    """Return JAX's evaluation of a model, or Python's if JAX cannot trace it."""
    return PythonLikelihood(model) if model.in_python else JaxLikelihood(model)


def compute_in_parts(
    function: Callable[[PyTree], NDArray[np.float64]], batch: PyTree, width: int, likelihood: Likelihood
) -> Float64[np.ndarray, "m width"]:
    """Return `function` of a batch in float64, on so few rows at a time that temporary matrices stay small.

    Parts are filled up to one size, so that one program serves the first subsets and every page of candidates. If rows
    are costly to differentiate, they are filled up to the next power of two instead.
    """
    batch = jax.tree.map(to_float64, batch)
    m, length = len(jax.tree.leaves(batch)[0]), count_unit_rows(batch)
    part = max(1, int(np.clip(PART_NUMBERS // width, 64, PART_ROWS)) // length)
    if width > CHEAP_WIDTH:
        part = min(part, 1 << (m - 1).bit_length())
    if m == part:
        return function(batch)
    found = np.empty((m, width))
    for start in range(0, m, part):
        rows = jax.tree.map(lambda leaf, start=start: leaf[start : start + part], batch)
        own = min(part, m - start)
        found[start : start + own] = function(likelihood.fill(rows, part))[:own]
    return found
