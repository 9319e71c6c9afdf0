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
    assert "Pass target='powered', subset_size=500, which needs no derivatives" in str(refused.value)
    assert "'powered' and 'subposterior' are not the full posterior" in str(refused.value)
    assert refused.value.advice == {"target": "powered", "subset_size": 500}
    # A move may call back into Python, half a millisecond a chain: no thinning.
    options = {"refresh_steps": 2, "draws": 50, "tune": 200, "thinning": 1, "seed": 1, "progress": False}
    with pytest.warns(lwa.LwaWarning, match=f"fell back to 'powered', whose draws are not .* full .*{reason}") as seen:
        fit = lwa.sample(model, Y, subset_size=400, target="auto", **options)
    assert seen[0].message.advice == refused.value.advice
    assert fit.attributes["target"] == "powered"
    assert "fell back" in fit.attributes["warnings"][0]


def laplace():
    """Laplace(mu, exp(s)): mu has a kink, and no curvature though its mixed derivative is not zero."""
    y = np.random.default_rng(2).laplace(0.3, 2.0, 5000)

    def log_likelihood(theta, y):
        return -jnp.abs(y - theta["mu"]) * jnp.exp(-theta["s"]) - theta["s"]

    return lwa.Model(log_likelihood, lambda theta: -0.5 * theta["mu"] ** 2, {"mu": 0.0, "s": 0.0}), y


def uniform():
    """Uniform(0, θ) with a flat prior: the support depends on θ, and the posterior is Pareto's."""
    y = np.random.default_rng(3).uniform(0.0, 2.5, 5000)
    model = lwa.Model(
        lambda theta, y: jnp.where(y <= theta, -jnp.log(theta), -jnp.inf), lambda theta: 0.0, 4.0,
        constraints={"theta": "positive"},
    )  # fmt: skip
    return model, y


def check(draws, mean, sd, worth):
    """Mean and sd within four standard errors, for so many effective draws."""
    assert abs(draws.mean() - mean) < 4 * sd / np.sqrt(worth)
    assert abs(draws.std() / sd - 1) < 4 / np.sqrt(worth)  # twice a Gaussian's error: tails are longer


def check_laplace(fit, y, worth):
    """By quadrature over a grid of 401 x 401."""
    centre, width = np.median(y), 2 / np.sqrt(len(y))
    mu, s = centre + 8 * width * np.linspace(-1, 1, 401), np.log(2) + 8 / np.sqrt(len(y)) * np.linspace(-1, 1, 401)
    away = np.abs(y - mu[:, None]).sum(1)
    log_posterior = -away[:, None] * np.exp(-s) - len(y) * s - 0.5 * mu[:, None] ** 2
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()
    for name, grid, share in (("mu", mu, weight.sum(1)), ("s", s, weight.sum(0))):
        mean = share @ grid
        check(fit.posterior[name], mean, np.sqrt(share @ (grid - mean) ** 2), worth)


def check_uniform(fit, y, worth):
    """Pareto with scale max(y) and exponent N - 1."""
    a = len(y) - 1
    mean, variance = a * y.max() / (a - 1), a * y.max() ** 2 / ((a - 1) ** 2 * (a - 2))
    check(fit.posterior["theta"], mean, np.sqrt(variance), worth)


OPTIONS = {"draws": 1000, "tune": 1000, "seed": 1, "progress": False}


@pytest.mark.parametrize(("build", "verify"), [(laplace, check_laplace), (uniform, check_uniform)])
def test_the_call_that_is_advised_first_gives_the_posterior(build, verify):
    model, y = build()
    with pytest.raises(lwa.ModelError, match="kinks or steps") as refused:
        lwa.sample(model, y, **OPTIONS)
    assert refused.value.advice == {"target": "powered", "subset_size": 5000}
    fit = lwa.sample(model, y, **OPTIONS, **refused.value.advice)
    verify(fit, y, worth=2000)
    assert fit.attributes["warnings"] == []


@pytest.mark.parametrize(("build", "verify"), [(laplace, check_laplace), (uniform, check_uniform)])
def test_the_rival_that_is_advised_gives_the_posterior(build, verify):
    model, y = build()
    verify(lwa.rivals.sample("metropolis", model, y, thinning=5, **OPTIONS), y, worth=1000)


@pytest.mark.slow
def test_exact_draws_of_a_kinked_posterior():
    model, y = laplace()
    fit = lwa.sample(model, y, target="powered", exact=True, subset_size=2500, thinning=50, **OPTIONS)
    check_laplace(fit, y, worth=500)


def test_exact_draws_are_refused_if_subsets_do_not_know_the_support():
    model, y = uniform()
    with pytest.raises(lwa.ModelError, match="where the posterior of all rows is 0") as refused:
        lwa.sample(model, y, target="powered", exact=True, subset_size=100, thinning=5, **OPTIONS)
    assert refused.value.advice == {"target": "powered", "subset_size": 5000, "exact": False}


def test_auto_falls_back_to_all_rows():
    model, y = laplace()
    with pytest.warns(lwa.LwaWarning, match="'powered' with all rows at each step, which is the full posterior"):
        fit = lwa.sample(model, y, target="auto", **OPTIONS)
    assert fit.attributes["subset_size"] == 5000
    check_laplace(fit, y, worth=2000)


def test_a_subset_of_all_rows_never_moves():
    """No row could come in, so none is proposed."""
    model, y = laplace()
    fit = lwa.sample(model, y, target="powered", subset_size=5000, subset_move=lwa.subsets.Swap(1), **OPTIONS)
    assert "Fixed" in fit.attributes["settings"]["subset_move"]


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
