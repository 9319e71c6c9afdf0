"""Every θ kernel on known targets: one distributional test, and adaptation that finds its way."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.kernels import Autoregressive, RandomWalk
from tests.support import SHORT_RUN

ONE_ROW = np.zeros(1)
COVARIANCE = np.array([[4.0, 1.8, 0.0], [1.8, 1.0, 0.01], [0.0, 0.01, 0.01]])
"""Strongly correlated, sds from 0.1 to 2."""
PRECISION = jnp.asarray(np.linalg.inv(COVARIANCE))


def gaussian(theta, rows):
    return jnp.broadcast_to(-0.5 * theta @ PRECISION.astype(theta.dtype) @ theta, (rows.shape[0],))


def skewed(theta, rows):
    """log θ ~ Gamma: the log of an Exponential(1)."""
    return jnp.broadcast_to(theta - jnp.exp(theta), (rows.shape[0],))


def bounded(theta, rows):
    """Beta(2, 3) on (0, 1); zero outside."""
    inside = (theta > 0) & (theta < 1)
    safe = jnp.where(inside, theta, 0.5)
    return jnp.broadcast_to(jnp.where(inside, jnp.log(safe) + 2 * jnp.log1p(-safe), -jnp.inf), (rows.shape[0],))


KERNELS = [RandomWalk(), RandomWalk(target_accept=0.5, scale=5.0)]


def draws_of(log_density, init, kernel):
    """Many chains, one row: the likelihood is the target, calibrated or not."""
    model = lwa.Model(log_density, lambda theta: 0.0, init)
    target = "calibrated" if isinstance(kernel, Autoregressive) else "powered"
    run = lwa.sample(
        model, ONE_ROW, target=target, subset_size=1, draws=500, tune=3000, chains=32, thinning=20, seed=6,
        kernel=kernel, precision="float64", progress=False,
    )  # fmt: skip
    return run.posterior["theta"], run.sample_stats["acceptance_rate"]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_correlated_gaussian(kernel):
    draws, acceptance = draws_of(gaussian, jnp.array([10.0, -10.0, 10.0]), kernel)
    for i in range(3):
        z = draws[..., i] / np.sqrt(COVARIANCE[i, i])
        assert stats.ttest_1samp(z.mean(1), 0.0).pvalue > 1e-4
        assert stats.ttest_1samp((z**2).mean(1), 1.0).pvalue > 1e-4
    product = (draws[..., 0] * draws[..., 1]).mean(1)
    assert stats.ttest_1samp(product, COVARIANCE[0, 1]).pvalue > 1e-4
    # The last gain of tune, 0.033, leaves log scale an sd of about 0.1, and acceptance 0.02 a chain: four of these.
    assert abs(acceptance.mean() - kernel.target_accept) < 0.08


@pytest.mark.parametrize("kernel", [*KERNELS, Autoregressive(), Autoregressive(fallback=False)], ids=str)
@pytest.mark.parametrize(
    ("log_density", "law"), [(skewed, stats.gumbel_l), (bounded, stats.beta(2, 3))], ids=["skewed", "bounded"]
)
def test_quantiles_of_one_parameter(log_density, law, kernel):
    draws, _ = draws_of(log_density, 0.5, kernel)
    for level in (0.1, 0.5, 0.9):
        share = (draws < law.ppf(level)).mean(1)
        assert stats.ttest_1samp(share, level).pvalue > 1e-4


def test_a_nan_is_rejected_counted_and_told():
    """A log-likelihood that is NaN on half the line: draws stay on the other half."""
    model = lwa.Model(
        lambda theta, rows: jnp.broadcast_to(jnp.where(theta > 0, -theta, jnp.nan), (rows.shape[0],)),
        lambda theta: 0.0,
        init=1.0,
    )
    with pytest.warns(lwa.LwaWarning, match="NaN"):
        run = lwa.sample(
            model, ONE_ROW, target="powered", subset_size=1, draws=200, tune=500, thinning=5, seed=1, progress=False
        )
    assert run.attributes["nonfinite_proposals"] > 0
    assert (run.posterior["theta"] > 0).all()


@SHORT_RUN
def test_a_row_that_theta_cannot_explain_is_left_behind():
    """A refresh may bring a row of density zero. The chain waits there, and goes on once θ or U explains all rows."""
    y = np.abs(np.random.default_rng(1).normal(size=200)) + 0.01

    def log_likelihood(scale, y):  # Uniform(0, scale)
        return jnp.where(y < scale, -jnp.log(scale), -jnp.inf)

    model = lwa.Model(log_likelihood, lambda scale: jnp.where(scale < 10, 0.0, -jnp.inf), init=9.0)
    run = lwa.sample(
        model, y, subset_size=20, target="subposterior", epsilon=float("inf"), draws=500, tune=2000, seed=1,
        progress=False,
    )  # fmt: skip
    finite = np.isfinite(run.sample_stats["lp"])
    assert (~finite).any(1).all()  # it happens, in every chain
    assert (finite[:, 1:] & ~finite[:, :-1]).sum(1).min() >= 10  # and every chain gets out of it, again and again
