"""Results do not depend on the precision that the user has set for JAX, nor do they change it."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lwa
from tests.support import MODEL, Y, run, sample

pytestmark = pytest.mark.slow


def noisy(y):
    """Student-t rows with a scale."""
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.StudentT(5, mu, sigma), obs=y)


def of_numpyro():
    data = {"y": Y}
    return sample(lwa.from_numpyro(noisy, data), data, target="calibrated", subset_size=50, thinning=1)


def of_a_formula():
    return sample(lwa.glm("y ~ 1"), {"y": Y}, target="calibrated", subset_size=50, thinning=1)


def exact():
    return run(exact=True, thinning=2)


def rival():
    return lwa.rivals.sample("metropolis", MODEL, Y, draws=20, tune=20, chains=2, seed=1, progress=False)


@pytest.fixture
def either():
    """Runs a function with each of JAX's settings for the whole process."""
    before = jax.config.jax_enable_x64

    def found(function):
        results = []
        for wide in (False, True):
            jax.config.update("jax_enable_x64", wide)
            results.append(function())
            assert jax.config.jax_enable_x64 is wide
        return results

    yield found
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("make", [run, of_numpyro, of_a_formula, exact, rival])
def test_draws_are_the_same(make, either):
    narrow, wide = either(make)
    for name, values in narrow.posterior.items():
        np.testing.assert_array_equal(values, wide.posterior[name])


def test_certificates_are_the_same(either):
    fit = run(draws=100, thinning=1)
    narrow, wide = either(lambda: lwa.certify(MODEL, Y, fit, progress=False))
    assert narrow.as_dict() == wide.as_dict()
