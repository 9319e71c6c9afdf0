"""The cases of `adversary.py`: models and data on which a default run may go wrong, each with what makes it hard."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from accuracy import location_scale_model, normal_prior
from adversary_references import Nuts, Problem, draw_from_grid
from jax.scipy.special import gammaln, log_ndtr
from scipy.signal import lfilter
from scipy.special import expit as sigmoid

import lwa


@dataclass(frozen=True)
class Case:
    """A name, what is hard about it, and `build(seed)`, the model and data of a data seed."""

    name: str
    hard: str
    build: Callable[[int], Problem]


CASES: dict[str, Case] = {}


def add(name, hard, build, **options):
    CASES[name] = Case(name, hard, partial(build, **options) if options else build)


def case(hard):
    """Register the function below as a case under its own name."""

    def keep(build):
        add(build.__name__, hard, build)
        return build

    return keep


def with_ones(x):
    return np.c_[np.ones(len(x)), x]


# Regressions with heavy-tailed and correlated designs


def gaussian(rng, N, k):
    return rng.normal(size=(N, k))


def student(df):
    return lambda rng, N, k: rng.standard_t(df, size=(N, k))


def lognormal(rng, N, k):
    return np.exp(1.2 * rng.normal(size=(N, k)))


def correlated(rng, N, k):
    return 0.995 * rng.normal(size=(N, 1)) + 0.1 * rng.normal(size=(N, k))


def correlated_heavy(rng, N, k):
    """Covariates that share most of their spread, scaled row by row: a multivariate t(2.5)."""
    return correlated(rng, N, k) / np.sqrt(rng.chisquare(2.5, size=(N, 1)) / 2.5)


def logistic_model(d, sd=10.0):
    def log_likelihood(theta, rows):
        return -jax.nn.softplus((1 - 2 * rows["y"]) * (rows["x"] @ theta["b"]))

    return lwa.Model(log_likelihood, normal_prior(sd), {"b": jnp.zeros(d)})


def poisson_model(d, sd=10.0):
    def log_likelihood(theta, rows):
        rate = rows["x"] @ theta["b"]
        return rows["y"] * rate - jnp.exp(rate) * rows["e"]

    return lwa.Model(log_likelihood, normal_prior(sd), {"b": jnp.zeros(d)})


def draw_logistic(rng, x, scale):
    b = rng.normal(size=x.shape[1]) * scale / np.sqrt(x.shape[1])
    return {"x": x, "y": (rng.random(len(x)) < sigmoid(x @ b - 1)).astype(float)}


def logistic(seed, N, d, design, scale=2.0, points=400_000):
    rng = np.random.default_rng([4, seed])
    return Problem(logistic_model(d), draw_logistic(rng, with_ones(design(rng, N, d - 1)), scale), points=points)


def logistic_of_stream(seed, start, sets, points=400_000):
    """The last of several data sets that are drawn from one stream of random numbers."""
    rng = np.random.default_rng(start + seed)
    for N, d, design in sets:
        data = draw_logistic(rng, with_ones(design(rng, N, d - 1)), 2.0)
    return Problem(logistic_model(d), data, points=points)


def poisson(seed, N, d, design, scale):
    rng = np.random.default_rng([6, seed])
    x = with_ones(design(rng, N, d - 1))
    b = rng.normal(size=d) * scale / np.sqrt(d)
    rate = np.exp(np.clip(x @ b, -20, 8))
    return Problem(poisson_model(d), {"x": x, "y": rng.poisson(rate).astype(float), "e": np.ones(N)})


def linear(seed, N, d, design, outliers=0):
    """Normal errors with an unknown sd; `outliers` of them are a thousand times as large."""
    rng = np.random.default_rng([8, seed])
    x = with_ones(design(rng, N, d - 1))
    noise = 1.5 * rng.normal(size=N)
    noise[:outliers] *= 1000
    data = {"x": x, "y": x @ rng.normal(size=d) + noise}
    return Problem(location_scale_model(d, lambda z: -0.5 * z**2), data, exact=exact_linear(data))


def exact_linear(data, prior_sd=5.0):
    """Quadrature over log σ with coefficients integrated out; given σ they are Gaussian."""
    x, y = data["x"], data["y"]
    values, axes = np.linalg.eigh(x.T @ x)
    along, square, N = axes.T @ (x.T @ y), y @ y, len(y)

    def log_density(log_sd):
        precision = values * np.exp(-2 * log_sd) + prior_sd**-2
        explained = (along**2 * np.exp(-4 * log_sd) / precision).sum(1) - square * np.exp(-2 * log_sd[:, 0])
        rest = -N * log_sd[:, 0] - 0.5 * np.log(precision).sum(1) - 0.5 * (log_sd[:, 0] / prior_sd) ** 2
        return 0.5 * explained + rest

    def draw(rng, count):
        log_sd = draw_from_grid(rng, count, log_density, [(-5.0, 10.0)], cells=20_000)
        precision = values * np.exp(-2 * log_sd) + prior_sd**-2
        away = along * np.exp(-2 * log_sd) / precision + rng.normal(size=(count, len(values))) / np.sqrt(precision)
        return np.c_[away @ axes.T, log_sd]

    return draw


def probit(seed, N, d, design):
    rng = np.random.default_rng([9, seed])
    x = with_ones(design(rng, N, d - 1))
    y = (x @ rng.normal(size=d) * 0.5 + rng.normal(size=N) > 0).astype(float)

    def log_likelihood(theta, rows):
        return log_ndtr((2 * rows["y"] - 1) * (rows["x"] @ theta["b"]))

    return Problem(lwa.Model(log_likelihood, normal_prior(10.0), {"b": jnp.zeros(d)}), {"x": x, "y": y})


T25 = student(2.5)
HEAVY, TIED = "heavy-tailed covariates", "correlated covariates"
ONE = ((20_000, 20, T25), (5000, 20, T25))
OTHER = ((3000, 100, gaussian), (5000, 50, T25), (20_000, 20, T25))
add("logistic_d20_n2e4_t2.5", HEAVY, logistic_of_stream, start=4, sets=ONE[:1])
add("logistic_d20_n5e3_t2.5", HEAVY, logistic_of_stream, start=4, sets=ONE)
add("logistic_d100_n3e3", "30 rows per parameter", logistic_of_stream, start=1, sets=OTHER[:1], points=0)
add("logistic_d50_n5e3_t2.5", HEAVY, logistic_of_stream, start=1, sets=OTHER[:2])
add("logistic_d20_n2e4_t2.5_again", HEAVY, logistic_of_stream, start=1, sets=OTHER)
add("logistic_d13_n1e5_t2.2", HEAVY, logistic, N=100_000, d=13, design=student(2.2), points=40_000)
add("logistic_d30_n3e4_lognormal", HEAVY, logistic, N=30_000, d=30, design=lognormal, scale=1.0)
add("logistic_d20_n1e6_t2.2", HEAVY, logistic, N=1_000_000, d=20, design=student(2.2), points=12_000)
add("logistic_d20_n2e4_correlated", TIED, logistic, N=20_000, d=20, design=correlated)
add("logistic_d40_n5e4_correlated_heavy", f"{TIED} with heavy tails", logistic, N=50_000, d=40, design=correlated_heavy)
add("poisson_d15_n2e4_t2.5", HEAVY, poisson, N=20_000, d=15, design=T25, scale=0.2)
add("poisson_d20_n1e5_lognormal", HEAVY, poisson, N=100_000, d=20, design=lognormal, scale=0.15)
add("poisson_d13_n1e4_correlated", TIED, poisson, N=10_000, d=13, design=correlated, scale=1.0)
add("linear_d30_n1e4_t2.2", HEAVY, linear, N=10_000, d=30, design=student(2.2))
add("linear_d100_n1e5_lognormal", HEAVY, linear, N=100_000, d=100, design=lognormal)
add("linear_d13_n1e6_correlated_heavy", f"{TIED} with heavy tails", linear, N=1_000_000, d=13, design=correlated_heavy)
add("linear_outliers", "20 errors are 1000 times as large", linear, N=20_000, d=5, design=gaussian, outliers=20)
add("probit_d13_n1e4_t2.5", f"{HEAVY}, tails that fall as a square", probit, N=10_000, d=13, design=T25)


# Rows that matter far from the mode only, and rows with great leverage


def wall(seed, at, rows, exposure):
    """Poisson with a few zero counts far out: no curvature at the mode, a wall two sds away."""
    N, rng = 100_000, np.random.default_rng(5 + seed)
    x = with_ones(rng.normal(size=(N, 1)))
    x[:rows, 1] = at
    e = np.full(N, 400 / N)
    y = rng.poisson(e * np.exp(x[:, 1] * -0.1)).astype(float)
    y[:rows], e[:rows] = 0, exposure
    return Problem(poisson_model(2), {"x": x, "y": y, "e": e}, points=60_000)


for place, many, exposed in ((30.0, 1, 1.0), (40.0, 1, 0.05), (35.0, 2, 0.3), (25.0, 3, 1.0)):
    words = f"{many} zero count{'s' if many > 1 else ''} at x = {place:.0f}, a wall"
    add(f"poisson_wall_{place:.0f}", words, wall, at=place, rows=many, exposure=exposed)


@case("one row with leverage 10⁴: a wall at one side")
def logistic_leverage(seed):
    rng = np.random.default_rng([10, seed])
    x = with_ones(rng.normal(size=(20_000, 4)))
    y = (rng.random(20_000) < sigmoid(x @ [-0.5, 0.04, 0.5, -0.5, 0.2])).astype(float)
    x[0, 1], y[0] = 1e4, 1.0
    return Problem(logistic_model(5), {"x": x, "y": y})


@case("one row with leverage 10⁴")
def linear_leverage(seed):
    rng = np.random.default_rng([11, seed])
    x = with_ones(rng.normal(size=(20_000, 4)))
    x[0, 1] = 1e4
    data = {"x": x, "y": x @ [0.5, 1.0, -1.0, 0.3, 0.0] + rng.normal(size=20_000)}
    return Problem(location_scale_model(5, lambda z: -0.5 * z**2), data, exact=exact_linear(data))


# Censored rows, few positives, near separation


@case("99 % of the rows are censored")
def exponential_censored(seed):
    rng = np.random.default_rng([13, seed])
    x = with_ones(rng.standard_t(3, size=(20_000, 4)))
    lasts = rng.exponential(np.exp(-x @ [-5.0, 0.3, -0.3, 0.2, 0.0]))
    data = {"x": x, "t": np.minimum(lasts, 1.0), "seen": (lasts < 1).astype(float)}

    def log_likelihood(theta, rows):
        rate = rows["x"] @ theta["b"]
        return rows["seen"] * rate - rows["t"] * jnp.exp(rate)

    return Problem(lwa.Model(log_likelihood, normal_prior(10.0), {"b": jnp.zeros(5)}), data)


@case("97 % of the rows are censored, unknown shape")
def weibull_censored(seed):
    rng = np.random.default_rng([14, seed])
    x = with_ones(rng.normal(size=(10_000, 3)))
    lasts = np.exp(-(x @ [-3.0, 0.5, -0.5, 0.0])) ** (1 / 1.5) * rng.weibull(1.5, 10_000)
    end = rng.uniform(0.2, 1.5, size=10_000)
    data = {"x": x, "log_t": np.log(np.minimum(lasts, end)), "seen": (lasts < end).astype(float)}

    def log_likelihood(theta, rows):
        log_hazard = rows["x"] @ theta["b"] + theta["shape"] * rows["log_t"]
        return rows["seen"] * (jnp.log(theta["shape"]) + log_hazard - rows["log_t"]) - jnp.exp(log_hazard)

    def log_prior(theta):
        return -0.5 * jnp.sum(theta["b"] ** 2) / 100 - theta["shape"]

    init = {"b": jnp.zeros(4), "shape": 1.0}
    return Problem(lwa.Model(log_likelihood, log_prior, init, constraints={"shape": "positive"}), data)


@case("95 % of the rows are censored from below")
def tobit(seed):
    rng = np.random.default_rng([15, seed])
    x = with_ones(rng.normal(size=(10_000, 3)))
    y = np.maximum(x @ [-2.5, 0.7, -0.7, 0.3] + 1.2 * rng.normal(size=10_000), 0.0)

    def log_likelihood(theta, rows):
        z = (rows["y"] - rows["x"] @ theta["b"]) * jnp.exp(-theta["log_sd"])
        return jnp.where(rows["y"] > 0, -0.5 * z**2 - theta["log_sd"], log_ndtr(z))

    return Problem(lwa.Model(log_likelihood, normal_prior(5.0), {"b": jnp.zeros(4), "log_sd": 0.0}), {"x": x, "y": y})


def few_positives(seed, N, positives, points):
    rng = np.random.default_rng([16, seed])
    x = with_ones(rng.normal(size=(N, 2)))
    odds = x @ [0.0, 1.0, -0.7]
    y = np.zeros(N)
    y[rng.choice(N, positives, replace=False, p=np.exp(odds) / np.exp(odds).sum())] = 1.0
    return Problem(logistic_model(3), {"x": x, "y": y}, points=points)


add("logistic_20_positives_in_1e4", "20 positives", few_positives, N=10_000, positives=20, points=400_000)
add("logistic_50_positives_in_1e6", "50 positives", few_positives, N=1_000_000, positives=50, points=12_000)


@case("a covariate that separates all but three rows")
def near_separation(seed):
    rng = np.random.default_rng([17, seed])
    x = with_ones(rng.normal(size=(3000, 2)))
    y = (x[:, 1] > 0.5).astype(float)
    near = np.argsort(np.abs(x[:, 1] - 0.5))[[3, 8, 12]]
    y[near] = 1 - y[near]
    return Problem(logistic_model(3, sd=5.0), {"x": x, "y": y})


@case("a dummy true in 6 rows, all of them positive")
def separated_dummy(seed):
    rng = np.random.default_rng([18, seed])
    x = with_ones(rng.normal(size=(30_000, 3)))
    x[:, 3] = np.arange(30_000) < 6
    y = (rng.random(30_000) < sigmoid(x @ [-1.0, 0.5, -0.5, 0.0])).astype(float)
    y[:6] = 1.0
    return Problem(logistic_model(4, sd=3.0), {"x": x, "y": y})


# Weakly identified scales and shapes


def unknown_df(seed, N, df):
    y = np.random.default_rng([19, seed, N, df]).standard_t(df, size=N)

    def log_likelihood(theta, y):
        nu, z = theta["nu"], (y - theta["mu"]) / theta["s"]
        front = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * jnp.pi) - jnp.log(theta["s"])
        return front - (nu + 1) / 2 * jnp.log1p(z**2 / nu)

    def log_prior(theta):
        return -0.5 * theta["mu"] ** 2 / 100 + jnp.log(theta["nu"]) - 0.1 * theta["nu"] - theta["s"]

    init = {"mu": 0.0, "nu": 10.0, "s": 1.0}
    model = lwa.Model(log_likelihood, log_prior, init, constraints={"nu": "positive", "s": "positive"})
    return Problem(model, y, points=60_000 if N == 100_000 else 200_000)


for size, tail in ((5000, 30), (20_000, 30), (100_000, 30), (5000, 4), (20_000, 4), (100_000, 4)):
    title = f"student_df_t{tail}_n{size:.0e}".replace("e+0", "e")
    add(title, "unknown degrees of freedom", unknown_df, N=size, df=tail)


def draw_counts(seed, size=None):
    rng = np.random.default_rng([20, seed])
    x = rng.normal(size=3000)
    rate = np.exp(0.5 + 0.3 * x)
    rate = rate if size is None else rate * rng.gamma(size, 1 / size, size=3000)
    return x, rng.poisson(rate)


@case("negative binomial of Poisson counts, written by hand: α → 0")
def negative_binomial_by_hand(seed):
    x, y = draw_counts(seed)

    def log_likelihood(theta, rows):
        y, eta, size = rows["y"], rows["x"] @ theta["b"], 1 / theta["alpha"]
        log_mean = jnp.log1p(theta["alpha"] * jnp.exp(eta))
        return gammaln(y + size) - gammaln(size) + y * (jnp.log(theta["alpha"]) + eta - log_mean) - size * log_mean

    def log_prior(theta):
        return -0.5 * jnp.sum(theta["b"] ** 2) / 100 - theta["alpha"]

    init = {"alpha": 0.1, "b": jnp.zeros(2)}
    model = lwa.Model(log_likelihood, log_prior, init, constraints={"alpha": "positive"})
    return Problem(model, {"x": with_ones(x), "y": y.astype(float)})


def bound(glm, frame, **options):
    """The problem of a formula, whose rows are those that the model was bound to."""
    both = glm.bind(frame)
    return Problem(both.model, both.rows.take(np.arange(len(both.rows))), call=(glm, frame), **options)


@case("negative binomial of Poisson counts: φ → ∞")
def negative_binomial_glm(seed):
    x, y = draw_counts(seed)
    return bound(lwa.glm("y ~ x", family="negative_binomial"), {"x": x, "y": y})


@case("negative binomial of skewed counts")
def negative_binomial_skewed(seed):
    x, y = draw_counts(seed, 0.3)
    return bound(lwa.glm("y ~ x", family="negative_binomial"), {"x": x, "y": y})


@case("unknown shape, heavy-tailed covariates")
def gamma_glm(seed):
    rng = np.random.default_rng([21, seed])
    x = rng.standard_t(4, size=(10_000, 3))
    y = rng.gamma(0.7, np.exp(x @ [0.3, -0.2, 0.1]) / 0.7)
    frame = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": np.maximum(y, 1e-12)}
    return bound(lwa.glm("y ~ a + b + c", family="gamma"), frame)


@case("unknown precision")
def beta_regression(seed):
    rng = np.random.default_rng([22, seed])
    x = with_ones(rng.normal(size=(10_000, 3)))
    mean = sigmoid(x @ [-2.0, 0.5, -0.5, 0.2])
    y = np.clip(rng.beta(mean * 5, (1 - mean) * 5), 1e-9, 1 - 1e-9)
    data = {"x": x, "log_y": np.log(y), "log_not": np.log1p(-y)}

    def log_likelihood(theta, rows):
        mean, phi = jax.nn.sigmoid(rows["x"] @ theta["b"]), theta["phi"]
        one, other = mean * phi, (1 - mean) * phi
        return gammaln(phi) - gammaln(one) - gammaln(other) + (one - 1) * rows["log_y"] + (other - 1) * rows["log_not"]

    def log_prior(theta):
        return -0.5 * jnp.sum(theta["b"] ** 2) / 25 - 0.1 * theta["phi"]

    init = {"b": jnp.zeros(4), "phi": 2.0}
    return Problem(lwa.Model(log_likelihood, log_prior, init, constraints={"phi": "positive"}), data)


@case("zeros of two kinds that are hard to tell apart")
def zero_inflated_poisson(seed):
    rng = np.random.default_rng([23, seed])
    x = with_ones(rng.normal(size=(10_000, 2)))
    y = rng.poisson(np.exp(x @ [-0.5, 0.3, -0.2])) * (rng.random(10_000) > 0.1)

    def log_likelihood(theta, rows):
        rate = rows["x"] @ theta["b"]
        counts = jax.nn.log_sigmoid(-theta["logit"]) + rows["y"] * rate - jnp.exp(rate)
        return jnp.where(rows["y"] > 0, counts, jnp.logaddexp(jax.nn.log_sigmoid(theta["logit"]), counts))

    model = lwa.Model(log_likelihood, normal_prior(3.0), {"b": jnp.zeros(3), "logit": -1.0})
    return Problem(model, {"x": x, "y": y.astype(float)})


@case("far outliers, which have almost no curvature")
def cauchy(seed):
    rng = np.random.default_rng([24, seed])
    x = with_ones(rng.normal(size=(5000, 3)))
    y = x @ [0.5, -0.5, 1.0, 0.0] + rng.standard_cauchy(5000)
    return Problem(location_scale_model(4, lambda z: -jnp.log1p(z**2)), {"x": x, "y": y})


# Mixtures


def mixture(seed, N, apart, ordered):
    rng = np.random.default_rng([25, seed])
    y = np.where(rng.random(N) < 0.3, rng.normal(-apart / 2, 1, N), rng.normal(apart / 2, 1, N))

    def log_likelihood(theta, y):
        z = (y[:, None] - theta["mean"]) * jnp.exp(-theta["log_sd"])
        share = jax.nn.log_sigmoid(theta["logit"] * jnp.array([1.0, -1.0]))
        return jax.nn.logsumexp(share - 0.5 * z**2, axis=1) - theta["log_sd"]

    init = {"mean": jnp.array([-1.0, 1.0]), "logit": 0.0, "log_sd": 0.0}
    model = lwa.Model(log_likelihood, normal_prior(3.0), init, constraints={"mean": "ordered"} if ordered else None)

    def total(theta, y):
        """Within the mode in which the first component is the lower one."""
        value = model.log_prior_at(theta) + model.log_likelihood(model.unravel(theta), y).sum()
        means = model.unravel(theta)["mean"]
        return jnp.where(means[0] < means[1], value, -jnp.inf)

    return Problem(model, y, total=total)


add("mixture_ordered", "two components, ordered means", mixture, N=5000, apart=3.0, ordered=True)
add("mixture_ordered_close", "two components that overlap", mixture, N=20_000, apart=2.2, ordered=True)
add("mixture_one_mode", "two modes, started in one of them", mixture, N=10_000, apart=3.0, ordered=False)


# Hierarchical models, groups


def hierarchical(seed, J, N, tau):
    """Centred, y ~ N(u_group, 1), u ~ N(μ, τ²), half-normal τ."""
    rng = np.random.default_rng([26, seed])
    group = rng.integers(J, size=N)
    y = tau * rng.normal(size=J)[group] + rng.normal(size=N)

    def log_prior(theta):
        away = (theta["u"] - theta["mu"]) / theta["tau"]
        level = -0.5 * theta["mu"] ** 2 - 0.5 * theta["tau"] ** 2
        return level + jnp.sum(-0.5 * away**2 - jnp.log(theta["tau"]))

    model = lwa.Model(
        lambda theta, rows: -0.5 * (rows["y"] - theta["u"][rows["g"]]) ** 2, log_prior,
        {"mu": 0.0, "tau": 0.5, "u": jnp.zeros(J)}, constraints={"tau": "positive"},
    )  # fmt: skip
    exact = partial(draw_effects, marginal_of_groups(group, y, 1.0), group, y)
    return Problem(model, {"g": group, "y": y}, exact=exact)


def marginal_of_groups(group, y, mean_sd):
    """The log density of (μ, log τ), one per row of `points`, with the effects of all groups integrated out."""
    count, total, square = np.bincount(group), np.bincount(group, y), y @ y
    sizes, place = np.unique(count, return_inverse=True)  # groups of the same size share most terms
    many, sums, squares = (np.bincount(place, weight) for weight in (None, total, total**2))

    def log_density(points):
        mu, tau2 = points[:, :1], jnp.exp(2 * points[:, 1:])
        about = squares - 2 * mu * sizes * sums + many * (sizes * mu) ** 2  # Σ (Σ_j (y - μ))² over groups of a size
        likelihood = 0.5 * (tau2 / (1 + sizes * tau2) * about - many * jnp.log1p(sizes * tau2)).sum(1)
        likelihood -= 0.5 * (square - 2 * mu[:, 0] * y.sum() + len(y) * mu[:, 0] ** 2)
        return likelihood - 0.5 * (mu[:, 0] / mean_sd) ** 2 - 0.5 * tau2[:, 0] + points[:, 1]

    return log_density


def draw_groups(log_density, rng, number):
    return draw_from_grid(rng, number, log_density, [(-2.0, 2.0), (-32.0, 2.0)])


def draw_effects(log_density, group, y, rng, number):
    """Given μ and τ, the effects of groups are independent and Gaussian."""
    count, total = np.bincount(group), np.bincount(group, y)
    drawn = draw_groups(log_density, rng, number)
    mu, tau2 = drawn[:, :1], np.exp(2 * drawn[:, 1:])
    variance = tau2 / (1 + count * tau2)
    effects = mu + variance * (total - count * mu) + np.sqrt(variance) * rng.normal(size=(number, len(count)))
    return np.c_[drawn, effects]


add("hierarchical_8", "8 groups, centred", hierarchical, J=8, N=2000, tau=0.3)
add("hierarchical_8_funnel", "8 groups, centred, τ near 0: a funnel", hierarchical, J=8, N=2000, tau=0.02)
add("hierarchical_200", "200 groups, centred", hierarchical, J=200, N=10_000, tau=0.3)
add("hierarchical_200_funnel", "200 groups, centred, τ near 0: a funnel", hierarchical, J=200, N=10_000, tau=0.02)


@case("50 groups of 0s and 1s, centred")
def hierarchical_logistic(seed):
    rng = np.random.default_rng([27, seed])
    J, N = 50, 5000
    group = rng.integers(J, size=N)
    y = (rng.random(N) < sigmoid(-1 + 0.5 * rng.normal(size=J)[group])).astype(float)

    def log_likelihood(theta, rows):
        return -jax.nn.softplus((1 - 2 * rows["y"]) * theta["u"][rows["g"]])

    def log_prior(theta):
        away = (theta["u"] - theta["mu"]) / theta["tau"]
        level = -0.5 * (theta["mu"] / 3) ** 2 - 0.5 * theta["tau"] ** 2
        return level + jnp.sum(-0.5 * away**2 - jnp.log(theta["tau"]))

    init = {"mu": 0.0, "tau": 0.5, "u": jnp.zeros(J)}
    model = lwa.Model(log_likelihood, log_prior, init, constraints={"tau": "positive"})
    rows_of, ones = np.bincount(group, minlength=J), np.bincount(group, y, minlength=J)

    def density(z, rows):
        u = z[0] + jnp.exp(z[1]) * z[2:]
        likelihood = jnp.sum(jnp.asarray(ones) * u - jnp.asarray(rows_of) * jax.nn.softplus(u))
        return likelihood - 0.5 * (z[0] / 3) ** 2 - 0.5 * jnp.exp(2 * z[1]) + z[1] - 0.5 * jnp.sum(z[2:] ** 2)

    def to_theta(z):
        return np.c_[z[:, :2], z[:, :1] + np.exp(z[:, 1:2]) * z[:, 2:]]

    start = np.zeros(J + 2)
    return Problem(model, {"g": group, "y": y}, nuts=Nuts(density, start, to_theta))


def predictive_intercepts(seed, sizes, tau):
    """Random intercepts, integrated out: each term is the density of a row given the rows of its group before it."""
    rng = np.random.default_rng(5 + seed)
    sizes = sizes(rng)
    J = len(sizes)
    group = np.repeat(np.arange(J), sizes)
    y = 0.3 + tau * rng.normal(size=J)[group] + rng.normal(size=len(group))

    def log_likelihood(theta, rows):
        away, tau2 = rows["y"] - theta["mu"], theta["tau"] ** 2
        before = jnp.concatenate([jnp.zeros(1, away.dtype), jnp.cumsum(away)[:-1]])
        variance = tau2 / (1 + jnp.arange(len(away)) * tau2)
        return -0.5 * (away - variance * before) ** 2 / (1 + variance) - 0.5 * jnp.log1p(variance)

    def log_prior(theta):
        return -0.5 * (theta["mu"] / 10) ** 2 - 0.5 * theta["tau"] ** 2

    init = {"mu": 0.0, "tau": 0.3}
    model = lwa.Model(log_likelihood, log_prior, init, constraints={"tau": "positive"}, groups="g")
    marginal = marginal_of_groups(group, y, 10.0)
    total, exact = (lambda theta, rows: marginal(theta[None])[0]), partial(draw_groups, marginal)
    return Problem(model, {"g": group, "y": y}, total=total, exact=exact)


def sizes_to_3000(rng):
    sizes = np.minimum(1 + rng.geometric(0.3, size=3000), 60)
    sizes[0] = 3000
    return sizes


def sizes_to_10000(rng):
    sizes = np.exp(rng.uniform(0, np.log(10_000), size=300)).astype(int)
    sizes[:2] = 1, 10_000
    return sizes


def mostly_small(rng):
    sizes = 1 + rng.poisson(3, size=5000)
    sizes[:3] = 10_000, 3000, 1
    return sizes


add("groups_to_3000", "groups of 1 to 3,000 rows, τ near 0", predictive_intercepts, sizes=sizes_to_3000, tau=0.05)
add("groups_to_10000", "300 groups of 1 to 10,000 rows", predictive_intercepts, sizes=sizes_to_10000, tau=0.3)
add("groups_mostly_small", "5,000 groups, one of 10,000 rows", predictive_intercepts, sizes=mostly_small, tau=0.3)


# Trials and weights over six decades


def draw_trials(seed):
    rng = np.random.default_rng([28, seed])
    x = rng.normal(size=(5000, 3))
    trials = np.round(10 ** rng.uniform(0, 6, size=5000)).astype(int)
    return x, trials, rng.binomial(trials, sigmoid(-3 + x @ [0.5, -0.3, 0.1]))


@case("1 to 10⁶ trials per row, written by hand")
def binomial_trials(seed):
    x, trials, y = draw_trials(seed)

    def log_likelihood(theta, rows):
        eta = rows["x"] @ theta["b"]
        return rows["y"] * eta - rows["trials"] * jax.nn.softplus(eta)

    data = {"x": with_ones(x), "y": y.astype(float), "trials": trials.astype(float)}
    return Problem(lwa.Model(log_likelihood, normal_prior(10.0), {"b": jnp.zeros(4)}), data)


@case("1 to 10⁶ trials per row")
def binomial_glm(seed):
    x, trials, y = draw_trials(seed)
    frame = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y, "n": trials}
    return bound(lwa.glm("y ~ a + b + c", family="binomial", trials="n"), frame)


def weighted(seed, by_hand):
    rng = np.random.default_rng([29, seed])
    x = rng.normal(size=(10_000, 2))
    w = 10 ** rng.uniform(-5, 1, size=10_000)
    y = (rng.random(10_000) < sigmoid(x @ [0.5, -0.5])).astype(float)
    if not by_hand:
        frame = {"a": x[:, 0], "b": x[:, 1], "y": y, "w": w}
        return bound(lwa.glm("y ~ a + b", family="bernoulli", weights="w"), frame)

    def log_likelihood(theta, rows):
        return -rows["w"] * jax.nn.softplus((1 - 2 * rows["y"]) * (rows["x"] @ theta["b"]))

    model = lwa.Model(log_likelihood, normal_prior(10.0), {"b": jnp.zeros(3)})
    return Problem(model, {"x": with_ones(x), "y": y, "w": w})


add("weights", "weights of 10⁻⁵ to 10, written by hand", weighted, by_hand=True)
add("weights_glm", "weights of 10⁻⁵ to 10", weighted, by_hand=False)


# Kinks


def kinked(seed, loss, N=20_000, noise=0.5):
    rng = np.random.default_rng([30, seed])
    x = with_ones(rng.normal(size=(N, 3)))
    data = {"x": x, "y": x @ [0.5, -0.5, 1.0, 0.0] + noise * rng.standard_t(3, size=N)}
    model = lwa.Model(
        lambda theta, rows: -loss(rows["y"] - rows["x"] @ theta["b"]), normal_prior(10.0), {"b": jnp.zeros(4)}
    )
    return Problem(model, data)


def huber(z):
    return jnp.where(jnp.abs(z) <= 1, 0.5 * z**2, jnp.abs(z) - 0.5)


def narrow_huber(z):
    return jnp.where(jnp.abs(z) <= 0.02, 25 * z**2, jnp.abs(z) - 0.01)


def asymmetric(z):
    return jnp.where(z > 0, 0.9, 0.1) * z**2


add("huber", "a loss whose second derivative jumps", kinked, loss=huber)
add("huber_narrow", "a loss that is almost the absolute value", kinked, loss=narrow_huber)
add("asymmetric_squares", "expectiles: the second derivative jumps at 0", kinked, loss=asymmetric)


@case("absolute values: no second derivative")
def laplace(seed):
    """There is no curvature to scale by, so NUTS moves in units of 0.01 around least squares."""
    problem = kinked(seed, jnp.abs, N=5000)
    model, x, y = problem.model, problem.data["x"], problem.data["y"]
    middle = np.linalg.lstsq(x, y)[0]

    def density(z, rows):
        theta = middle + 0.01 * z
        return model.log_prior_at(theta) + model.log_likelihood(model.unravel(theta), {"x": x, "y": y}).sum()

    return replace(problem, nuts=Nuts(density, np.zeros(4), lambda z: middle + 0.01 * z))


@case("the kinks of a small ReLU network move with θ")
def relu_network(seed):
    rng = np.random.default_rng([31, seed])
    x = rng.normal(size=3000)
    truth = {"a": np.array([1.0, -0.8]), "c": np.array([0.5, 0.3]), "w": np.array([1.2, -1.0])}
    y = np.maximum(np.outer(x, truth["w"]) + truth["c"], 0) @ truth["a"] + 0.5 * rng.normal(size=3000)

    def log_likelihood(theta, rows):
        hidden = jax.nn.relu(rows["x"][:, None] * theta["w"] + theta["c"])
        return -2 * (rows["y"] - hidden @ theta["a"]) ** 2

    def log_prior(theta):
        return -0.5 * sum(jnp.sum((theta[name] - truth[name]) ** 2) for name in truth) / 0.3**2

    model = lwa.Model(log_likelihood, log_prior, jax.tree.map(jnp.asarray, truth))

    def density(z, rows):
        """In log |a|, a w and a c, of which the data know the last two: dθ = da dw dc = |a|⁻¹ dz."""
        theta = {"a": np.sign(truth["a"]) * jnp.exp(z[:2])}
        theta |= {"c": z[2:4] / theta["a"], "w": z[4:] / theta["a"]}
        return log_prior(theta) + log_likelihood(theta, {"x": x, "y": y}).sum() - z[:2].sum()

    def to_theta(z):
        a = np.sign(truth["a"]) * np.exp(z[:, :2])
        return np.c_[a, z[:, 2:4] / a, z[:, 4:] / a]

    start = np.r_[np.log(np.abs(truth["a"])), truth["a"] * truth["c"], truth["a"] * truth["w"]]
    return Problem(model, {"x": x, "y": y}, nuts=Nuts(density, start, to_theta))


# Sequences


def whole_series(model):
    """The log posterior of one series, or of a list of them, in one recursion from the first step to the last."""

    def total(theta, series):
        parts = series if isinstance(series, list) else [series]
        return model.log_prior_at(theta) + sum(model.log_likelihood(model.unravel(theta), part).sum() for part in parts)

    return total


def sequence(model, data, points=20_000):
    return Problem(model, data, total=whole_series(model), points=points)


def arma(seed, N, ar, ma):
    noise = np.random.default_rng([32, seed]).normal(size=N + 500)
    return sequence(lwa.arma(1, 1), lfilter([1, ma], [1, -ar], noise)[500:] + 0.2)


add("arma_near_cancelling", "AR and MA roots that almost cancel", arma, N=20_000, ar=0.5, ma=-0.4)
add("arma_near_unit_root", "an AR root of 0.99", arma, N=20_000, ar=0.99, ma=0.3)


def broken_series(seed):
    noise = np.random.default_rng([33, seed]).normal(size=20_000)
    step = (np.arange(20_000) >= 12_000).astype(float)
    return lfilter([1], [1, -0.5], noise) * (1 + step) + 3 * step, step


@case("a structural break that the model does not know of")
def ar_break(seed):
    return sequence(lwa.arma(1, 0), broken_series(seed)[0])


@case("a structural break that the model knows of: most windows see one side")
def ar_break_known(seed):
    y, step = broken_series(seed)
    return sequence(lwa.arma(1, 0, regressors=["step"]), {"y": y, "step": step})


def several(seed, lengths):
    rng = np.random.default_rng([34, seed])
    series = [lfilter([1], [1, -0.6], rng.normal(size=length)) + 0.2 for length in lengths]
    return sequence(lwa.arma(1, 0), series)


SHORT_TO_LONG = (300, 500, 800, 1500, 2500, 4000, 7000, 10_000)
add("series_12", "12 series of 1,500 to 4,000 steps", several, lengths=tuple(np.linspace(1500, 4000, 12).astype(int)))
add("series_unequal", "8 series of 300 to 10,000 steps", several, lengths=SHORT_TO_LONG)


@case("errors of an AR(1) with heavy tails and outliers")
def ar_student(seed):
    rng = np.random.default_rng([35, seed])
    y = lfilter([1], [1, -0.7], rng.standard_t(2.5, size=20_000))

    def log_likelihood(theta, y):
        before = jnp.concatenate([y[:1], y[:-1]])
        z = (y - theta["drift"] - theta["ar"] * before) * jnp.exp(-theta["log_sd"])
        return -2.5 * jnp.log1p(z**2 / 4) - theta["log_sd"]

    init = {"ar": 0.0, "drift": 0.0, "log_sd": 0.0}
    return sequence(lwa.Model(log_likelihood, normal_prior(5.0), init, ordered=True), y, points=100_000)


# Several classes


@case("4 classes, one with 0.2 % of the rows")
def softmax(seed):
    rng = np.random.default_rng([36, seed])
    x = with_ones(rng.normal(size=(20_000, 4)))
    b = rng.normal(size=(5, 3)) * 0.5
    b[0] = 0.5, -0.5, -6.0
    eta = np.c_[np.zeros(20_000), x @ b]
    y = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)

    def log_likelihood(theta, rows):
        eta = jnp.concatenate([jnp.zeros_like(rows["x"][:, :1]), rows["x"] @ theta["b"]], axis=1)
        return jnp.take_along_axis(jax.nn.log_softmax(eta), rows["y"][:, None], axis=1)[:, 0]

    return Problem(lwa.Model(log_likelihood, normal_prior(5.0), {"b": jnp.zeros((5, 3))}), {"x": x, "y": y})


@case("3 classes by formula, heavy-tailed covariates")
def categorical_glm(seed):
    rng = np.random.default_rng([37, seed])
    x = rng.standard_t(3, size=(10_000, 3))
    eta = np.c_[np.zeros(10_000), x @ rng.normal(size=(3, 2)) * 0.5 - 1]
    y = np.array(["a", "b", "c"])[np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)]
    frame = {"p": x[:, 0], "q": x[:, 1], "r": x[:, 2], "y": y}
    return bound(lwa.glm("y ~ p + q + r", family="categorical"), frame)


@case("5 ordered classes, cut points, rare ends")
def ordinal(seed):
    rng = np.random.default_rng([38, seed])
    x = rng.normal(size=(10_000, 3))
    latent = x @ [1.0, -0.5, 0.0] + rng.logistic(size=10_000)
    y = np.searchsorted([-6.0, -1.0, 1.0, 6.5], latent)

    def log_likelihood(theta, rows):
        ends = jnp.concatenate([jnp.array([-jnp.inf]), theta["cuts"], jnp.array([jnp.inf])])
        eta = rows["x"] @ theta["b"]
        upper, lower = jax.nn.sigmoid(ends[rows["y"] + 1] - eta), jax.nn.sigmoid(ends[rows["y"]] - eta)
        return jnp.log(upper - lower)

    def log_prior(theta):
        return -0.5 * jnp.sum(theta["b"] ** 2) / 25 - 0.5 * jnp.sum(theta["cuts"] ** 2) / 100

    init = {"b": jnp.zeros(3), "cuts": jnp.array([-3.0, -1.0, 1.0, 3.0])}
    return Problem(lwa.Model(log_likelihood, log_prior, init, constraints={"cuts": "ordered"}), {"x": x, "y": y})
