"""How close lwa's draws come to the full posterior with default arguments, over models that break other methods.

    python benchmarks/accuracy.py                     # all of them at N = 10⁶; about ten minutes on two cores
    python benchmarks/accuracy.py --only poisson probit --rows 1e5

For each model: the largest mean shift over parameters in posterior sds and the range of sd ratios, of lwa's draws and
of Laplace. The reference is independent of lwa: importance sampling from the Gaussian at the mode, every point scored
on all rows in float64, in antithetic pairs, with the known moments of the Gaussian as control variate, as many pairs as
its error needs; or a case's own exact moments, if it has them. The last line reports which requirements fail.
"""

import argparse
import json
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

import lwa
from lwa.rows import as_rows
from lwa.targets.reference import compute_log_posterior, find_reference

HERE = Path(__file__).parent
CASES = {}
EXACT = {}  # by case: mean and sd from the data, where they can be had without importance sampling

SHIFT, RATIO, ERROR = 0.05, 0.05, 0.01  # required of lwa: shift in sds, |sd ratio - 1|, Monte Carlo errors in sds
OFF, CLOSER = 0.1, 3.0  # where Laplace is off by so much, lwa must be closer by this factor
ENOUGH = 0.7 * ERROR  # error of the reference, in sds, at which no more pairs are drawn
POINTS = 128  # scored together, by one thread: blocks of 8192 rows, 8 MiB a temporary array


def case(make):
    CASES[make.__name__] = make
    return make


def exactly(name):
    """What follows gives a case's exact mean and sd."""

    def keep(moments):
        EXACT[name] = moments
        return moments

    return keep


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


@exactly("factor_of_60")
def levels_one_by_one(data, mode):
    """The posterior factorises over levels: quadrature in one dimension each, 15 Laplace sds either way of the mode."""
    rows, ones = np.bincount(data["level"], minlength=60), np.bincount(data["level"], data["y"], minlength=60)
    a = mode.theta + mode.factor.diagonal() * np.linspace(-15.0, 15.0, 6001)[:, None]
    log = ones * a - rows * np.logaddexp(0.0, a) - 0.5 * (a / 2.0) ** 2
    weight = np.exp(log - log.max(0))
    weight /= weight.sum(0)
    mean = (weight * a).sum(0)
    return mean, np.sqrt((weight * (a - mean) ** 2).sum(0))


class Truth(NamedTuple):
    """A case and the moments of its full posterior."""

    model: lwa.Model
    data: Any
    mean: np.ndarray
    sd: np.ndarray
    error: float  # standard error of the moments, in sds
    pairs: int  # of importance sampling; 0: exact
    laplace: tuple[np.ndarray, np.ndarray]  # mean and sd of the Gaussian at the mode


def truth_of(name, N, pairs, most_pairs):
    model, data = CASES[name](np.random.default_rng(5), N)
    rows = as_rows(data)
    with jax.enable_x64(True):
        mode = find_reference(model, rows, model.ravel(model.init), 1)
    laplace = mode.theta, np.sqrt(np.diag(np.linalg.inv(mode.precision)))
    if name in EXACT:
        return Truth(model, data, *EXACT[name](data, mode), 0.0, 0, laplace)
    return Truth(model, data, *full_posterior(model, rows, mode, pairs, most_pairs), laplace)


def full_posterior(model, rows, mode, pairs, most_pairs):
    """Mean and sd by importance sampling from Normal(θ̂, FFᵀ), their standard error in sds, and the pairs it took."""
    rng = np.random.default_rng(1)
    z, log = np.empty((2, 0, len(mode.theta))), np.empty((2, 0))
    while True:
        new = rng.standard_normal((pairs - z.shape[1], len(mode.theta)))
        new = np.stack([new, -new])
        scores = scored(model, rows, mode.theta + new.reshape(-1, len(mode.theta)) @ mode.factor.T)
        z = np.concatenate([z, new], axis=1)
        log = np.concatenate([log, scores.reshape(2, -1) + 0.5 * (new**2).sum(-1)], axis=1)
        mean, sd, error = moments(mode, z, log)
        if error <= ENOUGH or pairs >= most_pairs:
            return mean, sd, error, pairs
        pairs = min(2 * pairs, most_pairs)


def moments(mode, z, log):
    """From pairs z, `(2, pairs, d)`, and the logarithms of their weights."""
    weight = np.exp(log - log.max())
    weight = (weight / weight.mean())[..., None]
    away = z @ mode.factor.T
    gaussian = (mode.factor**2).sum(1)
    extra = ((weight - 1) * away).mean(0)  # what the Gaussian does not know, a pair
    shift = extra.mean(0)
    square = ((weight - 1) * away**2).mean(0)
    sd = np.sqrt(gaussian + square.mean(0) - shift**2)
    error = max((extra.std(0) / sd).max(), (square.std(0) / (2 * sd**2)).max()) / np.sqrt(z.shape[1])
    return mode.theta + shift, sd, float(error)


