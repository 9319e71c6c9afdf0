"""MALA, HMC and NUTS: what they tell, what they read, and targets that have no gradient everywhere."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.kernels import HMC, MALA, NUTS, Independence
from lwa.targets.target import Terms
from tests import support
from tests.support import sample
from tests.tiny import MEAN, MODEL, PRIOR_SD, N, Y, n

gradient_kernels = pytest.mark.parametrize(
    "kernel", [MALA(), HMC(), pytest.param(NUTS(), marks=pytest.mark.slow)], ids=["MALA", "HMC", "NUTS"]
)


@gradient_kernels
def test_what_is_told_and_what_is_read(kernel):
    """A move reads U once where it begins, once a leapfrog step, and once for the terms where it ends."""
    fit = sample(kernel=kernel, thinning=3, draws=50)
    told = fit.sample_stats
    names = {"diverging", "n_steps", "step_size", "energy"} | ({"tree_depth"} if isinstance(kernel, NUTS) else set())
    assert set(told) == names | set(sample(draws=1).sample_stats)
    np.testing.assert_array_equal(told["n_rows_read"], 20 * (told["n_steps"] + 2 * 3))
    assert told["diverging"].dtype == bool
    assert not told["diverging"].any()
    assert (told["step_size"] == told["step_size"][:, :1]).all()  # frozen
    assert (told["energy"] + told["lp"] >= 0).all()  # the kinetic energy
    if isinstance(kernel, MALA):
        assert (told["n_steps"] == 3).all()
    if isinstance(kernel, HMC):
        assert (told["n_steps"] >= 3).all()
        assert (told["n_steps"] <= 3 * 8).all()
        assert len(np.unique(told["n_steps"])) > 5  # jittered


@gradient_kernels
def test_no_more_rows_are_read_than_were_allowed(kernel):
    allowed = 100_000
    with pytest.warns(lwa.LwaWarning, match="the budget was spent"):
        fit = sample(kernel=kernel, thinning=1, draws=10**6, budget=lwa.RowReads(allowed))
    most = kernel.most_evaluations() * 20 * 2
    assert allowed - most < fit.attributes["rows_read"] <= allowed
    whole = sample(kernel=kernel, thinning=1, draws=fit.draws + 10)
    np.testing.assert_array_equal(whole.posterior["theta"][:, : fit.draws], fit.posterior["theta"])


@pytest.mark.slow
@gradient_kernels
def test_the_step_size_is_steered_to_its_acceptance(kernel):
    run = sample(kernel=kernel, tune=2000, draws=500, thinning=1, subset_size=support.N, chains=8)
    # The last gain of tune, 0.04, leaves log step an sd of about 0.1, and acceptance 0.04 a chain: four of these.
    assert abs(run.sample_stats["acceptance_rate"].mean() - kernel.target_accept) < 4 * 0.04 / 8**0.5


@pytest.mark.slow
def test_the_shape_is_learnt_from_far_away():
    """sds from 10⁻³ to 10, from up to 1,000 of them away: leapfrog steps end up near d^-1/4 = 0.47 or longer."""
    sd = np.logspace(-3, 1, 20)
    model = lwa.Model(
        lambda theta, rows: jnp.broadcast_to(-0.5 * jnp.sum((theta / jnp.asarray(sd, theta.dtype)) ** 2), rows.shape),
        lambda theta: 0.0,
        jnp.ones(20),
    )
    run = sample(model, np.zeros(1), kernel=HMC(), subset_size=1, tune=1000, thinning=1, draws=200, chains=8)
    assert (run.sample_stats["step_size"] > 0.3).all()
    # Draws are nearly independent: 200 of each of 8 chains know an sd to 1/√3200 = 0.018.
    np.testing.assert_allclose(run.posterior["theta"].std((0, 1)), sd, rtol=5 * 0.018)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [HMC(), NUTS(max_depth=4)], ids=["HMC", "NUTS"])
def test_exact_draws_are_those_of_the_full_posterior(kernel):
    """Conjugate: Normal(Σy / P, 1/P), P = N + 1/PRIOR_SD², from subsets of 3 of the 8 rows."""
    fit = lwa.sample(
        MODEL, Y, subset_size=n, target="powered", exact=True, summary=MEAN, epsilon=2.0, draws=120, tune=300,
        thinning=2, chains=32, seed=7, precision="float64", kernel=kernel, progress=False,
    )  # fmt: skip
    precision = N + 1 / PRIOR_SD**2
    z = (fit.posterior["theta"][:, 20:] - Y.sum() / precision) * np.sqrt(precision)
    assert abs(stats.ttest_1samp(z.mean(1), 0.0).statistic) < 4.5
    assert abs(stats.ttest_1samp((z**2).mean(1), 1.0).statistic) < 4.5
    assert 0.1 < fit.sample_stats["accepted"].mean() < 1.0  # the surrogate alone would be wrong
    np.testing.assert_array_equal(fit.sample_stats["n_rows_read"], n * (fit.sample_stats["n_steps"] + 2 * 2) + N)


def half_line(theta):
    """Exponential(1) on θ > 0, zero elsewhere."""
    total = jnp.where(theta[0] > 0, -theta[0], -jnp.inf)
    return Terms(jnp.zeros(()), total[None], total)


@gradient_kernels
def test_where_the_target_is_zero_a_chain_finds_its_way_out(kernel):
    """U may bring a row of density zero. The chain then moves straight on, and is let in where there is a density."""
    with jax.enable_x64(True):
        theta = jnp.array([-0.5])
        tuning = kernel.init(theta, None)._replace(log_scale=jnp.zeros(()))
        noise = kernel.noise(np.random.default_rng(1), 50, 1, np.float64)
        step = jax.vmap(partial(kernel.step, evaluate=half_line), in_axes=(0, None, None, None))
        moved, terms, info = jax.jit(step)(noise, tuning, theta, half_line(theta))
    inside = np.asarray(moved)[:, 0] > 0
    np.testing.assert_array_equal(inside, info.accepted)
    assert 0.05 < inside.mean() < 0.95
    np.testing.assert_array_equal(terms.total, np.where(inside, -np.asarray(moved)[:, 0], -np.inf))
    assert not np.any(info.extra["diverging"])  # from nowhere, nothing can be lost


@gradient_kernels
def test_divergences_are_told(kernel):
    """A hard edge: trajectories that cross it are refused, and a user should know."""
    model = lwa.Model(lambda theta, y: jnp.where(theta > 0, -theta / 20 + 0 * y, -jnp.inf), lambda theta: 0.0, init=1.0)
    with pytest.warns(lwa.LwaWarning, match=r"diverged before \d+ of the kept draws .* larger target_accept"):
        run = sample(model, kernel=kernel, subset_size=20, draws=200, target="subposterior")
    assert run.sample_stats["diverging"].any()
    assert (run.posterior["theta"] > 0).all()


@gradient_kernels
def test_a_nan_is_refused_and_counted(kernel):
    model = lwa.Model(lambda theta, y: jnp.where(theta > 0, -theta / 20 + 0 * y, jnp.nan), lambda theta: 0.0, init=1.0)
    with pytest.warns(lwa.LwaWarning):
        run = sample(model, kernel=kernel, subset_size=20, draws=200, target="subposterior")
    assert run.attributes["nonfinite_proposals"] > 0
    assert (run.posterior["theta"] > 0).all()


def test_a_model_without_gradients_is_refused_in_words():
    def log_likelihood(theta, y):
        like = jax.ShapeDtypeStruct(y.shape, y.dtype)
        return jax.pure_callback(lambda theta, y: -0.5 * (y - theta) ** 2, like, theta, y, vmap_method="sequential")

    model = lwa.Model(log_likelihood, lambda theta: 0.0, init=0.0)
    with pytest.raises(lwa.ModelError, match=r"kernel=NUTS\(...\) needs the gradient of log_likelihood.*RandomWalk"):
        sample(model, kernel=NUTS())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MALA(target_accept=2), r"target_accept=2 must lie in \(0, 1\). Pass target_accept=0.574"),
        (lambda: HMC(target_accept=0), r"target_accept=0 must lie in \(0, 1\). Pass target_accept=0.8"),
        (lambda: HMC(steps=0), "steps=0 must be a whole number >= 1. Pass steps=8"),
        (lambda: HMC(steps=2.5), r"steps=2\.5 must be a whole number"),
        (lambda: NUTS(max_depth=True), "max_depth=True must be a whole number >= 1. Pass max_depth=8"),
        (lambda: Independence(df=0), "df=0 must be positive. Pass df=8.0"),
        (lambda: Independence(df="many"), "df='many' must be positive"),
        (lambda: sample(kernel=Independence()), r"kernel=Independence\(...\) needs a reference point"),
    ],
)
def test_what_no_kernel_can_be(make, message):
    with pytest.raises(lwa.InputError, match=message):
        make()


def test_words_for_the_user():
    assert sample(kernel=HMC(), draws=1).attributes["kernel"].startswith("HMC, 1 to 8 leapfrog steps, step size ")
    fit = sample(kernel=Independence(df=float("inf")), target="calibrated", draws=1)
    assert fit.attributes["kernel"] == "independent proposals around the reference, Gaussian"
    assert fit.attributes["settings"]["kernel"] == "Independence(df=inf)"
