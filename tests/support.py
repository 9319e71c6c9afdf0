"""One tiny model that every test of the machinery runs, so that all share its compiled programs."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

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

SHORT_RUN = pytest.mark.filterwarnings("ignore:The .* draws of .* are worth", "ignore:Chains disagree on")
"""For tests whose runs are too short to be worth much, which lwa reports."""

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


def furthest_from(laws, draws, weights=None):
    """Student's t of mean, variance and shares under quantiles, over independent chains; the worst, and what it is of.

    `draws` are `(chains, draws)` by name, `laws` SciPy's frozen distributions. Weights of the draws, `(chains, draws)`,
    make ratios of means: their t is that of the chains' residuals.
    """
    found = {}
    for name, values in draws.items():
        law = laws[name]
        centred = (values - law.mean()) / law.std()
        functions = {"mean": centred, "variance": centred**2 - 1.0}
        functions |= {f"{level} quantile": (values < law.ppf(level)) - level for level in (0.1, 0.5, 0.9)}
        for what, away in functions.items():
            chains = (away if weights is None else away * weights).mean(1)
            found[f"{what} of {name}"] = stats.ttest_1samp(chains, 0.0).statistic
    return max((abs(t), name) for name, t in found.items())
