"""What is derived of θ stands beside the parameters in results, and nowhere else."""

import jax.numpy as jnp
import numpy as np
import pytest

import lwa

Y = np.random.default_rng(0).normal(2.0, 1.5, 500)


def model(derived, **options):
    return lwa.Model(
        lambda theta, y: -0.5 * ((y - theta["mu"]) / theta["sigma"]) ** 2 - jnp.log(theta["sigma"]),
        lambda theta: -theta["sigma"] - 0.5 * (theta["mu"] / 10) ** 2,
        {"mu": 0.0, "sigma": 1.0},
        constraints={"sigma": "positive"},
        derived=derived,
        **options,
    )


def sample(model):
    return lwa.sample(model, Y, subset_size=50, draws=100, tune=200, chains=2, seed=1, progress=False)


def test_derived_values_are_functions_of_each_draw(tmp_path):
    both = model(lambda theta: {"ends": theta["mu"] + theta["sigma"] * jnp.array([-1.0, 1.0])}, dims={"ends": ["end"]})
    fit, plain = sample(both), sample(model(None))
    mu, sigma = fit.posterior["mu"], fit.posterior["sigma"]
    np.testing.assert_array_equal(mu, plain.posterior["mu"])  # no draw changes
    np.testing.assert_allclose(fit.posterior["ends"], np.stack([mu - sigma, mu + sigma], -1))
    assert fit.idata.posterior["ends"].dims == ("chain", "draw", "end")
    assert "ends" not in fit.unconstrained
    assert fit.certify().names == ["mu", "log(sigma)"]
    fit.save(tmp_path / "run")
    np.testing.assert_array_equal(lwa.load(tmp_path / "run").posterior["ends"], fit.posterior["ends"])


def test_rivals_derive_too():
    both = model(lambda theta: {"variance": theta["sigma"] ** 2})
    fit = lwa.rivals.sample("metropolis", both, Y, draws=20, tune=20, chains=1, seed=1, progress=False)
    np.testing.assert_allclose(fit.posterior["variance"], fit.posterior["sigma"] ** 2)


@pytest.mark.slow
def test_polishing_moves_parameters_and_derives_anew():
    plain = lwa.Model(
        lambda theta, y: -0.5 * (y - theta["b"]) ** 2,
        lambda theta: 0.0 * theta["b"],
        {"b": 0.0},
        derived=lambda theta: {"a": 2 * theta["b"]},
    )
    polished = sample(plain).polish(1, progress=False)
    np.testing.assert_allclose(polished.posterior["a"], 2 * polished.posterior["b"])


@pytest.mark.parametrize(
    ("derived", "fragment"),
    [
        (3, "derived=3 is not a function"),
        (lambda theta: {"mu": theta["mu"]}, "derived names 'mu', which is a parameter"),
        (lambda theta: {"draw": theta["mu"]}, "derived names a value 'draw', which is an axis"),
        (lambda theta: theta["mu"], r"derived returned shape \(\), not a dict of arrays"),
        (lambda theta: {"a": theta["nu"]}, "derived raised KeyError"),
    ],
)
def test_what_is_refused(derived, fragment):
    with pytest.raises(lwa.ModelError, match=fragment):
        sample(model(derived))


def test_bits_do_not_depend_on_how_many_draws_there_are():
    """Draws that are streamed to disk come in numbers of all sizes: nothing is compiled for each of them."""
    traced = []

    def derived(theta):
        traced.append(theta)
        return {"entropy": -(theta["w"] * jnp.log(theta["w"])).sum()}

    model = lwa.Model(
        lambda theta, y: -0.5 * (y / theta["sigma"]) ** 2,
        lambda theta: -theta["sigma"],
        {"sigma": 1.0, "w": np.full(3, 1 / 3)},
        constraints={"sigma": "positive", "w": "simplex"},
        derived=derived,
    )
    draws = np.random.default_rng(0).normal(size=(2, 700, 3))
    whole = model.with_derived(draws)
    parts = [model.with_derived(draws[:, first:last]) for first, last in [(0, 0), (0, 1), (1, 444), (444, 700)]]
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts], axis=1), values)
    assert len(traced) == 1
