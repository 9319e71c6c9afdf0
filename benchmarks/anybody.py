"""The certificate of anybody's draws: PyMC, NumPyro, BlackJAX, rivals and lwa on the same five models.

    python benchmarks/anybody.py                     # all of them; about ten minutes on two cores
    python benchmarks/anybody.py --only rare counts
    python benchmarks/certificate_page.py            # writes docs/certificate.md from the results on record

Each model is written once in NumPyro and once in PyMC, with the same priors. Every method has its own defaults, with
draws enough for a verdict, and is judged in one line: `lwa.certify(model, data, draws)`. HMCECS needs a model without
local parameters and knows its subsample from the model, so it is tried on the regressions.
"""

import argparse
import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import expit

import lwa

HERE = Path(__file__).parent
CHAINS, DRAWS, WARMUP = 4, 2000, 1000
SVI_STEPS, ADVI_STEPS = 20_000, 30_000
SUBSAMPLE, BLOCKS = 100, 25


class Problem(NamedTuple):
    """A model in NumPyro and in PyMC, its rows, and what is special about its posterior."""

    words: str
    data: dict[str, np.ndarray]
    numpyro: Callable
    pymc: Callable
    subsamples: bool = False


def rows_of(count, subsample, x, y):
    """The plate over rows; what it holds of x and y."""
    with numpyro.plate("rows", count, subsample_size=subsample):
        return numpyro.subsample(x, event_dim=x.ndim - 1), numpyro.subsample(y, event_dim=0)


