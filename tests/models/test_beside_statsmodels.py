"""On tall data posteriors are as wide as statsmodels' standard errors, around its estimates (Bernstein, von Mises)."""

import numpy as np
import pytest

import lwa

N, CHAINS = 200_000, 8
BETA = np.array([0.3, 0.5, -0.4])
THEORY = 10 / np.sqrt(N)
"""Weak priors, skewness and an estimated dispersion change means, in sds, and sds, as a share, by O(1/√N)."""


def simulated(family):
    rng = np.random.default_rng(len(family))
    x, group = rng.normal(size=N), rng.choice(["one", "two"], N)
    X = np.column_stack([np.ones(N), x, group == "two"])
    eta = X @ BETA
    n = rng.integers(1, 8, N)
    p = 1 / (1 + np.exp(-eta))
    odds = np.column_stack([np.ones(N), np.exp(eta), np.exp(-eta)])
    y = {
        "gaussian": lambda: eta + 0.8 * rng.normal(size=N),
        "student_t": lambda: eta + 0.8 * rng.standard_t(4, size=N),
        "bernoulli": lambda: rng.random(N) < p,
        "probit": lambda: eta + rng.normal(size=N) > 0,
        "binomial": lambda: rng.binomial(n, p),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative_binomial": lambda: rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, N)),
        "gamma": lambda: rng.gamma(3.0, np.exp(eta) / 3.0),
        "categorical": lambda: (rng.random(N)[:, None] * odds.sum(1)[:, None] > odds.cumsum(1)).sum(1),
    }[family]()
    return {"x": x, "group": group, "n": n, "y": y}, X


def theirs(family, data, X):
    """Estimates and standard errors of the coefficients."""
    import statsmodels.api as sm
    from statsmodels.miscmodels.tmodel import TLinearModel

    y, of = np.asarray(data["y"], float), sm.families
    if family == "student_t":
        fit = TLinearModel(y, X).fit(disp=False, maxiter=2000, maxfun=4000)
        return fit.params[:3], fit.bse[:3]
    if family == "negative_binomial":
        fit = sm.NegativeBinomial(y, X).fit(disp=False)
        return fit.params[:3], fit.bse[:3]
    if family == "categorical":
        fit = sm.MNLogit(y, X).fit(disp=False)
        return fit.params.T.ravel(), fit.bse.T.ravel()
    if family == "binomial":
        y = np.column_stack([y, data["n"] - y])
    law = {
        "gaussian": of.Gaussian, "bernoulli": of.Binomial, "binomial": of.Binomial, "poisson": of.Poisson,
        "probit": lambda: of.Binomial(of.links.Probit()), "gamma": lambda: of.Gamma(of.links.Log()),
    }[family]  # fmt: skip
    fit = sm.GLM(y, X, family=law()).fit()
    return fit.params, fit.bse


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "gaussian", "student_t", "bernoulli", "probit", "binomial", "poisson", "negative_binomial", "gamma",
        "categorical",
    ],
)  # fmt: skip
def test_estimates_and_standard_errors(family):
    data, X = simulated(family)
    options = {"binomial": {"trials": "n"}, "probit": {"link": "probit"}}.get(family, {})
    glm = lwa.glm("y ~ x + group", "bernoulli" if family == "probit" else family, **options)
    fit = lwa.sample(glm, data, subset_size=1000, draws=1000, tune=500, chains=CHAINS, seed=1, progress=False)
    draws = fit.posterior["beta"].reshape(CHAINS, 1000, -1)
    estimate, error = theirs(family, data, X)
    mean, sd = draws.mean((0, 1)), draws.std((0, 1))
    # Over eight chains: a t with 7 degrees of freedom passes 8 once in 10⁴.
    of_means = draws.mean(1).std(0, ddof=1) / np.sqrt(CHAINS) / error
    of_sds = draws.std(1).std(0, ddof=1) / np.sqrt(CHAINS) / error
    assert np.all(np.abs(mean - estimate) / error < THEORY + 8 * of_means)
    assert np.all(np.abs(sd / error - 1) < THEORY + 8 * of_sds)
    assert np.all(8 * of_means < 0.2)  # and it would have seen more
    assert np.all(8 * of_sds < 0.2)
