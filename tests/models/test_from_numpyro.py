"""NumPyro models: densities and gradients against NumPyro's own, results by name, and what is refused."""

import threading
import time
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import potential_energy

import lwa

N, GROUPS, KINDS = 40, 4, 3
rng = np.random.default_rng(0)
X, GROUP = rng.normal(size=(N, 2)), rng.integers(0, GROUPS, N)
DATA = {
    "x": X,
    "group": GROUP,
    "y": rng.normal(size=N),
    "binary": rng.integers(0, 2, N),
    "count": rng.poisson(3.0, N),
    "kind": rng.integers(0, KINDS, N),
    "exposure": rng.uniform(0.5, 2.0, N),
    "pair": rng.normal(size=(N, 2)),
    "triple": rng.normal(size=(N, 3)),
    "share": rng.uniform(0.1, 0.9, N),
}


def normal(y):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def logistic(x, binary):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[-1]]).to_event(1))
    intercept = numpyro.sample("intercept", dist.Cauchy(0, 2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("binary", dist.Bernoulli(logits=intercept + x @ beta), obs=binary)


def hierarchical(group, y, groups):
    mu = numpyro.sample("mu", dist.Normal(0, 3))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", groups), handlers.reparam(config={"effect": LocScaleReparam(0)}):
        effect = numpyro.sample("effect", dist.Normal(mu, tau))
    numpyro.factor("gently", -0.1 * (mu - tau) ** 2)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], 0.7), obs=y)


def poisson(x, exposure, count=None):
    with numpyro.plate("covariates", 2):
        beta = numpyro.sample("beta", dist.Laplace(0, 1))
    with numpyro.plate("rows", N):  # of a fixed size
        numpyro.sample("count", dist.Poisson(exposure * jnp.exp(x @ beta)), obs=count)


def student(y):
    df = numpyro.sample("df", dist.TruncatedNormal(5, 3, low=2))
    scale = numpyro.sample("scale", dist.Uniform(0.1, 5))
    mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("rows", len(y)), handlers.scale(scale=0.5):
        numpyro.sample("y", dist.StudentT(df, mu, scale), obs=y)


def categorical(group, kind):
    with numpyro.plate("groups", GROUPS):
        p = numpyro.sample("p", dist.Dirichlet(jnp.full(KINDS, 1.5)))
    with numpyro.plate("rows", len(kind)):
        numpyro.sample("kind", dist.Categorical(p[group]), obs=kind)


def covariance(triple):
    L = numpyro.sample("L", dist.LKJCholesky(3, 2.0))
    sd = numpyro.sample("sd", dist.HalfNormal(1).expand([3]).to_event(1))
    mu = numpyro.sample("mu", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
    scaled = numpyro.deterministic("scaled", sd[:, None] * L)
    with numpyro.plate("rows", len(triple)):
        numpyro.sample("triple", dist.MultivariateNormal(mu, scale_tril=scaled), obs=triple)


def horseshoe(x, y):
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    with numpyro.plate("covariates", x.shape[1]):
        lam = numpyro.sample("lambda", dist.HalfCauchy(1))
        raw = numpyro.sample("raw", dist.Normal(0, 1))
        beta = numpyro.deterministic("beta", raw * lam * tau)
    numpyro.deterministic("norm", jnp.sum(beta**2))
    mean = numpyro.deterministic("mean", x @ beta)  # of each row
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def negative_binomial(x, count):
    beta = numpyro.sample("beta", dist.MultivariateNormal(jnp.zeros(2), 4 * jnp.eye(2)))
    concentration = numpyro.sample("concentration", dist.Gamma(2, 0.5))
    with numpyro.plate("rows", len(count)):
        numpyro.sample("count", dist.NegativeBinomial2(jnp.exp(x @ beta), concentration), obs=count)


def beta(x, share):
    """Its log density is made of functions with derivatives of their own, which take no NumPy array inside vmap."""
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("rows", len(share)):
        mean = 1 / (1 + jnp.exp(-x @ slope))
        numpyro.sample("share", dist.Beta(5 * mean, 5 * (1 - mean)), obs=share)


def mixture(y):
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(2)))
    mu = numpyro.sample("mu", dist.TransformedDistribution(dist.Normal(jnp.zeros(2), 3).to_event(1), ORDERED))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(mu, 1.0)), obs=y)


