"""Terms ℓ_k(θ) = log f(Y_k|θ) of a model's rows, their sums and derivatives, and the log prior.

JAX compiles each function below once for all blocks of a run. If JAX cannot trace a model, `PythonLikelihood` in
`lwa.models.python_likelihood` gives the same numbers by calls of its functions.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.models import predictors
from lwa.models.check import report_user_errors
from lwa.models.model import FloatType, Matrix, Model, RowNumbers, RowSizes, RowVectors, Vector, Vectors
from lwa.rows import Rows
from lwa.rows.passes import Progress, count_unit_rows, floor_power_of_two, list_strata, map_pieces
from lwa.rows.slots import Columns, fill_up, repeat_to, split_layers, to_columns, to_float64, to_rows
from lwa.rows.strata import Stratum
from lwa.rows.units import AnyBatch, Layer, Stretch

if TYPE_CHECKING:
    from lwa.models.python_likelihood import PythonLikelihood

type Likelihood = JaxLikelihood | PythonLikelihood
type NumpySums = Sums[NDArray[np.float64]]
type NumpyPlaces = Places[NDArray[np.float64]]
type NumpyScores = ScoreSums[NDArray[np.float64]]
type JaxScores = ScoreSums[Array]
type AnyScores = JaxScores | NumpyScores

BLOCK_ROWS = 16_384
"""Rows in one compiled evaluation; a last block that is shorter is filled up and masked."""
UNIT_ROWS = 2**16
"""Rows in one compiled evaluation of units of several rows. A recursion over the steps of a unit runs for all units of
a block side by side, so a block should hold some tens of units."""
STRATUM_ROWS, STRATUM_UNITS = 2**14, 16
"""Rows in one compiled evaluation of units of one stratum of several, which has to be filled up for each of them, and
the units for which there may be more rows."""
CHEAP_WIDTH = 200
"""Numbers per row, up to which filling up costs less than another program."""
PART_NUMBERS, PART_ROWS = 2**22, 4096
"""Numbers that per-row curvatures may take at once, 32 MiB, and rows."""
SCORE_EVALUATIONS = 2**20
"""Points and proposals × rows in one compiled call: 4 MiB per temporary array. At 300 of each, blocks of 1024 to 4096
rows are equally fast and 16,384 half as fast (logistic, d = 10, 2 cores)."""
SCORED_ROWS = 8192
"""Rows in one such call at most. With 24 points and 32,768 rows half of the time goes to the system, which takes the
memory of temporary arrays back after every call: 4.2 s for 10⁷ rows, 2.1 s with this (logistic, d = 10, 2 cores)."""
ADDRESS = re.compile(r"0x[0-9a-f]+")


class Sums[A](NamedTuple):
    """Log-likelihood (or log prior), gradient and negative Hessian, summed over rows."""

    value: A  # ()
    gradient: A  # (d,)
    curvature: A  # (d, d)


class Places[A: Array | NDArray[np.float64]](NamedTuple):
    """Where to take gradients and values."""

    points: A  # (M, d)
    starts: A  # (K', d)  of moves; if there are none, values are taken at all points
    proposals: A  # (K, d)  ends of moves

    @property
    def begun(self) -> A:
        """The places where moves start."""
        return self.starts if len(self.starts) else self.points

    @property
    def number(self) -> int:
        """The number of points, starts and proposals together."""
        return len(self.points) + len(self.starts) + len(self.proposals)


class ScoreSums[A](NamedTuple):
    """Log density and gradient at some places, summed over rows in float64; on the device if JAX computes them."""

    log_density: A  # (M,), or one per start
    gradient: A  # (M, d)
    proposed: A  # (K,)


def block_size(of: Rows | AnyBatch) -> int:
    """Return how many rows, or units of several rows, one compiled evaluation takes."""
    length = count_unit_rows(of)
    if isinstance(getattr(of, "spread_over", of), Stratum | Layer):
        return floor_power_of_two(min(max(STRATUM_ROWS, STRATUM_UNITS * length), UNIT_ROWS) // length)
    return BLOCK_ROWS if length == 1 else floor_power_of_two(UNIT_ROWS // length)


def split_into_blocks(batch: PyTree) -> list[PyTree]:
    """Return rows in memory as batches of at most `block_size`, each of one stratum."""
    if len(layers := split_layers(batch)) > 1:
        return [block for layer in layers for block in split_into_blocks(layer)]
    count, size = len(jax.tree.leaves(batch)[0]), block_size(batch)
    return [jax.tree.map(lambda leaf, at=at: leaf[at : at + size], batch) for at in range(0, count, size)]


def map_strata[Out](
    model: Model, rows: Rows, function: Callable[..., Out], *own: object, choose: Callable[[Rows], int] = block_size,
    progress: Progress = None,
) -> Iterator[Out]:  # fmt: skip
    """Yield `function(model, *own, size, start, blocks)` for each piece of all rows, in order, one stratum at a time.

    Blocks have at most `size` rows, or units of one length, as `choose` returns it.
    """
    for stratum in list_strata(rows):
        size = choose(stratum)
        yield from map_pieces(
            stratum, function, size, shared=(model,), own=(*own, size), here=model.in_python, progress=progress
        )


def find_likelihood(model: Model) -> Likelihood:
    """Return JAX's evaluation of a model, or Python's if JAX cannot trace it."""
    if not model.in_python:
        return JaxLikelihood(model)
    from lwa.models.python_likelihood import PythonLikelihood

    return PythonLikelihood(model)


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


@dataclass(frozen=True, eq=False)
class JaxLikelihood:
    """`Likelihood` by compiled programs and JAX's derivatives; a batch is repeated until it fills its block."""

    model: Model
    precisions: ClassVar[tuple[type[np.floating], ...]] = (np.float32, np.float64)

    def compute_terms(self, theta: Array, rows: PyTree, dtype: FloatType) -> Array:
        """Return ℓ_k of some rows, computed in a precision, in float64."""
        rows = jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, rows)
        return self.model.log_likelihood(self.model.unravel(theta.astype(dtype)), rows).astype(jnp.float64)

    def compute_log_prior(self, theta: Array) -> Array:
        """Return log p(θ) in float64."""
        return self.model.log_prior_at(theta).astype(jnp.float64)

    def compute_log_priors(self, thetas: Vectors) -> RowNumbers:
        """Return log p at many θ."""
        return np.asarray(prior_values(self.model, thetas), np.float64)

    def sum_between(
        self, theta: Array, rows: PyTree, *, start: int | Array, stop: int | Array, size: int, dtype: FloatType
    ) -> Array:
        """Return Σ ℓ_k over rows `start` to `stop` - 1 of those on the device, `size` at a time."""
        length = len(jax.tree.leaves(rows)[0])

        def add(i: Array, total: Array) -> Array:
            begin = start + i * size
            first = jnp.minimum(begin, length - size)  # the last block overlaps the one before it
            block = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), rows)
            place = first + jnp.arange(size)
            terms = self.compute_terms(theta, block, dtype)
            return total + jnp.where((place >= begin) & (place < stop), terms, 0.0).sum()

        return lax.fori_loop(0, -(-(stop - start) // size), add, jnp.zeros(()))

    def sum_values(self, thetas: Vectors, batch: PyTree, size: int) -> RowNumbers:
        """Return Σ ℓ_k over a batch of at most `size` rows, at many θ."""
        return np.asarray(block_values(self.model, thetas, *fill_up(batch, size, np.float64)))

    def sum_block(self, theta: Vector, batch: PyTree, counts: RowNumbers) -> NumpySums:
        """Return value, gradient and curvature of Σ c_k ℓ_k over a batch of at most `block_size` rows."""
        columns, own = fill_up(batch, block_size(batch), np.float64)
        filled = np.zeros(len(own))
        filled[own] = counts
        return jax.tree.map(np.asarray, block_sums(self.model, theta, columns, filled))

    def sum_prior(self, theta: Vector) -> NumpySums:
        """Return value, gradient and curvature of log p."""
        return jax.tree.map(np.asarray, prior_sums(self.model, theta))

    def differentiate_rows(self, theta: Vector, batch: PyTree, *, curvature: bool) -> RowVectors:
        """Return ∇ℓ_k of each row and, if asked for, the upper triangle of -∇²ℓ_k beside it."""
        return np.asarray((row_derivatives if curvature else row_scores)(self.model, theta, batch))

    def differentiate_steps(self, theta: Vector, units: Stretch, size: int, *, curvature: bool) -> RowVectors:
        """Return the derivatives of each scored step of at most `size` units."""
        filled = jax.tree.map(to_float64, repeat_to(units, size))
        found = np.asarray(step_derivatives(self.model, theta, filled, curvature=curvature))
        return found[: len(units.scored)][units.scored]

    def score_steps(self, theta: Vector, batch: PyTree) -> RowVectors:
        """Return ∇ℓ_k of each step of one sequence."""
        return np.asarray(step_scores(self.model, theta, jax.tree.map(to_float64, batch)))

    def whiten_curvatures(self, theta: Vector, batch: PyTree, factor: Matrix) -> Float64[np.ndarray, "m d d"]:
        """Return -Fᵀ ∇²ℓ_k F of each row."""
        return np.asarray(row_curvatures(self.model, theta, batch, factor))

    def measure_rows(self, theta: Vector, batch: PyTree, factor: Matrix, size: int) -> RowSizes:
        """Return h_k = Σ_j |f_jᵀ ∇²ℓ_k f_j| over the columns of F, and the j of the largest, of each row."""
        rows = len(jax.tree.leaves(batch)[0])
        found, most = sizes_along(self.model, theta, jax.tree.map(to_float64, repeat_to(batch, size)), factor)
        return np.asarray(found)[:rows], np.asarray(most)[:rows]

    def expand_rows(self, theta: Vector, away: Vectors, batch: PyTree, size: int) -> Float64[np.ndarray, "points m"]:
        """Return T_k(δ) = ℓ_k(θ+δ) - its expansion to second order at θ, for δ and -δ of each in `away`."""
        rows = len(jax.tree.leaves(batch)[0])
        return np.asarray(row_remainders(self.model, theta, away, fill_up(batch, size, np.float64)[0]))[:, :rows]

    def fill(self, batch: PyTree, size: int) -> PyTree:
        """Return a batch repeated until it has `size` rows."""
        return repeat_to(batch, size)

    def choose_block(self, places: NumpyPlaces) -> int:
        """Return enough rows for what they cost to outweigh adding up d numbers for each point."""
        most, d = min(SCORED_ROWS, SCORE_EVALUATIONS // places.number), places.points.shape[1]
        return max(most, min(4 * d, 8 * SCORE_EVALUATIONS // places.number))

    def score_prior(self, places: NumpyPlaces) -> JaxScores:
        """Return log p and its gradient at some places."""
        with report_user_errors("log_prior", "theta to be differentiated"):
            return prior_scores(self.model, jax.device_put(places))  # jnp.asarray compiles a program for every shape

    def add_scores(
        self, total: AnyScores, places: NumpyPlaces, batch: PyTree, *, size: int, precision: FloatType
    ) -> AnyScores:
        """Return `total` with the values and gradients of at most `size` rows added, in float64."""
        with report_user_errors("log_likelihood", "theta to be differentiated"):
            cast = jax.tree.map(lambda part: part.astype(precision), places)
            done = add_block(self.model, total, cast, *fill_up(batch, size, precision))
            return jax.block_until_ready(done)  # type: ignore[no-untyped-call]  # blocks must not queue up in memory

    def score_beyond_second_order(
        self, theta: Vector, away: Vectors, batch: PyTree, counts: RowNumbers
    ) -> tuple[RowNumbers, Vectors]:
        """Return Σ c_k T_k(δ) over some rows and its gradient, for each δ in `away`."""
        columns = to_columns(batch, np.float64)
        values, gradients = score_beyond_second_order(self.model, theta, away, columns, counts)
        return np.asarray(values), np.asarray(gradients)

    def identify(self, one: PyTree) -> str:
        """Return a fingerprint of the program that the model is, with its constants."""

        def joint(theta: Array, batch: PyTree) -> tuple[Array, Array]:
            return self.model.log_likelihood(self.model.unravel(theta), batch), self.model.log_prior_at(theta)

        with jax.enable_x64(True):
            program = jax.make_jaxpr(joint)(np.zeros(self.model.dimension), one)
        digest = hashlib.sha256(ADDRESS.sub("", str(program.jaxpr)).encode())
        for constant in program.consts:
            digest.update(np.ascontiguousarray(constant).tobytes())
        return digest.hexdigest()[:16]


@partial(jax.jit, static_argnames=("model",))
def block_sums(model: Model, theta: Array, columns: Columns, counts: Array) -> Sums[Array]:
    """Return sums over the rows of one block, each counted so many times: 0 for a row that only fills it up."""
    if model.predictors is not None:
        return Sums(*predictors.sum_terms(model.predictors, theta, to_rows(columns), counts))

    def value(theta: Array) -> Array:
        return jnp.where(counts > 0, counts * model.log_likelihood_at(theta, columns), 0.0).sum()

    gradient = jax.grad(value)
    return Sums(value(theta), gradient(theta), -jax.jacfwd(gradient)(theta))


@partial(jax.jit, static_argnames=("model",))
def prior_sums(model: Model, theta: Array) -> Sums[Array]:
    """Return log p, its gradient and its negative Hessian."""
    gradient = jax.grad(model.log_prior_at)
    return Sums(model.log_prior_at(theta), gradient(theta), -jax.jacfwd(gradient)(theta))


@partial(jax.jit, static_argnames=("model",))
def block_values(model: Model, thetas: Array, columns: Columns, mask: Array) -> Array:
    """Return Σ ℓ_k(θ) over a block, for each θ."""
    return jax.vmap(lambda theta: jnp.where(mask, model.log_likelihood_at(theta, columns), 0.0).sum())(thetas)


@partial(jax.jit, static_argnames=("model",))
def prior_values(model: Model, thetas: Array) -> Array:
    """Return log p(θ), for each θ."""
    return jax.vmap(model.log_prior_at)(thetas)


def one_row(model: Model, theta: Array, row: PyTree) -> Array:
    """Return ℓ_k(θ) of a single row."""
    return model.log_likelihood(model.unravel(theta), jax.tree.map(lambda leaf: leaf[None], row))[0]


@partial(jax.jit, static_argnames=("model",))
def row_scores(model: Model, theta: Array, batch: PyTree) -> Array:
    """Return ∇ℓ_k of each row."""
    return jax.vmap(jax.grad(partial(one_row, model)), (None, 0))(theta, batch)


@partial(jax.jit, static_argnames=("model",))
def row_derivatives(model: Model, theta: Array, batch: PyTree) -> Array:
    """Return ∇ℓ_k, then the upper triangle of -∇²ℓ_k, of each row."""
    gradient = jax.grad(partial(one_row, model))
    upper = np.triu_indices(model.dimension)

    def both(row: PyTree) -> Array:
        return jnp.concatenate([gradient(theta, row), -jax.jacfwd(gradient)(theta, row)[upper]])

    return jax.vmap(both)(batch)


@partial(jax.jit, static_argnames=("model",))
def row_curvatures(model: Model, theta: Array, batch: PyTree, factor: Array) -> Array:
    """Return -Fᵀ ∇²ℓ_k F of each row: derivatives in whitened coordinates."""

    def whitened(z: Array, row: PyTree) -> Array:
        return one_row(model, theta + factor @ z, row)

    return -jax.vmap(jax.jacfwd(jax.grad(whitened)), (None, 0))(jnp.zeros(factor.shape[1]), batch)


@partial(jax.jit, static_argnames=("model",))
def sizes_along(model: Model, theta: Array, batch: PyTree, factor: Array) -> tuple[Array, Array]:
    """Return h_k = Σ_j |f_jᵀ ∇²ℓ_k f_j| over the columns of F, and the j of the largest.

    h_k is the trace of a row's whitened curvature if that has one sign. Second derivatives along d directions cost d
    evaluations of the rows, their whole matrix d times as much.
    """

    def bend(direction: Array) -> Array:
        def slope(at: Array) -> Array:
            return jax.jvp(lambda x: model.log_likelihood(model.unravel(x), batch), (at,), (direction,))[1]

        return jax.jvp(slope, (theta,), (direction,))[1]

    def add(so_far: tuple[Array, Array, Array], along: tuple[Array, Array]) -> tuple[tuple[Array, Array, Array], None]:
        total, largest, most = so_far
        own = jnp.abs(bend(along[0]))
        return (total + own, jnp.maximum(largest, own), jnp.where(own > largest, along[1], most)), None

    zero = jnp.zeros(len(jax.tree.leaves(batch)[0]))
    directions = (factor.T, jnp.arange(factor.shape[1]))
    total, _, most = jax.lax.scan(add, (zero, zero, jnp.zeros(zero.shape, int)), directions)[0]
    return total, most


@partial(jax.jit, static_argnames=("model",))
def row_remainders(model: Model, theta: Array, away: Array, columns: Columns) -> Array:
    """Return T_k(δ) for every δ in `away`, then T_k(-δ), `(2P, m)`; both share two derivatives along δ."""
    if model.predictors is not None:
        return predictors.expand_terms(model.predictors, theta, away, to_rows(columns))

    def terms(at: Array) -> Array:
        return model.log_likelihood_at(at, columns)

    def expand(delta: Array) -> tuple[Array, Array]:
        (value, slope), (_, bend) = jax.jvp(lambda at: jax.jvp(terms, (at,), (delta,)), (theta,), (delta,))
        even = value + bend / 2
        return terms(theta + delta) - even - slope, terms(theta - delta) - even + slope

    return jnp.concatenate(jax.vmap(expand)(away))


@partial(jax.jit, static_argnames=("model",))
def step_scores(model: Model, theta: Array, batch: PyTree) -> Array:
    """Return ∇ℓ_k of each step, by forward derivatives: there are many more steps than parameters."""
    return jax.jacfwd(lambda x: jnp.asarray(model.log_likelihood(model.unravel(x), batch)))(theta)


@partial(jax.jit, static_argnames=("model", "curvature"))
def step_derivatives(model: Model, theta: Array, units: Stretch, *, curvature: bool) -> Array:
    """Return what each step of each unit adds to gradient and curvature, `(m, length, c)`."""
    rows, columns = np.triu_indices(model.dimension)

    def one(batch: PyTree) -> Array:
        def terms(x: Array) -> Array:
            return jnp.asarray(model.log_likelihood(model.unravel(x), batch))

        scores = jax.jacfwd(terms)
        if not curvature:
            return scores(theta)
        return jnp.concatenate([scores(theta), -jax.jacfwd(scores)(theta)[:, rows, columns]], axis=-1)

    return jax.vmap(one)(units.rows)


@partial(jax.jit, static_argnames=("model",))
def add_block(model: Model, total: JaxScores, places: Places[Array], columns: Columns, counted: Array) -> JaxScores:
    """Return `total` and what one block of rows adds to it; `counted` is False, or 0, for rows that only fill it up."""
    if model.predictors is not None:
        rows = to_rows(columns)
        values = partial(predictors.sum_values, model.predictors, rows=rows, counted=counted)
        slopes = partial(predictors.sum_gradients, model.predictors, rows=rows, counted=counted)
        found = ScoreSums(values(places.begun), slopes(places.points).astype(jnp.float64), values(places.proposals))
        return jax.tree.map(jnp.add, total, found)

    def value(theta: Array) -> Array:
        # Rows are added up in float64: log ratios are small differences of such sums.
        return predictors.count_terms(model.log_likelihood_at(theta, columns), counted).sum(dtype=jnp.float64)

    return jax.tree.map(jnp.add, total, score_at(value, places))


@partial(jax.jit, static_argnames=("model",))
def score_beyond_second_order(
    model: Model, theta: Array, away: Array, columns: Columns, counts: Array
) -> tuple[Array, Array]:
    """Return Σ c_k T_k(δ) and its gradient, for each δ in `away`: ℓ_k(θ+δ) less its expansion to second order at θ."""
    here = block_sums(model, theta, columns, counts)
    none = away[:0]
    zero = ScoreSums(jnp.zeros(len(away)), jnp.zeros(away.shape), jnp.zeros(0))
    there = add_block(model, zero, Places(theta + away, none, none), columns, counts)
    bent = away @ here.curvature
    values = there.log_density - here.value - away @ here.gradient + 0.5 * (bent * away).sum(1)
    return values, there.gradient - here.gradient + bent


@partial(jax.jit, static_argnames=("model",))
def prior_scores(model: Model, places: Places[Array]) -> JaxScores:
    """Return the log prior and its gradient."""
    return score_at(lambda theta: model.log_prior_at(theta).astype(jnp.float64), places)


def score_at(value: Callable[[Array], Array], places: Places[Array]) -> JaxScores:
    """Return gradients at the points, and values."""
    density, gradient = jax.vmap(jax.value_and_grad(value))(places.points)
    if len(places.starts):
        density = jax.vmap(value)(places.starts)
    return ScoreSums(density, gradient.astype(jnp.float64), jax.vmap(value)(places.proposals))
