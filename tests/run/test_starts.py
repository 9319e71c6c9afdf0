"""Where chains begin: given values, draws from the prior, or `init`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.diagnostics.running import assign_superchains
from lwa.run.begin import ATTEMPTS
from tests.support import Y, log_likelihood, log_prior, run, sample

STAY = {"tune": 0, "thinning": 1, "draws": 1, "kernel": lwa.kernels.RandomWalk(scale=1e-6)}
"""One tiny step, so that the first draw is the start to about a millionth."""


def starts(fit):
    return fit.posterior["theta"][:, 0]


@pytest.mark.parametrize(
    ("initvals", "expected"),
    [
        (2.5, [2.5, 2.5]),
        (np.float32(2.5), [2.5, 2.5]),
        (jnp.asarray(2.5), [2.5, 2.5]),
        ([2.5, 3.5], [2.5, 3.5]),
        ((2.5, 3.5), [2.5, 3.5]),
        (None, [0.0, 0.0]),
    ],
)
def test_initvals_are_the_starts(initvals, expected):
    np.testing.assert_allclose(starts(run(initvals=initvals, **STAY)), expected, atol=1e-4)


def test_one_start_a_chain_where_the_last_cohort_is_filled_up():
    fit = run(chains=3, initvals=[2.5, 3.0, 3.5], **STAY)
    np.testing.assert_allclose(starts(fit), [2.5, 3.0, 3.5], atol=1e-4)


def test_initvals_go_before_prior_draw():
    model = lwa.Model(log_likelihood, log_prior, 0.0, prior_draw=lambda key: jax.random.normal(key))
    np.testing.assert_allclose(starts(sample(model, initvals=2.5, **STAY)), 2.5, atol=1e-4)


def test_a_list_theta_is_one_theta():
    model = lwa.Model(lambda theta, y: -0.5 * (y - theta[0]) ** 2, lambda theta: -0.5 * theta[1] ** 2, init=[0.0, 0.0])
    fit = sample(model, initvals=[2.5, 3.5], **STAY)
    np.testing.assert_allclose(starts_of(fit, "0"), [2.5, 2.5], atol=1e-4)
    np.testing.assert_allclose(starts_of(fit, "1"), [3.5, 3.5], atol=1e-4)


def starts_of(fit, name):
    return fit.posterior[name][:, 0]


def test_draws_from_the_prior_differ_by_chain_and_repeat_by_seed():
    model = lwa.Model(log_likelihood, log_prior, 0.0, prior_draw=lambda key: 10.0 * jax.random.normal(key))
    first = starts(sample(model, chains=4, **STAY))
    assert len(set(first.tolist())) == 4
    assert np.abs(np.diff(first)).min() > 0.01
    np.testing.assert_array_equal(first, starts(sample(model, chains=4, **STAY)))
    assert not np.intersect1d(first, starts(sample(model, chains=4, seed=2, **STAY))).size


def positive(mu):
    """Exponential(1): one in two draws of a standard normal lies outside."""
    return jnp.where(mu > 0.0, -mu, -jnp.inf)


def test_draws_outside_the_support_are_drawn_again():
    asked = []

    def prior_draw(key):
        asked.append(float(jax.random.normal(key)))
        return asked[-1]

    model = lwa.Model(log_likelihood, positive, 1.0, prior_draw=prior_draw)
    found = starts(sample(model, chains=8, **STAY))
    assert (found > 0.0).all()
    outside = [draw for draw in asked if draw <= 0.0]
    assert outside, "the seed must put some first draws outside"
    assert len(asked) == 8 + len(outside)  # only those are drawn again
    np.testing.assert_allclose(np.sort(found), np.sort([draw for draw in asked if draw > 0.0]), atol=1e-3)


def test_drawing_again_comes_to_an_end():
    asked = []

    def prior_draw(key):
        asked.append(key)
        return -1.0

    model = lwa.Model(log_likelihood, positive, 1.0, prior_draw=prior_draw)
    with pytest.raises(lwa.ModelError) as caught:
        sample(model, chains=1)
    for fragment in (
        f"after {ATTEMPTS} draws from prior_draw",
        "{'theta': -1.0}",
        "log_prior is -inf",
        "Pass initvals",
    ):
        assert fragment in str(caught.value)
    assert len(asked) == ATTEMPTS


def test_a_start_where_some_rows_are_impossible_names_them():
    def truncated(mu, y):
        return jnp.where(y > mu, -0.5 * (y - mu) ** 2, -jnp.inf)

    with pytest.raises(lwa.ModelError, match=r"Chain 0 .*'theta': 3\.0.*log_likelihood is -inf in \d+ of 20 rows"):
        sample(lwa.Model(truncated, log_prior, 3.0), precision="float32")


# Thousands of chains


MANY_CHAINS = STAY | {"chains": 70}
REMEMBERED = pytest.mark.filterwarnings("ignore::lwa.LwaWarning")
"""One move in, chains are where they began, and that is said."""


@pytest.mark.parametrize("chains", [64, 70])
@REMEMBERED
def test_many_chains_begin_together_in_superchains(chains):
    model = lwa.Model(log_likelihood, log_prior, 0.0, prior_draw=lambda key: 10.0 * jax.random.normal(key))
    fit = sample(model, **MANY_CHAINS | {"chains": chains})
    first = starts(fit)
    if chains <= 64:
        assert len(set(first.tolist())) == chains
        assert fit.attributes["superchains"] is None
        return
    group = assign_superchains(chains, 16)
    assert fit.attributes["superchains"] == 16
    means = np.array([first[group == k].mean() for k in range(16)])
    np.testing.assert_allclose(first, means[group], atol=1e-4)
    assert np.diff(np.sort(means)).min() > 1e-3
    assert fit.nested_rhat()["theta"] > 100  # nothing is forgotten yet


@REMEMBERED
def test_many_chains_begin_wide_around_the_reference():
    """Two sds of the posterior, over the superchains of six seeds."""
    options = MANY_CHAINS | {"target": "calibrated", "subset_size": 20}
    first = np.concatenate([starts(sample(seed=seed, **options))[::5] for seed in range(6)])
    sd = 1 / np.sqrt(200 + 1 / 100)
    wide = (first - Y.sum() / (200 + 1 / 100)) / sd
    assert wide.std() == pytest.approx(2.0, rel=0.25)


@REMEMBERED
def test_given_starts_are_taken_as_they_are_however_many():
    fit = sample(initvals=[0.01 * chain for chain in range(70)], **MANY_CHAINS)
    np.testing.assert_allclose(starts(fit), 0.01 * np.arange(70), atol=1e-4)
    assert fit.attributes["superchains"] is None
    assert sample(**MANY_CHAINS).attributes["superchains"] is None  # all at init: there is nothing to tell apart


@REMEMBERED
def test_a_chain_whose_target_is_not_finite_takes_the_next_start_of_its_superchain():
    model = lwa.Model(
        log_likelihood,
        lambda mu: jnp.where(mu > 0, -0.5 * (mu / 10.0) ** 2, -jnp.inf),
        1.0,
        prior_draw=lambda key: 10.0 * jax.random.normal(key),
    )
    first = starts(sample(model, **MANY_CHAINS))
    assert (first > 0).all()
    assert len(np.unique(first.round(2))) <= 16
