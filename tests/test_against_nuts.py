"""What the full posterior corrects: `exact=True` and `fit.polish` against long NUTS where the calibrated target is off.

NUTS (NumPyro) runs on the log density of the very same `lwa.Model`, in float64. Means and second moments of every
parameter are compared by Welch's t over independent chains.
"""

import os
import signal
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.rows import as_rows
from lwa.targets import Calibrated
from lwa.targets.reference import compute_log_posterior
from tests.tiny import MEAN, MODEL, PRIOR_SD, N, Y, n

pytestmark = pytest.mark.slow

CHAINS = 32
LEVEL = 1e-3
"""Of all comparisons of one test together: Bonferroni."""


def normal(sd, *parameters):
    return sum(-0.5 * jnp.sum((parameter / sd) ** 2) for parameter in parameters)


def rare_events():
    """Logistic regression, 2,000 rows of which 7 are positive: the intercept's posterior is skewed."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 2))
    y = (rng.random(2000) < 1 / (1 + np.exp(5.9 - x @ [0.8, -0.6]))).astype(float)

    def log_likelihood(theta, rows):
        logit = theta["intercept"] + rows["x"] @ theta["beta"]
        return rows["y"] * logit - jax.nn.softplus(logit)

    model = lwa.Model(
        log_likelihood,
        lambda theta: normal(10.0, theta["intercept"]) + normal(5.0, theta["beta"]),
        init={"beta": jnp.zeros(2), "intercept": -4.0},
    )
    return model, {"x": x, "y": y}


def censored_survival():
    """Exponential regression of survival, 600 rows of which all but 9 are censored."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(600, 2))
    lived, watched = rng.exponential(np.exp(3.9 - x @ [0.6, -0.4])), rng.uniform(0.2, 1.0, 600)

    def log_likelihood(theta, rows):
        log_hazard = theta["intercept"] + rows["x"] @ theta["beta"]
        return rows["died"] * log_hazard - rows["time"] * jnp.exp(log_hazard)

    model = lwa.Model(
        log_likelihood,
        lambda theta: normal(5.0, theta["intercept"], theta["beta"]),
        init={"beta": jnp.zeros(2), "intercept": -3.0},
    )
    return model, {"x": x, "time": np.minimum(lived, watched), "died": (lived < watched).astype(float)}


