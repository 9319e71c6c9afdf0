"""`lwa demo`: a logistic regression on a million simulated rows."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.models.model import Model


class Demo(NamedTuple):
    """A model, data simulated from it and the parameters they were simulated with."""

    model: Model
    data: dict[str, NDArray[Any]]
    truth: NDArray[np.float64]


def log_likelihood(theta: dict[str, Array], rows: dict[str, Array]) -> Array:
    """log f(y|x, β) = -log(1 + exp(-s xᵀβ)) with s = ±1 for y = 1, 0."""
    sign = 2.0 * rows["y"] - 1.0
    return -jax.nn.softplus(-sign * (rows["x"] @ theta["beta"]))


def log_prior(theta: dict[str, Array]) -> Array:
    """β ~ Normal(0, 5²)."""
    return -0.5 * jnp.sum((theta["beta"] / 5.0) ** 2)


def logistic(rows: int, parameters: int, seed: int) -> Demo:
    """A logistic regression with an intercept and standard normal covariates."""
    rng = np.random.default_rng(seed)
    truth = np.round(rng.normal(scale=0.5, size=parameters), 2)
    x = rng.standard_normal((rows, parameters), dtype=np.float32)
    x[:, 0] = 1.0
    chance = 1.0 / (1.0 + np.exp(-(x @ truth.astype(np.float32))))
    y = (rng.random(rows, dtype=np.float32) < chance).astype(np.float32)
    model = Model(log_likelihood, log_prior, init={"beta": jnp.zeros(parameters)}, dims={"beta": ["coefficient"]})
    return Demo(model, {"x": x, "y": y}, truth)


def full_step_seconds(model: Model, data: dict[str, NDArray[Any]], chains: int) -> float:
    """What one move of so many chains costs on all rows: the log posterior of all of them, measured."""
    value = jax.jit(jax.vmap(lambda theta: model.log_likelihood({"beta": theta}, data).sum()))
    thetas = jnp.zeros((chains, model.dimension), jnp.float32)
    value(thetas).block_until_ready()  # compiled
    began = time.perf_counter()
    for _ in range(3):
        value(thetas).block_until_ready()
    return (time.perf_counter() - began) / 3
