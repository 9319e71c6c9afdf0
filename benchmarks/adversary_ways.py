"""Cases of `adversary.py` by other ways into lwa: formulas with rare levels, NumPyro, NumPy functions."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from adversary_cases import bound, case, logistic_model, with_ones
from adversary_references import Problem
from scipy.special import expit as sigmoid

import lwa


def zipf_levels(rng, N, count):
    share = 1 / np.arange(1, count + 1) ** 1.6
    return rng.choice(count, N, p=share / share.sum())


@case("a formula with 60 levels, the rarest in about 20 of 50,000 rows")
def formula_of_levels(seed):
    rng = np.random.default_rng([80, seed])
    g, x = zipf_levels(rng, 50_000, 60), rng.standard_t(3, size=50_000)
    y = rng.random(50_000) < sigmoid(rng.normal(-2, 1, 60)[g] + 0.3 * x)
    frame = {"y": y.astype(float), "x": x, "g": np.array([f"level {one:02d}" for one in g])}
    return bound(lwa.glm("y ~ x + g", family="bernoulli"), frame)


@case("a formula with Student-t errors, outliers and a crossing of factors")
def formula_of_outliers(seed):
    rng = np.random.default_rng([81, seed])
    a, b, x = rng.choice(list("uvw"), 20_000), rng.choice(list("pq"), 20_000, p=[0.999, 0.001]), rng.normal(size=20_000)
    y = x + (a == "w") * (b == "q") + rng.standard_t(2.2, size=20_000)
    return bound(lwa.glm("y ~ x + a * b", family="student_t"), {"y": y, "x": x, "a": a, "b": b})


@case("NumPyro: 8 groups, not centred, sd near 0")
def numpyro_not_centred(seed):
    rng = np.random.default_rng([82, seed])
    g = rng.integers(0, 8, 3000)
    y = 1.0 + 0.05 * rng.normal(size=8)[g] + rng.normal(size=3000)

    def model(g, y=None):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([8]))
        with numpyro.plate("rows", len(g)):
            numpyro.sample("y", dist.Normal(mu + tau * z[g], 1.0), obs=y)

    data = {"g": g, "y": y}
    return Problem(lwa.from_numpyro(model, data), data)


@case("NumPyro: a beta regression with heavy-tailed covariates and unknown precision")
def numpyro_beta(seed):
    rng = np.random.default_rng([83, seed])
    x = rng.standard_t(3, size=(10_000, 3))
    mean = sigmoid(0.2 + x @ [0.2, -0.1, 0.0])
    y = np.clip(rng.beta(5 * mean, 5 * (1 - mean)), 1e-6, 1 - 1e-6)

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([4]).to_event(1))
        phi = numpyro.sample("phi", dist.HalfNormal(20.0))
        with numpyro.plate("rows", len(x)):
            mean = 1 / (1 + jnp.exp(-b[0] - x @ b[1:]))
            numpyro.sample("y", dist.Beta(phi * mean, phi * (1 - mean)), obs=y)

    data = {"x": x, "y": y}
    return Problem(lwa.from_numpyro(model, data), data)


@case("a NumPy function: logistic with heavy-tailed covariates")
def numpy_logistic(seed):
    rng = np.random.default_rng([84, seed])
    x = with_ones(rng.standard_t(2.5, size=(8000, 3)))
    data = {"x": x, "y": (rng.random(8000) < sigmoid(x @ [-2.0, 0.5, 0.2, 0.0])).astype(float)}

    def log_likelihood(theta, rows):
        eta = np.asarray(rows["x"]) @ np.asarray(theta["b"])
        return -np.logaddexp(0, (1 - 2 * np.asarray(rows["y"])) * eta)

    def log_prior(theta):
        return -0.5 * float(np.sum((np.asarray(theta["b"]) / 10) ** 2))

    in_numpy = lwa.Model(log_likelihood, log_prior, {"b": np.zeros(4)})
    return Problem(logistic_model(4), data, call=(in_numpy, data))