def scored(model, rows, thetas):
    """log π of many points on all rows, on all cores."""

    def some(part):
        with jax.enable_x64(True):
            return compute_log_posterior(model, rows, part)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.concatenate(list(pool.map(some, [thetas[i : i + POINTS] for i in range(0, len(thetas), POINTS)])))


def kept_draws(fit):
    """All parameters, `(chains, draws, d)`."""
    return np.concatenate([v.reshape(*v.shape[:2], -1) for v in fit.posterior.values()], axis=-1)


def measure(truth, **options):
    began = time.monotonic()
    fit = lwa.sample(truth.model, truth.data, seed=1, progress=False, **options)
    took = time.monotonic() - began
    kept, sd = kept_draws(fit), truth.sd
    shift, ratio = np.abs(kept.mean((0, 1)) - truth.mean) / sd, kept.std((0, 1)) / sd
    mode, width = truth.laplace
    laplace_shift, laplace_ratio = np.abs(mode - truth.mean) / sd, width / sd
    ours, theirs = np.stack([shift, np.abs(ratio - 1)]), np.stack([laplace_shift, np.abs(laplace_ratio - 1)])
    closer = (theirs / ours)[theirs >= OFF]
    across = np.stack([kept.mean(1), kept.std(1)]).std(1, ddof=1) / sd  # of chains' means and sds
    return {
        "parameters": len(sd),
        "shift": round(float(shift.max()), 3),
        "sd_ratio": [round(float(ratio.min()), 3), round(float(ratio.max()), 3)],
        "laplace_shift": round(float(laplace_shift.max()), 3),
        "laplace_sd_ratio": [round(float(laplace_ratio.min()), 3), round(float(laplace_ratio.max()), 3)],
        "closer": round(float(closer.min()), 1) if closer.size else None,  # where Laplace is off, each parameter
        "draws_error": round(float(across.max() / np.sqrt(len(kept))), 4),
        "reference_error": round(truth.error, 4),
        "reference_pairs": truth.pairs,
        "accepts": round(float(fit.sample_stats["acceptance_rate"].mean()), 2),
        **{key: fit.attributes[key] for key in ("subset_size", "leverage", "transport", "thinning", "warnings")},
        "seconds": round(took, 1),
    }


def verdict(table):
    """Every requirement that does not hold, in words."""
    broken = []
    for found in table:
        name = found["model"].replace("_", " ")
        if "refused" in found:
            broken.append(f"{name}: refused")
            continue
        low, high = found["sd_ratio"]
        for what, value, holds in (
            ("shift", found["shift"], found["shift"] <= SHIFT),
            ("smallest sd ratio", low, low >= 1 - RATIO),
            ("largest sd ratio", high, high <= 1 + RATIO),
            ("error of draws", found["draws_error"], found["draws_error"] <= ERROR),
            ("error of reference", found["reference_error"], found["reference_error"] <= ERROR),
            ("closer than Laplace by", found["closer"], found["closer"] is None or found["closer"] >= CLOSER),
        ):
            if not holds:
                broken.append(f"{name}: {what} {value}")
    return broken


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


def machine():
    return {
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        "backend": jax.default_backend(),
        "jax": jax.__version__,
    }


def arguments(description, out):
    """The options that all tables over these cases share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--pairs", type=int, default=1000, help="antithetic pairs of the reference, at first")
    parser.add_argument("--most-pairs", type=int, default=16_000, help="pairs at most; doubled until the error is low")
    parser.add_argument("--chains", type=int, default=32)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--subset-size", type=int, help="lwa's default if not given")
    parser.add_argument("--transport", default="auto", help="second_order is what a GPU uses (default auto)")
    parser.add_argument("--out", type=Path, default=HERE / "results" / out)
    return parser


def options_of(given):
    """For lwa.sample."""
    options = {"chains": given.chains, "draws": given.draws}
    if given.transport != "auto":
        options["target"] = lwa.targets.Calibrated(transport=given.transport)
    return options if given.subset_size is None else options | {"subset_size": given.subset_size}


def save(given, **found):
    given.out.parent.mkdir(parents=True, exist_ok=True)
    options = {name: str(value) if name == "target" else value for name, value in options_of(given).items()}
    record = {"date": date.today().isoformat(), **machine(), "rows": int(given.rows), **options, **found}
    given.out.write_text(json.dumps(record, indent=1) + "\n")


def main():
    given = arguments(__doc__, "accuracy.json").parse_args()
    print(HEAD, flush=True)
    table = []
    for name in given.only:
        try:
            truth = truth_of(name, int(given.rows), given.pairs, given.most_pairs)
            table.append({"model": name, **measure(truth, **options_of(given))})
            print(row_of(table[-1]), flush=True)
        except lwa.LwaError as error:
            table.append({"model": name, "refused": str(error)})
            print(f"| {name.replace('_', ' ')} | refused: {error} |", flush=True)
        broken = verdict(table)
        save(given, table=table, verdict=broken)
    print(f"\nNot as required: {'; '.join(broken)}." if broken else "\nAll requirements hold.")


if __name__ == "__main__":
    main()
