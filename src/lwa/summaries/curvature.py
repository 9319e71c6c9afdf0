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
from lwa.models.model import Model
from lwa.reference import Reference
from lwa.rows import Batch
from lwa.rows.slots import repeat_to
from lwa.summaries.summary import Gathering, Statistic, Summary


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

        def per_row(batch: Batch) -> NDArray[np.float64]:
            bend = np.asarray(row_curvatures(model, reference.theta, jax.tree.map(double, batch), factor))
            return N * bend[:, rows, columns] * weight

        return Statistic(per_row, full, np.ones_like(full))


def scores(model: Model, reference: Reference) -> Callable[[Batch], NDArray[np.float64]]:
    """∇ℓ_k(θ̂) of each row of a batch, `(m, d)`: what the calibrated target carries along with U."""

    def per_row(batch: Batch) -> NDArray[np.float64]:
        return np.asarray(row_scores(model, reference.theta, jax.tree.map(double, batch)))

    return per_row


def row_sizes(model: Model, reference: Reference, batch: Batch, fill: int) -> NDArray[np.float64]:
    """h_k: the Frobenius norm of each row's whitened curvature. Batches are filled up, so that one program serves."""
    rows = len(jax.tree.leaves(batch)[0])
    filled = jax.tree.map(double, repeat_to(batch, fill))
    bend = row_norms(model, reference.theta, filled, reference.factor)
    return np.asarray(bend)[:rows]


def double(leaf: NDArray[Any]) -> NDArray[Any]:
    """Floats in float64, other types as they are."""
    return leaf.astype(np.float64) if np.issubdtype(leaf.dtype, np.floating) else leaf


def one_row(model: Model, theta: Array, row: Any) -> Array:
    """ℓ_k(θ) of a single row."""
    return model.log_likelihood(model.unravel(theta), jax.tree.map(lambda leaf: leaf[None], row))[0]


@partial(jax.jit, static_argnames=("model",))
def row_scores(model: Model, theta: Array, batch: Any) -> Array:
    """∇ℓ_k, one a row."""
    return jax.vmap(jax.grad(partial(one_row, model)), (None, 0))(theta, batch)


@partial(jax.jit, static_argnames=("model",))
def row_norms(model: Model, theta: Array, batch: Any, factor: Array) -> Array:
    """‖Fᵀ ∇²ℓ_k F‖, one a row."""
    return jnp.sqrt(jnp.sum(row_curvatures(model, theta, batch, factor) ** 2, axis=(1, 2)))


@partial(jax.jit, static_argnames=("model",))
def row_curvatures(model: Model, theta: Array, batch: Any, factor: Array) -> Array:
    """-Fᵀ ∇²ℓ_k F, one a row: derivatives in whitened coordinates."""

    def whitened(z: Array, row: Any) -> Array:
        return one_row(model, theta + factor @ z, row)

    return -jax.vmap(jax.jacfwd(jax.grad(whitened)), (None, 0))(jnp.zeros(len(factor)), batch)