ORDERED = dist.transforms.OrderedTransform()


def two_sites(x, pair, count):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    rows = numpyro.plate("rows", len(count), dim=-2)
    with rows, numpyro.plate("columns", 2, dim=-1):
        numpyro.sample("pair", dist.Normal(mu * x, 1.0), obs=pair)
    with rows:
        numpyro.sample("count", dist.Poisson(jnp.exp(mu)), obs=count[:, None])
        numpyro.factor("row", -0.1 * (mu * x[:, :1]) ** 2)


def subsampled(x, y, size=7):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", N, subsample_size=size) as chosen:
        part = numpyro.subsample(x, event_dim=1)
        numpyro.sample("y", dist.Normal(part @ beta, 1.0).mask(part[:, 0] > -1), obs=y[chosen])


MODELS = {
    normal: {},
    logistic: {},
    hierarchical: {"groups": GROUPS},
    poisson: {},
    student: {},
    categorical: {},
    covariance: {},
    horseshoe: {},
    negative_binomial: {},
    beta: {},
    mixture: {},
    two_sites: {},
    subsampled: {},
}
LONG = (student, covariance, horseshoe, negative_binomial, mixture)
"""Those that take seconds to compile."""
each_model = pytest.mark.parametrize(
    "model",
    [pytest.param(model, id=model.__name__, marks=[pytest.mark.slow] if model in LONG else []) for model in MODELS],
)


@cache
def of(model):
    return lwa.from_numpyro(model, DATA, constants=MODELS.get(model))


def both(model):
    """The log density of an unconstrained vector, the adapter's and NumPyro's."""
    adapted = of(model)
    names = adapted.supports

    def ours(vector):
        return adapted.log_prior_at(vector) + adapted.log_likelihood(adapted.unravel(vector), DATA).sum()

    arguments = {
        name: jnp.asarray(DATA[name])
        for name in model.__code__.co_varnames[: model.__code__.co_argcount]
        if name in DATA
    }
    whole = MODELS[model] | ({"size": None} if model is subsampled else {})

    def theirs(vector):
        parts = {name: vector[place].reshape(shape) for name, (place, shape) in zip(names, adapted.places, strict=True)}
        return -potential_energy(model, (), arguments | whole, parts)

    return adapted, ours, theirs


@each_model
def test_densities_and_gradients_are_numpyros(model):
    with jax.enable_x64(True):
        adapted, ours, theirs = both(model)
        vectors = np.random.default_rng(1).normal(size=(5, adapted.dimension))
        values = [jax.jit(jax.vmap(jax.value_and_grad(f)))(vectors) for f in (ours, theirs)]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-9)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-6, atol=1e-9)


@each_model
def test_terms_are_the_rows_own(model):
    """Of any rows in any order; each counts once."""
    adapted = of(model)
    chosen = np.array([3, 3, 17, 0])
    with jax.enable_x64(True):
        log_likelihood = jax.jit(adapted.log_likelihood)
        all_terms = log_likelihood(adapted.init, DATA)
        some = log_likelihood(adapted.init, {name: values[chosen] for name, values in DATA.items()})
        half = jax.eval_shape(log_likelihood, jax.tree.map(np.float32, adapted.init), DATA)
    assert all_terms.shape == (N,)
    np.testing.assert_allclose(some, np.asarray(all_terms)[chosen], rtol=1e-12)
    assert half.dtype == np.float32


@each_model
def test_starts_are_thetas_of_the_model(model):
    adapted = of(model)
    assert np.isfinite(adapted.ravel(adapted.init)).all()
    assert (adapted.prior_draw is None) == (model is student)  # whose mu is improper
    if adapted.prior_draw is not None:
        with jax.enable_x64(True):
            prior_draw = jax.jit(adapted.prior_draw)
            one, other = (adapted.ravel(prior_draw(jax.random.key(k))) for k in range(2))
        assert (one != other).all()


