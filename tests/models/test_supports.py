"""Constraints: the maps, their Jacobians, the posteriors that come of them, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.distributions import constraints
from scipy.special import gammaln

import lwa
from lwa.diagnostics.autocorrelation import standard_error_of_mean
from lwa.diagnostics.draws import collect_draws
from lwa.models.check import describe_theta
from lwa.models.supports import CONSTRAINTS, Support, build_support
from lwa.targets import Calibrated

# The maps

TRIANGLE, STRICT = np.tril_indices(3), np.tril_indices(3, -1)


def all_entries(value):
    return value.ravel()


def but_the_last(value):
    return value[..., :-1].ravel()


def lower(value):
    return value[..., *TRIANGLE].ravel()


def strictly_lower(value):
    return value[..., *STRICT].ravel()


KINDS = {
    "positive": ("positive", (2,), all_entries, 2),
    "positive matrix": ("positive", (2, 2), all_entries, 4),
    "unit interval": ("unit_interval", (), all_entries, 1),
    "simplex": ("simplex", (4,), but_the_last, 3),
    "simplices": ("simplex", (2, 3), but_the_last, 4),
    "ordered": ("ordered", (3,), all_entries, 3),
    "ordered vectors": ("ordered", (2, 2), all_entries, 4),
    "positive ordered": ("positive_ordered", (3,), all_entries, 3),
    "covariance": ("covariance", (3, 3), lower, 6),
    "covariances": ("positive_definite", (2, 3, 3), lower, 12),
    "correlation": ("correlation", (3, 3), strictly_lower, 3),
    "lower Cholesky": ("lower_cholesky", (3, 3), lower, 6),
    "Cholesky of a correlation": ("correlation_cholesky", (3, 3), strictly_lower, 3),
    "interval": (constraints.interval(0, 2), (2,), all_entries, 2),
    "intervals": (constraints.interval(np.array([0.0, -1.0]), np.array([2.0, 5.0])), (2,), all_entries, 2),
    "greater than": (constraints.greater_than(1.0), (), all_entries, 1),
    "less than": (constraints.less_than(1.0), (2,), all_entries, 2),
    "softplus": (constraints.softplus_positive, (2,), all_entries, 2),
    "a vector of positive numbers": (constraints.independent(constraints.positive, 1), (2,), all_entries, 2),
    "mixed": (constraints.cat([constraints.positive, constraints.real], -1, [1, 1]), (2,), all_entries, 2),
}
"""A constraint, a shape, the coordinates in which a density of such values is one, and how many there are."""


def kinds():
    return pytest.mark.parametrize(("constraint", "shape", "coordinates", "size"), KINDS.values(), ids=KINDS)


def test_every_name_is_tried():
    assert {kind[0] for kind in KINDS.values() if isinstance(kind[0], str)} >= set(CONSTRAINTS) - {"real"}


@kinds()
def test_the_jacobian_is_the_numerical_one(constraint, shape, coordinates, size):
    support = build_support("x", shape, constraint)
    assert support.size == size
    free = np.random.default_rng(1).normal(size=size)
    step = 1e-5 * np.eye(size)
    with jax.enable_x64(True):
        mapped = [
            coordinates(np.asarray(support.constrain(jnp.asarray(at.reshape(support.free_shape)))))
            for at in np.concatenate([free + step, free - step])
        ]
        log_jacobian = support.log_jacobian(jnp.asarray(free.reshape(support.free_shape)))
    slopes = (np.array(mapped[:size]) - np.array(mapped[size:])) / 2e-5
    np.testing.assert_allclose(log_jacobian, np.linalg.slogdet(slopes)[1], atol=1e-7)


@kinds()
@pytest.mark.parametrize("x64", [False, True], ids=["JAX's default", "x64"])
def test_float32_is_kept_and_close_to_float64(constraint, shape, coordinates, size, x64):
    support = build_support("x", shape, constraint)
    free = np.random.default_rng(2).normal(size=support.free_shape)
    with jax.enable_x64(True):
        value, log_jacobian = support.constrain(jnp.asarray(free)), support.log_jacobian(jnp.asarray(free))
        assert value.dtype == log_jacobian.dtype == np.float64
    with jax.enable_x64(x64):
        single = jnp.asarray(free, np.float32)
        rounded, its_jacobian = support.constrain(single), support.log_jacobian(single)
    assert rounded.dtype == its_jacobian.dtype == np.float32
    np.testing.assert_allclose(np.asarray(rounded), np.asarray(value), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(its_jacobian, log_jacobian, rtol=1e-5, atol=1e-6)


@kinds()
def test_values_come_back_from_many_draws(constraint, shape, coordinates, size):
    support = build_support("x", shape, constraint)
    free = np.random.default_rng(3).normal(size=(4, 25, size))
    with jax.enable_x64(True):
        values = np.asarray(support.constrain(jnp.asarray(free.reshape(4, 25, *support.free_shape))))
    back, inside = support.free(values)
    assert inside.shape == (4, 25)
    assert inside.all()
    np.testing.assert_allclose(back, free, atol=1e-9)
    # Made in float32, values are off their support by its rounding.
    assert support.free(values.astype(np.float32))[1].all()


INIT = {
    "sigma": 1.0,
    "p": np.array([0.2, 0.5]),
    "w": np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]),
    "cuts": np.array([-1.0, 0.0, 2.0]),
    "deep": {"cov": np.array([[2.0, 0.5], [0.5, 1.0]])},
    "free": np.zeros(2),
}
EVERYWHERE = {"sigma": "positive", "p": "unit_interval", "w": "simplex", "cuts": "ordered", "deep.cov": "covariance"}


def nothing(theta, y):
    return 0.0 * y


def flat_prior(theta):
    return 0.0


MANY = lwa.Model(nothing, flat_prior, INIT, constraints=EVERYWHERE)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-8.0, 8.0), min_size=15, max_size=15))
def test_ravel_and_unravel_are_inverse(numbers):
    vector = np.array(numbers)
    with jax.enable_x64(True):
        theta = MANY.unravel(jnp.asarray(vector))
    np.testing.assert_allclose(MANY.ravel(theta), vector, atol=1e-6)
    for name, values in MANY.by_name(vector).items():
        leaf = theta["deep"]["cov"] if name == "deep.cov" else theta[name]
        np.testing.assert_allclose(values, leaf, rtol=1e-12)


def test_the_flat_vector():
    assert MANY.dimension == 15
    assert MANY.scalar_names == [
        *("cuts~[0]", "cuts~[1]", "cuts~[2]"),
        *("deep.cov~[0]", "deep.cov~[1]", "deep.cov~[2]"),
        *("free[0]", "free[1]", "logit(p[0])", "logit(p[1])", "log(sigma)"),
        *("w~[0, 0]", "w~[0, 1]", "w~[1, 0]", "w~[1, 1]"),
    ]
    assert MANY.shapes["w"] == (2, 3)
    shown = describe_theta(MANY, MANY.ravel(INIT))
    assert shown["sigma"] == 1.0
    assert shown["deep.cov"] == [[2.0, 0.5], [0.5, 1.0]]
    draws = np.random.default_rng(4).normal(size=(2, 5, 15))
    assert {name: values.shape for name, values in MANY.free_by_name(draws).items()} == {
        "cuts": (2, 5, 3), "deep.cov": (2, 5, 3), "free": (2, 5, 2), "p": (2, 5, 2), "sigma": (2, 5, 1), "w": (2, 5, 4)
    }  # fmt: skip
    assert MANY.by_name(draws)["w"].shape == (2, 5, 2, 3)
    assert MANY.by_name(draws[:, :0])["deep.cov"].shape == (2, 0, 2, 2)


def test_a_theta_that_is_one_array():
    model = lwa.Model(nothing, flat_prior, np.ones(2), constraints={"theta": "positive"})
    assert model.scalar_names == ["log(theta[0])", "log(theta[1])"]
    np.testing.assert_allclose(model.ravel(np.array([1.0, np.e])), [0.0, 1.0])


def test_without_constraints_nothing_is_added():
    def log_prior(theta):
        return -0.5 * jnp.sum(theta["beta"] ** 2) - theta["mu"] ** 2

    def by_hand(vector):
        return jnp.asarray(log_prior({"beta": vector[0:2].reshape((2,)), "mu": vector[2:3].reshape(())}))

    init = {"mu": 0.0, "beta": np.zeros(2)}
    for said in (None, {}, {"mu": "real"}, {"mu": constraints.real, "beta": constraints.real_vector}):
        model = lwa.Model(nothing, log_prior, init, constraints=said)
        assert not model.constrained
        assert str(jax.make_jaxpr(model.log_prior_at)(jnp.zeros(3))) == str(jax.make_jaxpr(by_hand)(jnp.zeros(3)))


# What is refused

COVARIANCE = [[1.0, 0.5], [0.5, 1.0]]


@pytest.mark.parametrize(
    ("init", "said", "fragments"),
    [
        ({"s": 1.0}, {"s": "postive"}, ["constraints['s']='postive'", "'positive', 'unit_interval'", "Pass"]),
        ({"s": 1.0}, {"s": 3}, ["constraints['s']=3 is not known", "'simplex'"]),
        ({"s": 1.0}, {"t": "positive"}, ["names 't', which is not a parameter. Valid: 's'"]),
        ({"s": 1.0}, "positive", ["constraints='positive' is not a dict", "{'sigma': 'positive'}"]),
        ({"s": 1.0}, {"s": constraints.boolean}, ["constraints['s']=Boolean()", "Sum discrete ones out"]),
        ({"s": 0.5}, {"s": "simplex"}, ["init['s'] has shape ()", "sum to 1", "a vector of at least two"]),
        ({"s": np.ones(1)}, {"s": "simplex"}, ["init['s'] has shape (1,)", "a vector of at least two"]),
        ({"s": 0.5}, {"s": "ordered"}, ["init['s'] has shape ()", "increase strictly"]),
        ({"s": np.ones((2, 3))}, {"s": "covariance"}, ["shape (2, 3)", "positive definite", "a square matrix"]),
        ({"s": np.ones(2)}, {"s": "lower_cholesky"}, ["shape (2,)", "lower triangular", "a square matrix"]),
        ({"s": np.ones((1, 1))}, {"s": "correlation"}, ["shape (1, 1)", "larger than 1 x 1"]),
        ({"s": 1.0}, {"s": constraints.interval(np.zeros(2), np.ones(2))}, ["init['s'] has shape ()", "Interval"]),
        ({"s": 1.0}, {"s": constraints.interval([0, 0], [1, 1])}, ["cannot be used", "Pass its bounds as numbers"]),
        ({"s": 0.0}, {"s": "positive"}, ["init gave 's' the value 0.0", "numbers > 0", "Pass s=1.0"]),
        ({"s": np.array([1.0, -1.0])}, {"s": "positive"}, ["the value [1.0, -1.0]", "Pass s=[1.0, 1.0]"]),
        ({"s": 1.0}, {"s": "unit_interval"}, ["the value 1.0", "strictly between 0 and 1", "Pass s=0.5"]),
        ({"s": 0.0}, {"s": "probability"}, ["the value 0.0", "strictly between 0 and 1"]),
        ({"s": np.array([0.5, 0.4])}, {"s": "simplex"}, ["the value [0.5, 0.4]", "Pass s=[0.5, 0.5]"]),
        ({"s": np.array([0.5, 0.5, 0.0])}, {"s": "simplex"}, ["[0.5, 0.5, 0.0]", "Pass s=[0.333, 0.333, 0.333]"]),
        ({"s": np.array([0.0, 0.5, 0.5])}, {"s": "simplex"}, ["[0.0, 0.5, 0.5]", "boundaries excluded"]),
        ({"s": np.array([1.0, 1.0])}, {"s": "ordered"}, ["the value [1.0, 1.0]", "Pass s=[0.0, 1.0]"]),
        ({"s": np.array([[1, 2], [2, 1]])}, {"s": "covariance"}, ["[[1.0, 2.0], [2.0, 1.0]]", "positive definite"]),
        ({"s": np.array([[1, 0.5], [0, 1]])}, {"s": "covariance"}, ["a symmetric", "Pass s=[[1.0, 0.0], [0.0, 1.0]]"]),
        ({"s": 2 * np.array(COVARIANCE)}, {"s": "correlation"}, ["ones on its diagonal"]),
        ({"s": np.array(COVARIANCE)}, {"s": "lower_cholesky"}, ["lower triangular matrix"]),
        ({"s": 2.0}, {"s": constraints.interval(0, 2)}, ["Interval(lower_bound=0, upper_bound=2)", "Pass s=1.0"]),
        ({"s": 1.0}, {"s": constraints.greater_than(1.0)}, ["GreaterThan(lower_bound=1.0)", "Pass s=2.0"]),
        ({"s": np.nan}, {"s": "positive"}, ["the value nan", "numbers > 0"]),
    ],
)
def test_a_model_that_cannot_be(init, said, fragments):
    with pytest.raises(lwa.ModelError) as caught:
        lwa.Model(nothing, flat_prior, init, constraints=said)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("sigma", [0.0, -1.0])
@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("initvals", lambda theta: {"initvals": theta}),
        ("initvals[1]", lambda theta: {"initvals": [{"sigma": 1.0}, theta]}),
        ("reference", lambda theta: {"target": Calibrated(reference=theta)}),
        ("prior_draw", lambda theta: {"prior_draw": lambda key: theta}),
    ],
    ids=["initvals", "a list of initvals", "reference", "prior_draw"],
)
def test_a_start_outside_the_support(source, options, sigma):
    asked = {"target": "powered", **options({"sigma": sigma})}
    model = lwa.Model(
        lambda theta, y: -jnp.log(theta["sigma"]) - 0.5 * (y / theta["sigma"]) ** 2,
        lambda theta: -theta["sigma"],
        {"sigma": 2.0},
        prior_draw=asked.pop("prior_draw", None),
        constraints={"sigma": "positive"},
    )
    with pytest.raises(lwa.ModelError) as caught:
        lwa.sample(model, np.ones(50), subset_size=10, draws=5, tune=5, chains=2, seed=1, progress=False, **asked)
    assert str(caught.value).startswith(f"{source} gave 'sigma' the value {sigma}, which lies outside its support: ")
    assert "numbers > 0" in str(caught.value)
    assert "Pass sigma=1.0" in str(caught.value)


# Posteriors

N = 12
rng = np.random.default_rng(5)
DATA = {
    "count": rng.poisson(2.0, N),
    "hit": (rng.random(N) < 0.3).astype(float),
    "kind": rng.integers(0, 3, N),
    "y": rng.normal(1.0, 3.0, N),
    "pair": rng.normal(size=(N, 2)) @ np.array([[1.5, 0.0], [0.5, 1.0]]),
}
SHAPE, RATE = 2.0, 0.5
A, B = 1.5, 2.0
WEIGHTS = np.array([0.8, 1.0, 2.0])
NU, PSI = 6.0, np.array([[2.0, 0.3], [0.3, 1.0]])


def five_log_likelihood(theta, rows):
    """Poisson, Bernoulli, categorical, normal around the lower of two ordered means, bivariate normal."""
    factor = jnp.linalg.cholesky(theta["cov"])
    white = jax.scipy.linalg.solve_triangular(factor, rows["pair"].T, lower=True)
    return (
        rows["count"] * jnp.log(theta["rate"]) - theta["rate"]
        + rows["hit"] * jnp.log(theta["p"]) + (1 - rows["hit"]) * jnp.log1p(-theta["p"])
        + jnp.log(theta["w"])[rows["kind"]]
        - 0.5 * ((rows["y"] - theta["cuts"][0]) / 3) ** 2
        - 0.5 * (white**2).sum(0) - jnp.log(jnp.diag(factor)).sum()
    )  # fmt: skip


def five_log_prior(theta):
    """Gamma, beta, Dirichlet, order statistics of normals, inverse Wishart."""
    return (
        (SHAPE - 1) * jnp.log(theta["rate"]) - RATE * theta["rate"]
        + (A - 1) * jnp.log(theta["p"]) + (B - 1) * jnp.log1p(-theta["p"])
        + jnp.sum((WEIGHTS - 1) * jnp.log(theta["w"]))
        - 0.5 * jnp.sum(theta["cuts"] ** 2)
        - 0.5 * (NU + 3) * jnp.linalg.slogdet(theta["cov"])[1]
        - 0.5 * jnp.trace(jnp.linalg.solve(theta["cov"], jnp.asarray(PSI, theta["cov"].dtype)))
    )  # fmt: skip


def five():
    """Five conjugate models at once: their posteriors are independent, and one program serves all."""
    init = {"rate": 1.0, "p": 0.5, "w": np.ones(3) / 3, "cuts": np.array([-1.0, 1.0]), "cov": np.eye(2)}
    kinds = {"rate": "positive", "p": "unit_interval", "w": "simplex", "cuts": "ordered", "cov": "covariance"}
    return lwa.Model(five_log_likelihood, five_log_prior, init, constraints=kinds, dims={"w": ["kind"]})


def exact_moments():
    """Mean and variance of each parameter under the posterior of all rows: closed forms; quadrature for the cuts."""
    shape, rate = SHAPE + DATA["count"].sum(), RATE + N
    a, b = A + DATA["hit"].sum(), B + N - DATA["hit"].sum()
    weights = WEIGHTS + np.bincount(DATA["kind"], minlength=3)
    w = weights / weights.sum()
    grid = np.linspace(-6, 6, 1201)
    low, high = np.meshgrid(grid, grid, indexing="ij")
    log_density = -0.5 * (low**2 + high**2)
    log_density = log_density - 0.5 * (((DATA["y"] - low[..., None]) / 3) ** 2).sum(-1)
    density = np.exp(log_density - log_density.max()) * np.where(low < high, 1.0, np.where(low == high, 0.5, 0.0))
    density /= density.sum()
    cuts = np.array([(density * low).sum(), (density * high).sum()])
    spread = np.array([(density * low**2).sum(), (density * high**2).sum()]) - cuts**2
    nu, psi = NU + N, PSI + DATA["pair"].T @ DATA["pair"]
    cov = psi / (nu - 3)
    across = np.outer(np.diag(psi), np.diag(psi))
    cov_variance = ((nu - 1) * psi**2 + (nu - 3) * across) / ((nu - 2) * (nu - 3) ** 2 * (nu - 5))
    return {
        "rate": (shape / rate, shape / rate**2),
        "p": (a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))),
        "w": (w, w * (1 - w) / (weights.sum() + 1)),
        "cuts": (cuts, spread),
        "cov": (cov, cov_variance),
    }


OPTIONS = {"subset_size": N, "draws": 1500, "tune": 1500, "seed": 1, "progress": False, "precision": "float32"}


def standard_errors_off(fit):
    """By how many standard errors mean and variance of the draws miss the exact ones, the worst of each parameter."""
    off = {}
    for name, (mean, variance) in exact_moments().items():
        values = fit.posterior[name].reshape(*fit.posterior["p"].shape, -1)
        mean, variance = np.ravel(mean), np.ravel(variance)
        found = np.concatenate([values - mean, (values - mean) ** 2 - variance], axis=-1)
        off[name] = float(np.abs(found.mean((0, 1)) / standard_error_of_mean(found)).max())
    return off


@pytest.fixture(scope="module")
def fit():
    return lwa.sample(five(), DATA, target="powered", **OPTIONS)


def test_conjugate_posteriors(fit):
    off = standard_errors_off(fit)
    assert max(off.values()) < 4, off  # 20 quantities: 4 standard errors are passed once in 800 seeds


@pytest.mark.slow
def test_conjugate_posteriors_around_their_mode():
    off = standard_errors_off(lwa.sample(five(), DATA, **OPTIONS))
    assert max(off.values()) < 4, off


@pytest.mark.slow
def test_a_dropped_jacobian_is_noticed(monkeypatch):
    monkeypatch.setattr(Support, "log_jacobian", lambda self, free: jnp.zeros((), free.dtype))
    off = standard_errors_off(lwa.sample(five(), DATA, target="powered", **OPTIONS))
    assert min(off.values()) > 5, off


def test_draws_are_kept_in_both_spaces(fit, tmp_path):
    assert list(fit.unconstrained) == list(fit.posterior)
    assert {name: values.shape[2:] for name, values in fit.unconstrained.items()} == {
        "cov": (3,), "cuts": (2,), "p": (1,), "rate": (1,), "w": (2,)
    }  # fmt: skip
    np.testing.assert_allclose(np.exp(fit.unconstrained["rate"][..., 0]), fit.posterior["rate"], rtol=1e-12)
    np.testing.assert_allclose(fit.posterior["w"].sum(-1), 1.0, rtol=1e-12)
    assert (np.diff(fit.posterior["cuts"], axis=-1) > 0).all()
    assert sorted(fit.idata.children) == ["posterior", "sample_stats", "unconstrained_posterior"]
    assert fit.idata.posterior["w"].dims == ("chain", "draw", "kind")
    free = fit.idata["unconstrained_posterior"]
    assert free["rate"].dims == ("chain", "draw", "rate~")
    assert free["rate~"].values.tolist() == ["log(rate)"]
    assert free["w~"].values.tolist() == ["w~[0]", "w~[1]"]
    assert len(fit.summary()) == 11
    loaded = lwa.load(fit.save(tmp_path / "run"))
    for name, values in fit.unconstrained.items():
        assert loaded.unconstrained[name].tobytes() == values.tobytes()
    assert loaded.idata.equals(fit.idata)
    fit.to_netcdf(tmp_path / "run.nc")


def test_a_run_without_constraints_keeps_none():
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2, 0.0)
    fit = lwa.sample(model, DATA["y"], subset_size=N, draws=10, tune=10, chains=2, seed=1, progress=False)
    assert fit.unconstrained is None
    assert sorted(fit.idata.children) == ["posterior", "sample_stats"]


# Certificates


@pytest.mark.slow
def test_a_certificate_takes_the_draws_as_they_were_moved(fit):
    model = fit.origin.model
    together = np.concatenate(list(fit.unconstrained.values()), axis=-1)
    assert collect_draws(model, fit).tobytes() == together.tobytes()
    np.testing.assert_allclose(collect_draws(model, fit.idata), together, atol=1e-6)  # the round trip
    np.testing.assert_allclose(collect_draws(model, dict(fit.posterior)), together, atol=1e-6)
    bounded = {**model.constraints, "rate": constraints.interval(0, 100)}
    other = lwa.Model(five_log_likelihood, five_log_prior, model.init, constraints=bounded)
    expected = np.log(fit.posterior["rate"] / (100 - fit.posterior["rate"]))
    np.testing.assert_allclose(collect_draws(other, fit)[..., other.scalar_names.index("rate~")], expected, rtol=1e-6)


SCALE_N = 100_000
SCALE_Y = np.random.default_rng(6).normal(0.0, 2.0, SCALE_N)
SCALE_SHAPE, SCALE_RATE = 2.0 + SCALE_N / 2, 2.0 + (SCALE_Y**2).sum() / 2


def scale():
    """A positive σ whose square has an inverse gamma posterior."""
    return lwa.Model(
        lambda theta, y: -jnp.log(theta["sigma"]) - 0.5 * (y / theta["sigma"]) ** 2,
        lambda theta: -2.0 / theta["sigma"] ** 2 - 5.0 * jnp.log(theta["sigma"]),  # inverse gamma (2, 2), times 2 σ
        {"sigma": 1.0},
        constraints={"sigma": "positive"},
    )


SCALE_MEAN = float(np.sqrt(SCALE_RATE) * np.exp(gammaln(SCALE_SHAPE - 0.5) - gammaln(SCALE_SHAPE)))
SCALE_SD = float(np.sqrt(SCALE_RATE / (SCALE_SHAPE - 1) - SCALE_MEAN**2))


def exact_scales(seed):
    """Independent draws of σ."""
    return np.sqrt(SCALE_RATE / np.random.default_rng(seed).gamma(SCALE_SHAPE, size=(4, 1000)))


@pytest.fixture(scope="module")
def scaled():
    return lwa.sample(scale(), SCALE_Y, subset_size=200, draws=1000, seed=1, progress=False)


@pytest.mark.slow
def test_the_calibrated_default(scaled):
    sigma = scaled.posterior["sigma"]
    error = float(standard_error_of_mean(sigma[..., None])[0])
    assert abs(sigma.mean() - SCALE_MEAN) < 0.03 * SCALE_SD + 4 * error
    assert abs(sigma.std() / SCALE_SD - 1) < 0.01 + 4 / np.sqrt(2 * (sigma.std() / error) ** 2)
    assert scaled.certify(progress=False).names == ["log(sigma)"]
    assert scaled.certificate.passed


@pytest.mark.slow
def test_polish_moves_unconstrained_draws(scaled):
    polished = scaled.polish(2, draws=20, progress=False)
    assert polished.unconstrained["sigma"].shape == (4, 40, 1)  # of both passes
    np.testing.assert_allclose(polished.posterior["sigma"], np.exp(polished.unconstrained["sigma"][..., 0]), rtol=1e-12)
    assert abs(polished.posterior["sigma"].mean() - SCALE_MEAN) < 4 * SCALE_SD / np.sqrt(80)
    assert polished.attributes["polish_acceptance"] > 0.9  # a θ of one number, and its logarithm is what moved


def test_exact_draws_pass_and_shifted_ones_do_not():
    draws = exact_scales(1)
    certificate = lwa.certify(scale(), SCALE_Y, {"sigma": draws}, progress=False)
    assert certificate.passed
    assert abs(certificate.mean[0] - np.log(SCALE_MEAN)) < 0.05 * SCALE_SD / SCALE_MEAN
    assert not lwa.certify(scale(), SCALE_Y, {"sigma": draws + 0.3 * SCALE_SD}, progress=False).passed


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_draws_outside_the_support(bad):
    draws = exact_scales(2)
    draws[1, 3] = draws[2, 7] = bad
    message = (
        f"2 of 4000 draws of 'sigma' in idata lie outside its support: numbers > 0 .'positive'., boundaries excluded. "
        f"The first is {bad}. Pass draws of 'sigma'"
    )
    with pytest.raises(lwa.InputError, match=message):
        lwa.certify(scale(), SCALE_Y, {"sigma": draws}, progress=False)
