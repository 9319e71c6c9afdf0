"""Simulated problems by name, for commands and benchmarks: a model, data and what is known of both."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.errors import one_of
from lwa.models.arma import arma as arma_model
from lwa.models.model import Model
from lwa.rivals.demo import logistic as simulated_logistic


class Simulated(NamedTuple):
    """A model, data, and Firefly's bound where there is one."""

    model: Model
    data: Any
    bound: Any = None


def logistic(rows: int, seed: int) -> Simulated:
    """A logistic regression with ten parameters."""
    from lwa.rivals.bounds import JaakkolaJordan

    model, data, _ = simulated_logistic(rows, 10, seed)
    return Simulated(model, data, JaakkolaJordan())


def student_t(rows: int, seed: int) -> Simulated:
    """A linear regression with ten parameters and Student's t errors: four degrees of freedom, scale 1."""
    from lwa.rivals.bounds import StudentT

    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 10), dtype=np.float32)
    x[:, 0] = 1.0
    truth = np.round(rng.normal(scale=0.5, size=10), 2)
    y = (x @ truth + rng.standard_t(4, rows)).astype(np.float32)

    def log_likelihood(theta: dict[str, Array], rows: dict[str, Array]) -> Array:
        return -2.5 * jnp.log1p((rows["y"] - rows["x"] @ theta["beta"]) ** 2 / 4.0)

    model = Model(log_likelihood, lambda theta: -0.5 * jnp.sum((theta["beta"] / 5.0) ** 2), {"beta": jnp.zeros(10)})
    return Simulated(model, {"x": x, "y": y}, StudentT(df=4.0, scale=1.0))


def normal_model() -> Model:
    """Normal(μ, σ²), both unknown; σ by its logarithm, with wide priors."""

    def log_likelihood(theta: dict[str, Array], y: Array) -> Array:
        return -0.5 * ((y - theta["mean"]) * jnp.exp(-theta["log_sd"])) ** 2 - theta["log_sd"]

    def log_prior(theta: dict[str, Array]) -> Array:
        return -0.5 * ((theta["mean"] / 100.0) ** 2 + (theta["log_sd"] / 10.0) ** 2)

    return Model(log_likelihood, log_prior, {"mean": 0.0, "log_sd": 0.0})


def gaussian(rows: int, seed: int) -> Simulated:
    """Standard normal data, fitted by a Gaussian: the tall-data papers' first example."""
    return Simulated(normal_model(), np.random.default_rng(seed).normal(size=rows))


def lognormal(rows: int, seed: int) -> Simulated:
    """Log-normal data, fitted by a Gaussian all the same: heavy tails, where averages of few rows mislead."""
    return Simulated(normal_model(), np.random.default_rng(seed).lognormal(0.0, 1.0, rows))


def arma(rows: int, seed: int) -> Simulated:
    """The paper's ARMA(1, 1) series: Y_k = 0.5 Y_{k-1} + 0.7 Z_{k-1} + 0.1 + Z_k."""
    return Simulated(arma_model(1, 1), arma_series(rows, seed))


def arma_series(rows: int, seed: int) -> NDArray[np.float64]:
    """Its steps, the first hundred of which are dropped."""
    from scipy.signal import lfilter

    noise = np.random.default_rng(seed).normal(size=rows + 100)
    return np.asarray(lfilter([1.0, 0.7], [1.0, -0.5], noise)[100:] + 0.1 / (1 - 0.5))


PROBLEMS: dict[str, Callable[[int, int], Simulated]] = {
    "logistic": logistic,
    "student_t": student_t,
    "gaussian": gaussian,
    "lognormal": lognormal,
    "arma": arma,
}


def simulate(name: str, rows: int, seed: int) -> Simulated:
    """One of them."""
    if name not in PROBLEMS:
        raise one_of("problem", name, list(PROBLEMS))
    return PROBLEMS[name](rows, seed)
