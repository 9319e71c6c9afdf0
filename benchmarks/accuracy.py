"""How close the calibrated target comes to the full posterior, over models that break other methods.

    python benchmarks/accuracy.py                     # all of them at N = 10⁶; about ten minutes on two cores
    python benchmarks/accuracy.py --only poisson probit --rows 1e5

For each model: the largest mean shift over parameters in posterior sds and the range of sd ratios, of lwa's calibrated
draws (default arguments, subset 0.1 % of the rows) and of Laplace. The reference is not ours: importance sampling from
the Gaussian at the mode, every point scored on all rows in float64, antithetic pairs, with what is known of the
Gaussian as control variate. Its own standard error and that of the draws stand beside.
"""

import argparse
import json
import time
from datetime import date
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

import lwa
from lwa.reference import find_reference, log_posterior
from lwa.rows import as_rows

HERE = Path(__file__).parent
CASES = {}


def case(make):
    CASES[make.__name__] = make
    return make


def normal_prior(sd):
    return lambda theta: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta)) / sd**2


def covariates(rng, N, d):
    x = rng.standard_normal((N, d), dtype=np.float32)
    x[:, 0] = 1.0
    return x


def bernoulli(rng, chance):
    return (rng.random(len(chance)) < chance).astype(np.float32)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def logistic_model(d, prior_sd=5.0):
    def log_likelihood(theta, rows):
        return -jax.nn.softplus((1.0 - 2.0 * rows["y"]) * (rows["x"] @ theta["b"]))

    return lwa.Model(log_likelihood, normal_prior(prior_sd), {"b": jnp.zeros(d)})


def location_scale_model(d, log_density):
    def log_likelihood(theta, rows):
        return log_density((rows["y"] - rows["x"] @ theta["b"]) * jnp.exp(-theta["log_sd"])) - theta["log_sd"]

    return lwa.Model(log_likelihood, normal_prior(5.0), {"b": jnp.zeros(d), "log_sd": 0.0})


@case
def poisson(rng, N):
    x = covariates(rng, N, 6)
    y = rng.poisson(np.exp(x @ [0.5, 0.3, -0.2, 0.1, 0.2, -0.3])).astype(np.float32)

    def log_likelihood(theta, rows):
        rate = rows["x"] @ theta["b"]
        return rows["y"] * rate - jnp.exp(rate)

    return lwa.Model(log_likelihood, normal_prior(5.0), {"b": jnp.zeros(6)}), {"x": x, "y": y}


@case
def negative_binomial(rng, N):
    x = covariates(rng, N, 4)
    y = rng.poisson(rng.gamma(2.0, np.exp(x @ [0.5, 0.3, -0.2, 0.1]) / 2.0)).astype(np.float32)

    def log_likelihood(theta, rows):
        rate, size, y = rows["x"] @ theta["b"], jnp.exp(theta["log_size"]), rows["y"]
        both = jnp.logaddexp(theta["log_size"], rate)
        return gammaln(y + size) - gammaln(size) + size * (theta["log_size"] - both) + y * (rate - both)

    return lwa.Model(log_likelihood, normal_prior(5.0), {"b": jnp.zeros(4), "log_size": 0.0}), {"x": x, "y": y}


@case
def linear(rng, N):
    x = covariates(rng, N, 5)
    y = (x @ np.linspace(-1, 1, 5) + 1.5 * rng.standard_normal(N)).astype(np.float32)
    return location_scale_model(5, lambda z: -0.5 * z**2), {"x": x, "y": y}


@case
def student_t(rng, N):
    x = covariates(rng, N, 4)
    y = (x @ np.linspace(-1, 1, 4) + rng.standard_t(3, N)).astype(np.float32)
    return location_scale_model(4, lambda z: -2.0 * jnp.log1p(z**2 / 3.0)), {"x": x, "y": y}


