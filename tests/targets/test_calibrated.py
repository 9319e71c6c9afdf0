"""The calibrated target: exact where it must be, close where it claims to be, and refused where it cannot work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from experiments.law_of_theta.exact import Y
from lwa.models.likelihood import row_curvatures, row_scores
from lwa.rivals.problems import simulate_logistic
from lwa.rows import as_rows
from lwa.subsets import Gaussian, Swap
from lwa.subsets.chain import SubsetChain
from lwa.summaries import Curvature
from lwa.targets import Calibrated
from lwa.targets.calibration import build_expansion, calibrate
from lwa.targets.reference import Reference, expand_at, find_reference
from lwa.targets.target import Target
from tests.tiny import MODEL, N, every_subset, n

COUNTS = np.array([0, 3, 1, 1, 7, 2, 0, 4], float)
POISSON = lwa.Model(lambda rate, y: y * rate - jnp.exp(rate), lambda rate: -0.5 * rate**2, init=0.0)
"""Log rate: the natural parameter itself."""
BERNOULLI = lwa.Model(lambda logit, y: y * logit - jax.nn.softplus(logit), lambda logit: -0.1 * logit**2, init=0.0)
AFFINE = lwa.Model(lambda t, y: y * (0.3 + 2 * t) - jnp.exp(0.3 + 2 * t), lambda t: -0.5 * t**2, init=0.0)
"""A natural parameter affine in the sampled coordinate."""


def calibrated(model, data, at, transport=False):
    """Target, its U chain at the tiny size, and the log posterior of all rows."""
    rows = as_rows(data)
    reference = expand_at(model, rows, np.array([at]))
    chain = SubsetChain(
        rows, Curvature().at(model, reference, N), Swap(1), Gaussian(), 1.0, n, 1, 16,
        None if transport == "second_order" else calibrate(model, reference, N / n, transport=transport),
    )  # fmt: skip
    # A tiny posterior's tails are part of the comparison.
    endless = build_expansion(reference, second_order=transport == "second_order")._replace(radius=jnp.inf)
    return Target(model, N / n, endless), chain


@pytest.mark.parametrize("at", [0.1, 0.9], ids=["near", "off the mode"])
@pytest.mark.parametrize(
    ("model", "data"),
    [(POISSON, COUNTS), (BERNOULLI, (COUNTS > 1).astype(float)), (AFFINE, COUNTS), (MODEL, Y)],
    ids=["poisson", "bernoulli", "affine", "gaussian"],
)
@pytest.mark.parametrize("transport", [False, True, "second_order"])
def test_exponential_families_are_exact_for_every_subset(model, data, at, transport):
    """Natural parameter affine in θ: given each of the 56 subsets, the target is the full posterior, constant apart."""
    grid = np.linspace(-1.5, 2.0, 41)
    with jax.enable_x64(True):
        target, chain = calibrated(model, data, at, transport)
        given = chain.given(chain.assess(every_subset()))
        rows = data[every_subset()]
        everything = jax.vmap(lambda theta: model.log_prior(theta) + model.log_likelihood(theta, data).sum())(grid)
        for subset in range(56):
            of_U = jax.tree.map(lambda leaf, s=subset: leaf[s], given)
            totals = jax.vmap(lambda theta, s=subset, U=of_U: target.evaluate(theta[None], rows[s], U).total)(grid)
            difference = np.asarray(totals - everything)
            np.testing.assert_allclose(difference, difference[0], atol=1e-9)


def test_the_powered_target_is_exact_only_where_the_statistics_match():
    """S̄_U = s_N makes powered exact for an exponential family; any other subset is off."""
    grid = np.linspace(-1.0, 2.0, 11)
    with jax.enable_x64(True):
        data = np.array([1.0, 2.0, 3.0, 0.0, 4.0, 2.0, 2.0, 2.0])  # mean 2, and rows 0, 1, 2 have mean 2
        target = Target(POISSON, N / n)
        full = np.array([POISSON.log_prior(t) + POISSON.log_likelihood(t, data).sum() for t in grid])
        for subset, exact in (([0, 1, 2], True), ([3, 4, 7], True), ([0, 3, 1], False)):
            totals = np.array([target.evaluate(jnp.array([t]), data[subset]).total for t in grid])
            assert np.allclose(totals - full, (totals - full)[0], atol=1e-9) == exact


def test_carried_scores_follow_the_subset():
    """Σ_U ∇ℓ_k(θ̂), updated with each refresh, is that of the subset at the end."""
    model, data, *_ = simulate_logistic(500, seed=2, parameters=3)
    with jax.enable_x64(True):
        rows = as_rows(data)
        reference = find_reference(model, rows, np.zeros(3), 1)
        chain = SubsetChain(
            rows, Curvature().at(model, reference, 500), Swap(2), Gaussian(), 0.3, 40, 1, 500,
            calibrate(model, reference, 500 / 40, transport=True),
        )  # fmt: skip
        U, page = chain.advance(chain.start([0, 1]), [0, 1], 0)
        assert page.accepted.sum() > 50
        np.testing.assert_allclose(U.sums, chain.assess(np.asarray(U.indices)).sums, atol=1e-10)
        np.testing.assert_allclose(page.given.slope[-1], chain.given(U).slope, atol=1e-9)


def test_row_derivatives_add_up_to_the_reference():
    model, data, *_ = simulate_logistic(400, seed=4, parameters=3)
    with jax.enable_x64(True):
        reference = find_reference(model, as_rows(data), np.zeros(3), 1)
        double = {name: column.astype(float) for name, column in data.items()}
        np.testing.assert_allclose(row_scores(model, reference.theta, double).sum(0), reference.gradient, atol=1e-8)
        bend = np.asarray(row_curvatures(model, reference.theta, double, np.eye(3))).sum(0)
        np.testing.assert_allclose(bend, reference.curvature, rtol=1e-10)
        statistic = Curvature().at(model, reference, 400)
        np.testing.assert_allclose(statistic.centred(double).mean(0), 0.0, atol=1e-9)


def test_the_reference_is_the_mode():
    """Linear regression: θ̂, gradient and curvature in closed form, with blocks that do not divide N."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40_001, 3))
    y = x @ [1.0, -2.0, 0.5] + rng.normal(size=40_001)
    model = lwa.Model(lambda b, r: -0.5 * (r["y"] - r["x"] @ b) ** 2, lambda b: -0.5 * jnp.sum(b**2), init=jnp.zeros(3))
    with jax.enable_x64(True):
        found = find_reference(model, as_rows({"x": x, "y": y}), np.zeros(3), 1)
    precision = x.T @ x + np.eye(3)
    np.testing.assert_allclose(found.precision, precision, rtol=1e-9)
    np.testing.assert_allclose(found.theta, np.linalg.solve(precision, x.T @ y), atol=1e-6)
    np.testing.assert_allclose(found.gradient, found.theta, atol=1e-2)  # the prior's, at the mode
    np.testing.assert_allclose(found.factor @ found.factor.T, np.linalg.inv(precision), rtol=1e-9)
    np.testing.assert_allclose(found.whitening @ found.factor, np.eye(3), atol=1e-10)