def test_draws_of_the_prior_follow_it():
    adapted = of(normal)
    draws = jax.vmap(adapted.prior_draw)(jax.random.split(jax.random.key(0), 4000))["mu"]
    assert abs(draws.mean()) < 4 * 10 / np.sqrt(4000)
    assert abs(draws.std() / 10 - 1) < 4 / np.sqrt(2 * 4000)


def test_names_dims_and_derived():
    adapted = lwa.from_numpyro(horseshoe, DATA, coords={"covariates": ["age", "weight"]})
    assert set(adapted.shapes) == {"tau", "lambda", "raw"}
    fit = lwa.sample(
        adapted, DATA, subset_size=10, target="powered", draws=20, tune=50, chains=2, seed=1, progress=False
    )
    posterior = fit.idata.posterior
    assert set(posterior) == {"tau", "lambda", "raw", "beta", "norm"}
    assert posterior["beta"].dims == ("chain", "draw", "covariates")
    assert posterior["covariates"].values.tolist() == ["age", "weight"]
    np.testing.assert_allclose(fit.posterior["norm"], (fit.posterior["beta"] ** 2).sum(-1))
    product = fit.posterior["raw"] * fit.posterior["lambda"] * fit.posterior["tau"][..., None]
    np.testing.assert_allclose(fit.posterior["beta"], product)


def test_one_array_and_a_table():
    import pandas

    bare = lwa.from_numpyro(normal, DATA["y"])
    table = pandas.DataFrame({"y": DATA["y"], "other": 1})
    with jax.enable_x64(True):
        expected = of(normal).log_likelihood(bare.init, DATA)
        np.testing.assert_array_equal(bare.log_likelihood(bare.init, DATA["y"]), expected)
    assert lwa.from_numpyro(normal, table).shapes == bare.shapes


def test_keyword_arguments_take_every_column():
    def model(**columns):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        with numpyro.plate("rows", len(columns["y"])):
            numpyro.sample("y", dist.Normal(mu * columns["exposure"], 1), obs=columns["y"])

    assert lwa.from_numpyro(model, DATA).log_likelihood({"mu": 0.0}, DATA).shape == (N,)


def test_a_square_of_rows_needs_the_plates_name():
    square = {"y": np.random.default_rng(2).normal(size=(6, 6))}

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        with numpyro.plate("rows", 6, dim=-2), numpyro.plate("columns", 6, dim=-1):
            numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    with pytest.raises(lwa.ModelError, match=r"'rows', 'columns' all have the length of data, 6. Pass plate='rows'"):
        lwa.from_numpyro(model, square)
    adapted = lwa.from_numpyro(model, square, plate="rows")
    expected = dist.Normal(0.0, 1.0).log_prob(square["y"][:2]).sum(1)
    np.testing.assert_allclose(adapted.log_likelihood({"mu": 0.0}, {"y": square["y"][:2]}), expected, rtol=1e-6)


