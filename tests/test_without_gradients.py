"""Models that cannot be calibrated: refused with the reason, or, where it is asked for, sampled another way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa

Y = np.random.default_rng(0).normal(size=500).astype(np.float32)


def called_back(theta, y):
    """Normal(θ, 1), by NumPy."""
    shape = jax.ShapeDtypeStruct(y.shape, y.dtype)
    return jax.pure_callback(lambda t, y: -0.5 * (y - t) ** 2, shape, theta, y, vmap_method="sequential")


def kinked(theta, y):
    """Laplace(θ, 1)."""
    return -jnp.abs(y - theta)


@pytest.mark.parametrize(
    ("log_likelihood", "reason"),
    [pytest.param(called_back, "JAX cannot take them", marks=pytest.mark.slow), (kinked, "kinks or steps")],
)
def test_refused_with_the_reason_and_what_to_use(log_likelihood, reason):
    model = lwa.Model(log_likelihood, lambda theta: -0.5 * theta**2, 0.1)
    with pytest.raises(lwa.ModelError, match=reason) as refused:
        lwa.sample(model, Y, subset_size=50, progress=False)
    assert "pass target='powered' or 'subposterior'" in str(refused.value).replace("Pass", "pass")
    # A move may call back into Python, half a millisecond a chain: no thinning.
    options = {"refresh_steps": 2, "draws": 50, "tune": 200, "thinning": 1, "seed": 1, "progress": False}
    with pytest.warns(lwa.LwaWarning, match=f"fell back to 'powered'.*{reason}"):
        fit = lwa.sample(model, Y, subset_size=400, target="auto", **options)
    assert fit.attributes["target"] == "powered"
    assert "fell back" in fit.attributes["warnings"][0]


def test_auto_is_calibrated_where_it_can_be():
    model = lwa.Model(lambda theta, y: -0.5 * (y - theta) ** 2, lambda theta: -0.5 * theta**2, 0.0)
    options = {"subset_size": 50, "draws": 20, "tune": 32, "seed": 1, "progress": False}
    auto, calibrated = (lwa.sample(model, Y, target=target, **options) for target in ("auto", "calibrated"))
    assert auto.attributes["target"] == "calibrated"
    np.testing.assert_array_equal(auto.posterior["theta"], calibrated.posterior["theta"])


def test_a_broken_model_is_no_reason_to_fall_back():
    model = lwa.Model(lambda theta, y: (y - theta).sum(), lambda theta: 0.0, 0.0)
    with pytest.raises(lwa.ModelError, match="single number for 5 rows"):
        lwa.sample(model, Y, subset_size=50, target="auto", progress=False)
