"""A hierarchical regression with 50 parameters and 10⁶ rows: lwa's NUTS and HMC on subsets, beside NUTS on all rows.

    python benchmarks/hierarchical.py                    # about ten minutes on two cores
    python benchmarks/hierarchical.py --rows 1e5 --nuts-draws 50

Logistic regression with five slopes and an intercept for each of 43 groups of rows, centred on a common one with an
unknown spread: y ~ Bernoulli(logit⁻¹(x b + a_g)), a_g ~ Normal(m, τ). Effective draws per second, the least over all
parameters and over their squares, of the sampling phase alone: for lwa a long run minus a short one, for NumPyro what
follows its warm-up. Means and sds are compared by lwa's certificate, and with those of NUTS if its error allows.
"""

import argparse
import json
import time
import warnings
from datetime import date
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro  # before arviz_stats, after which numpyro.distributions lacks a module of its own
import numpyro.distributions as dist
from accuracy import machine
from arviz_stats.base import array_stats
from numpyro.infer import MCMC
from numpyro.infer import NUTS as FullNUTS

import lwa
from lwa.kernels import HMC, NUTS

HERE = Path(__file__).parent
SLOPES, GROUPS = 5, 43
POINTS = 1200  # of the certificate: three times the usual, for error bars that tell 5 % from 10 %


def log_likelihood(theta, rows):
    score = rows["x"] @ theta["slope"] + theta["intercept"][rows["group"]]
    return -jax.nn.softplus(-(2.0 * rows["y"] - 1.0) * score)


def log_prior(theta):
    """Normal(0, 5²) slopes and mean, half-normal(1) spread, normal intercepts."""
    within = (theta["intercept"] - theta["mean"]) / theta["spread"]
    own = -0.5 * jnp.sum(within**2) - GROUPS * jnp.log(theta["spread"]) - 0.5 * theta["spread"] ** 2
    return own - 0.5 * (jnp.sum(theta["slope"] ** 2) + theta["mean"] ** 2) / 25.0


MODEL = lwa.Model(
    log_likelihood,
    log_prior,
    {"slope": jnp.zeros(SLOPES), "mean": 0.0, "spread": 1.0, "intercept": jnp.zeros(GROUPS)},
    constraints={"spread": "positive"},
)


def simulate(N):
    rng = np.random.default_rng(21)
    x = rng.standard_normal((N, SLOPES), dtype=np.float32)
    group = rng.integers(GROUPS, size=N, dtype=np.int32)
    intercept = rng.normal(-0.5, 0.7, GROUPS)
    score = x @ np.linspace(-0.5, 0.5, SLOPES) + intercept[group]
    y = (rng.random(N) < 1 / (1 + np.exp(-score))).astype(np.float32)
    return {"x": x, "group": group, "y": y}


def flat(posterior):
    """Draws `(chains, draws, 50)`, in the order of the model's names."""
    return np.concatenate([posterior[name].reshape(*posterior[name].shape[:2], -1) for name in MODEL.shapes], axis=-1)


def effective(draws):
    """The least bulk ESS over θ and (θ - mean)²."""
    squares = (draws - draws.mean((0, 1))) ** 2
    return min(float(array_stats.ess(x, chain_axis=0, draw_axis=1).min()) for x in (draws, squares))


def by_lwa(data, kernel, given):
    """lwa at the margin, with its certificate."""

    def run(draws):
        began = time.monotonic()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", lwa.LwaWarning)
            fit = lwa.sample(
                MODEL, data, subset_size=given.subset_size, kernel=kernel, draws=draws, tune=1000, chains=given.chains,
                thinning=1, seed=1, progress=False,
            )  # fmt: skip
        return fit, time.monotonic() - began, [str(one.message) for one in told]

    run(100)  # compile
    short, long = run(100), run(given.draws)
    fit, _, told = long
    draws = flat(fit.posterior)
    found = effective(draws)
    rate = (fit.attributes["sampling_seconds"] - short[0].attributes["sampling_seconds"]) / (given.draws - 100)
    began = time.monotonic()
    certificate = fit.certify(points=POINTS, progress=False)
    return draws, {
        "seconds_a_draw": rate * given.draws / found,
        "effective": found,
        "draws": given.draws * given.chains,
        "diverging": int(np.sum(fit.sample_stats.get("diverging", 0))),
        "rows_read_a_move": float(fit.sample_stats["n_rows_read"].mean()),
        "acceptance": float(fit.sample_stats["acceptance_rate"].mean()),
        "whole_seconds": long[1],
        "certified": certificate.passed,
        "verdict": certificate.verdict,
        "certificate_seconds": time.monotonic() - began,
        "kernel": fit.attributes["kernel"],
        "warnings": told,
    }


def by_numpyro(data, given):
    """NUTS on all rows: effective draws of what follows warm-up."""

    def model(x, group, y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 5.0).expand([SLOPES]).to_event(1))
        mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        intercept = numpyro.sample("intercept", dist.Normal(mean, spread).expand([GROUPS]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ slope + intercept[group]), obs=y)

    began = time.monotonic()
    mcmc = MCMC(
        FullNUTS(model), num_warmup=given.nuts_warmup, num_samples=given.nuts_draws, num_chains=1, progress_bar=False
    )
    arrays = {name: jnp.asarray(values) for name, values in data.items()}
    mcmc.warmup(jax.random.key(1), **arrays)
    warmed = time.monotonic() - began
    began = time.monotonic()
    mcmc.run(jax.random.key(2), **arrays)
    took = time.monotonic() - began
    draws = flat(jax.tree.map(np.asarray, mcmc.get_samples(group_by_chain=True)))
    found = effective(draws)
    return draws, {
        "seconds_a_draw": took / found,
        "effective": found,
        "draws": given.nuts_draws,
        "diverging": int(np.asarray(mcmc.get_extra_fields()["diverging"]).sum()),
        "warm_up_seconds": warmed,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--subset-size", type=int, default=2000)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--draws", type=int, default=3000)
    parser.add_argument("--nuts-warmup", type=int, default=600)
    parser.add_argument("--nuts-draws", type=int, default=300)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "hierarchical.json")
    given = parser.parse_args()
    data, table = simulate(int(given.rows)), {}
    kernels = {"lwa, NUTS": NUTS(), "lwa, HMC": HMC(), "lwa, auto": "auto"}
    for name, kernel in kernels.items():
        draws, table[name] = by_lwa(data, kernel, given)
        print(name, json.dumps(table[name], indent=1), flush=True)
    full, table["NUTS, all rows"] = by_numpyro(data, given)
    best = table["NUTS, all rows"]["seconds_a_draw"]
    print("| who | ms an effective draw | full NUTS takes | divergences | certified |\n|---|---|---|---|---|")
    for name, found in table.items():
        found["times_faster"] = best / found["seconds_a_draw"]
        print(
            f"| {name} | {1e3 * found['seconds_a_draw']:.2f} | {found['times_faster']:,.0f} × | {found['diverging']} "
            f"| {found.get('certified', '')} |"
        )
    sd = draws.std((0, 1))
    apart = np.abs(full.mean((0, 1)) - draws.mean((0, 1))) / sd
    table["NUTS, all rows"]["apart"] = float(apart.max())
    error = table["NUTS, all rows"]["effective"] ** -0.5
    print(f"Means of full NUTS and of lwa's default are {apart.max():.2f} sd apart at the most (error {error:.2f}).")
    record = {"date": date.today().isoformat(), **machine(), **vars(given), "out": None, "table": table}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
