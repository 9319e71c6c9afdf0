"""Exact methods are exact: the law of 10⁵ steps on a conjugate model, and key for key what the algorithm says."""

import numpy as np
import pytest

import lwa
from tests.rivals import conjugate


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metropolis", "delayed_acceptance"])
def test_the_law_of_the_draws(name):
    t, what = conjugate.worst_t(conjugate.fit(name))
    assert t < 5, what


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metropolis", "delayed_acceptance", "pseudo_marginal"])
def test_the_law_of_the_draws_from_the_gaussian_at_the_mode(name):
    """θ′ does not depend on θ, so that Q(θ′, θ)/Q(θ, θ′) decides with the rest."""
    t, what = conjugate.worst_t(conjugate.fit(name, kernel="gaussian"))
    assert t < 5, what


@pytest.mark.parametrize("reference", [None, False])
def test_blocks_of_parameters_one_at_a_time(reference):
    """Blockwise on a conjugate pair: the posterior, and one block a move; shaped by the mode or by the path."""
    rng = np.random.default_rng(3)
    data = {"a": rng.normal(1.0, 1.0, 400), "b": rng.normal(-2.0, 1.0, 400)}
    model = lwa.Model(
        lambda theta, rows: -0.5 * ((rows["a"] - theta["one"]) ** 2 + (rows["b"] - theta["two"]) ** 2),
        lambda theta: -0.5 * (theta["one"] ** 2 + theta["two"] ** 2) / 100.0,
        {"one": 0.0, "two": 0.0},
    )
    fit = lwa.rivals.sample(
        "metropolis", model, data, kernel=lwa.kernels.Blockwise(target_accept=0.4), reference=reference,
        draws=4000, tune=1000, chains=4, seed=2, progress=False,
    )  # fmt: skip
    steps = np.stack([np.diff(fit.posterior[name], axis=1) != 0 for name in ("one", "two")])
    assert not steps.all(0).any()
    assert steps.any((1, 2)).all()
    precision = 400 + 0.01
    for name, column in (("one", "a"), ("two", "b")):
        draws = fit.posterior[name]
        error = draws.mean(1).std(ddof=1) / 2.0
        assert abs(draws.mean() - data[column].sum() / precision) < 5 * error
        np.testing.assert_allclose(draws.std(), precision**-0.5, rtol=0.1)  # 16,000 draws, a few hundred effective
    rate = fit.sample_stats["acceptance_rate"].mean()
    assert 0.3 < rate < 0.5
    # A walk of variance s² on Normal(., v) accepts (2/π) atan(2 √v/s); steering leaves log s an sd of about 0.1.
    variances = fit.attributes["proposal_variances"]
    np.testing.assert_allclose(variances, 4 / precision / np.tan(np.pi * rate / 2) ** 2, rtol=0.4)


def test_blocks_that_name_no_parameter_are_refused():
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2, init=0.0)
    with pytest.raises(lwa.InputError, match="'nu'"):
        lwa.rivals.sample("metropolis", model, np.zeros(10), kernel=lwa.kernels.Blockwise([["nu"]]), progress=False)
