"""What every rival is given: the model, all rows, and the Gaussian at the mode where there is one."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from lwa.kernels.kernel import MetropolisKernel
from lwa.kernels.random_walk import RandomWalk
from lwa.models.model import Model
from lwa.models.on_host import log_prior, row_terms
from lwa.rows.protocol import Rows
from lwa.targets.reference import Reference, block_size, in_blocks


class Gaussian(NamedTuple):
    """The posterior to second order at θ̂: Normal(θ̂, F Fᵀ), and what all rows say there."""

    theta: Any  # θ̂
    gradient: Any  # g_N, of the log-likelihood alone
    curvature: Any  # H_N, of the log-likelihood alone
    factor: Any  # F
    whitening: Any  # F⁻¹

    @property
    def precision(self) -> Any:
        """(F Fᵀ)⁻¹."""
        return self.whitening.T @ self.whitening


def gaussian_of(reference: Reference) -> Gaussian:
    """As arrays of the device."""
    held = (reference.theta, reference.gradient, reference.curvature, reference.factor, reference.whitening)
    return Gaussian(*(jnp.asarray(part) for part in held))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """All that a step may read. Rows are as the user has them, and cast to the working precision where they are read.

    Rows (or units, where these are groups or stretches of a series) are held in a random order: any run of them is a
    random subset.
    """

    model: Model = field(metadata={"static": True})
    length: int = field(metadata={"static": True})  # N, rows or units
    rows: Any  # leaves (N, ...)
    reads: Any  # rows in a unit, on average
    gaussian: Gaussian | None = None
    kernel: MetropolisKernel = field(default=RandomWalk(), metadata={"static": True})  # Q, of those that have one
    own: Any = None  # what `Rival.prepare` found
    dtype: Any = field(default=np.float64, metadata={"static": True})  # of single terms; their sums are in float64

    @property
    def block(self) -> int:
        """Rows in one evaluation of a pass over all of them: few enough to stay in a core's cache."""
        return min(self.length, max(1, block_size(self.rows) // 4))

    def take(self, indices: Array) -> Any:
        """Some rows."""
        return jax.tree.map(lambda leaf: leaf[indices], self.rows)

    def terms(self, theta: Array, rows: Any) -> Array:
        """log f(Y_k|θ) of some rows, in float64."""
        if self.model.host:
            return jnp.asarray(row_terms(self.model, np.asarray(theta), jax.tree.map(np.asarray, rows)))
        columns = jax.tree.map(lambda leaf: in_precision(leaf, self.dtype), rows)
        theta = self.model.unravel(theta.astype(self.dtype))
        return self.model.log_likelihood(theta, columns).astype(jnp.float64)

    def log_prior(self, theta: Array) -> Array:
        """log p(θ)."""
        if self.model.host:
            return jnp.asarray(log_prior(self.model, np.asarray(theta)))
        return self.model.log_prior_at(theta).astype(jnp.float64)

    def log_likelihood(self, theta: Array, start: Any = 0, stop: Any = None) -> Array:
        """Σ log f(Y_k|θ) over rows `start` to `stop`, all of them unless told otherwise."""
        stop, size = self.length if stop is None else stop, self.block
        if self.model.host:
            rows = jax.tree.map(lambda leaf: np.asarray(leaf)[int(start) : int(stop)], self.rows)
            return jnp.asarray(sum(row_terms(self.model, np.asarray(theta), part).sum() for part in in_blocks(rows)))

        def add(i: Array, total: Array) -> Array:
            begin = start + i * size
            first = jnp.minimum(begin, self.length - size)  # the last block overlaps the one before it
            rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), self.rows)
            place = first + jnp.arange(size)
            return total + jnp.where((place >= begin) & (place < stop), self.terms(theta, rows), 0.0).sum()

        return lax.fori_loop(0, -(-(stop - start) // size), add, jnp.zeros(()))


TRIED = 4
ROUNDING = 0.01
"""Error of a log acceptance ratio that float32 may bring: it changes one decision in 200 at the most."""


def choose_precision(key: Array, problem: Problem) -> Problem:
    """Terms in float32 where the log-likelihood ratio between the mode and draws of its Gaussian hardly feels it."""
    if problem.gaussian is None or problem.model.host:
        return problem
    single = replace(problem, dtype=np.float32)
    z = jax.random.normal(key, (TRIED, len(problem.gaussian.theta)))
    tried = jnp.concatenate([problem.gaussian.theta[None], problem.gaussian.theta + z @ problem.gaussian.factor.T])
    double_sums, single_sums = (jnp.stack([log_likelihood(theta, one) for theta in tried]) for one in (problem, single))
    error = jnp.abs((single_sums - single_sums[0]) - (double_sums - double_sums[0])).max()
    return single if error <= ROUNDING else problem


@jax.jit
def log_likelihood(theta: Array, problem: Problem) -> Array:
    """Σ log f(Y_k|θ) over all rows, from one pass."""
    return problem.log_likelihood(theta)


def in_precision(leaf: Array, dtype: Any) -> Array:
    """Floats in the working precision, other types as they are."""
    return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def hold(rows: Rows, order: np.ndarray) -> Any:
    """All rows in this order, on the device."""
    return jax.tree.map(jnp.asarray, rows.take(order))
