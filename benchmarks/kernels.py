"""Which kernel is best in which dimension? Behind `engine/problem.py`.

    python benchmarks/kernels.py             # about forty minutes on two cores; --cases, --d and --append cut it up
    python benchmarks/kernels.py --quick     # d = 5, short runs: whether it works

Effective draws per second, all chains together, of every kernel at the margin: a long run minus a short one, so that
set-up, compilation and tune are out. Effective draws are ArviZ's bulk ESS, the least over all parameters θ and all
|θ - mean|: trajectories that overshoot can know means better than independent draws do, but not spreads.

| case | model | target |
|------|-------|--------|
| tall | logistic regression, N = 10⁵ rows, n = max(1000, 10 d), fixed subset for d > 32: near Gaussian | calibrated |
| few  | logistic regression, N = 5 d rows, Student-t prior, n = N: skewed, with heavy tails, in every d | calibrated |
| blind | the same, but no kernel knows where the mode is and how the target is curved there | powered |
| crossing | the second with 5 d to 60 d rows, nearer and nearer a Gaussian; what "auto" chooses among | calibrated |
| moving | the first, as the paper has it but for the power: the subset moves the target, a row at a time | powered |

Parameters come in blocks of five, as `Blockwise` moves them.
"""

import argparse
import json
import os
import platform
import time
import warnings
from datetime import date
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats

import lwa
from lwa.diagnostics.autocorrelation import autocorrelation_time
from lwa.kernels import HMC, MALA, NUTS, Autoregressive, Blockwise, Independence, RandomWalk

HERE = Path(__file__).parent
DIMENSIONS = (2, 5, 10, 20, 50, 100)
KERNELS = [RandomWalk(), Blockwise(), Autoregressive(), Independence(), MALA(), HMC(), NUTS()]
CASES = ["tall", "few", "blind", "moving", "crossing"]
CROSSING = {"Gaussian": Autoregressive(), "Student-t": Autoregressive(df=8.0), "HMC": HMC(), "auto": "auto"}
ROWS_A_PARAMETER = (5, 8, 15, 30, 60)
NEED_REFERENCE = (Autoregressive, Independence)
BLOCK = 5
MOST_DRAWS = 20_000
"""Kept draws a chain at the most: 8 chains of d = 100 are 128 MB."""


def log_likelihood(theta, rows):
    beta = jnp.concatenate([theta[name] for name in sorted(theta)])
    return -jax.nn.softplus(-rows["sign"] * (rows["x"] @ beta))


def normal_prior(theta):
    """Normal(0, 5²)."""
    return -0.5 * sum(jnp.sum((part / 5.0) ** 2) for part in theta.values())


def student_prior(theta):
    """Student's t with 4 degrees of freedom, times 2.5."""
    return -2.5 * sum(jnp.sum(jnp.log1p((part / 2.5) ** 2 / 4.0)) for part in theta.values())


def regression(N, d, log_prior):
    """A model with d coefficients in blocks, and N rows simulated from it."""
    rng = np.random.default_rng(d)
    truth = rng.normal(scale=1.5 / d**0.5, size=d)
    x = rng.standard_normal((N, d), dtype=np.float32)
    sign = np.where(rng.random(N) < 1 / (1 + np.exp(-(x @ truth))), 1.0, -1.0).astype(np.float32)
    init = {f"block_{at // BLOCK:02d}": jnp.zeros(min(BLOCK, d - at)) for at in range(0, d, BLOCK)}
    return lwa.Model(log_likelihood, log_prior, init), {"x": x, "sign": sign}


def case(name, d):
    """A model, its data and how to sample it."""
    if name in ("tall", "moving"):
        target = {"tall": "calibrated", "moving": "powered"}[name]
        options = {"subset_size": max(1000, 10 * d), "target": target}
        if d > 32:  # what a new U costs there is no kernel's doing
            options["subset_move"] = lwa.subsets.Fixed()
        return *regression(100_000, d, normal_prior), options
    target = {"few": "calibrated", "blind": "powered"}[name]
    return *regression(5 * d, d, student_prior), {"subset_size": 5 * d, "target": target}


def flat(fit):
    """Draws `(chains, draws, d)`."""
    return np.concatenate(list(fit.posterior.values()), axis=-1)


def effective(draws):
    """The least bulk ESS over θ and |θ - mean|."""
    spread = np.abs(draws - draws.mean((0, 1)))
    return min(float(array_stats.ess(x, chain_axis=0, draw_axis=1).min()) for x in (draws, spread))


def measure(model, data, kernel, options, given):
    """What one kernel is worth on one model."""

    def run(moves, thinning):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lwa.LwaWarning)  # kept in the result's attributes
            return lwa.sample(
                model, data, kernel=kernel, draws=moves // thinning, thinning=thinning, tune=given.tune,
                chains=given.chains, seed=1, progress=False, **options,
            )  # fmt: skip

    pilot = run(given.short, 1)  # compiles, and shows how long the chain remembers
    short = run(given.short, 1)
    thinning = max(1, int(autocorrelation_time(flat(pilot).swapaxes(0, 1)) / 10))
    moves = int(min(pilot.attributes["moves_a_second"] * given.seconds, MOST_DRAWS * thinning))
    moves = max(moves, 2 * given.short) // thinning * thinning
    long = run(moves, thinning)
    made = [fit.attributes["moves"] for fit in (short, long)]
    took = [fit.attributes["sampling_seconds"] for fit in (short, long)]
    rate = (made[1] - made[0]) / (took[1] - took[0])
    found, told = effective(flat(long)), long.sample_stats
    return {
        "kernel": type(kernel).__name__,
        "effective_a_second": found * rate / moves,
        "effective_a_move": found / moves / given.chains,
        "moves_a_second": rate,
        "rows_read_a_move": float(told["n_rows_read"].mean() / thinning),
        "acceptance": float(told["acceptance_rate"].mean()),
        "diverging": int(told.get("diverging", np.zeros(1)).sum()),
        "effective": found,
        "moves": moves,
        "said": long.attributes["kernel"],
        "predicted": long.attributes["gaussian_acceptance"],
        "warnings": long.attributes["warnings"],
    }