def unknown_dispersion():
    """Gamma regression of 200 rows whose shape is a parameter too."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=200)
    y = rng.gamma(0.7, np.exp(1 + 0.5 * x) / 0.7)

    def log_likelihood(theta, rows):
        shape, log_mean = jnp.exp(theta["log_shape"]), theta["intercept"] + theta["slope"] * rows["x"]
        scaled = jnp.log(rows["y"]) + theta["log_shape"] - log_mean
        return shape * scaled - jnp.exp(scaled) - jax.scipy.special.gammaln(shape) - jnp.log(rows["y"])

    model = lwa.Model(
        log_likelihood,
        lambda theta: normal(5.0, theta["intercept"], theta["slope"]) + normal(2.0, theta["log_shape"]),
        init={"intercept": 0.0, "log_shape": 0.0, "slope": 0.0},
    )
    return model, {"x": x, "y": y}


CASES = {
    rare_events: {"subset_size": 30, "target": Calibrated(leverage=False)},
    censored_survival: {"subset_size": 40, "target": Calibrated(transport=False)},
    unknown_dispersion: {"subset_size": 6, "target": Calibrated(transport=False, leverage=True)},
}
"""With subsets so small that a mean is off by a share of an sd where they are transported, and sds where they are not:
these come out too wide, since curvature varies with U."""


def nuts(model, data, warmup=300, draws=500):
    """`(chains, draws, d)` by NumPyro on -(log prior + Σ log likelihood) of the model itself."""
    from numpyro.infer import MCMC, NUTS

    with jax.enable_x64(True):
        rows = jax.tree.map(jnp.asarray, data)

        def potential(theta):
            return -(model.log_prior_at(theta) + model.log_likelihood(model.unravel(theta), rows).sum())

        first, rest = jax.random.split(jax.random.key(11))
        start = model.ravel(model.init) + 0.1 * jax.random.normal(first, (CHAINS, model.dimension))
        sampler = MCMC(
            NUTS(potential_fn=potential, dense_mass=True), num_warmup=warmup, num_samples=draws, num_chains=CHAINS,
            chain_method="vectorized", progress_bar=False,
        )  # fmt: skip
        sampler.run(rest, init_params=start, extra_fields=("diverging",))
        found = np.asarray(sampler.get_samples(group_by_chain=True))
        assert found.dtype == np.float64
        assert not np.any(sampler.get_extra_fields()["diverging"])
    within, between = found.var(1, ddof=1).mean(0), found.mean(1).var(0, ddof=1)
    assert np.all(between < 0.02 * within)  # R-hat under 1.01
    return found


def flat(fit):
    return np.concatenate([values.reshape(*values.shape[:2], -1) for values in fit.posterior.values()], -1)


@dataclass
class Compared:
    """Means and second moments of all parameters, in NUTS' standard units, chain by chain on both sides."""

    draws: np.ndarray
    truth: np.ndarray

    def __post_init__(self):
        centre, scale = self.truth.mean((0, 1)), self.truth.std((0, 1))
        ours, theirs = (
            np.concatenate([z.mean(1), (z**2).mean(1)], axis=-1)
            for z in ((draws - centre) / scale for draws in (self.draws, self.truth))
        )
        self.off = ours.mean(0) - theirs.mean(0)
        self.error = np.sqrt(ours.var(0, ddof=1) / len(ours) + theirs.var(0, ddof=1) / len(theirs))
        test = stats.ttest_ind(ours, theirs, equal_var=False)
        self.t, self.df = test.statistic, test.df

    def limit(self, comparisons):
        """|t| at which each of so many comparisons would be significant."""
        return stats.t.isf(LEVEL / comparisons / 2, self.df)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lwa.LwaWarning")  # of what is off, which is what the test needs
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_corrected_draws_are_those_of_nuts_where_calibrated_ones_are_not(case):
    model, data = case()
    options: dict[str, Any] = CASES[case] | {"chains": CHAINS, "tune": 1000, "seed": 1, "progress": False}
    truth = nuts(model, data)
    fit = lwa.sample(model, data, draws=1000, **options)
    exact = lwa.sample(model, data, draws=420, thinning=10, exact=True, **options)
    polished = fit.polish(passes=8, draws=250, progress=False)

    calibrated = Compared(flat(fit), truth)
    assert np.abs(calibrated.t).max() > 4  # else there was nothing to correct
    for draws in (flat(exact)[:, 20:], flat(polished)):
        corrected = Compared(draws, truth)
        limit = corrected.limit(2 * len(corrected.t))
        assert np.all(np.abs(corrected.t) < limit)
        # Power: what the calibrated target was off would have been refused, with two standard errors to spare.
        assert np.any(np.abs(calibrated.off) > (limit + 2) * corrected.error)

    assert polished.attributes["polish_passes"] == 8
    assert 0.5 < polished.attributes["polish_acceptance"] < 1.0


