"""More parameters than subsets can be transported for: rows expanded to second order, leverage in strata."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.targets import Calibrated
from lwa.targets.calibration import build_expansion
from lwa.targets.reference import find_reference
from lwa.targets.target import Target

SIZES = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] * 7 + [600] * 10
"""Rows of 80 levels, most of them rare."""


def levels(seed=1):
    """Which level each row has, and a response whose rate depends on it."""
    rng = np.random.default_rng(seed)
    level = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    rate = 1 / (1 + np.exp(-rng.normal(-1.0, 0.7, len(SIZES))))
    return {"g": [f"{one:02d}" for one in level], "y": (rng.random(len(level)) < rate[level]).astype(float)}, level


def by_quadrature(y, level):
    """Mean and sd of each level's log odds under N(0, 2.5²): without an intercept they are independent."""
    grid = np.linspace(-15, 15, 6001)
    found = []
    for one in range(len(SIZES)):
        own = y[level == one]
        log = own.sum() * grid - len(own) * np.logaddexp(0, grid) - 0.5 * (grid / 2.5) ** 2
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        mean = weight @ grid
        found.append((mean, np.sqrt(weight @ (grid - mean) ** 2)))
    return np.array(found).T


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["auto", lwa.kernels.NUTS()], ids=["auto", "NUTS"])
def test_rare_levels_have_their_own_posterior(kernel):
    """80 levels, n = 400 of 7,617 rows: each of them skewed by as much as its rows are few, and right to 0.05 sd."""
    data, level = levels()
    fit = lwa.sample(
        lwa.glm("y ~ 0 + g", family="bernoulli"), data, subset_size=400, draws=2000, tune=500, chains=8, thinning=2,
        kernel=kernel, seed=1, progress=False,
    )  # fmt: skip
    assert fit.attributes["transport"] == "second_order"
    assert fit.attributes["leverage"]
    mean, sd = by_quadrature(data["y"], level)
    draws = fit.posterior["beta"]
    error = draws.mean(1).std(0, ddof=1) / np.sqrt(8) / sd
    # Student's t with 7 degrees of freedom passes 6.5 once in 3000: once in 40 runs for any of 80.
    assert np.all(np.abs(draws.mean((0, 1)) - mean) / sd < 0.05 + 6.5 * error)
    spread = draws.std(1)
    error = spread.std(0, ddof=1) / np.sqrt(8) / sd
    assert np.all(np.abs(draws.std((0, 1)) / sd - 1) < 0.05 + 6.5 * error)


def test_remainders_of_third_order_vanish_as_they_should():
    """Σ T_k(tδ) falls like t³, in float64, and the target given all rows is the log posterior itself."""
    data, _ = levels()
    bound = lwa.glm("y ~ g", family="bernoulli").bind(data)
    model, rows = bound.model, bound.rows
    with jax.enable_x64(True):
        reference = find_reference(model, rows, model.ravel(model.init), 1)
        target = Target(model, 1.0, build_expansion(reference, second_order=True))
        everything = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, -1), rows.take(np.arange(len(rows))))
        away = reference.factor @ np.random.default_rng(2).normal(size=model.dimension)
        sums = [float(target.row_terms(reference.theta + t * away, everything, None).sum()) for t in (0.2, 0.1, 0.05)]
        assert 6 < sums[0] / sums[1] < 10
        assert 7 < sums[1] / sums[2] < 9

        def full(theta):
            return float(model.log_prior_at(theta) + model.log_likelihood_at(theta, everything).sum())

        thetas = jnp.asarray(reference.theta + np.array([0.0, 0.5, 1.0, 2.0])[:, None] * away)
        off = [float(target.evaluate(theta, everything).total) - full(theta) for theta in thetas]
        np.testing.assert_allclose(off, off[0], atol=1e-7)


@pytest.mark.slow
def test_the_choice():
    """Few parameters, none of them rare: U is transported. Rare levels are expanded, and so is what asks for it."""
    data, _ = levels()
    options = {"subset_size": 400, "draws": 10, "tune": 10, "chains": 2, "seed": 1, "progress": False}
    assert lwa.sample(lwa.glm("y ~ g", family="bernoulli"), data, **options).attributes["transport"] == "second_order"
    few = {"y": data["y"], "g": [str(row % 4) for row in range(len(data["y"]))]}
    model = lwa.glm("y ~ g", family="bernoulli")
    assert lwa.sample(model, few, **options).attributes["transport"] is True
    asked = lwa.sample(model, few, target=Calibrated(transport="second_order"), **options).attributes
    assert asked["transport"] == "second_order"
    assert "transport=second_order" in asked["settings"]["target"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lwa.arma(1, 0), "ordered rows"),
        (lwa.Model(lambda mu, y: -0.5 * (y - float(mu)) ** 2, lambda mu: 0.0, init=0.0), "not JAX"),
    ],
    ids=["ordered", "python"],
)
def test_where_it_is_not_there_it_is_refused(model, words):
    y = np.random.default_rng(1).normal(size=200)
    with pytest.raises(lwa.InputError, match=f"second_order' is not available for .*{words}"):
        lwa.sample(
            model, y, subset_size=50, draws=5, tune=5, target=Calibrated(transport="second_order"), progress=False
        )
