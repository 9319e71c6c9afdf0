"""ARMA: each step's density against a plain recursion, and the map that keeps a series stationary."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import lwa
from lwa.errors import ModelError
from lwa.models.arma import coefficients, partials
from lwa.models.recursion import require_agreement

ORDERS = [(1, 0), (0, 1), (1, 1), (2, 1), (0, 3), (3, 2), (0, 0)]
rng = np.random.default_rng(0)
AR, MA, BETA = np.array([0.5, -0.3, 0.1]), np.array([0.7, 0.2, -0.4]), np.array([1.5, -2.0])
Y, X = 3.0 + rng.normal(size=50), rng.normal(size=(50, 2))


def plainly(y, ar, ma, level, direct, sigma):
    """The log density of each step, one at a time; `level` is γ + x_kᵀ b of each row."""
    series = y if direct else y - level
    z, terms = [], []
    for k in range(len(y)):
        mean = level[k] if direct else 0.0
        mean += sum(a * series[max(k - 1 - i, 0)] for i, a in enumerate(ar))
        mean += sum(b * (z[k - 1 - j] if k - 1 - j >= 0 else 0.0) for j, b in enumerate(ma))
        z.append(series[k] - mean)
        terms.append(norm.logpdf(z[k], scale=sigma))
    return np.array(terms)


def theta_of(model):
    """Values of those parameters that the model has."""
    known = {"ar": AR, "ma": MA, "drift": 0.4, "beta": BETA, "sigma": 1.3}
    return {name: known[name][: shape[0]] if shape else known[name] for name, shape in model.shapes.items()}


@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize(("p", "q"), ORDERS)
def test_each_step_is_the_plain_recursions(p, q, n):
    for drift in (True, False) if p + q else (True,):
        model = lwa.arma(p, q, drift=drift)
        with jax.enable_x64(True):
            terms = model.log_likelihood(theta_of(model), Y[:n])
        expected = plainly(Y[:n], AR[:p], MA[:q], np.full(n, 0.4 * drift), direct=True, sigma=1.3)
        np.testing.assert_allclose(terms, expected, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize("regression", ["errors", "direct"])
@pytest.mark.parametrize(("p", "q"), ORDERS)
def test_regressors(p, q, regression, n):
    model = lwa.arma(p, q, regressors=["price", "week"], regression=regression, sigma=0.7)
    assert "sigma" not in model.shapes
    expected = plainly(Y[:n], AR[:p], MA[:q], 0.4 + X[:n] @ BETA, regression == "direct", sigma=0.7)
    forms = [{"y": Y[:n], "price": X[:n, 0], "week": X[:n, 1]}, np.column_stack([Y[:n], X[:n]])]
    for rows in forms:
        with jax.enable_x64(True):
            np.testing.assert_allclose(model.log_likelihood(theta_of(model), rows), expected, rtol=1e-12)


def test_least_squares_are_the_mode_of_an_autoregression():
    model = lwa.arma(2, 0, sigma=1.0, prior_sd=1e6)
    lags = [np.concatenate([np.full(i, Y[0]), Y[:-i]]) for i in (1, 2)]
    fitted = np.linalg.lstsq(np.column_stack([*lags, np.ones(50)]), Y)[0]
    with jax.enable_x64(True):
        vector = jnp.asarray(model.ravel({"ar": fitted[:2], "drift": fitted[2]}))
        slope = jax.grad(lambda v: model.log_prior_at(v) + model.log_likelihood(model.unravel(v), Y).sum())(vector)
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)


def test_the_level_of_a_series_does_not_matter():
    """What is assumed of the time before the first row must not pull a series of mean 1000 towards another α."""
    model = lwa.arma(2, 1)
    theta = theta_of(model)
    lifted = theta | {"drift": theta["drift"] + 1000.0 * (1 - AR[:2].sum())}
    with jax.enable_x64(True):
        here, there = model.log_likelihood(theta, Y), model.log_likelihood(lifted, Y + 1000.0)
    np.testing.assert_allclose(here, there, rtol=1e-9)


def test_a_step_knows_nothing_of_later_ones():
    model = lwa.arma(2, 2)
    terms = model.log_likelihood(theta_of(model), Y)
    np.testing.assert_allclose(model.log_likelihood(theta_of(model), Y[:20]), terms[:20], rtol=1e-5)


@pytest.mark.parametrize("rows", [Y.astype(np.float32), np.rint(Y).astype(np.int32)], ids=["floats", "integers"])
@pytest.mark.parametrize("stationary", [False, True])
def test_the_working_precision_is_kept(rows, stationary):
    model = lwa.arma(2, 2, stationary=stationary)
    with jax.enable_x64(True):
        vector = jnp.full(model.dimension, 0.1, np.float32)
        assert model.log_likelihood(model.unravel(vector), jnp.asarray(rows)).dtype == np.float32
        assert model.log_prior_at(vector).dtype == np.float32


@pytest.mark.parametrize(("q", "scans"), [(0, False), (1, True)])
def test_only_a_moving_average_needs_a_loop(q, scans):
    model = lwa.arma(2, q)
    program = jax.make_jaxpr(lambda v: model.log_likelihood(model.unravel(v), Y))(jnp.zeros(model.dimension))
    assert ("scan" in str(program)) == scans


def test_a_recursion_that_outgrows_floats_has_no_density():
    model = lwa.arma(0, 1, sigma=1.0)
    terms = model.log_likelihood({"ma": jnp.array([30.0]), "drift": 0.0}, jnp.asarray(Y))
    assert terms[-1] == -jnp.inf
    assert not jnp.isnan(terms).any()


def test_names_and_labels():
    model = lwa.arma(2, 1, regressors=["price"])
    assert model.ordered is True
    assert model.scalar_names == ["ar[0]", "ar[1]", "beta[0]", "drift", "ma[0]", "log(sigma)"]
    assert model.dims == {"ar": ["ar_lag"], "ma": ["ma_lag"], "beta": ["regressor"]}
    assert model.coords == {"ar_lag": [1, 2], "ma_lag": [1], "regressor": ["price"]}
    assert model.init["sigma"] == 1.0
    assert lwa.arma(1, 0, regressors=2, drift=False, sigma=2.0).scalar_names == ["ar[0]", "beta[0]", "beta[1]"]
    stationary = lwa.arma(2, 1, stationary=True)
    assert stationary.scalar_names == ["ar_partial~[0]", "ar_partial~[1]", "drift", "ma_partial~[0]", "log(sigma)"]
    assert stationary.dims["ar_partial"] == ["ar_lag"]


def test_the_prior():
    theta = {"ar": np.array([2.0]), "drift": 3.0, "sigma": 2.0}
    model = lwa.arma(1, 0, prior_sd={"ar": 0.5, "sigma": 2.0})
    expected = -0.5 * (2 / 0.5) ** 2 - 0.5 * (3 / 100) ** 2 - 0.5 * (np.log(2) / 2) ** 2 - np.log(2)
    np.testing.assert_allclose(model.log_prior(theta), expected, rtol=1e-6)
    expected = -0.5 * (2 / 7) ** 2 - 0.5 * (3 / 7) ** 2 - 0.5 * (np.log(2) / 5) ** 2 - np.log(2)
    np.testing.assert_allclose(lwa.arma(1, 0, prior_sd=7).log_prior(theta), expected, rtol=1e-6)


# Stationary by construction

PARTIALS = np.random.default_rng(1).uniform(-0.99, 0.99, size=(200, 4))


def test_partial_autocorrelations_give_stationary_coefficients():
    for ar in coefficients(PARTIALS):
        assert np.abs(np.roots([1.0, *-ar])).max() < 1  # of z⁴ - α_1 z³ - …: inside, where B's lie outside
    np.testing.assert_allclose(partials(coefficients(PARTIALS)), PARTIALS, atol=1e-6)
    assert np.abs(partials(np.array([1.2, 0.1]))).max() > 1  # not stationary
    with jax.enable_x64(True):
        np.testing.assert_allclose(coefficients(jnp.asarray(PARTIALS)), coefficients(PARTIALS), rtol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
def test_the_stationary_prior_is_uniform(p):
    """The density of partial autocorrelations is the Jacobian of their map, so that of the coefficients is constant."""
    model = lwa.arma(p, 0, drift=False, sigma=1.0, stationary=True)
    step = 1e-6 * np.eye(p)
    for r in np.random.default_rng(2).uniform(-0.9, 0.9, size=(5, p)):
        slopes = (coefficients(r + step) - coefficients(r - step)) / 2e-6
        np.testing.assert_allclose(model.log_prior({"ar_partial": r}), np.linalg.slogdet(slopes)[1], atol=1e-5)


def test_a_stationary_model_is_the_same_series():
    model, plain = lwa.arma(3, 2, stationary=True), lwa.arma(3, 2)
    theta = {"ar_partial": PARTIALS[0, :3], "ma_partial": PARTIALS[1, :2], "drift": 0.4, "sigma": 1.3}
    ma = -coefficients(theta["ma_partial"])
    assert np.abs(np.roots([1.0, *ma])).max() < 1
    same = {"ar": coefficients(theta["ar_partial"]), "ma": ma, "drift": 0.4, "sigma": 1.3}
    with jax.enable_x64(True):
        np.testing.assert_allclose(model.log_likelihood(theta, Y), plain.log_likelihood(same, Y), rtol=1e-10)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "options", "fragments"),
    [
        ((-1, 0), {}, ["p=-1 must be a whole number >= 0", "Pass lwa.arma(1, 1)"]),
        ((1, 1.5), {}, ["q=1.5 must be a whole number >= 0"]),
        ((True, 0), {}, ["p=True must be"]),
        ((0, 0), {"drift": False}, ["leave nothing to model", "Pass lwa.arma(1, 0)"]),
        ((1, 0), {"drift": 1}, ["drift=1 must be True or False"]),
        ((1, 0), {"stationary": "yes"}, ["stationary='yes' must be True or False"]),
        ((1, 0), {"sigma": 0.0}, ["sigma=0.0 must be a positive number", "leave it out"]),
        ((1, 0), {"regression": "both"}, ["regression='both'", "'errors', 'direct'"]),
        ((1, 0), {"regressors": -1}, ["regressors=-1 must be a whole number"]),
        ((1, 0), {"regressors": "price"}, ["regressors='price'", "a list of names"]),
        ((1, 0), {"regressors": ["y"]}, ["regressors=['y']", "none of them 'y'"]),
        ((1, 0), {"regressors": ["a", "a"]}, ["all different"]),
        ((1, 0), {"prior_sd": -1.0}, ["prior_sd=-1.0 must be a positive number"]),
        ((1, 0), {"prior_sd": {"alpha": 1.0}}, ["prior_sd={'alpha': 1.0}", "'ar', 'ma', 'drift'"]),
    ],
)
def test_bad_arguments(arguments, options, fragments):
    with pytest.raises(lwa.InputError) as caught:
        lwa.arma(*arguments, **options)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "fragments"),
    [
        (Y, ["shape (50,), for 1 regressors", "a matrix of 2 columns, Y first", "'y', 'price'"]),
        (np.column_stack([Y, X]), ["shape (50, 3), for 1 regressors"]),
        ({"y": Y, "week": Y}, ["no column 'price'", "'y', 'week'"]),
    ],
)
def test_rows_that_do_not_fit(rows, fragments):
    model = lwa.arma(1, 0, regressors=["price"])
    with pytest.raises(lwa.ModelError) as caught:
        model.log_likelihood(theta_of(model), rows)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("regression", ["errors", "direct"])
@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize(("p", "q"), ORDERS)
def test_the_recursion_is_the_log_likelihood(p, q, stationary, regression):
    """One row after the other, from any of its forms."""
    for regressors, sigma in ((0, None), (["price", "week"], 0.7)):
        model = lwa.arma(p, q, regressors=regressors, regression=regression, sigma=sigma, stationary=stationary)
        theta = jax.tree.map(lambda leaf: (0.3 + 0.1 * np.arange(np.size(leaf))).reshape(np.shape(leaf)), model.init)
        rows = Y if not regressors else {"y": Y, "price": X[:, 0], "week": X[:, 1]}
        with jax.enable_x64(True):
            found = model.recursion.along(theta, jax.tree.map(jnp.asarray, rows))
            np.testing.assert_allclose(found, model.log_likelihood(theta, rows), rtol=1e-12)
            if regressors:
                matrix = jnp.asarray(np.column_stack([Y, X]))
                np.testing.assert_allclose(model.recursion.along(theta, matrix), found, rtol=1e-12)


def test_a_recursion_that_is_not_the_log_likelihoods_is_refused():
    one, other = lwa.arma(1, 1, sigma=1.0), lwa.arma(1, 1, sigma=2.0)
    theta = theta_of(one)
    require_agreement(one.recursion, one.log_likelihood, theta, Y)
    with pytest.raises(ModelError, match=r"recursion gives .* of row 0, but log_likelihood gives"):
        require_agreement(other.recursion, one.log_likelihood, theta, Y)
    with pytest.raises(ModelError, match=r"recursion=.* is not one"):
        replace(one, recursion=(one.recursion.start, one.recursion.step))
