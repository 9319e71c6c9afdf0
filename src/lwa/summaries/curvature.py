"""What each row adds to gradient and curvature at the reference point: the statistics of the calibrated target."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.models import numerical
from lwa.models.model import Model
from lwa.rows import Batch
from lwa.rows.slots import double, repeat_to
from lwa.rows.units import unit_length
from lwa.summaries.summary import Gathering, Statistic, Summary
from lwa.targets.reference import Reference

CHEAP = 200
"""Numbers a row, up to which filling up costs less than another program."""
PART, MOST_ROWS = 2**22, 4096
"""Numbers that per-row curvatures may take at once, 32 MiB, and rows."""


@dataclass(frozen=True)
class Curvature(Summary):
    """Per-row curvature at θ̂, whitened: a subset is representative when its curvature is that of all rows.

    S(Y_k) = N F^T (-∇²ℓ_k(θ̂)) F with F Fᵀ the inverse of the full curvature, so that s_N is the identity (less the
    prior's share); off-diagonal entries times √2, so that ‖·‖ is the Frobenius norm. A distance below 1 keeps the
    subset's own curvature positive definite.
    """

    def gather(self) -> Gathering:
        """It is computed from the reference, which has made its passes already."""
        raise InputError("summary=Curvature() needs a reference point. Pass target='calibrated' with it.")

    def at(self, model: Model, reference: Reference, N: int) -> Statistic:
        """The statistic at a reference point."""
        factor = reference.factor
        rows, columns = np.triu_indices(len(factor))
        weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
        full = (factor.T @ reference.curvature @ factor)[rows, columns] * weight

        def whitened(part: Any) -> NDArray[np.float64]:
            if model.host:
                bend = -factor.T @ numerical.row_derivatives(model, reference.theta, part).hessian @ factor
            else:
                bend = np.asarray(row_curvatures(model, reference.theta, part, factor))
            return N * bend[:, rows, columns] * weight

        def per_row(batch: Batch) -> NDArray[np.float64]:
            return in_parts(whitened, batch, len(full), filled=not model.host)

        return Statistic(per_row, full, np.ones_like(full))


def row_sizes(
    model: Model, reference: Reference, batch: Batch, fill: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """h_k of each row of a batch, and the direction that it bends most. One program serves: batches are filled up."""
    if model.host:
        along = numerical.row_sizes(model, reference.theta, batch, reference.factor)
        return along.sum(0), along.argmax(0)
    rows = len(jax.tree.leaves(batch)[0])
    filled = jax.tree.map(double, repeat_to(batch, fill))
    size, most = sizes_along(model, reference.theta, filled, reference.factor)
    return np.asarray(size)[:rows], np.asarray(most)[:rows]


def in_parts(
    function: Callable[[Any], NDArray[np.float64]], batch: Batch, width: int, *, filled: bool = True
) -> NDArray[np.float64]:
    """`function` of a batch in float64, `(m, width)`, on so few rows at a time that temporary matrices stay small.

    Parts are filled up to one size, so that one program serves the first subsets and every page of candidates; where
    rows are costly to differentiate, to the next power of two. Python needs no filling.
    """
    batch = jax.tree.map(double, batch)
    m, length = len(jax.tree.leaves(batch)[0]), unit_length(batch)
    part = max(1, int(np.clip(PART // width, 64, MOST_ROWS)) // length)
    if width > CHEAP:
        part = min(part, 1 << (m - 1).bit_length())
    if m == part:
        return function(batch)
    found = np.empty((m, width))
    for start in range(0, m, part):
        rows = jax.tree.map(lambda leaf, start=start: leaf[start : start + part], batch)
        own = min(part, m - start)
        found[start : start + own] = function(repeat_to(rows, part) if filled else rows)[:own]
    return found


def one_row(model: Model, theta: Array, row: Any) -> Array:
    """ℓ_k(θ) of a single row."""
    return model.log_likelihood(model.unravel(theta), jax.tree.map(lambda leaf: leaf[None], row))[0]


def carried_of(model: Model, theta: NDArray[np.float64], batch: Any, *, curvature: bool) -> NDArray[np.float64]:
    """∇ℓ_k of each row, then, where asked for, the upper triangle of -∇²ℓ_k, `(m, c)`."""
    if not curvature:
        return np.asarray((numerical.row_scores if model.host else row_scores)(model, theta, batch))
    if not model.host:
        return np.asarray(row_derivatives(model, theta, batch))
    _, score, bend = numerical.row_derivatives(model, theta, batch)
    rows, columns = np.triu_indices(model.dimension)
    return np.concatenate([score, -bend[:, rows, columns]], axis=1)


@partial(jax.jit, static_argnames=("model",))
def row_scores(model: Model, theta: Array, batch: Any) -> Array:
    """∇ℓ_k, one a row."""
    return jax.vmap(jax.grad(partial(one_row, model)), (None, 0))(theta, batch)


@partial(jax.jit, static_argnames=("model",))
def row_derivatives(model: Model, theta: Array, batch: Any) -> Array:
    """∇ℓ_k, then the upper triangle of -∇²ℓ_k, one a row."""
    gradient = jax.grad(partial(one_row, model))
    upper = np.triu_indices(model.dimension)

    def both(row: Any) -> Array:
        return jnp.concatenate([gradient(theta, row), -jax.jacfwd(gradient)(theta, row)[upper]])

    return jax.vmap(both)(batch)


@partial(jax.jit, static_argnames=("model",))
def sizes_along(model: Model, theta: Array, batch: Any, factor: Array) -> tuple[Array, Array]:
    """h_k = Σ_j |f_jᵀ ∇²ℓ_k f_j| over the columns of F, the trace of a row's whitened curvature if that has one sign;
    and the j of the largest.

    Second derivatives along d directions cost d evaluations of the rows, their whole matrix d times as much.
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
def row_curvatures(model: Model, theta: Array, batch: Any, factor: Array) -> Array:
    """-Fᵀ ∇²ℓ_k F, one a row: derivatives in whitened coordinates."""

    def whitened(z: Array, row: Any) -> Array:
        return one_row(model, theta + factor @ z, row)

    return -jax.vmap(jax.jacfwd(jax.grad(whitened)), (None, 0))(jnp.zeros(factor.shape[1]), batch)
