"""How close windows come to the posterior of a whole series: ARMA models, N = 10⁷ steps, windows of n = 1000.

    python benchmarks/sequences.py                       # about eight minutes on two cores
    python benchmarks/sequences.py --only arma_0.9 ar_2 --rows 1e6
    python benchmarks/sequences.py --only arma_0.99 --rows 1e6 --lead-in 0 --out no_lead_in.json

For each series: the largest mean shift over parameters in posterior sds and the range of sd ratios of `lwa.sample` with
default arguments, the lead-in that it measured, microseconds per move and chain, and with `--exact` the same for
exact=True. The reference is independent of lwa: innovations of the whole series by SciPy's `lfilter`, one recursion
from the first step to the last in float64, for importance sampling from the Gaussian at the mode in antithetic pairs.
"""

import argparse
import json
import time
import warnings
from datetime import date
from pathlib import Path

import jax
import numpy as np
from accuracy import machine, moments
from scipy.signal import lfilter

import lwa
from lwa.data.data import lay_out
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.targets.reference import find_reference

HERE = Path(__file__).parent
SHIFT, LOW, HIGH = 0.05, 0.97, 1.05  # required: shift in sds, sd ratio
CASES = {
    "arma_0.5": ([0.5], [0.5], 0),
    "arma_0.7": ([0.5], [0.7], 0),
    "arma_0.9": ([0.5], [0.9], 0),
    "arma_0.95": ([0.5], [0.95], 0),
    "arma_0.99": ([0.5], [0.99], 0),
    "arma_alpha_0.95": ([0.95], [0.5], 0),
    "ar_2": ([0.6, -0.3], [], 0),
    "arma_2_1": ([0.6, -0.3], [0.5], 0),
    "regression_ar_1": ([0.7], [], 2),
}


def simulate(name, N):
    """A model and its data."""
    ar, ma, regressors = CASES[name]
    rng = np.random.default_rng(11)
    noise = rng.standard_normal(N + 1000)
    series = lfilter([1.0, *ma], [1.0, *(-a for a in ar)], noise)[1000:]
    model = lwa.arma(len(ar), len(ma), regressors=regressors)
    if not regressors:
        return model, (series + 0.2).astype(np.float32)
    x = rng.standard_normal((regressors, N), dtype=np.float32)
    y = 0.2 + np.array([0.5, -0.3]) @ x + series
    return model, {"y": y.astype(np.float32), "x1": x[0], "x2": x[1]}


def innovations(theta, data, direct):
    """Z over the whole series."""
    ar, ma = theta.get("ar", np.zeros(0)), theta.get("ma", np.zeros(0))
    if direct:
        y = data.astype(np.float64)
        w = lfilter([1.0, *(-ar)], [1.0], y - y[0]) + y[0] * (1 - ar.sum()) - theta["drift"]
    else:
        y, x = data["y"].astype(np.float64), np.stack([data["x1"], data["x2"]]).astype(np.float64)
        eta = y - theta["drift"] - theta["beta"] @ x
        w = lfilter([1.0, *(-ar)], [1.0], eta - eta[0]) + eta[0] * (1 - ar.sum())
    return lfilter([1.0], [1.0, *ma], w) if len(ma) else w


def log_posterior(model, data, vector):
    """At one unconstrained θ, in one recursion."""
    theta = {name: np.asarray(leaf) for name, leaf in model.by_name(vector).items()}
    z, sigma = innovations(theta, data, not isinstance(data, dict)), float(theta["sigma"])
    with jax.enable_x64(True):
        prior = float(model.log_prior_at(vector))
    return -0.5 * (z @ z) / sigma**2 - len(z) * np.log(sigma) + prior


def truth_of(name, N, pairs):
    """Model, data, mean and sd of the full posterior, and their error in sds."""
    model, data = simulate(name, N)
    layout = lay_out(model, data)
    with jax.enable_x64(True):
        mode = find_reference(layout.model, layout.full, model.ravel(model.init), 1)
    z = np.random.default_rng(1).standard_normal((pairs, model.dimension))
    z = np.stack([z, -z])
    points = mode.theta + z @ mode.factor.T
    log = np.array([[log_posterior(model, data, point) for point in half] for half in points])
    return model, data, moments(mode, z, log - log.max() + 0.5 * (z**2).sum(-1))


def measure(model, data, mean, sd, chains, draws, **options):
    """Shift and sd ratios of one run."""
    began = time.monotonic()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", lwa.LwaWarning)
        fit = lwa.sample(
            model, data, subset_size=1000, draws=draws, tune=1000, chains=chains, seed=1, progress=False, **options
        )
    free = fit.unconstrained or fit.posterior
    kept = np.concatenate([np.asarray(values).reshape(*values.shape[:2], -1) for values in free.values()], axis=-1)
    effective = float(effective_draws(kept).min())
    ratio = kept.std((0, 1)) / sd
    return {
        "shift": float(np.abs((kept.mean((0, 1)) - mean) / sd).max()),
        "ratio": [float(ratio.min()), float(ratio.max())],
        "error": effective**-0.5,
        "lead_in": int(fit.sample_stats["n_rows_read"][0, 0] / fit.attributes["thinning"]) - 1000,
        "precision": fit.attributes["precision"],
        "us": 1e6 / fit.attributes["moves_a_second"] / chains if fit.attributes["moves_a_second"] else None,
        "seconds": time.monotonic() - began,
        "warnings": [str(one.message) for one in told],
    }


def row_of(name, found, error):
    holds = found["shift"] <= SHIFT and found["ratio"][0] >= LOW and found["ratio"][1] <= HIGH
    us = f"{found['us']:.1f}" if found["us"] else ""
    return (
        f"| {name} | {found['lead_in']} | {found['shift']:.3f} | {found['ratio'][0]:.3f}–{found['ratio'][1]:.3f} "
        f"| {max(found['error'], error):.3f} | {found['precision']} | {us} | {found['seconds']:.0f} "
        f"| {'yes' if holds else 'NO'} | {len(found['warnings'])} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", default=[name for name in CASES if name != "arma_0.99"], choices=list(CASES)
    )
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--pairs", type=int, default=32)
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--exact", nargs="*", default=["arma_0.95"], help="series for which exact=True is run as well")
    parser.add_argument("--lead-in", type=int, help="steps that lead in, in place of as many as are needed")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "sequences.json")
    given = parser.parse_args()
    print("| series | lead-in | shift / sd | sd ratio | error | in | µs a move | seconds | holds | warnings |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    move = None if given.lead_in is None else lwa.subsets.Window(lead_in=given.lead_in, every=4)
    table = []
    for name in given.only:
        model, data, (mean, sd, error) = truth_of(name, int(given.rows), given.pairs)
        found = measure(model, data, mean, sd, given.chains, given.draws, subset_move=move)
        table.append({"series": name, "target": "calibrated", "reference_error": error, **found})
        print(row_of(name, found, error), flush=True)
        if name in given.exact:
            found = measure(model, data, mean, sd, 64, 25, exact=True, thinning=10)
            found["lead_in"] = table[-1]["lead_in"]
            table.append({"series": name, "target": "exact", "reference_error": error, **found})
            print(row_of(f"{name}, exact", found, error), flush=True)
        record = {"date": date.today().isoformat(), **machine(), "rows": int(given.rows), "n": 1000, "table": table}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
