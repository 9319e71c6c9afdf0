"""Models of NumPyro and PyMC: draws from subsets against the library's own NUTS on all rows.

The certificate of the draws says how far their means and sds may be from the posterior's. NUTS must find them there,
up to its own Monte Carlo error: the bounds are stated before NUTS is asked, and nothing else is allowed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from scipy import stats

import lwa
from lwa.diagnostics.autocorrelation import standard_error_of_mean

CHAINS, WARMUP, DRAWS = 4, 300, 500
"""Of NUTS, one after the other: side by side, each would wait for the longest tree."""
LEVEL = 1e-3
"""At which NUTS' errors are allowed for, of all comparisons of one test together: Bonferroni."""


def shrunk_logistic(x, y):
    """Coefficients around 0 by a scale that is a parameter, whose posterior is skewed."""
    scale = numpyro.sample("scale", dist.HalfNormal(2))
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=intercept + x @ beta), obs=y)


def hierarchical_normal(group, y, groups=6):
    """Means of groups around a common one."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(2))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 1))
    with numpyro.plate("groups", groups):
        effect = numpyro.sample("effect", dist.Normal(mu, tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], sigma), obs=y)


def negative_binomial(x, y):
    """Counts that vary more than Poisson's."""
    beta = numpyro.sample("beta", dist.MultivariateNormal(jnp.zeros(3), 4 * jnp.eye(3)))
    concentration = numpyro.sample("concentration", dist.Gamma(2, 0.5))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ beta), concentration), obs=y)


def heavy_tails(pm, x, y):
    """Student-t errors of unknown degrees of freedom."""
    x, y = pm.Data("x", x), pm.Data("y", y)
    nu = pm.Gamma("nu", 2, 0.1)
    sigma = pm.HalfNormal("sigma", 5)
    beta = pm.Normal("beta", 0, 5, shape=3)
    pm.StudentT("observed", nu=nu, mu=x @ beta, sigma=sigma, observed=y)


def poisson_of_groups(pm, group, exposure, y):
    """Rates of groups around a common one, and what was exposed."""
    group, exposure, y = pm.Data("group", group), pm.Data("exposure", exposure), pm.Data("y", y)
    mu = pm.Normal("mu", 0, 2)
    tau = pm.HalfNormal("tau", 1)
    rate = pm.Normal("rate", mu, tau, shape=6)
    pm.Poisson("observed", exposure * pm.math.exp(rate[group]), observed=y)


def proportions(pm, x, y):
    """Shares between 0 and 1, Beta around a logistic curve."""
    x, y = pm.Data("x", x), pm.Data("y", y)
    kappa = pm.Gamma("kappa", 2, 0.1)
    beta = pm.Normal("beta", 0, 3, shape=3)
    pm.Beta("observed", mu=pm.math.invlogit(x @ beta), nu=kappa, observed=y)


def rows_for(model):
    """Rows that the model could have made."""
    rng = np.random.default_rng(3)
    N = 5000
    x, group, exposure = rng.normal(size=(N, 3)), rng.integers(0, 6, N), rng.uniform(0.5, 2.0, N)
    slope, level = x @ [0.8, -0.5, 0.2], 0.4 * np.arange(6) - 1
    logistic = 1 / (1 + np.exp(-slope))
    return {
        shrunk_logistic: {"x": x, "y": rng.binomial(1, logistic)},
        hierarchical_normal: {"group": group, "y": rng.normal(level[group], 1.5)},
        negative_binomial: {"x": x, "y": rng.negative_binomial(2, 2 / (2 + np.exp(slope)))},
        heavy_tails: {"x": x, "y": slope + 2 * rng.standard_t(5, N)},
        poisson_of_groups: {"group": group, "exposure": exposure, "y": rng.poisson(exposure * np.exp(level[group]))},
        proportions: {"x": x, "y": rng.beta(8 * logistic, 8 * (1 - logistic)).clip(1e-6, 1 - 1e-6)},
    }[model]


def by_numpyro(model, data):
    """The adapted model, and NUTS on the model itself: `(chains, draws, ...)` by name."""
    with jax.enable_x64(True):
        sampler = MCMC(
            NUTS(model, dense_mass=True), num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS,
            chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        columns = {name: jnp.asarray(column) for name, column in data.items()}
        sampler.run(jax.random.key(11), **columns, extra_fields=("diverging",))
        assert not np.any(sampler.get_extra_fields()["diverging"])
        return lwa.from_numpyro(model, data), jax.device_get(sampler.get_samples(group_by_chain=True))


def by_pymc(build, data):
    """The same for a PyMC model, whose NUTS is NumPyro's on PyMC's own density."""
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        build(pm, **data)
    adapted = lwa.from_pymc(model)  # first: what PyMC's NUTS imports must find the precision kept
    from pymc.sampling.jax import sample_numpyro_nuts

    with jax.enable_x64(True):
        found = sample_numpyro_nuts(
            draws=DRAWS, tune=WARMUP, chains=CHAINS, chain_method="sequential", random_seed=11, progressbar=False,
            compute_convergence_checks=False, nuts_kwargs={"dense_mass": True}, model=model,
        )  # fmt: skip
    assert not found.sample_stats["diverging"].any()
    return adapted, {name: found.posterior[name].values for name in adapted.supports}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "model"),
    [
        (by_numpyro, shrunk_logistic),
        (by_numpyro, hierarchical_normal),
        (by_numpyro, negative_binomial),
        (by_pymc, heavy_tails),
        (by_pymc, poisson_of_groups),
        (by_pymc, proportions),
    ],
    ids=lambda value: value.__name__,
)
def test_nuts_is_within_the_bounds_of_the_certificate(of, model):
    data = rows_for(model)
    adapted, truth = of(model, data)
    fit = lwa.sample(adapted, data, subset_size=500, draws=4000, chains=8, seed=1, progress=False)
    stated = fit.certify(points=1200, progress=False)
    assert stated.outcome != "fail", stated.verdict

    ours, nuts = (
        np.concatenate([support.free(draws[name])[0] for name, support in adapted.supports.items()], -1)
        for draws in (fit.posterior, truth)
    )
    centre, sd = nuts.mean((0, 1)), nuts.std((0, 1))
    z = (nuts - centre) / sd
    shift, ratio = (ours.mean((0, 1)) - centre) / sd, ours.std((0, 1)) / sd
    errors = stats.norm.isf(LEVEL / (2 * 2 * len(sd)))
    of_mean, of_sd = errors * standard_error_of_mean(z), errors * standard_error_of_mean(z**2) / 2
    np.testing.assert_array_less(np.abs(shift), np.abs(stated.shift) + stated.shift_error + of_mean)
    np.testing.assert_array_less(np.abs(ratio - 1), np.abs(stated.sd_ratio - 1) + stated.sd_ratio_error + of_sd)
    assert np.median(stated.shift_error + of_mean) < 0.3  # sds: else nothing was compared
