"""PyMC models: densities and gradients against PyMC's own, results by name, and what is refused."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import jax
import numpy as np
import pymc as pm
import pytest

import lwa
from lwa.models.pymc_graphs import keep_precision

N, GROUPS = 40, 3
rng = np.random.default_rng(0)
DATA = {
    "x": rng.normal(size=(N, 2)),
    "group": rng.integers(0, GROUPS, N).astype(np.int32),
    "y": rng.normal(size=N),
    "count": rng.poisson(3.0, N).astype(np.int32),
    "binary": rng.integers(0, 2, N).astype(np.int32),
    "exposure": rng.uniform(0.5, 2.0, N),
    "pair": rng.normal(size=(N, 2)),
}


def column(name):
    return pm.Data(name, DATA[name])


def student():
    with pm.Model() as model:
        y = column("y")
        df = pm.TruncatedNormal("df", 5, 3, lower=2)
        scale = pm.HalfCauchy("scale", 2)
        mu = pm.Flat("mu")
        pm.StudentT("observed", nu=df, mu=mu, sigma=scale, observed=y)
    return model


def logistic():
    with pm.Model(coords={"covariate": ["age", "weight"]}) as model:
        x, binary = column("x"), column("binary")
        beta = pm.Normal("beta", 0, 2, dims="covariate")
        share = pm.Beta("share", 2, 2)
        pm.Deterministic("odds", pm.math.exp(beta), dims="covariate")
        pm.Deterministic("fitted", x @ beta)  # of each row
        p = 0.1 * share + 0.9 * pm.math.invlogit(x @ beta)
        pm.Bernoulli("observed", p=p, observed=binary)
    return model


def hierarchical():
    with pm.Model(coords={"cluster": list("abc")}) as model:
        group, y = column("group"), column("y")
        mu = pm.Normal("mu", 0, 3)
        tau = pm.HalfNormal("tau", 1)
        effect = pm.Normal("effect", mu, tau, dims="cluster")
        weight = pm.Dirichlet("weight", np.full(GROUPS, 2.0))
        pm.Potential("gently", -0.1 * (mu - tau) ** 2)
        pm.Normal("observed", effect[group] + weight[group], 0.7, observed=y)
    return model


def poisson():
    with pm.Model() as model:
        x, exposure, count = column("x"), column("exposure"), column("count")
        limits = pm.Data("limits", np.array([-3.0, 4.0, 9.0]))  # no rows
        beta = pm.Uniform("beta", limits[0], limits[1], shape=2)
        pm.Poisson("observed", exposure * pm.math.exp(x @ beta), observed=count)
    return model


def covariance():
    with pm.Model() as model:
        pair, count = column("pair"), column("count")
        cholesky, _, _ = pm.LKJCholeskyCov("L", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))
        mu = pm.Normal("mu", 0, 1, shape=2)
        pm.MvNormal("observed", mu, chol=cholesky, observed=pair)
        pm.NegativeBinomial("counted", mu=pm.math.exp(mu[0]), alpha=2.0, observed=count)
    return model


def mixture():
    with pm.Model() as model:
        y = column("y")
        w = pm.Dirichlet("w", np.ones(2))
        mu = pm.Normal("mu", 0, 3, shape=2, transform=pm.distributions.transforms.ordered, initval=[-1.0, 1.0])
        pm.NormalMixture("observed", w=w, mu=mu, sigma=1.0, observed=y)
    return model


MODELS = [student, logistic, hierarchical, poisson, covariance, mixture]


@cache
def built(build):
    return build()


@cache
def of(build):
    return lwa.from_pymc(built(build))


LONG = (student, covariance, mixture)
"""Those that take seconds to compile."""
each_model = pytest.mark.parametrize(
    "build",
    [pytest.param(build, id=build.__name__, marks=[pytest.mark.slow] if build in LONG else []) for build in MODELS],
)


@each_model
def test_densities_and_gradients_are_pymcs(build):
    """At the same unconstrained vectors, Jacobians included."""
    model, adapted = built(build), of(build)
    names = {variable.name: model.rvs_to_values[variable].name for variable in model.free_RVs}

    def ours(vector):
        return adapted.log_prior_at(vector) + adapted.log_likelihood(adapted.unravel(vector), DATA).sum()

    density = model.compile_fn(model.logp(), mode="FAST_COMPILE")
    gradient = model.compile_fn(model.dlogp(), mode="FAST_COMPILE")
    vectors = np.random.default_rng(1).normal(size=(5, adapted.dimension))
    with jax.enable_x64(True):
        values, gradients = jax.jit(jax.vmap(jax.value_and_grad(ours)))(vectors)
    for vector, value, slope in zip(vectors, values, gradients, strict=True):
        places = dict(zip(adapted.supports, adapted.places, strict=True))
        point = {names[name]: vector[place].reshape(shape) for name, (place, shape) in places.items()}
        np.testing.assert_allclose(value, density(point), rtol=1e-9)
        in_pymcs_order = np.concatenate([slope[places[name][0]] for name in names])
        np.testing.assert_allclose(in_pymcs_order, gradient(point), rtol=1e-6, atol=1e-9)


@each_model
def test_terms_are_the_rows_own(build):
    adapted, chosen = of(build), np.array([3, 3, 17, 0])
    with jax.enable_x64(True):
        log_likelihood = jax.jit(adapted.log_likelihood)
        terms = log_likelihood(adapted.init, DATA)
        some = log_likelihood(adapted.init, {name: values[chosen] for name, values in DATA.items()})
        half = jax.eval_shape(log_likelihood, jax.tree.map(np.float32, adapted.init), DATA)
    assert terms.shape == (N,)
    np.testing.assert_allclose(some, np.asarray(terms)[chosen], rtol=1e-12)
    assert half.dtype == np.float32


@each_model
def test_supports_are_mapped_there_and_back(build):
    adapted = of(build)
    vectors = np.random.default_rng(2).normal(size=(2, 3, adapted.dimension))
    for name, values in adapted.by_name(vectors).items():
        free, inside = adapted.supports[name].free(values)
        assert inside.all()
        np.testing.assert_allclose(free, adapted.free_by_name(vectors)[name], rtol=1e-7, atol=1e-9)


def test_names_dims_and_derived():
    adapted = of(logistic)
    fit = lwa.sample(adapted, DATA, subset_size=40, draws=20, tune=50, chains=2, seed=1, progress=False)
    posterior = fit.idata.posterior
    assert set(posterior) == {"beta", "share", "odds"}
    assert posterior["odds"].dims == ("chain", "draw", "covariate")
    assert posterior["covariate"].values.tolist() == ["age", "weight"]
    np.testing.assert_allclose(fit.posterior["odds"], np.exp(fit.posterior["beta"]))
    assert adapted.scalar_names == ["beta[0]", "beta[1]", "logit(share)"]


def test_a_container_that_is_no_rows_though_as_long():
    with pm.Model() as model:
        mu = pm.Normal("mu", pm.Data("centre", np.arange(float(N))).mean(), 1)
        pm.Normal("observed", mu, 1, observed=column("y"))
    with pytest.raises(lwa.ModelError, match="a prior, a factor or a potential depends on data"):
        lwa.from_pymc(model)
    adapted = lwa.from_pymc(model, constants=["centre"])
    assert adapted.init["mu"] == (N - 1) / 2
    with pytest.raises(lwa.ModelError, match=r"constants names 'left', which is not a pm.Data. Valid: 'centre', 'y'"):
        lwa.from_pymc(model, constants=["left"])
    with pytest.raises(lwa.ModelError, match=r"The rows have no column 'y'; they have 'z'"):
        adapted.log_likelihood(adapted.init, {"z": DATA["y"]})


def nothing_observed():
    pm.Normal("mu", 0, 1)


def imputed():
    y = np.ma.masked_array(DATA["y"], DATA["y"] > 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pm.Normal("observed", pm.Normal("mu", 0, 1), 1, observed=y)


def minibatch():
    pm.Normal("observed", pm.Normal("mu", 0, 1), 1, observed=pm.Minibatch(DATA["y"], batch_size=5), total_size=N)


def discrete():
    pm.Normal("observed", pm.Poisson("rate", 3), 1, observed=column("y"))


def no_container():
    pm.Normal("observed", pm.Normal("mu", 0, 1), 1, observed=DATA["y"])


def covariates_outside():
    pm.Normal("observed", pm.Normal("mu", 0, 1) * DATA["exposure"], 1, observed=column("y"))


def two_lengths():
    mu = pm.Normal("mu", 0, 1)
    pm.Normal("observed", mu, 1, observed=column("y"))
    pm.Normal("others", mu, 1, observed=pm.Data("z", np.zeros(7)))


def one_for_each_row():
    pm.Normal("observed", pm.Normal("z", 0, 1, shape=N), 1, observed=column("y"))


def centred():
    y = column("y")
    pm.Normal("observed", pm.Normal("mu", 0, 1), 1, observed=y - y.mean())


def leaning_support():
    pm.Normal("observed", pm.Uniform("mu", 0, pm.HalfNormal("top", 1)), 1, observed=column("y"))


@pytest.mark.parametrize(
    ("build", "fragments"),
    [
        (nothing_observed, ["No variable of the model is observed", "observed=pm.Data"]),
        (imputed, ["'observed' is partly observed", "Leave those rows out"]),
        (minibatch, ["'observed' is observed through pm.Minibatch", "pm.Data('y', y)"]),
        (discrete, ["'rate' is a discrete free variable", "pm.Mixture"]),
        (no_container, ["What 'observed' observes is in no pm.Data", "pm.Data('observed_rows', y)"]),
        (covariates_outside, ["any number of rows", "into pm.Data"]),
        (two_lengths, ["different numbers of rows: {'observed': 40, 'others': 7}"]),
        (one_for_each_row, ["'z' has an entry for each row", "integrate it out"]),
        (centred, ["changes with the rows beside it"]),
        (leaning_support, ["The support of 'mu' depends on 'top'", "scale * u"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_refused(build, fragments):
    with pm.Model() as model:
        build()
    with pytest.raises(lwa.ModelError) as caught:
        lwa.from_pymc(model)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_no_model_at_all():
    with pytest.raises(lwa.ModelError, match=r"model is of type int. Pass a pymc.Model"):
        lwa.from_pymc(3)


def test_without_pymc_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lwa.models.pymc_graphs", None)
    with pytest.raises(lwa.InputError, match=r"pip install 'lwa\[pymc\]'"):
        lwa.from_pymc(3)


def test_the_users_precision_stays():
    """PyTensor's import of its JAX functions is the first in this process, and sets it."""
    of(student)
    assert not jax.config.jax_enable_x64
    with jax.enable_x64(True), keep_precision():
        jax.config.update("jax_enable_x64", True)
    with ThreadPoolExecutor(1) as another:
        assert not another.submit(lambda: jax.config.jax_enable_x64).result()