def test_several_threads_trace_at_once():
    """NumPyro's stack of handlers is global; chains are compiled on threads of their own."""

    def slow(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        time.sleep(0.02)  # the others come in between
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    adapted, found = lwa.from_numpyro(slow, DATA), []

    def trace(mu):
        found.append((mu, jax.jit(lambda: adapted.log_likelihood({"mu": jnp.float32(mu)}, DATA))()))

    threads = [threading.Thread(target=trace, args=(float(mu),)) for mu in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for mu, terms in found:
        np.testing.assert_allclose(terms, dist.Normal(mu, 1.0).log_prob(DATA["y"]), rtol=1e-5)


def rows(y):
    return numpyro.plate("rows", len(y))


def per_row(y):
    with rows(y):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


def outside(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu, 1), obs=y)


def beside(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("side", dist.Normal(mu, 1), obs=3.0)
    with rows(y):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)


def two_plates(y, exposure):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("a", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)
    with numpyro.plate("b", len(y)):
        numpyro.sample("exposure", dist.Normal(mu, 1), obs=exposure)


def unobserved(y, Z=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with rows(y):
        numpyro.sample("Z", dist.Normal(mu, 1), obs=Z)


def discrete(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
    with rows(y):
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


def counts_its_groups(group, y):
    with numpyro.plate("groups", int(group.max()) + 1):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
    with rows(y):
        numpyro.sample("y", dist.Normal(effect[group], 1), obs=y)


def branches(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with rows(y):
        numpyro.sample("y", dist.Normal(mu, 1.0 if y.mean() > 0 else 2.0), obs=y)


def centred(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with rows(y):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y - y.mean())


def empirical(y):
    mu = numpyro.sample("mu", dist.Normal(y.mean(), 1))
    with rows(y):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)


def as_long_as_data(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    with rows(y):
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


def leaning_support(y):
    top = numpyro.sample("top", dist.HalfNormal(1))
    mu = numpyro.sample("mu", dist.Uniform(0, top))
    with rows(y):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)


def optimised(y):
    mu = numpyro.param("mu", 0.0)
    with rows(y):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)


def partly_observed(y, binary):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with rows(y):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y, obs_mask=binary == 1)


def short_plate(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", 1):
        numpyro.sample("y", dist.Normal(mu, 1).expand([N]).to_event(1), obs=y)


def some_groups(group, y):
    with numpyro.plate("groups", GROUPS, subsample_size=2):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
    with rows(y):
        numpyro.sample("y", dist.Normal(effect[0], 1), obs=y)


def takes_more(y, missing):
    normal(y)


@pytest.mark.parametrize(
    ("model", "fragments"),
    [
        (per_row, ["'z' is a latent variable inside the plate 'rows'", "MixtureSameFamily"]),
        (outside, ["'y' is observed in no plate", "numpyro.plate('rows', len(y))"]),
        (beside, ["'side' is observed in no plate", "numpyro.factor"]),
        (two_plates, ["different plates of 40 rows", "'y' in 'a'; 'exposure' in 'b'", "the same"]),
        (unobserved, ["No site of the model is observed", "Name the columns after"]),
        (discrete, ["'z' is a discrete latent variable", "MixtureSameFamily"]),
        (counts_its_groups, ["ConcretizationTypeError", "int(group.max())", "constants={'groups': 7}"]),
        (branches, ["TracerBoolConversionError", "y.mean() > 0", "without Python branches"]),
        (centred, ["changes with the rows beside it", "as a constant"]),
        (empirical, ["a prior, a factor or a potential depends on data", "as a constant"]),
        (as_long_as_data, ["'z' has the shape (40,) with all rows, (5,) with a few and (1,) with one"]),
        (leaning_support, ["support of 'mu' depends on other latent", "scale * u"]),
        (optimised, ["'mu' is a numpyro.param", "numpyro.sample('mu', ...)"]),
        (partly_observed, ["'y_unobserved' is a latent variable inside the plate 'rows'"]),
        (short_plate, ["plates of the sizes {'rows': 1}", "the 40 rows of data"]),
        (some_groups, ["The plate 'groups' takes 2 of 4", "subsample_size out"]),
        (takes_more, ["'missing' is not a column of data", "constants={'missing': ...}"]),
        (3, ["model=3 is not a function"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_refused(model, fragments):
    with pytest.raises(lwa.ModelError) as caught:
        lwa.from_numpyro(model, DATA)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"constants": {"groups": 3}}, "constants names 'groups', which is not an argument"),
        ({"constants": {"y": 3}}, "'y' is a column of data and one of the constants"),
        ({"plate": "columns"}, "plate='columns' is not a plate of the model. Valid: 'rows'"),
    ],
)
def test_options_that_do_not_fit(options, fragment):
    with pytest.raises(lwa.ModelError, match=fragment):
        lwa.from_numpyro(normal, DATA, **options)


def test_one_array_for_two_arguments():
    with pytest.raises(lwa.ModelError, match="data is one array, but the model takes 'x', 'binary'"):
        lwa.from_numpyro(logistic, DATA["y"])