def crossing(d, given):
    """The kernels that "auto" chooses among, as the posterior comes nearer to the Gaussian at its mode."""
    found = []
    for rows in ROWS_A_PARAMETER:
        model, data = regression(rows * d, d, student_prior)
        options = {"subset_size": rows * d, "target": "calibrated"}
        one = {name: measure(model, data, kernel, options, given) for name, kernel in CROSSING.items()}
        rates = {name: round(kernel["effective_a_second"]) for name, kernel in one.items()}
        predicted = one["auto"]["predicted"]
        print(f"crossing d={d}, {rows} d rows, {predicted:.2f} predicted: {rates}; {one['auto']['said']}", flush=True)
        found.append({"case": "crossing", "d": d, "rows": rows * d, "predicted": predicted, "kernels": one})
    return found


def table_of(found):
    """Effective draws a second by kernel and d, the best of each row in bold."""
    lines = []
    for name in dict.fromkeys(one["case"] for one in found if one["case"] != "crossing"):
        kernels = [type(kernel).__name__ for kernel in KERNELS]
        lines += [
            f"\n{name}: effective draws a second",
            f"| d | {' | '.join(kernels)} |",
            f"|---|{'---|' * len(kernels)}",
        ]
        for d in dict.fromkeys(one["d"] for one in found if one["case"] == name):
            rates = {o["kernel"]: o.get("effective_a_second") for o in found if (o["case"], o["d"]) == (name, d)}
            best = max((rate for rate in rates.values() if rate), default=None)
            cells = [f"{rates[k]:,.0f}" if rates.get(k) else "" for k in kernels]
            cells = [f"**{c}**" if c and rates[k] == best else c for c, k in zip(cells, kernels, strict=True)]
            lines.append(f"| {d} | {' | '.join(cells)} |")
    return "\n".join(lines)


TITLES = {"tall": "10⁵ rows: near Gaussian", "few": "5 d rows: skewed, heavy tails", "blind": "the same, no reference"}


def plot(found, path):
    """Effective draws a second against d, a panel for each case."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(TITLES), figsize=(11, 3.8), sharey=True, layout="constrained")
    styles = zip((type(kernel).__name__ for kernel in KERNELS), "osD^v<>", strict=True)
    for i, (kernel, marker) in enumerate(styles):
        for axis, case_name in zip(axes, TITLES, strict=True):
            points = [
                (o["d"], o["effective_a_second"]) for o in found if (o["case"], o.get("kernel")) == (case_name, kernel)
            ]
            if points:
                axis.plot(*zip(*sorted(points), strict=True), marker=marker, color=f"C{i}", ms=5, label=kernel)
    for axis, title in zip(axes, TITLES.values(), strict=True):
        axis.set(xscale="log", yscale="log", title=title, xlabel="parameters, d", xticks=DIMENSIONS)
        axis.set_xticklabels(DIMENSIONS)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("effective draws a second")
    axes[0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="d = 5, short runs, nothing saved")
    parser.add_argument("--d", type=int, nargs="+", default=list(DIMENSIONS))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--tune", type=int, default=4096)
    parser.add_argument("--short", type=int, default=1024, help="moves of the short run")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the long run")
    parser.add_argument("--append", action="store_true", help="keep what an earlier run found")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kernels.json")
    parser.add_argument("--plot", type=Path, help="draw what was found before into this file, and measure nothing")
    given = parser.parse_args()
    if given.plot:
        plot(json.loads(given.out.read_text())["found"], given.plot)
        return
    if given.quick:
        given.d, given.tune, given.short, given.seconds, given.chains = [5], 512, 256, 1.0, 4
    found = json.loads(given.out.read_text())["found"] if given.append else []
    for name in given.cases:
        for d in given.d:
            if name == "crossing":
                found += crossing(d, given)
                continue
            model, data, options = case(name, d)
            for kernel in KERNELS:
                if options["target"] == "powered" and isinstance(kernel, NEED_REFERENCE):
                    continue
                began = time.monotonic()
                try:
                    one = measure(model, data, kernel, options, given)
                except lwa.LwaError as error:
                    one = {"kernel": type(kernel).__name__, "refused": str(error)}
                found.append({"case": name, "d": d, **one})
                rate = one.get("effective_a_second", float("nan"))
                print(f"{name} d={d} {one['kernel']}: {rate:,.0f}, {time.monotonic() - began:.0f} s", flush=True)
            if not given.quick:
                save(given, found)
    if not given.quick:
        save(given, found)
    print(table_of(found))


def save(given, found):
    given.out.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "date": date.today().isoformat(),
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        "backend": jax.default_backend(),
        "jax": jax.__version__,
        "chains": given.chains,
        "tune": given.tune,
        "found": found,
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
