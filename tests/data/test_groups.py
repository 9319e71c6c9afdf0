"""U as a set of whole groups: panels and hierarchies with shared parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.subsets import Gaussian, Swap
from lwa.subsets.chain import SubsetChain
from lwa.summaries.summary import OverGroups
from lwa.targets.reference import compute_log_posterior, find_reference

GROUPS = 600
RNG = np.random.default_rng(7)
SIZES = RNG.integers(1, 12, GROUPS)
SUBJECT = np.repeat(RNG.permutation(GROUPS), SIZES)
X = RNG.normal(size=len(SUBJECT))
OFFSET = RNG.normal(scale=0.5, size=GROUPS)
Z = 0.3 * X - 0.2 + OFFSET[SUBJECT] + RNG.normal(size=len(SUBJECT))
MIXED = RNG.permutation(len(SUBJECT))


def terms(theta, rows):
    return -0.5 * (rows["y"] - theta["slope"] * rows["x"] - theta["level"]) ** 2


def log_prior(theta):
    return -0.5 * (theta["slope"] ** 2 + theta["level"] ** 2) / 100.0


INIT = {"level": 0.0, "slope": 0.0}
GROUPED = lwa.Model(terms, log_prior, INIT, groups="subject")
DATA = {"y": Z, "x": X, "subject": SUBJECT}
OPTIONS = {"draws": 1000, "tune": 500, "chains": 8, "seed": 1, "progress": False}


def regression():
    """Mean and sd of (level, slope), exactly."""
    x = np.column_stack([np.ones_like(X), X])
    covariance = np.linalg.inv(x.T @ x + np.eye(2) / 100.0)
    return covariance @ x.T @ Z, np.sqrt(np.diag(covariance))


def check(fit, shift=0.03, ratio=0.03):
    mean, sd = regression()
    draws = np.stack([fit.posterior["level"], fit.posterior["slope"]], axis=-1)
    effective = effective_draws(draws).min()
    assert np.abs((draws.mean((0, 1)) - mean) / sd).max() < shift + 4.5 / effective**0.5
    assert np.abs(draws.std((0, 1)) / sd - 1).max() < ratio + 4.5 / (2 * effective) ** 0.5


@pytest.mark.parametrize("order", ["together", "apart"])
def test_groups_give_the_posterior_of_all_rows(order):
    data = DATA if order == "together" else {name: values[MIXED] for name, values in DATA.items()}
    fit = lwa.sample(GROUPED, data, subset_size=60, **OPTIONS)
    check(fit)
    assert fit.certify(progress=False).passed
    assert fit.attributes["subset_size"] == 60
    assert fit.attributes["rows_read"] == fit.attributes["moves"] * 8 * round(60 * len(Z) / GROUPS)


@pytest.mark.slow
def test_exact_and_polish():
    exact = lwa.sample(GROUPED, DATA, subset_size=60, exact=True, **(OPTIONS | {"draws": 100}))
    check(exact, 0.0, 0.0)
    polished = lwa.sample(GROUPED, DATA, subset_size=60, **OPTIONS).polish(2, progress=False)
    check(polished, 0.0, 0.0)


def test_all_groups_are_all_rows():
    """n = all groups: the same keys give the same draws as all single rows do."""
    options = {"target": "powered", "draws": 50, "tune": 64, "chains": 2, "seed": 4, "precision": "float64"}
    grouped = lwa.sample(GROUPED, DATA, subset_size=GROUPS, progress=False, **options)
    single = lwa.sample(lwa.Model(terms, log_prior, INIT), DATA, subset_size=len(Z), progress=False, **options)
    for name in INIT:
        np.testing.assert_allclose(grouped.posterior[name], single.posterior[name], rtol=1e-9)


def test_rows_of_a_group_may_depend_on_those_before():
    """A random walk within each group: terms look one row back, in the order of the data, never across groups."""

    def steps(theta, rows):
        before = jnp.concatenate([jnp.zeros(1, rows["y"].dtype), rows["y"][:-1]])
        return -0.5 * (rows["y"] - theta["level"] - theta["slope"] * before) ** 2

    model = lwa.Model(steps, log_prior, INIT, groups="subject")
    shuffled = {name: values[MIXED] for name, values in DATA.items()}
    layout = lay_out(model, shuffled)
    points = np.random.default_rng(1).normal(size=(3, 2))
    with jax.enable_x64(True):
        found = compute_log_posterior(layout.model, layout.full, points)
    for (level, slope), value in zip(points, found, strict=True):
        whole = -0.5 * (level**2 + slope**2) / 100.0
        for subject in range(GROUPS):
            y = shuffled["y"][shuffled["subject"] == subject]
            whole += -0.5 * ((y - level - slope * np.r_[0.0, y[:-1]]) ** 2).sum()
        assert value == pytest.approx(whole, rel=1e-12)
    fit = lwa.sample(model, shuffled, subset_size=60, **OPTIONS)
    assert fit.certify(progress=False).passed


def test_a_summary_of_rows_is_one_of_groups():
    """S̄(Y_U) - s_N of a set of groups, weighted by their rows: zero for all of them."""
    layout, mean = lay_out(GROUPED, DATA), lwa.summaries.PerRow(lambda rows: rows["y"])
    gathering = mean.gather()
    gathering.visit(DATA)
    statistic = OverGroups(gathering.finish(), layout.mean_size)
    chain = SubsetChain(layout.full, statistic, Swap(1), Gaussian(), 0.1, GROUPS, 1, 8)
    few = SubsetChain(layout.full, statistic, Swap(1), Gaussian(), 0.1, 5, 1, 8)
    with jax.enable_x64(True):
        assert float(chain.start([0]).distance[0]) == pytest.approx(0.0, abs=1e-12)
        U = few.assess(np.array([[3, 1, 4, 100, 500]]))
    rows = np.concatenate([np.arange(*layout.series.offsets[[g, g + 1]]) for g in (3, 1, 4, 100, 500)])
    expected = (Z[rows] - Z.mean()).sum() / (5 * layout.mean_size)
    assert np.asarray(U.total)[0, 0] / 5 == pytest.approx(expected)
    fit = lwa.sample(GROUPED, DATA, subset_size=60, target="subposterior", summary=mean, **(OPTIONS | {"draws": 20}))
    assert (fit.sample_stats["subset_distance"] > 0).all()


def test_groups_by_position():
    """The second column of a matrix, though 1 equals True."""
    model = lwa.Model(lambda mu, rows: -0.5 * (rows[:, 0] - mu) ** 2, lambda mu: -0.005 * mu**2, 0.0, groups=1)
    layout = lay_out(model, np.column_stack([Z, SUBJECT]))
    assert layout.series.sizes.tolist() == lay_out(GROUPED, DATA).series.sizes.tolist()
    with pytest.raises(lwa.ModelError, match="groups=True is not a column"):
        lwa.Model(terms, log_prior, INIT, groups=True)


def test_leverage_of_groups():
    """One group holds nearly all that is known of a slope: it is drawn as often as it matters."""
    x = np.where(SUBJECT == 5, 40.0, 0.1 * X)
    data = {"y": 0.3 * x + RNG.normal(size=len(x)), "x": x, "subject": SUBJECT}
    transported = lwa.targets.Calibrated(transport=True)
    fit = lwa.sample(GROUPED, data, subset_size=60, target=transported, **OPTIONS)
    assert fit.attributes["leverage"]
    assert fit.certify(progress=False).passed


def test_the_reference_is_that_of_single_rows():
    layout = lay_out(GROUPED, DATA)
    with jax.enable_x64(True):
        grouped = find_reference(layout.model, layout.full, np.zeros(2), 1)
        single = find_reference(lwa.Model(terms, log_prior, INIT), layout.rows, np.zeros(2), 1)
    np.testing.assert_allclose(grouped.theta, single.theta, atol=1e-3 * regression()[1].min())
    np.testing.assert_allclose(grouped.curvature, single.curvature, rtol=1e-9)
