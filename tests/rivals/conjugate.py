"""A conjugate model on 2,000 rows that every rival can be run on: a Gaussian mean in three dimensions, and a coin.

Its log-likelihood has a lower bound that is quadratic in θ: the Gaussian's own, and Jaakkola and Jordan's for the coin.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import lwa
from tests.support import furthest_from

N, D = 2000, 3
rng = np.random.default_rng(7)
MIXING = np.eye(D) + 0.6 * np.tri(D, D, -1)
PRECISION = np.linalg.inv(MIXING @ MIXING.T)
ROWS = {
    "y": rng.multivariate_normal([0.3, -0.2, 0.1], MIXING @ MIXING.T, N),
    "success": (rng.random(N) < 0.3).astype(float),
}
PRIOR_SD = 10.0


def log_gaussian(mean, y):
    """log Normal(y; mean, known covariance), up to a constant."""
    away = y - mean
    return -0.5 * ((away @ jnp.asarray(PRECISION, away.dtype)) * away).sum(-1)


def log_likelihood(theta, rows):
    """A Gaussian and a coin whose log odds are θ."""
    coin = rows["success"] * theta["logit"] - jax.nn.softplus(theta["logit"])
    return log_gaussian(theta["mean"], rows["y"]) + coin


def log_prior(theta):
    """Normal(0, 10²) of the mean, Beta(1, 1) of the coin's probability."""
    return -0.5 * jnp.sum(theta["mean"] ** 2) / PRIOR_SD**2 + theta["logit"] - 2 * jax.nn.softplus(theta["logit"])


MODEL = lwa.Model(log_likelihood, log_prior, {"logit": 0.0, "mean": jnp.zeros(D)})

COVARIANCE = np.linalg.inv(N * PRECISION + np.eye(D) / PRIOR_SD**2)
CENTRE = COVARIANCE @ PRECISION @ ROWS["y"].sum(0)
SUCCESSES = ROWS["success"].sum()
LAWS = {
    **{f"mean[{i}]": stats.norm(CENTRE[i], COVARIANCE[i, i] ** 0.5) for i in range(D)},
    "probability": stats.beta(1 + SUCCESSES, 1 + N - SUCCESSES),
}
CHAINS, STEPS = 20, 5000
"""10⁵ steps in all."""


def fit(name, **options):
    """So many steps of a rival, from the posterior's own Gaussian."""
    common = dict(draws=STEPS, tune=500, chains=CHAINS, seed=3, progress=False)
    return lwa.rivals.sample(name, MODEL, ROWS, **(common | options))


def draws_of(run):
    """By the names of `LAWS`."""
    return {
        **{f"mean[{i}]": run.posterior["mean"][..., i] for i in range(D)},
        "probability": 1 / (1 + np.exp(-run.posterior["logit"])),
    }


def worst_t(run, weights=None):
    """Of mean, variance and three quantiles of each parameter, 20 comparisons with 19 degrees of freedom.

    Past 5 by chance in one of 600 seeds.
    """
    return furthest_from(LAWS, draws_of(run), weights)
