"""Simulated problems by name, for commands and benchmarks: a model, data and what is known about them."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.errors import one_of
from lwa.models.arma import arma
from lwa.models.model import Model
from lwa.rivals.bounds import JaakkolaJordan, RowBound, StudentT


class Simulated(NamedTuple):
    """A model with data."""

    model: Model
    data: Any
    bound: RowBound | None = None  # Firefly's, if there is one
    truth: NDArray[np.float64] | None = None  # the coefficients that the data were simulated with, if there are any


def logistic_log_likelihood(theta: dict[str, Array], rows: dict[str, Array]) -> Array:
    """Return log f(y|x, β) = -log(1 + exp(-s xᵀβ)) of each row, with s = ±1 for y = 1, 0."""
    sign = 2.0 * rows["y"] - 1.0
    return -jax.nn.softplus(-sign * (rows["x"] @ theta["beta"]))


def wide_log_prior(theta: dict[str, Array]) -> Array:
    """Return the log density of β ~ Normal(0, 5²), up to a constant."""
    return -0.5 * jnp.sum((theta["beta"] / 5.0) ** 2)


def simulate_logistic(rows: int, seed: int, parameters: int = 10) -> Simulated:
    """Simulate a logistic regression with an intercept and standard normal covariates."""
    rng = np.random.default_rng(seed)
    truth = np.round(rng.normal(scale=0.5, size=parameters), 2)
    x = rng.standard_normal((rows, parameters), dtype=np.float32)
    x[:, 0] = 1.0
    chance = 1.0 / (1.0 + np.exp(-(x @ truth.astype(np.float32))))
    y = (rng.random(rows, dtype=np.float32) < chance).astype(np.float32)
    init, dims = {"beta": jnp.zeros(parameters)}, {"beta": ["coefficient"]}
    model = Model(logistic_log_likelihood, wide_log_prior, init=init, dims=dims)
    return Simulated(model, {"x": x, "y": y}, JaakkolaJordan(), truth)


def simulate_student_t(rows: int, seed: int) -> Simulated:
    """Simulate a linear regression with ten parameters and Student's t errors: four degrees of freedom, scale 1."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 10), dtype=np.float32)
    x[:, 0] = 1.0
    truth = np.round(rng.normal(scale=0.5, size=10), 2)
    y = (x @ truth + rng.standard_t(4, rows)).astype(np.float32)

    def log_likelihood(theta: dict[str, Array], rows: dict[str, Array]) -> Array:
        return -2.5 * jnp.log1p((rows["y"] - rows["x"] @ theta["beta"]) ** 2 / 4.0)

    model = Model(log_likelihood, wide_log_prior, {"beta": jnp.zeros(10)})
    return Simulated(model, {"x": x, "y": y}, StudentT(df=4.0, scale=1.0), truth)


def build_normal_model() -> Model:
    """Return Normal(μ, σ²) with both unknown, σ by its logarithm, under wide priors."""

    def log_likelihood(theta: dict[str, Array], y: Array) -> Array:
        return -0.5 * ((y - theta["mean"]) * jnp.exp(-theta["log_sd"])) ** 2 - theta["log_sd"]

    def log_prior(theta: dict[str, Array]) -> Array:
        return -0.5 * ((theta["mean"] / 100.0) ** 2 + (theta["log_sd"] / 10.0) ** 2)

    return Model(log_likelihood, log_prior, {"mean": 0.0, "log_sd": 0.0})


def simulate_gaussian(rows: int, seed: int) -> Simulated:
    """Simulate standard normal data, fitted by a Gaussian: the first example of the tall-data papers."""
    return Simulated(build_normal_model(), np.random.default_rng(seed).normal(size=rows))


def simulate_lognormal(rows: int, seed: int) -> Simulated:
    """Simulate log-normal data, fitted by a Gaussian: with heavy tails, averages of few rows mislead."""
    return Simulated(build_normal_model(), np.random.default_rng(seed).lognormal(0.0, 1.0, rows))


def simulate_arma(rows: int, seed: int) -> Simulated:
    """Simulate the paper's ARMA(1, 1) series: Y_k = 0.5 Y_{k-1} + 0.7 Z_{k-1} + 0.1 + Z_k."""
    from scipy.signal import lfilter

    noise = np.random.default_rng(seed).normal(size=rows + 100)  # the first hundred steps are dropped
    return Simulated(arma(1, 1), np.asarray(lfilter([1.0, 0.7], [1.0, -0.5], noise)[100:] + 0.1 / (1 - 0.5)))


PROBLEMS: dict[str, Callable[[int, int], Simulated]] = {
    "logistic": simulate_logistic, "student_t": simulate_student_t, "gaussian": simulate_gaussian,
    "lognormal": simulate_lognormal, "arma": simulate_arma,
}  # fmt: skip


def simulate(name: str, rows: int, seed: int) -> Simulated:
    """Simulate the problem of this name."""
    if name not in PROBLEMS:
        raise one_of("problem", name, list(PROBLEMS))
    return PROBLEMS[name](rows, seed)


def measure_full_pass(model: Model, data: dict[str, NDArray[Any]], chains: int) -> float:
    """Return the seconds that the log-likelihood of all rows takes at one θ per chain."""
    value = jax.jit(jax.vmap(lambda theta: model.log_likelihood({"beta": theta}, data).sum()))
    thetas = jnp.zeros((chains, model.dimension), jnp.float32)
    value(thetas).block_until_ready()  # compiled
    began = time.perf_counter()
    for _ in range(3):
        value(thetas).block_until_ready()
    return (time.perf_counter() - began) / 3
