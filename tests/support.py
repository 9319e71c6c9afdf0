"""One tiny model that every test of the machinery runs, so that all share its compiled programs."""

from functools import partial

import jax.numpy as jnp
import numpy as np

import lwa

N = 200
Y = np.random.default_rng(0).normal(3.0, 1.0, N)


def log_likelihood(mu, y):
    """Normal(μ, 1)."""
    return -0.5 * (y - mu) ** 2


def log_prior(mu):
    """Normal(0, 10²)."""
    return -0.5 * (mu / 10.0) ** 2


MODEL = lwa.Model(log_likelihood, log_prior, init=0.0)

SIZES = {"target": "powered", "subset_size": 20, "draws": 20, "tune": 64, "chains": 2, "progress": False}

run = partial(lwa.sample, MODEL, Y, **SIZES, seed=1)
"""`run(seed=2)`, for example: the tiny model with other options."""


def sample(model=MODEL, data=Y, **options):
    """The tiny run with another model or other data."""
    return lwa.sample(model, data, **(SIZES | {"seed": 1} | options))


def several_log_likelihood(theta, y):
    """Normal(μ + Σ β + Σ Λ, 1)."""
    return -0.5 * (y - theta["mu"] - theta["beta"].sum() - theta["deep"]["loading"].sum()) ** 2


def several_log_prior(theta):
    """Standard normal."""
    return -0.5 * (theta["mu"] ** 2 + jnp.sum(theta["beta"] ** 2) + jnp.sum(theta["deep"]["loading"] ** 2))


SEVERAL = lwa.Model(
    several_log_likelihood,
    several_log_prior,
    init={"mu": 0.0, "beta": jnp.zeros(3), "deep": {"loading": jnp.zeros((2, 2))}},
    dims={"beta": ["covariate"]},
    coords={"covariate": ["age", "dose", "sex"], "unused": [1, 2]},
)
"""A scalar, a vector with labels and a matrix in a nested dict."""
