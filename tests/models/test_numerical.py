"""Derivatives by differences, against those that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.models.python_likelihood import PythonLikelihood, find_lengths
from lwa.models.python_model import as_python_model

RNG = np.random.default_rng(2)


def in_python(model):
    """A model treated as if JAX could not trace it."""
    return as_python_model(model, {"log_likelihood": "", "log_prior": ""})


def poisson(beta, rows):
    return rows["y"] * (rows["x"] @ beta) - np.exp(rows["x"] @ beta)


X = RNG.normal(size=(40, 3))
COUNTS = RNG.poisson(np.exp(X @ [0.3, -0.2, 0.1]))
ROWS = {"x": X, "y": COUNTS}
BETA = np.array([0.2, -0.1, 0.4])
MODEL = in_python(lwa.Model(poisson, lambda beta: -0.5 * np.sum((beta / 3.0) ** 2), np.zeros(3)))
LIKELIHOOD = PythonLikelihood(MODEL)
MEAN = np.exp(X @ BETA)
SCORES = (COUNTS - MEAN)[:, None] * X
HESSIANS = -MEAN[:, None, None] * X[:, :, None] * X[:, None, :]


def test_derivatives_of_each_row():
    value, score, bend = LIKELIHOOD.derivatives(BETA, ROWS)
    np.testing.assert_allclose(value, poisson(BETA, ROWS), rtol=1e-12)
    np.testing.assert_allclose(score, SCORES, atol=1e-6)
    np.testing.assert_allclose(bend, -HESSIANS, atol=1e-5)
    np.testing.assert_array_equal(bend, bend.swapaxes(1, 2))
    np.testing.assert_allclose(LIKELIHOOD.score_steps(BETA, ROWS), SCORES, atol=1e-8)


def test_sums_count_rows_as_told():
    counts = RNG.random(40)
    value, gradient, curvature = LIKELIHOOD.sum_block(BETA, ROWS, counts)
    np.testing.assert_allclose(value, counts @ poisson(BETA, ROWS))
    np.testing.assert_allclose(gradient, counts @ SCORES, rtol=1e-6)
    np.testing.assert_allclose(-curvature, np.einsum("k,kij->ij", counts, HESSIANS), rtol=1e-6)


def test_the_prior():
    value, gradient, curvature = LIKELIHOOD.sum_prior(BETA)
    np.testing.assert_allclose(value, -0.5 * np.sum((BETA / 3.0) ** 2))
    np.testing.assert_allclose(gradient, -BETA / 9.0, rtol=1e-6)
    np.testing.assert_allclose(curvature, np.eye(3) / 9.0, atol=1e-7)


def test_curvature_along_directions():
    factor = np.linalg.inv(np.linalg.cholesky(-HESSIANS.sum(0))).T
    expected = np.abs(np.einsum("ia,kij,ja->ak", factor, HESSIANS, factor))
    found = LIKELIHOOD.bend_along(BETA, ROWS, factor)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * expected.max())


def test_gradients_at_many_points():
    points = BETA + 0.1 * RNG.normal(size=(5, 3))
    value, gradient = LIKELIHOOD.sum_values(points, ROWS), LIKELIHOOD.sum_gradients(points, ROWS)
    np.testing.assert_allclose(value, [poisson(beta, ROWS).sum() for beta in points])
    expected = [(COUNTS - np.exp(X @ beta)) @ X for beta in points]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_evaluations_are_as_many_as_promised():
    calls = []

    def counting(beta, rows):
        calls.append(len(rows["y"]))
        return poisson(beta, rows)

    more = {name: np.concatenate([column] * 5) for name, column in ROWS.items()}  # more than steps are chosen by
    model = in_python(lwa.Model(counting, MODEL.log_prior, np.zeros(3)))
    PythonLikelihood(model).sum_block(BETA, more, np.ones(200))
    assert calls.count(200) == 3**2 + 3 + 1
    assert calls.count(200) + calls.count(64) == len(calls)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("away", [0.0, 1.0, 300.0])
def test_steps_follow_the_scale_of_the_data(scale, away):
    """Cauchy location: no curvature is constant, and θ may be zero, of the data's scale or far above it."""
    theta = np.array([away * scale])
    y = theta[0] + scale * RNG.normal(size=200)
    model = in_python(lwa.Model(lambda mu, y: -np.log1p(((y - mu) / scale) ** 2), lambda mu: 0.0, 0.0))
    z = (y - theta[0]) / scale
    _, gradient, curvature = PythonLikelihood(model).sum_block(theta, y, np.ones(200))
    np.testing.assert_allclose(gradient, [(2 * z / (1 + z**2)).sum() / scale], rtol=1e-4)
    np.testing.assert_allclose(-curvature, [[(2 * (z**2 - 1) / (1 + z**2) ** 2).sum() / scale**2]], rtol=1e-4)


def test_a_parameter_that_no_row_depends_on_keeps_a_plain_step():
    found = find_lengths(lambda theta: -0.5 * theta[:1] ** 2, np.array([0.5, 7.0]))
    assert found[1] == 7.0
    assert 0.1 < found[0] < 10.0


def test_steps_stay_inside_a_boundary_that_is_near():
    """log σ raises below zero, as Python's own logarithm does; σ is 1/1000."""

    def log_density(theta):
        if theta[0] <= 0:
            raise ValueError("math domain error")
        return -0.5 * (np.array([0.7, -1.1]) * 1e-3 / theta[0]) ** 2 - np.log(theta[0])

    assert find_lengths(log_density, np.array([1e-3]))[0] < 0.1


def test_units_are_as_precise_as_rows():
    """The gradient of a long series is a sum of many terms of which the large parts cancel."""
    y = RNG.normal(size=2000)

    def log_likelihood(theta, rows):
        return -0.5 * ((rows["y"] - theta[0]) * np.exp(-theta[1])) ** 2 - theta[1]

    model = in_python(lwa.Model(log_likelihood, lambda theta: 0.0, np.zeros(2), groups="g")).of_units
    units = lay_out(lwa.Model(log_likelihood, lambda theta: 0.0, np.zeros(2), groups="g"), {"y": y, "g": 0 * y})
    unit = units.full.take(np.zeros(1, np.int64))
    _, gradient, curvature = PythonLikelihood(model).sum_block(np.array([0.1, 0.2]), unit, np.ones(1))
    with jax.enable_x64(True):

        def total(theta):
            return jnp.sum(-0.5 * ((y - theta[0]) * jnp.exp(-theta[1])) ** 2 - theta[1])

        at = jnp.array([0.1, 0.2])
        np.testing.assert_allclose(gradient, jax.grad(total)(at), rtol=1e-6)
        np.testing.assert_allclose(-curvature, jax.hessian(total)(at), rtol=1e-6)