@case
def probit(rng, N):
    x = covariates(rng, N, 5)
    y = (x @ np.linspace(-0.5, 0.5, 5) + rng.standard_normal(N) > 0).astype(np.float32)

    def log_likelihood(theta, rows):
        return norm.logcdf((2.0 * rows["y"] - 1.0) * (rows["x"] @ theta["b"]))

    return lwa.Model(log_likelihood, normal_prior(5.0), {"b": jnp.zeros(5)}), {"x": x, "y": y}


@case
def multinomial(rng, N):
    x = covariates(rng, N, 4)
    scores = np.column_stack([np.zeros(N), x @ rng.normal(scale=0.5, size=(4, 2))])
    y = (scores + rng.gumbel(size=scores.shape)).argmax(1).astype(np.int32)

    def log_likelihood(theta, rows):
        scores = rows["x"] @ theta["b"]
        scores = jnp.concatenate([jnp.zeros_like(scores[:, :1]), scores], axis=1)
        return jnp.take_along_axis(jax.nn.log_softmax(scores), rows["y"][:, None], axis=1)[:, 0]

    return lwa.Model(log_likelihood, normal_prior(5.0), {"b": jnp.zeros((4, 2))}), {"x": x, "y": y}


@case
def mixture(rng, N):
    """Two components, started in one of the two modes, which are the same but for the names."""
    y = np.where(rng.random(N) < 0.3, rng.normal(-1.5, 1, N), rng.normal(1.5, 1, N)).astype(np.float32)

    def log_likelihood(theta, y):
        one = jax.nn.log_sigmoid(theta["logit"]) - 0.5 * (y - theta["mean"][0]) ** 2
        other = jax.nn.log_sigmoid(-theta["logit"]) - 0.5 * (y - theta["mean"][1]) ** 2
        return jnp.logaddexp(one, other)

    return lwa.Model(log_likelihood, normal_prior(5.0), {"mean": jnp.array([-1.0, 1.0]), "logit": 0.0}), y


@case
def rare_events(rng, N):
    x = covariates(rng, N, 4)
    return logistic_model(4, 10.0), {"x": x, "y": bernoulli(rng, sigmoid(x @ [np.log(150.0 / N), 0.5, -0.5, 0.3]))}


@case
def heavy_tails(rng, N):
    x = rng.standard_t(2.2, (N, 5)).astype(np.float32)
    x[:, 0] = 1.0
    y = (x @ np.linspace(-1, 1, 5) + rng.standard_normal(N)).astype(np.float32)
    return location_scale_model(5, lambda z: -0.5 * z**2), {"x": x, "y": y}


@case
def correlated(rng, N):
    x = (0.99 * rng.standard_normal((N, 1)) + 0.14 * rng.standard_normal((N, 6))).astype(np.float32)
    return logistic_model(6), {"x": x, "y": bernoulli(rng, sigmoid(x @ np.linspace(-0.5, 0.5, 6)))}


def with_dummy(rng, N, count):
    x = covariates(rng, N, 4)
    x[:, 3] = 0.0
    x[rng.choice(N, count, replace=False), 3] = 1.0
    return logistic_model(4), {"x": x, "y": bernoulli(rng, sigmoid(x @ [0.2, 0.5, -0.5, 1.0]))}


@case
def dummy_in_200(rng, N):
    return with_dummy(rng, N, 200)


@case
def dummy_in_20(rng, N):
    return with_dummy(rng, N, 20)


@case
def factor_of_60(rng, N):
    """Levels with geometric frequencies: the rarest has about ten rows in 10⁶."""
    share = 0.85 ** np.arange(60)
    level = rng.choice(60, N, p=share / share.sum()).astype(np.int32)
    effect = rng.normal(scale=0.5, size=60)

    def log_likelihood(theta, rows):
        return -jax.nn.softplus((1.0 - 2.0 * rows["y"]) * theta["a"][rows["level"]])

    model = lwa.Model(log_likelihood, normal_prior(2.0), {"a": jnp.zeros(60)})
    return model, {"level": level, "y": bernoulli(rng, sigmoid(effect[level]))}


