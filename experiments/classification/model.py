"""The model of both samplers, the classifier that it makes, its exact error, and how far a row's log ratio reaches."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

import lwa

SHARE = np.array([1.0, 0.5])
"""Σ(σ) = diag(σ², σ²/2) is σ² times this."""
PRIOR_SD = 2.0
"""Of each entry of μ_j; log σ_j has sd 1. Wide beside the data, which lie within two of the origin."""
NODES = np.linspace(-8.0, 8.0, 257)
"""Of the quadrature over the second coordinate, in sds."""

type Theta = Mapping[str, Any]


def vector_of(theta: Theta) -> NDArray[np.float64]:
    """θ as `(..., 6)`: both entries of μ₁ and of μ₂, then σ₁ and σ₂."""
    mu1, mu2, sigma1, sigma2 = (np.asarray(theta[name], np.float64) for name in ("mu1", "mu2", "sigma1", "sigma2"))
    return np.concatenate([mu1, mu2, sigma1[..., None], sigma2[..., None]], axis=-1)


def theta_of(vector: NDArray[np.float64]) -> dict[str, Any]:
    """By name, from a vector of six."""
    return {"mu1": vector[:2], "mu2": vector[2:4], "sigma1": vector[4], "sigma2": vector[5]}


def truth(sigma: float) -> NDArray[np.float64]:
    """θ*, with the paper's means."""
    return np.array([-1.0, 0.0, 1.0, 0.0, sigma, sigma])


def log_density(mu: Any, sigma: Any, y1: Any, y2: Any) -> Any:
    """log f(y | μ, σ) of N(μ, Σ(σ)), but for a constant."""
    return -((y1 - mu[0]) ** 2 / 2 + (y2 - mu[1]) ** 2) / sigma**2 - 2 * jnp.log(sigma)


def log_likelihood(theta: Theta, rows: Mapping[str, Any]) -> Any:
    """Each row given its class, I = 0 or 1."""
    first, second = (log_density(theta[f"mu{j}"], theta[f"sigma{j}"], rows["y1"], rows["y2"]) for j in (1, 2))
    return jnp.where(rows["class"] == 0, first, second)


def log_prior(theta: Theta) -> Any:
    """Normal means and log-normal sds."""
    means = -sum(jnp.sum(theta[name] ** 2) for name in ("mu1", "mu2")) / (2 * PRIOR_SD**2)
    return means - sum(jnp.log(s) + jnp.log(s) ** 2 / 2 for s in (theta["sigma1"], theta["sigma2"]))


MODEL = lwa.Model(
    log_likelihood,
    log_prior,
    init=theta_of(truth(1.0)),
    constraints={"sigma1": "positive", "sigma2": "positive"},
)
PROPOSAL = lwa.kernels.Blockwise([["mu1", "sigma1"], ["mu2", "sigma2"]], target_accept=0.3)
"""The paper's, one class at a time: a walk on log σ is its σ′ = exp(ϱ e) σ, the Hastings ratio being the Jacobian."""


def prior_draws(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Starts, `(count, 6)`."""
    normal = rng.normal(size=(count, 6))
    return np.hstack([PRIOR_SD * normal[:, :4], np.exp(normal[:, 4:])])


@partial(jax.jit, static_argnames="size")
def mistakes(theta: Any, rows: Any, first: Any, size: int) -> Any:
    """Rows of a stretch whose class the maximum-likelihood classifier gets wrong."""
    stretch = {name: jax.lax.dynamic_slice_in_dim(column, first, size) for name, column in rows.items()}
    one, two = (log_density(theta[f"mu{j}"], theta[f"sigma{j}"], stretch["y1"], stretch["y2"]) for j in (1, 2))
    return jnp.sum((two > one) != (stretch["class"] != 0))


def error_rate(vector: NDArray[np.float64], rows: Mapping[str, Any], size: int) -> float:
    """Share of the rows that are put into the wrong class."""
    theta = jax.tree.map(jnp.float32, theta_of(vector))
    N = len(rows["class"])
    return sum(int(mistakes(theta, rows, first, size)) for first in range(0, N, size)) / N


def bayes_error(sigma: float) -> float:
    """Φ(-1/σ): at θ* the classes are told apart by the sign of y₁, one sd of which is σ."""
    return float(ndtr(-1.0 / sigma))


def expected_error(vectors: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Error rates on infinitely many rows of the classifiers at θ, `(..., 6)`.

    Given y₂ the log ratio of both densities is a y₁² + b y₁ + c, and class 2 is chosen between its roots, or outside of
    them: a normal probability. Over y₂ it is the trapezoidal rule, since roots that meet make no polynomial.
    """
    mu11, mu12, mu21, mu22, s1, s2 = (part[..., None] for part in np.moveaxis(vectors, -1, 0))
    y2, weights = NODES * sigma * np.sqrt(SHARE[1]), np.exp(-(NODES**2) / 2)
    a = 0.5 / s2**2 - 0.5 / s1**2
    a = np.where(np.abs(a) < 1e-9, 1e-9, a)  # a straight border is a parabola's limit
    b = mu11 / s1**2 - mu21 / s2**2
    c = (mu21**2 / 2 + (y2 - mu22) ** 2) / s2**2 - (mu11**2 / 2 + (y2 - mu12) ** 2) / s1**2 + 2 * np.log(s2 / s1)
    apart = b**2 - 4 * a * c
    half = -0.5 * (b + np.where(b >= 0, 1.0, -1.0) * np.sqrt(np.maximum(apart, 0.0)))
    roots = np.sort(np.stack([half / a, c / np.where(half == 0, 1e-300, half)]), axis=0)
    chosen = []  # class 2, where rows are of class 1 and of class 2
    for mean in (-1.0, 1.0):
        below = ndtr((roots - mean) / sigma)
        between = np.where(apart > 0, below[1] - below[0], 0.0)
        chosen.append(np.where(a > 0, between, 1 - between) @ weights / weights.sum())
    return 0.5 * (chosen[0] + 1 - chosen[1])


class Box(NamedTuple):
    """The smallest box around the rows of each class; arrays `(class, coordinate)`."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


def range_bound(box: Box) -> Callable[[Theta, Theta], Any]:
    """A bound on max_k ℓ_k - min_k ℓ_k, ℓ_k = log f(Y_k|θ′) - log f(Y_k|θ), that reads no row.

    Of a class ℓ is a sum of one quadratic a coordinate, so its extremes over the box are at corners and vertices.
    """

    def extremes(mu: Any, sigma: Any, mu_new: Any, sigma_new: Any, low: Any, high: Any) -> tuple[Any, Any]:
        precision, precision_new = 1 / (sigma**2 * SHARE), 1 / (sigma_new**2 * SHARE)
        curved = precision_new - precision
        vertex = (mu_new * precision_new - mu * precision) / jnp.where(curved == 0, 1.0, curved)
        places = jnp.stack([low, high, jnp.clip(jnp.where(curved == 0, low, vertex), low, high)])
        values = ((places - mu) ** 2 * precision - (places - mu_new) ** 2 * precision_new) / 2
        constant = 2 * jnp.log(sigma / sigma_new)
        return values.min(0).sum() + constant, values.max(0).sum() + constant

    def bound(theta: Theta, new: Theta) -> Any:
        ends = [
            extremes(theta[f"mu{j}"], theta[f"sigma{j}"], new[f"mu{j}"], new[f"sigma{j}"], low, high)
            for j, low, high in zip((1, 2), box.low, box.high, strict=True)
        ]
        lowest, highest = zip(*ends, strict=True)
        return jnp.maximum(*highest) - jnp.minimum(*lowest)

    return bound
