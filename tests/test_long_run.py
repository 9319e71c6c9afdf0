"""Longer statistical checks, run by `make verify`."""

import jax
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.subsets import Epanechnikov, Free, Gaussian, Laplace, Swap
from tests.test_law_of_subsets import EPSILON, check_simulation, enumerated_nu
from tests.test_law_of_theta import cell_probabilities, law, simulate, worst_p_value
from tests.tiny import MEAN, MODEL, PRIOR_SD, number_of, subset_chain

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("L", [1, 2, 30])
def test_law_of_theta_to_a_third_digit(L):
    """Ten times the draws of the quick test, with other seeds: each cell is known to about 0.0003."""
    shares = np.concatenate([simulate(L, seed, chains=128, draws=10_000) for seed in (21, 22)])
    assert worst_p_value(shares, cell_probabilities(law(L))) > 1e-3


@pytest.mark.parametrize("weight", [Gaussian(), Laplace(), Epanechnikov()], ids=str)
@pytest.mark.parametrize("move", [Swap(1), Swap(2), Free()], ids=str)
def test_law_of_subsets_with_forty_thousand_chains(move, weight):
    with jax.enable_x64(True):
        check_simulation(move, weight, chains=40_000, transitions=64)


@pytest.mark.parametrize("weight", [Gaussian(), Laplace(), Epanechnikov()], ids=str)
def test_a_long_chain_visits_subsets_as_often_as_nu_says(weight):
    """Time averages of 64 chains over 50,000 transitions; t tests over chains, Bonferroni over subsets."""
    with jax.enable_x64(True):
        chain = subset_chain(Swap(1), weight, EPSILON, page=50)
        U, _ = chain.burn_in(chain.start(range(64)), range(64))
        visits = np.zeros((64, 56))
        for page in range(1000):
            U, _ = chain.advance(U, range(64), page)
            visits[np.arange(64), number_of(U.indices)] += 1
    nu = enumerated_nu(Swap(1), weight)
    assert visits[:, nu == 0].sum() == 0
    tested = nu > 1e-3
    p = stats.ttest_1samp(visits[:, tested] / 1000, nu[tested]).pvalue.min()
    assert p * tested.sum() > 1e-3


def test_free_subsets_give_the_closed_form_mixture():
    """N = 400, n = 20, L = 60: θ is the mixture over uniform subsets, whose mean and variance are known.

    Given U, θ ~ Normal(b ȳ_U, v) with v = 1/(n + 1/PRIOR_SD²), b = n v; ȳ_U has the mean of all rows and, drawn without
    replacement, the variance s²/n · (N - n)/N with s² over N - 1.
    """
    y = np.random.default_rng(8).normal(2.0, 1.5, size=400)
    n, N = 20, 400
    fit = lwa.sample(
        MODEL, y, subset_size=n, target="subposterior", summary=MEAN, subset_move=Free(), refresh_steps=60, draws=2000,
        tune=2000, thinning=1, chains=32, seed=4, progress=False,
    )  # fmt: skip
    theta = fit.posterior["theta"]
    v = 1 / (n + 1 / PRIOR_SD**2)
    mean = n * v * y.mean()
    variance = v + (n * v) ** 2 * y.var(ddof=1) / n * (N - n) / N
    assert stats.ttest_1samp(theta.mean(1), mean).pvalue > 1e-4
    assert stats.ttest_1samp(((theta - mean) ** 2).mean(1), variance).pvalue > 1e-4


def test_tall_logistic_recovers_its_coefficients():
    """10⁶ rows, 10 parameters, default arguments but for a longer tune: every true value within 4 sds of its mean."""
    from lwa.rivals.problems import simulate_logistic

    model, data, _, truth = simulate_logistic(1_000_000, seed=3, parameters=10)
    fit = lwa.sample(model, data, draws=300, tune=3000, seed=3, progress=False)
    draws = fit.posterior["beta"]
    assert np.all(np.abs(draws.mean((0, 1)) - truth) < 4 * draws.std((0, 1)))