def tiny(data=Y, target="powered", seed=5):
    """Draws that are not those of the full posterior N(Σy / P, 1/P), P = N + 1/PRIOR_SD², but wider."""
    return lwa.sample(
        MODEL, data, target=target, subset_size=n, summary=MEAN, epsilon=0.3, draws=20, tune=200, thinning=10,
        chains=128, seed=seed, precision="float64", progress=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def fit():
    return tiny()


def of_mean_and_variance(fit):
    """p-values of the full posterior's mean and variance, by t over chains."""
    precision = N + 1 / PRIOR_SD**2
    z = (fit.posterior["theta"] - Y.sum() / precision) * np.sqrt(precision)
    return [stats.ttest_1samp(of_chains.mean(1), right).pvalue for of_chains, right in ((z, 0.0), (z**2, 1.0))]


@pytest.mark.parametrize("target", [pytest.param("powered", marks=pytest.mark.slow), "subposterior"])
def test_polishing_moves_draws_to_the_full_posterior(target):
    fit = tiny(target=target)
    polished = fit.polish(passes=20, draws=20, progress=False)
    assert of_mean_and_variance(fit)[1] < 1e-6
    assert min(of_mean_and_variance(polished)) > 1e-4
    told = polished.sample_stats
    assert 0.0 < told["accepted"].mean() < 1.0
    assert polished.attributes["polish_acceptance"] == pytest.approx(told["acceptance_rate"].mean(), abs=0.02)
    states = polished.draws // 20  # all but those of the first passes
    assert 10 <= states < 20
    assert (told["n_rows_read"] == np.ceil(20 * N / states)).all()
    with jax.enable_x64(True):
        scored = compute_log_posterior(MODEL, as_rows(Y), polished.posterior["theta"].reshape(-1, 1))
    np.testing.assert_allclose(told["lp"].ravel(), scored, rtol=1e-12)


def test_same_seed_same_polished_draws(fit):
    one = fit.polish(3, progress=False).posterior["theta"]
    assert np.array_equal(one, fit.polish(3, progress=False).posterior["theta"])
    assert np.array_equal(one, tiny().polish(3, progress=False).posterior["theta"])
    assert not np.array_equal(one, tiny(seed=6).polish(3, progress=False).posterior["theta"])


def test_polishing_again_draws_afresh(fit):
    once = fit.polish(3, progress=False)
    again = once.polish(2, progress=False)
    assert [run.attributes["polish_passes"] for run in (once, again)] == [3, 5]
    assert "polish_passes" not in fit.attributes
    repeated = replace(once, attributes=fit.attributes).polish(2, progress=False)  # as if for the first time
    moved = again.posterior["theta"] != once.posterior["theta"]
    assert moved.mean() > 0.2
    assert (again.posterior["theta"] != repeated.posterior["theta"])[moved].all()


def test_some_draws_may_be_polished(fit):
    assert fit.polish(1, draws=2, progress=False).posterior["theta"].shape == (128, 2)
    assert fit.polish(1, draws=500, progress=False).draws == fit.draws


@pytest.mark.parametrize("wrong", [{"passes": 0}, {"passes": True}, {"passes": 1.5}, {"passes": 1, "draws": 0}])
def test_what_is_no_number_of_passes_is_refused(fit, wrong):
    name, value = list(wrong.items())[-1]
    with pytest.raises(lwa.InputError, match=f"{name}={value!r} must be a whole number >= 1"):
        fit.polish(**wrong, progress=False)


def test_a_loaded_run_cannot_be_polished(fit, tmp_path):
    with pytest.raises(lwa.InputError, match="cannot be polished"):
        lwa.load(fit.save(tmp_path / "run")).polish(progress=False)


class Interrupting:
    """Rows that press Ctrl-C in the pass that `left` counts down to."""

    def __init__(self):
        self.rows, self.left = as_rows(Y), 0

    def __len__(self):
        return N

    def take(self, indices):
        return self.rows.take(indices)

    def blocks(self, size):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return self.rows.blocks(size)


def test_ctrl_c_ends_polishing_after_the_pass_at_hand(fit):
    rows = Interrupting()
    run = tiny(rows)
    rows.left = 4  # one pass scores the draws, then the third correction
    stopped = run.polish(1000, progress=False)
    assert stopped.attributes["polish_passes"] == 3
    assert np.array_equal(stopped.posterior["theta"], fit.polish(3, progress=False).posterior["theta"])


def test_passes_made_before_the_data_failed_are_kept():
    """Rows that fail on a later pass: polish returns what it has, which is that of fewer passes."""
    rows = FailingRows(Y)
    fit = lwa.sample(
        MODEL,
        rows,
        target="powered",
        summary=MEAN,
        subset_size=n,
        epsilon=0.3,
        draws=20,
        tune=64,
        chains=4,
        thinning=1,
        seed=3,
        progress=False,
    )
    rows.left = 3  # one pass scores the draws, two correct them
    with pytest.warns(lwa.LwaWarning, match=r"DataError after 2 of 5 passes, which are kept: the disk is gone"):
        part = fit.polish(5, progress=False)
    rows.left = 100
    whole = fit.polish(2, progress=False)
    assert part.attributes["polish_passes"] == 2
    np.testing.assert_array_equal(part.posterior["theta"], whole.posterior["theta"])


class FailingRows:
    """Rows that can be read so many times more."""

    def __init__(self, values):
        self.rows, self.left = as_rows(values), 100

    def __len__(self):
        return len(self.rows)

    def take(self, indices):
        return self.rows.take(indices)

    def blocks(self, size):
        self.left -= 1
        if self.left < 0:
            raise lwa.DataError("the disk is gone")
        return self.rows.blocks(size)
