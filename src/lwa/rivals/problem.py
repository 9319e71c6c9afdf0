"""What every rival is given: the model, all rows, and the Gaussian at the mode where there is one."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from lwa.models.model import Model
from lwa.models.on_host import log_prior, row_terms
from lwa.reference import Reference, block_size
from lwa.rows.slots import double
from lwa.rows.source import Rows


class Gaussian(NamedTuple):
    """The posterior to second order at θ̂: Normal(θ̂, F Fᵀ), and what all rows say there."""

    theta: Any  # θ̂
    gradient: Any  # g_N, of the log-likelihood alone
    curvature: Any  # H_N, of the log-likelihood alone
    factor: Any  # F
    whitening: Any  # F⁻¹


def gaussian_of(reference: Reference) -> Gaussian:
    """As arrays of the device."""
    held = (reference.theta, reference.gradient, reference.curvature, reference.factor, reference.whitening)
    return Gaussian(*(jnp.asarray(part) for part in held))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """All that a step may read. Everything is in float64, rows apart, which are as the user has them.

    Rows (or units, where these are groups or stretches of a series) are held in a random order: any run of them is a
    random subset.
    """

    model: Model = field(metadata={"static": True})
    length: int = field(metadata={"static": True})  # N, rows or units
    rows: Any  # leaves (N, ...)
    reads: Any  # rows in a unit, on average
    gaussian: Gaussian | None = None
    own: Any = None  # what `Rival.prepare` found

    @property
    def block(self) -> int:
        """Rows in one evaluation of a pass over all of them."""
        return min(self.length, block_size(self.rows))

    def take(self, indices: Array) -> Any:
        """Some rows."""
        return jax.tree.map(lambda leaf: leaf[indices], self.rows)

    def terms(self, theta: Array, rows: Any) -> Array:
        """log f(Y_k|θ) of some rows, in float64."""
        if self.model.host:
            return jnp.asarray(row_terms(self.model, np.asarray(theta), jax.tree.map(np.asarray, rows)))
        rows = jax.tree.map(double, rows)
        return self.model.log_likelihood(self.model.unravel(theta), rows).astype(jnp.float64)

    def log_prior(self, theta: Array) -> Array:
        """log p(θ)."""
        if self.model.host:
            return jnp.asarray(log_prior(self.model, np.asarray(theta)))
        return self.model.log_prior_at(theta).astype(jnp.float64)

    def log_likelihood(self, theta: Array, start: Any = 0, stop: Any = None) -> Array:
        """Σ log f(Y_k|θ) over rows `start` to `stop`, all of them unless told otherwise."""
        stop, size = self.length if stop is None else stop, self.block

        def add(i: Array, total: Array) -> Array:
            begin = start + i * size
            first = jnp.minimum(begin, self.length - size)  # the last block overlaps the one before it
            rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), self.rows)
            place = first + jnp.arange(size)
            return total + jnp.where((place >= begin) & (place < stop), self.terms(theta, rows), 0.0).sum()

        return lax.fori_loop(0, -(-(stop - start) // size), add, jnp.zeros(()))


def hold(rows: Rows, order: np.ndarray) -> Any:
    """All rows in this order, on the device."""
    return jax.tree.map(jnp.asarray, rows.take(order))
