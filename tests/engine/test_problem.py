"""What kernel="auto" is, and that it is told how near to a Gaussian the posterior is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.engine.problem import PilotSubsets, choose_kernel, predict_acceptance
from lwa.kernels import HMC, Autoregressive, RandomWalk
from lwa.targets.calibration import build_expansion
from lwa.targets.reference import find_reference
from lwa.targets.target import Given, Target


@pytest.mark.parametrize(
    ("d", "calibrated", "accepted", "expected"),
    [
        (3, False, None, RandomWalk()),
        (50, False, None, RandomWalk()),
        (3, True, None, Autoregressive()),
        (100, True, 0.9, Autoregressive()),
        (3, True, 0.5, Autoregressive(df=8.0)),
        (15, True, 0.8, Autoregressive(df=8.0)),
        (15, True, 0.5, HMC()),
        (50, True, 0.8, Autoregressive()),
        (50, True, 0.1, HMC()),
    ],
)
def test_the_choice(d, calibrated, accepted, expected):
    assert choose_kernel(d, calibrated=calibrated, accepted=accepted) == expected


def gamma_terms(theta, y):
    """Gamma(shape 1, rate e^θ) of each coordinate: skewed in θ where rows are few."""
    return (theta - y * jnp.exp(theta)).sum(-1)


@pytest.mark.parametrize("rows", [2, 40])
def test_predicted_acceptance_is_that_of_independent_proposals(rows):
    """... by brute force: draws of π by weighting 4·10⁵ points, and proposals from the Gaussian."""
    y = np.ones((rows, 2))
    model = lwa.Model(gamma_terms, lambda theta: -0.005 * jnp.sum(theta**2), jnp.zeros(2))
    with jax.enable_x64(True):
        reference = find_reference(model, lay_out(model, y).full, np.zeros(2), 1)
        target = Target(model, 1.0, build_expansion(reference))
        known = PilotSubsets(np.broadcast_to(y, (64, *y.shape)), Given(np.zeros((64, 2))), None)
        found = predict_acceptance(target, known, reference, 1)
    rng = np.random.default_rng(2)
    z = rng.normal(size=(2, 400_000, 2))
    theta = reference.theta + z @ reference.factor.T
    log = rows * (theta - np.exp(theta)).sum(-1) - 0.005 * (theta**2).sum(-1) + 0.5 * (z**2).sum(-1)
    weight = np.exp(log - log.max())
    exact = np.minimum(weight[0], weight[1]).mean() / weight.mean()
    assert found == pytest.approx(exact, abs=0.02)


@pytest.mark.slow
def test_a_skewed_posterior_of_many_parameters_gets_trajectories_and_a_gaussian_one_none():
    y = np.random.default_rng(3).exponential(size=(3000, 12))
    model = lwa.Model(gamma_terms, lambda theta: -0.005 * jnp.sum(theta**2), jnp.zeros(12))
    options = {"draws": 50, "tune": 100, "chains": 2, "seed": 1, "progress": False}
    near = lwa.sample(model, y, subset_size=500, **options)
    assert near.attributes["kernel"].startswith("autoregressive")
    assert near.attributes["gaussian_acceptance"] > 0.85
    far = lwa.sample(model, y[:3], subset_size=3, **options)
    assert far.attributes["kernel"].startswith("HMC")
    assert far.attributes["gaussian_acceptance"] < 0.7
    assert "n_steps" in far.sample_stats