@pytest.mark.parametrize("trouble", ["collinear", "separated"])
def test_curvature_that_cannot_work_is_named(trouble):
    model, data, _, truth = simulate_logistic(4000, seed=1, parameters=3)
    flat = lwa.Model(model.log_likelihood, lambda theta: 0.0 * theta["beta"].sum(), model.init)
    if trouble == "collinear":
        data["x"][:, 2] = data["x"][:, 1]
        expected = r"beta\[1\], beta\[2\]"
    else:
        data["y"] = (data["x"] @ truth > 0).astype(np.float32)
        expected = "proper prior"
    with pytest.raises(lwa.ModelError, match=expected):
        lwa.sample(flat, data, target="calibrated", subset_size=200, progress=False)


def test_a_subset_that_is_too_small_is_refused_with_one_that_does():
    model, data, *_ = simulate_logistic(20_000, seed=1, parameters=10)
    with pytest.raises(lwa.InputError, match=r"subset_size=15 is too small .* Pass subset_size=\d+"):
        lwa.sample(model, data, summary=Curvature(), subset_size=15, epsilon=1e3, seed=1, progress=False)


@pytest.mark.slow
def test_a_reference_may_be_given():
    """Any point in the bulk serves: here a sd off the mode, the draws stay centred on the posterior."""
    model, data, *_ = simulate_logistic(50_000, seed=5, parameters=3)
    with jax.enable_x64(True):
        mode = find_reference(model, as_rows(data), np.zeros(3), 1)
    sd = np.sqrt(np.diag(np.linalg.inv(mode.precision)))
    off = {"beta": mode.theta + sd}
    fit = lwa.sample(
        model, data, target=Calibrated(reference=off), subset_size=500, draws=1000, tune=100, chains=8, seed=2,
        progress=False,
    )  # fmt: skip
    draws = fit.posterior["beta"]
    error = draws.mean(1).std(0, ddof=1) / np.sqrt(8) / sd
    assert np.all(np.abs((draws.mean((0, 1)) - mode.theta) / sd) < 0.02 + 4 * error)
    with pytest.raises(TypeError, match="reference"):
        lwa.targets.Powered(reference=off)
    with pytest.raises(lwa.InputError, match="reference"):
        lwa.sample(model, data, target=Calibrated(reference={"gamma": 0.0}), progress=False)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "width"), [(100, 0.03), (1000, 0.02)])
def test_tall_logistic_has_the_posterior_of_all_rows(size, width):
    """N = 10⁶: shift and sd ratio against the Laplace approximation, right to 0.1 % here (third order / √N)."""
    model, data, *_ = simulate_logistic(1_000_000, seed=1, parameters=10)
    with jax.enable_x64(True):
        mode = find_reference(model, as_rows(data), np.zeros(10), 1)
    sd = np.sqrt(np.diag(np.linalg.inv(mode.precision)))
    fit = lwa.sample(
        model, data, target="calibrated", subset_size=size, draws=1000, tune=100, chains=32, seed=1, progress=False
    )
    draws = fit.posterior["beta"]
    shift = (draws.mean((0, 1)) - mode.theta) / sd
    ratio = draws.std((0, 1)) / sd
    assert np.abs(shift).max() < 0.05
    assert np.abs(ratio - 1).max() < width


def test_kernels_that_need_a_reference_say_so():
    with pytest.raises(lwa.InputError, match="needs a reference"):
        lwa.sample(MODEL, Y, target="powered", subset_size=3, kernel=lwa.kernels.Autoregressive(), progress=False)
    with pytest.raises(lwa.InputError, match="needs a reference"):
        lwa.sample(MODEL, Y, target="powered", subset_size=3, summary=Curvature(), progress=False)
    with pytest.raises(lwa.InputError, match="rho"):
        lwa.kernels.Autoregressive(rho=1.0)


def test_the_reference_is_plain_data():
    """F Fᵀ is the inverse precision whatever the curvature."""
    bend = np.array([[4.0, 1.0], [1.0, 2.0]])
    reference = Reference(np.zeros(2), np.zeros(2), bend, np.eye(2), 1)
    np.testing.assert_allclose(reference.factor @ reference.factor.T @ reference.precision, np.eye(2), atol=1e-12)