def make_correlated():
    """A logistic regression whose covariates are correlated in pairs, 0.9."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 6))
    x[:, 1::2] = 0.9 * x[:, ::2] + np.sqrt(1 - 0.81) * x[:, 1::2]
    y = (rng.random(len(x)) < expit(x @ [0.5, -0.5, 0.2, 0.0, 0.3, 0.3])).astype(float)

    def in_numpyro(x, y, subsample=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 5.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("rows", len(x), subsample_size=subsample):
            few_x, few_y = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
            numpyro.sample("observed", dist.Bernoulli(logits=few_x @ beta), obs=few_y)

    def in_pymc(pm, x, y):
        beta = pm.Normal("beta", 0.0, 5.0, shape=6)
        pm.Bernoulli("observed", logit_p=x @ beta, observed=y)

    return Problem("near Gaussian, covariates correlated 0.9", {"x": x, "y": y}, in_numpyro, in_pymc, subsamples=True)


def make_rare():
    """A logistic regression with few positives."""
    rng = np.random.default_rng(2)
    x = np.c_[np.ones(10_000), rng.normal(size=(10_000, 2))]
    y = np.zeros(len(x))
    y[np.argsort(-(x @ [0.0, 1.0, 0.5] + 2 * rng.logistic(size=len(x))))[:15]] = 1.0

    def in_numpyro(x, y, subsample=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 5.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("rows", len(x), subsample_size=subsample):
            few_x, few_y = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
            numpyro.sample("observed", dist.Bernoulli(logits=few_x @ beta), obs=few_y)

    def in_pymc(pm, x, y):
        beta = pm.Normal("beta", 0.0, 5.0, shape=3)
        pm.Bernoulli("observed", logit_p=x @ beta, observed=y)

    return Problem("skewed: 15 positives in 10,000 rows", {"x": x, "y": y}, in_numpyro, in_pymc, subsamples=True)


def make_student():
    """A regression with Student-t errors of unknown degrees of freedom."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, 2))
    y = 1.0 + x @ [0.5, -0.5] + rng.standard_t(8, size=len(x))

    def in_numpyro(x, y):
        nu, sigma = numpyro.sample("nu", dist.Gamma(2.0, 0.1)), numpyro.sample("sigma", dist.HalfNormal(5.0))
        a = numpyro.sample("a", dist.Normal(0.0, 5.0))
        b = numpyro.sample("b", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("observed", dist.StudentT(nu, a + x @ b, sigma), obs=y)

    def in_pymc(pm, x, y):
        nu, sigma = pm.Gamma("nu", 2.0, 0.1), pm.HalfNormal("sigma", 5.0)
        a, b = pm.Normal("a", 0.0, 5.0), pm.Normal("b", 0.0, 5.0, shape=2)
        pm.StudentT("observed", nu=nu, mu=a + x @ b, sigma=sigma, observed=y)

    return Problem("Student-t errors, unknown degrees of freedom", {"x": x, "y": y}, in_numpyro, in_pymc)


def make_groups():
    """Means of eight groups that hardly differ, not centred: a funnel in the sd of the groups."""
    rng = np.random.default_rng(4)
    g = rng.integers(0, 8, 1000)
    y = 1.0 + 0.1 * rng.normal(size=8)[g] + rng.normal(size=len(g))

    def in_numpyro(g, y):
        mu, tau = numpyro.sample("mu", dist.Normal(0.0, 5.0)), numpyro.sample("tau", dist.HalfNormal(1.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
        with numpyro.plate("rows", len(g)):
            numpyro.sample("observed", dist.Normal(mu + tau * z[g], 1.0), obs=y)

    def in_pymc(pm, g, y):
        mu, tau = pm.Normal("mu", 0.0, 5.0), pm.HalfNormal("tau", 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=8)
        pm.Normal("observed", mu + tau * z[g], 1.0, observed=y)

    return Problem("8 groups, sd near 0, not centred", {"g": g, "y": y}, in_numpyro, in_pymc)


def make_counts():
    """A negative binomial regression of 300 counts."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 2))
    y = rng.poisson(np.exp(0.5 + x @ [0.4, -0.2]) * rng.gamma(2.0, 0.5, size=len(x))).astype(float)

    def in_numpyro(x, y):
        a, phi = numpyro.sample("a", dist.Normal(0.0, 2.0)), numpyro.sample("phi", dist.Gamma(2.0, 0.1))
        b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("observed", dist.NegativeBinomial2(jnp.exp(a + x @ b), phi), obs=y)

    def in_pymc(pm, x, y):
        a, phi, b = pm.Normal("a", 0.0, 2.0), pm.Gamma("phi", 2.0, 0.1), pm.Normal("b", 0.0, 2.0, shape=2)
        pm.NegativeBinomial("observed", mu=pm.math.exp(a + x @ b), alpha=phi, observed=y)

    return Problem("negative binomial, 300 counts", {"x": x, "y": y}, in_numpyro, in_pymc)


MODELS = {
    "correlated": make_correlated, "rare": make_rare, "student": make_student, "groups": make_groups,
    "counts": make_counts,
}  # fmt: skip


class Setting:
    """A problem, its two models in lwa, and the draws of every method."""

    def __init__(self, problem, seed):
        self.problem, self.seed, self.data = problem, seed, problem.data
        self.key = jax.random.key(seed)

    @cached_property
    def model(self):
        """The NumPyro model, as lwa takes it."""
        return lwa.from_numpyro(self.problem.numpyro, self.data)

    @cached_property
    def graph(self):
        """The PyMC model."""
        import pymc as pm

        with pm.Model() as graph:
            self.problem.pymc(pm, **{name: pm.Data(name, column) for name, column in self.data.items()})
        return graph

    def pymc_nuts(self):
        import pymc as pm

        with self.graph:
            idata = pm.sample(DRAWS, tune=WARMUP, chains=CHAINS, cores=1, random_seed=self.seed, progressbar=False)
        return lwa.certify(lwa.from_pymc(self.graph), self.data, idata, progress=False)

    def fit_advi(self, method):
        import pymc as pm

        with self.graph:
            found = pm.fit(ADVI_STEPS, method=method, random_seed=self.seed, progressbar=False)
        idata = found.sample(CHAINS * DRAWS, random_seed=self.seed)
        return lwa.certify(lwa.from_pymc(self.graph), self.data, idata, progress=False)

    def advi_mean_field(self):
        return self.fit_advi("advi")

    def advi_full_rank(self):
        return self.fit_advi("fullrank_advi")

    def numpyro_nuts(self):
        from numpyro.infer import MCMC, NUTS

        mcmc = MCMC(NUTS(self.problem.numpyro), num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS,
                    chain_method="sequential", progress_bar=False)  # fmt: skip
        mcmc.run(self.key, **self.data)
        return lwa.certify(self.model, self.data, mcmc, progress=False)

    def hmcecs(self):
        from numpyro.infer import HMCECS, MCMC, NUTS, SVI, Trace_ELBO, autoguide

        guide = autoguide.AutoDelta(self.problem.numpyro)
        found = SVI(self.problem.numpyro, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
        mode = guide.median(found.run(self.key, 5000, progress_bar=False, **self.data).params)
        kernel = HMCECS(NUTS(self.problem.numpyro), num_blocks=BLOCKS, proxy=HMCECS.taylor_proxy(mode))
        mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, chain_method="sequential",
                    progress_bar=False)  # fmt: skip
        mcmc.run(self.key, **self.data, subsample=SUBSAMPLE)
        return lwa.certify(self.model, self.data, mcmc, progress=False)

    def guide(self, kind, steps, rate):
        from numpyro.infer import SVI, Trace_ELBO, autoguide

        guide = getattr(autoguide, kind)(self.problem.numpyro)
        schedule = jax.numpy.logspace(0, -2, steps) * rate
        optimiser = numpyro.optim.Adam(lambda step: schedule[step])
        found = SVI(self.problem.numpyro, guide, optimiser, Trace_ELBO()).run(
            self.key, steps, progress_bar=False, **self.data
        )
        draws = guide.sample_posterior(self.key, found.params, sample_shape=(CHAINS * DRAWS,))
        return lwa.certify(self.model, self.data, draws, progress=False)

    def svi(self):
        return self.guide("AutoNormal", SVI_STEPS, 0.01)

    def laplace(self):
        return self.guide("AutoLaplaceApproximation", SVI_STEPS, 0.01)

    def pathfinder(self):
        import blackjax
        from numpyro.infer.util import initialize_model

        start, potential, constrain, _ = initialize_model(self.key, self.problem.numpyro, model_kwargs=self.data)
        found, _ = blackjax.vi.pathfinder.approximate(self.key, lambda at: -potential(at), start.z)
        free, _ = blackjax.vi.pathfinder.sample(self.key, found, CHAINS * DRAWS)
        return lwa.certify(self.model, self.data, jax.vmap(constrain)(free), progress=False)

    def pseudo_marginal(self):
        fit = lwa.rivals.sample(
            "pseudo_marginal", self.model, self.data, draws=DRAWS, thinning=20, seed=self.seed, progress=False
        )
        return fit.certify(progress=False)

    def lwa(self):
        return lwa.sample(self.model, self.data, draws=DRAWS, seed=self.seed, progress=False).certify(progress=False)


METHODS = {
    "pymc_nuts": "PyMC NUTS",
    "numpyro_nuts": "NumPyro NUTS",
    "hmcecs": f"NumPyro HMCECS, {SUBSAMPLE} rows",
    "pseudo_marginal": "pseudo-marginal (`lwa.rivals`)",
    "lwa": "lwa, default",
    "advi_full_rank": "PyMC ADVI, full rank",
    "advi_mean_field": "PyMC ADVI, mean field",
    "svi": "NumPyro SVI, `AutoNormal`",
    "pathfinder": "BlackJAX Pathfinder",
    "laplace": "NumPyro, `AutoLaplaceApproximation`",
}


def judge(setting, method):
    """Return the verdict on one method, in numbers and in words."""
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = getattr(setting, method)()
        except lwa.LwaError as error:
            return {"outcome": "refused", "words": str(error), "seconds": round(time.monotonic() - began, 1)}
    worst_tail = float(np.abs(found.outside - 0.05).max())
    return {
        "outcome": found.outcome, "words": found.verdict, "shift": float(np.abs(found.shift).max()),
        "sd_ratio": [float(found.sd_ratio.min()), float(found.sd_ratio.max())],
        "skewness": float(np.abs(found.skewness).max()), "tail": worst_tail, "draws": found.effective_draws,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "anybody.json")
    given = parser.parse_args()
    found = {}
    for name in given.only:
        setting = Setting(MODELS[name](), given.seed)
        found[name] = {"words": setting.problem.words, "rows": len(next(iter(setting.data.values()))), "methods": {}}
        for method in given.methods:
            if method == "hmcecs" and not setting.problem.subsamples:
                continue
            one = judge(setting, method)
            found[name]["methods"][method] = one
            print(
                f"{name}, {METHODS[method]}: {one['outcome']} ({one['seconds']} s)\n    {one['words'][:300]}",
                flush=True,
            )
    if given.only == list(MODELS) and given.methods == list(METHODS):
        machine = f"{os.cpu_count()} {platform.machine()} cores, JAX {jax.__version__}"
        record = {
            "date": date.today().isoformat(),
            "machine": machine,
            "chains": CHAINS,
            "draws": DRAWS,
            "names": METHODS,
            "models": found,
        }
        given.out.write_text(json.dumps(record, indent=1) + "\n")
        print(f"Written to {given.out}")


if __name__ == "__main__":
    main()