def full_posterior(model, rows, mode, pairs):
    """Mean and sd by importance sampling from Normal(θ̂, FFᵀ), and their standard errors in sds."""
    z = np.random.default_rng(1).standard_normal((pairs, len(mode.theta)))
    z = np.concatenate([z, -z])
    thetas = mode.theta + z @ mode.factor.T
    log = np.concatenate([log_posterior(model, rows, thetas[i : i + 50]) for i in range(0, len(thetas), 50)])
    log += 0.5 * (z**2).sum(1)
    weight = np.exp(log - log.max())
    weight *= len(weight) / weight.sum()
    away = z @ mode.factor.T
    gaussian = (mode.factor**2).sum(1)
    extra = ((weight - 1)[:, None] * away).reshape(2, pairs, -1).mean(0)  # what the Gaussian does not know, a pair
    shift = extra.mean(0)
    square = ((weight - 1)[:, None] * away**2).reshape(2, pairs, -1).mean(0)
    sd = np.sqrt(gaussian + square.mean(0) - shift**2)
    error = max((extra.std(0) / sd).max(), (square.std(0) / (2 * sd**2)).max()) / np.sqrt(pairs)
    return mode.theta + shift, sd, float(error)


def measure(name, N, pairs, chains, draws, **options):
    model, data = CASES[name](np.random.default_rng(5), N)
    rows = as_rows(data)
    with jax.enable_x64(True):
        mode = find_reference(model, rows, model.ravel(model.init), 1)
        mean, sd, error = full_posterior(model, rows, mode, pairs)
    laplace = np.sqrt(np.diag(np.linalg.inv(mode.precision)))
    began = time.monotonic()
    fit = lwa.sample(model, data, subset_size=N // 1000, draws=draws, chains=chains, seed=1, progress=False, **options)
    took = time.monotonic() - began
    kept = np.concatenate([v.reshape(chains, draws, -1) for v in fit.posterior.values()], axis=-1)
    ratio, other = kept.std((0, 1)) / sd, laplace / sd
    return {
        "model": name,
        "parameters": len(sd),
        "shift": round(float(np.abs((kept.mean((0, 1)) - mean) / sd).max()), 3),
        "sd_ratio": [round(float(ratio.min()), 3), round(float(ratio.max()), 3)],
        "laplace_shift": round(float(np.abs((mode.theta - mean) / sd).max()), 3),
        "laplace_sd_ratio": [round(float(other.min()), 3), round(float(other.max()), 3)],
        "draws_error": round(float((kept.mean(1).std(0, ddof=1) / sd).max() / np.sqrt(chains)), 4),
        "reference_error": round(error, 4),
        "leverage": fit.attributes["leverage"],
        "accepts": round(float(fit.sample_stats["acceptance_rate"].mean()), 2),
        "seconds": round(took, 1),
    }


def row_of(found):
    low, high = found["sd_ratio"]
    laplace_low, laplace_high = found["laplace_sd_ratio"]
    return (
        f"| {found['model'].replace('_', ' ')} | {found['parameters']} | {found['shift']:.3f} | {low:.3f}–{high:.3f} | "
        f"{found['laplace_shift']:.3f} | {laplace_low:.3f}–{laplace_high:.3f} | {found['draws_error']:.3f} | "
        f"{found['reference_error']:.3f} | {'yes' if found['leverage'] else 'no'} | {found['seconds']:.0f} |"
    )


COLUMNS = "model, d, shift / sd, sd ratio, Laplace shift, its sd ratio, error of draws, of reference, leverage, s"
HEAD = f"| {COLUMNS.replace(', ', ' | ')} |\n|{'---|' * 10}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--pairs", type=int, default=1000, help="antithetic pairs of the reference")
    parser.add_argument("--chains", type=int, default=32)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "accuracy.json")
    given = parser.parse_args()
    print(HEAD, flush=True)
    table = []
    for name in given.only:
        try:
            table.append(measure(name, int(given.rows), given.pairs, given.chains, given.draws))
            print(row_of(table[-1]), flush=True)
        except lwa.LwaError as error:
            table.append({"model": name, "refused": str(error)})
            print(f"| {name} | refused: {error} |", flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(
        json.dumps({"date": date.today().isoformat(), "rows": given.rows, "table": table}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
