"""The probit model of the paper, its data, and subsets with as many ones as one asks for."""

import jax
import numpy as np
from jax.scipy.stats import norm

import lwa
from experiments.proposition.quadrature import PROBIT, Problem

PRIOR_SD = 10.0


def log_likelihood(theta: jax.Array, y: jax.Array) -> jax.Array:
    """log f(y|θ) = log(1 - α) + y log(α/(1 - α)) with α = P(X > 0) = Φ(θ), as γ = 1."""
    one, zero = norm.logcdf(theta), norm.logcdf(-theta)
    return zero + y * (one - zero)


MODEL = lwa.Model(log_likelihood, lambda theta: -0.5 * (theta / PRIOR_SD) ** 2, init=0.0)


def problem(rows: int, ones: int) -> Problem:
    """The same model and data for quadrature."""
    return Problem(PROBIT, rows, ones / rows, PRIOR_SD)


def simulate(rows: int, ones: int, rng: np.random.Generator) -> np.ndarray:
    """Y given its sum: every order of the ones and zeros is equally likely, whatever θ*."""
    return rng.permutation(np.arange(rows) < ones).astype(np.float32)


def subset(y: np.ndarray, size: int, ones: int, rng: np.random.Generator) -> np.ndarray:
    """Row numbers of a subset drawn among those of its size that hold so many ones."""
    chosen = [rng.choice(np.flatnonzero(y == 1), ones, False), rng.choice(np.flatnonzero(y == 0), size - ones, False)]
    return np.sort(np.concatenate(chosen))
