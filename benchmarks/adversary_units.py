"""More cases of `adversary.py`: units, offsets, collinear columns, degenerate responses, bounded posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
from accuracy import location_scale_model, normal_prior
from adversary_cases import (
    case,
    exact_linear,
    gaussian,
    logistic_model,
    poisson_model,
    sequence,
    with_ones,
)
from adversary_references import Problem
from jax.scipy.special import gammaln, xlogy
from scipy.signal import lfilter
from scipy.special import expit as sigmoid

import lwa


def flip(rng, rate):
    return (rng.random(len(rate)) < rate).astype(float)


@case("covariates in units from 10⁻⁶ to 10⁶")
def logistic_units(seed):
    rng = np.random.default_rng([60, seed])
    unit = 10.0 ** np.array([-6, -3, 0, 3, 6])
    x, b = rng.normal(size=(20_000, 5)), rng.normal(size=5) * 0.5
    data = {"x": np.c_[np.ones(len(x)), x * unit], "y": flip(rng, sigmoid(x @ b - 1))}

    def log_prior(theta):
        return -0.5 * jnp.sum((theta["b"] * np.r_[1.0, unit] / 10) ** 2)

    model = logistic_model(6)
    return Problem(lwa.Model(model.log_likelihood, log_prior, {"b": jnp.zeros(6)}), data)


@case("covariates with means a thousand times their sds")
def linear_far_from_zero(seed):
    rng = np.random.default_rng([61, seed])
    x = with_ones(1000 + rng.normal(size=(20_000, 2)))
    data = {"x": x, "y": x @ [1.0, 0.5, -0.5] + rng.normal(size=len(x))}
    return Problem(location_scale_model(3, lambda z: -0.5 * z**2), data, exact=exact_linear(data))


@case("two columns that differ by 10⁻³ of their sd")
def logistic_collinear(seed):
    rng = np.random.default_rng([62, seed])
    x = rng.normal(size=(10_000, 3))
    x = np.c_[np.ones(len(x)), x, x[:, 0] + 1e-3 * rng.normal(size=len(x))]
    return Problem(logistic_model(5, sd=5.0), {"x": x, "y": flip(rng, sigmoid(x[:, 1] - 0.5))})


@case("a column that is there twice: only the prior tells them apart")
def poisson_twice(seed):
    rng = np.random.default_rng([63, seed])
    x = rng.normal(size=(5000, 2))
    x = np.c_[np.ones(len(x)), x, x[:, 0]]
    return Problem(
        poisson_model(4, sd=2.0), {"x": x, "y": rng.poisson(np.exp(0.3 * x[:, 1])) * 1.0, "e": np.ones(5000)}
    )


@case("no positive at all: only the prior bounds the coefficients")
def logistic_all_zero(seed):
    rng = np.random.default_rng([64, seed])
    x = with_ones(rng.normal(size=(2000, 2)))
    return Problem(logistic_model(3, sd=2.0), {"x": x, "y": np.zeros(len(x))})


@case("exposures over six decades")
def poisson_exposures(seed):
    rng = np.random.default_rng([65, seed])
    x, e = with_ones(rng.normal(size=(20_000, 3))), 10 ** rng.uniform(-3, 3, size=20_000)
    y = rng.poisson(e * np.exp(np.clip(x @ [-1.0, 0.5, 0.2, 0.0], -20, 8)))
    return Problem(poisson_model(4), {"x": x, "y": y * 1.0, "e": e})


@case("40 rows, 3 parameters")
def logistic_forty_rows(seed):
    rng = np.random.default_rng([66, seed])
    x = with_ones(rng.normal(size=(40, 2)))
    return Problem(logistic_model(3, sd=2.5), {"x": x, "y": flip(rng, sigmoid(x @ [0.0, 1.0, -1.0]))})


@case("30 interactions of sparse dummies, some of them never true")
def logistic_sparse_crossings(seed):
    rng = np.random.default_rng([67, seed])
    a, b = (
        rng.choice(6, 20_000, p=[0.5, 0.3, 0.15, 0.04, 0.008, 0.002]),
        rng.choice(5, 20_000, p=[0.6, 0.3, 0.08, 0.015, 0.005]),
    )
    x = np.eye(30)[a * 5 + b]
    return Problem(logistic_model(30, sd=2.5), {"x": x, "y": flip(rng, sigmoid(rng.normal(-1, 1, 30)[a * 5 + b]))})


@case("y = a + b² + noise: a banana")
def banana(seed):
    rng = np.random.default_rng([68, seed])
    y = 0.3 + rng.normal(size=2000) * 8

    def log_likelihood(theta, y):
        return -0.5 * ((y - theta["a"] - theta["b"] ** 2) / 8) ** 2

    def log_prior(theta):
        return -0.5 * (theta["a"] ** 2 + theta["b"] ** 2)

    return Problem(lwa.Model(log_likelihood, log_prior, {"a": 0.0, "b": 0.5}), y)


@case("shares on a simplex, one class never seen")
def simplex(seed):
    rng = np.random.default_rng([69, seed])
    y = rng.choice(4, 5000, p=[0.6, 0.3, 0.0985, 0.0015]) + 0.0
    y[y == 3] = 2

    def log_likelihood(theta, y):
        return jnp.log(theta["p"])[y.astype(int)]

    model = lwa.Model(log_likelihood, lambda theta: 0.0, {"p": jnp.full(4, 0.25)}, constraints={"p": "simplex"})
    return Problem(model, y)


@case("log-normal responses over nine decades, unknown shape of a gamma")
def gamma_misfit(seed):
    rng = np.random.default_rng([70, seed])
    x = with_ones(rng.normal(size=(5000, 2)))
    y = np.exp(x @ [1.0, 0.5, 0.0] + 2.5 * rng.normal(size=5000))

    def log_likelihood(theta, rows):
        eta, a = rows["x"] @ theta["b"], theta["shape"]
        return a * jnp.log(a) - a * eta - gammaln(a) + (a - 1) * jnp.log(rows["y"]) - a * rows["y"] * jnp.exp(-eta)

    def log_prior(theta):
        return -0.5 * jnp.sum(theta["b"] ** 2) / 25 - theta["shape"]

    init = {"b": jnp.zeros(3), "shape": 1.0}
    return Problem(lwa.Model(log_likelihood, log_prior, init, constraints={"shape": "positive"}), {"x": x, "y": y})


@case("Student-t errors with 3 degrees of freedom, 20 covariates with 3")
def student_regression(seed):
    rng = np.random.default_rng([71, seed])
    x = with_ones(rng.standard_t(3, size=(20_000, 19)))
    data = {"x": x, "y": x @ rng.normal(size=20) + rng.standard_t(3, size=len(x))}
    return Problem(location_scale_model(20, lambda z: -2 * jnp.log1p(z**2 / 3)), data)


@case("a nonlinear curve whose asymptote is hardly seen")
def growth_curve(seed):
    rng = np.random.default_rng([72, seed])
    t = rng.uniform(0, 1.2, size=5000)
    y = 3 * (1 - np.exp(-t)) + 0.3 * rng.normal(size=5000)

    def log_likelihood(theta, rows):
        z = (rows["y"] - theta["top"] * (1 - jnp.exp(-theta["rate"] * rows["t"]))) / 0.3
        return -0.5 * z**2

    def log_prior(theta):
        return -0.5 * (jnp.log(theta["top"]) ** 2 + jnp.log(theta["rate"]) ** 2)

    init = {"top": 1.0, "rate": 1.0}
    model = lwa.Model(log_likelihood, log_prior, init, constraints={"top": "positive", "rate": "positive"})
    return Problem(model, {"t": t, "y": y})


@case("complementary log-log of rare events, heavy-tailed covariates")
def cloglog(seed):
    rng = np.random.default_rng([73, seed])
    x = with_ones(rng.standard_t(4, size=(30_000, 4)))
    y = flip(rng, 1 - np.exp(-np.exp(np.clip(x @ [-5.0, 0.3, -0.2, 0.1, 0.0], -30, 3))))

    def log_likelihood(theta, rows):
        rate = jnp.exp(rows["x"] @ theta["b"])
        return jnp.where(rows["y"] > 0, jnp.log(-jnp.expm1(-rate)), -rate)

    return Problem(lwa.Model(log_likelihood, normal_prior(5.0), {"b": jnp.zeros(5)}), {"x": x, "y": y})


@case("a log-logistic survival time, 90 % censored, unknown shape")
def log_logistic(seed):
    rng = np.random.default_rng([74, seed])
    x = with_ones(rng.standard_t(3, size=(10_000, 2)))
    time = np.exp(x @ [2.0, 0.3, 0.0]) * (1 / rng.random(10_000) - 1) ** 0.5
    end = rng.uniform(0, 3, size=10_000)
    data = {"x": x, "t": np.minimum(time, end), "seen": (time < end) * 1.0}

    def log_likelihood(theta, rows):
        k = theta["k"]
        z = k * (jnp.log(rows["t"]) - rows["x"] @ theta["b"])
        density = jnp.log(k) - jnp.log(rows["t"]) + z - 2 * jax.nn.softplus(z)
        return jnp.where(rows["seen"] > 0, density, -jax.nn.softplus(z))

    def log_prior(theta):
        return -0.5 * jnp.sum(theta["b"] ** 2) / 25 - theta["k"]

    init = {"b": jnp.zeros(3), "k": 1.0}
    return Problem(lwa.Model(log_likelihood, log_prior, init, constraints={"k": "positive"}), data)


@case("two regressions mixed, 15 parameters, one component with 3 % of the rows")
def mixture_of_regressions(seed):
    rng = np.random.default_rng([75, seed])
    x = with_ones(rng.normal(size=(20_000, 5)))
    rare = rng.random(20_000) < 0.03
    y = np.where(rare, x @ [6.0, 1, -1, 0, 0, 0.5], x @ [0.0, 0.5, 0, 0, 1, 0]) + rng.normal(size=20_000)

    def log_likelihood(theta, rows):
        first, second = (-0.5 * (rows["y"] - rows["x"] @ theta[name]) ** 2 for name in ("a", "b"))
        share = jax.nn.log_sigmoid(theta["w"]), jax.nn.log_sigmoid(-theta["w"])
        return jnp.logaddexp(first + share[0], second + share[1])

    def log_prior(theta):
        return -0.5 * (jnp.sum(theta["a"] ** 2) / 25 + jnp.sum(theta["b"] ** 2) / 25 + theta["w"] ** 2 / 9)

    init = {"a": jnp.zeros(6), "b": jnp.zeros(6).at[0].set(5.0), "w": 2.0}
    return Problem(lwa.Model(log_likelihood, log_prior, init), {"x": x, "y": y})


@case("sd as well as mean depend on 8 heavy-tailed covariates")
def varying_sd(seed):
    rng = np.random.default_rng([76, seed])
    x = with_ones(rng.standard_t(4, size=(20_000, 7)))
    b, c = rng.normal(size=8), rng.normal(size=8) * 0.15
    data = {"x": x, "y": x @ b + np.exp(x @ c) * rng.normal(size=20_000)}

    def log_likelihood(theta, rows):
        log_sd = rows["x"] @ theta["c"]
        return -log_sd - 0.5 * (rows["y"] - rows["x"] @ theta["b"]) ** 2 * jnp.exp(-2 * log_sd)

    def log_prior(theta):
        return -0.5 * (jnp.sum(theta["b"] ** 2) / 25 + jnp.sum(theta["c"] ** 2))

    return Problem(lwa.Model(log_likelihood, log_prior, {"b": jnp.zeros(8), "c": jnp.zeros(8)}), data)


@case("a probability near 0 of 10⁶ trials")
def bernoulli_rate(seed):
    y = np.zeros(1_000_000, np.float32)
    y[:7] = 1

    def log_likelihood(theta, y):
        return xlogy(y, theta["p"]) + (1 - y) * jnp.log1p(-theta["p"])

    model = lwa.Model(log_likelihood, lambda theta: 0.0, {"p": 0.5}, constraints={"p": "unit_interval"})
    return Problem(model, y, exact=lambda rng, m: np.log((p := rng.beta(8, 1_000_001 - 7, m)) / (1 - p))[:, None])


@case("60 covariates, 55 of them without effect, under a horseshoe with fixed scale")
def shrunk(seed):
    rng = np.random.default_rng([77, seed])
    x = gaussian(rng, 4000, 60)
    y = x[:, :5] @ [1.0, -1, 0.5, 0.3, 0.2] + 2 * rng.normal(size=4000)

    def log_likelihood(theta, rows):
        return -0.5 * (rows["y"] - rows["x"] @ theta) ** 2 / 4

    def log_prior(theta):
        return -jnp.sum(jnp.log1p((theta / 0.05) ** 2))

    return Problem(lwa.Model(log_likelihood, log_prior, jnp.zeros(60)), {"x": x, "y": y})


@case("an AR(2) whose roots are complex and nearly on the unit circle")
def ar_cycle(seed):
    rng = np.random.default_rng([78, seed])
    y = lfilter([1.0], [1.0, -1.9, 0.95], rng.normal(size=20_000))
    return sequence(lwa.arma(2, 0), y)


@case("an MA(1) root of -0.97")
def ma_near_unit(seed):
    rng = np.random.default_rng([79, seed])
    e = rng.normal(size=20_001)
    return sequence(lwa.arma(0, 1), 0.5 + e[1:] - 0.97 * e[:-1])
