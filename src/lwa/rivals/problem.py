"""What every rival is given: the model, all rows, and the Gaussian at the mode if there is one."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float64, Int, PyTree

from lwa.kernels.kernel import MetropolisKernel
from lwa.kernels.random_walk import RandomWalk
from lwa.models.likelihood import Likelihood, block_size, find_likelihood
from lwa.models.model import Model
from lwa.targets.reference import Reference


class GaussianAtMode(NamedTuple):
    """The posterior to second order at θ̂, Normal(θ̂, F Fᵀ), and the derivatives of all rows there."""

    theta: Float64[Array, " d"]  # θ̂
    gradient: Float64[Array, " d"]  # g_N, of the log-likelihood alone
    curvature: Float64[Array, "d d"]  # H_N, of the log-likelihood alone
    factor: Float64[Array, "d d"]  # F
    whitening: Float64[Array, "d d"]  # F⁻¹

    @property
    def precision(self) -> Float64[Array, "d d"]:
        """The inverse covariance, (F Fᵀ)⁻¹."""
        return self.whitening.T @ self.whitening


def build_gaussian(reference: Reference) -> GaussianAtMode:
    """Return the Gaussian of a reference as arrays of the device."""
    return GaussianAtMode(*(jnp.asarray(getattr(reference, name)) for name in GaussianAtMode._fields))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RivalProblem:
    """All that a step may read. Rows keep the user's types, and are cast to the working precision as they are read.

    Rows (or units, if these are groups or segments of a series) are held in a random order: any run of them is a random
    subset.
    """

    model: Model = field(metadata={"static": True})
    length: int = field(metadata={"static": True})  # N, rows or units
    rows: PyTree  # leaves (N, ...)
    reads: float  # rows per unit, on average
    gaussian: GaussianAtMode | None = None
    kernel: MetropolisKernel = field(default=RandomWalk(), metadata={"static": True})  # Q, of rivals that propose
    own: PyTree = None  # what `Rival.prepare` found
    dtype: type[np.floating] = field(default=np.float64, metadata={"static": True})  # of terms; sums are in float64

    @property
    def likelihood(self) -> Likelihood:
        """How terms are computed: by JAX or by Python."""
        return find_likelihood(self.model)

    @property
    def mode(self) -> GaussianAtMode:
        """The Gaussian at the mode, for methods that need one."""
        assert self.gaussian is not None
        return self.gaussian

    @property
    def block(self) -> int:
        """Rows in one evaluation of a pass over all of them: few enough to stay in a core's cache."""
        return min(self.length, max(1, block_size(self.rows) // 4))

    def take(self, indices: Int[Array, " m"]) -> PyTree:
        """Return the rows at these positions."""
        return jax.tree.map(lambda leaf: leaf[indices], self.rows)

    def terms(self, theta: Float64[Array, " d"], rows: PyTree) -> Float64[Array, " m"]:
        """Return log f(Y_k|θ) of some rows."""
        return self.likelihood.compute_terms(theta, rows, self.dtype)

    def log_prior(self, theta: Float64[Array, " d"]) -> Float64[Array, ""]:
        """Return log p(θ) in float64."""
        return self.likelihood.compute_log_prior(theta)

    def log_likelihood(
        self, theta: Float64[Array, " d"], start: int | Array = 0, stop: int | Array | None = None
    ) -> Float64[Array, ""]:
        """Return Σ log f(Y_k|θ) over rows `start` to `stop` - 1, by default over all of them."""
        stop = self.length if stop is None else stop
        return self.likelihood.sum_between(theta, self.rows, start=start, stop=stop, size=self.block, dtype=self.dtype)


TRIED_DRAWS = 4
"""Draws of the Gaussian at the mode that are tried in both precisions."""
MOST_ROUNDING = 0.01
"""Error of a log acceptance ratio that float32 may cause: it changes one decision in 200 at most."""


def choose_term_precision(key: Array, problem: RivalProblem) -> RivalProblem:
    """Choose float32 for terms if it hardly changes log-likelihood ratios of draws of the Gaussian to the mode."""
    if problem.gaussian is None or np.float32 not in problem.likelihood.precisions:
        return problem
    single = replace(problem, dtype=np.float32)
    z = jax.random.normal(key, (TRIED_DRAWS, len(problem.gaussian.theta)))
    tried = jnp.concatenate([problem.gaussian.theta[None], problem.gaussian.theta + z @ problem.gaussian.factor.T])
    double, single_too = (jnp.stack([full_log_likelihood(theta, one) for theta in tried]) for one in (problem, single))
    error = jnp.abs((single_too - single_too[0]) - (double - double[0])).max()
    return single if error <= MOST_ROUNDING else problem


@jax.jit
def full_log_likelihood(theta: Float64[Array, " d"], problem: RivalProblem) -> Float64[Array, ""]:
    """Return Σ log f(Y_k|θ) over all rows, from one pass."""
    return problem.log_likelihood(theta)


def always_compiled[**P, R](function: Callable[P, R], static: tuple[str, ...] = ()) -> Callable[P, R]:
    """Compile a part of a step that does not call the model, even if the step runs in Python (`jax.disable_jit()`)."""
    compiled = jax.jit(function, static_argnames=static)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.disable_jit(False):
            return compiled(*args, **kwargs)

    return call
