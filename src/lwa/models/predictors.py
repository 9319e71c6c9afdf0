"""Log-likelihoods that depend on θ through a few numbers per row, each linear in θ: z_k = Z_k θ.

Gradient and curvature of such a model need no derivative in each of d parameters: ∇²ℓ_k = Z_kᵀ h_k Z_k with a small
h_k, and Z_k is mostly zeros if a factor has many levels.
"""

from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree


class Predictors(ABC):
    """Linear predictors of a model's rows; θ is the flat, unconstrained vector."""

    @abstractmethod
    def at(self, theta: Array, rows: PyTree) -> Array:
        """Return z of each row, `(n, m)`, linear in θ but for an offset; for many θ, `(d, M)`, it is `(n, m, M)`."""

    @abstractmethod
    def terms(self, z: Array, rows: PyTree) -> Array:
        """Return log f(Y_k|z_k), `(n,)`; for z `(n, m, M)`, and rows with one more axis, it is `(n, M)`."""

    @abstractmethod
    def gram(self, h: Array, rows: PyTree) -> Array:
        """Return Σ Z_kᵀ h_k Z_k, `(d, d)`, for h `(n, m, m)`."""


def differentiate_terms(predictors: Predictors, z: Array, rows: PyTree) -> tuple[Array, Array, Array]:
    """Return ℓ_k, its gradient `(n, m)` and negative Hessian `(n, m, m)` in z_k. No term depends on another row's z."""

    def slope(z: Array) -> Array:
        return jax.grad(lambda z: predictors.terms(z, rows).sum())(z)

    units = jnp.eye(z.shape[1], dtype=z.dtype)
    bend = jnp.stack([jax.jvp(slope, (z,), (jnp.broadcast_to(unit, z.shape),))[1] for unit in units], axis=-1)
    return predictors.terms(z, rows), slope(z), -bend


def sum_terms(predictors: Predictors, theta: Array, rows: PyTree, counts: Array) -> tuple[Array, Array, Array]:
    """Return value, gradient and negative Hessian of Σ c_k ℓ_k; a row that counts 0 adds nothing, whatever it holds."""
    z, pull = jax.vjp(lambda theta: predictors.at(theta, rows), theta)
    values, slopes, bends = differentiate_terms(predictors, z, rows)

    def counted(numbers: Array) -> Array:
        weight = counts.reshape(-1, *(1 for _ in numbers.shape[1:]))
        return jnp.where(weight > 0, weight * numbers, 0.0)

    return counted(values).sum(), pull(counted(slopes))[0], predictors.gram(counted(bends), rows)


def lay_side_by_side(predictors: Predictors, thetas: Array, rows: PyTree) -> tuple[Array, PyTree]:
    """Return z of many θ, `(n, m, M)`, and rows with an axis for them: a row finds all coefficients in one place."""
    return predictors.at(thetas.T, rows), jax.tree.map(lambda leaf: leaf[..., None], rows)


def expand_terms(predictors: Predictors, theta: Array, away: Array, rows: PyTree) -> Array:
    """Return T_k(δ), ℓ_k(θ+δ) less its expansion to second order, for every δ in `away`, then for -δ: `(2P, n)`."""
    z, wide = lay_side_by_side(predictors, jnp.broadcast_to(theta, away.shape), rows)
    along = lay_side_by_side(predictors, theta + away, rows)[0] - z

    def terms(z: Array) -> Array:
        return predictors.terms(z, wide)

    (value, slope), (_, bend) = jax.jvp(lambda at: jax.jvp(terms, (at,), (along,)), (z,), (along,))
    even = value + bend / 2
    return jnp.concatenate([(terms(z + along) - even - slope).T, (terms(z - along) - even + slope).T])


def count_terms(terms: Array, counted: Array) -> Array:
    """Return terms that count so many times, or as often as `counted` is true: once or never, whatever they are."""
    if counted.dtype == bool:
        return jnp.where(counted, terms, 0.0)
    return jnp.where(counted > 0, counted * terms, 0.0)


def sum_values(predictors: Predictors, thetas: Array, *, rows: PyTree, counted: Array) -> Array:
    """Return Σ ℓ_k at many θ, `(M,)`, over the rows that are counted, in float64."""
    z, wide = lay_side_by_side(predictors, thetas, rows)
    return count_terms(predictors.terms(z, wide), counted[:, None]).sum(0, dtype=jnp.float64)


def sum_gradients(predictors: Predictors, thetas: Array, *, rows: PyTree, counted: Array) -> Array:
    """Return Σ ∇ℓ_k at many θ, `(M, d)`, over the rows that are counted."""
    z, wide = lay_side_by_side(predictors, thetas, rows)

    def total(z: Array) -> Array:
        return count_terms(predictors.terms(z, wide), counted[:, None]).sum()

    _, pull = jax.vjp(lambda thetas: predictors.at(thetas, rows), thetas.T)
    return pull(jax.grad(total)(z))[0].T
