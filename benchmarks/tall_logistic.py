"""lwa beside its rivals on a tall logistic regression: the cost of an effective draw, and how right the draws are.

    python benchmarks/tall_logistic.py                                  # N = 10⁶; about fifteen minutes on two cores
    python benchmarks/tall_logistic.py --only lwa hmcecs --subsamples 100
    python benchmarks/tall_logistic.py --rows 2e4 --seconds 1 --draws 2000 --exact-draws 20 --subsamples 100 --blocks 10
                                                                        # a smoke run, two or three minutes

`lwa.rivals.problems.simulate_logistic` with ten parameters: the same rows, prior, chains (32) and cores (two, by
affinity) for every method; lwa with 100 rows per step and the calibrated target, with and without `exact=True`;
NumPyro's HMCECS at six settings; NumPyro's NUTS on all rows; BlackJAX's SGLD with control variates at six; Laplace.
`tall_logistic_rivals.py` holds the rivals and what they are given beforehand: starts, scales and leapfrog steps, so
that none of them warms up. lwa finds its own.

Margin: seconds per effective draw once a run is going, chains together, so that set-up, compilation and tune are out.
Rivals run piece by piece; the first piece is not timed, and the median of the others counts. For lwa it is a long run
minus a short one, the median of three. Chains are vectorised, an equal part of them on each core. NUTS gets few draws
(`--nuts-draws` per piece, four pieces or more): its draws forget at once, and its chains start in the posterior.
The range of the timings stands beside their median: if it is wide, as on a busy machine, the line is worth little.

Cold: seconds from a fresh process, without a compilation cache, to 1000 effective draws at the efficiency measured at
the margin: imports, mode, compilation, tune, draws. Rows are loaded before the clock starts. A rival's best setting is
known to it beforehand; the search for it is not counted.

Effective draws: chains · Var π(f) / Var(means of f over chains), for f = θ and f = (θ - mean)², the worst parameter.
A variance over 32 chains has a relative error of 25 %, so the worst of 20 reads 0.66 ± 0.07 if draws are independent,
as Laplace's are: compare with its line. The median over parameters stands beside it.

Accuracy: the largest mean shift in posterior sds and the range of sd ratios, against importance sampling from the
Gaussian at the mode, in float64 on all rows, which uses no method's draws. Its error and that of the draws stand
beside.
"""

import argparse
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np  # anything heavier is imported within functions: its import belongs to a contestant's cold time

HERE = Path(__file__).parent
PARAMETERS, ENOUGH, FEWEST_PIECES = 10, 1000, 4


class Margin(NamedTuple):
    """What is known of a contestant once it is going."""

    draws: np.ndarray  # (chains, draws, d)
    seconds: list[float]  # a kept draw, chains together; one for each timing


class Contestant(NamedTuple):
    """Who takes part, and how they are measured."""

    name: str
    settings: list[dict]
    draws: int  # of a piece, or of lwa's long run
    measure: Callable  # by_pieces or by_difference
    best: Callable = lambda found: min(found, key=lambda one: one["margin_us"])


@cache  # another model, though the same, would be compiled anew
def lwa_model():
    import jax.numpy as jnp

    import lwa
    from lwa.rivals.problems import logistic_log_likelihood, wide_log_prior

    return lwa.Model(logistic_log_likelihood, wide_log_prior, init={"beta": jnp.zeros(PARAMETERS)})


SEEDS = itertools.count(1)


def lwa_draws(x, y, chains, draws, exact=False):
    """One run of lwa, with a seed of its own; it cannot be gone on with, so this yields once."""
    import lwa

    fit = lwa.sample(
        lwa_model(), {"x": x, "y": y}, subset_size=100, exact=exact, draws=draws, chains=chains, seed=next(SEEDS),
        progress=False,
    )  # fmt: skip
    yield np.asarray(fit.posterior["beta"])


def generator_of(name):
    """The contestant's generator of draws."""
    if name in ("lwa", "lwa-exact"):
        return lambda *given: lwa_draws(*given, exact=name == "lwa-exact")
    import tall_logistic_rivals

    return getattr(tall_logistic_rivals, name)


def by_pieces(make, chains, draws, seconds):
    """Pieces until so many seconds are spent, four at least; the first, which sets up and compiles, is not timed."""
    stream, took = make(draws), []
    pieces = [next(stream)]
    while len(pieces) < FEWEST_PIECES or sum(took) < seconds:
        began = time.perf_counter()
        pieces.append(next(stream))
        took.append(time.perf_counter() - began)
    return Margin(np.concatenate(pieces, axis=1), [each / draws / chains for each in took])


def by_difference(make, chains, draws, seconds):
    """A long run minus one a tenth as long, three times, after one that compiles; the draws of the long ones."""
    short, differences, kept = max(2, draws // 10), [], []
    next(make(short))
    for _ in range(3):
        marks = [time.perf_counter()]
        for length in (short, draws):
            kept.append(next(make(length)))
            marks.append(time.perf_counter())
        differences.append((marks[2] - marks[1]) - (marks[1] - marks[0]))
    return Margin(np.concatenate(kept[1::2], axis=1), [each / (draws - short) / chains for each in differences])


def efficiency(draws, posterior):
    """Effective draws a draw, by parameter: of θ, and of (θ - mean)²."""
    z = (draws - posterior.mean) / posterior.sd
    means, squares = z.mean(1), (z**2).mean(1)
    return 1 / means.var(0, ddof=1) / z.shape[1], posterior.square_variance / squares.var(0, ddof=1) / z.shape[1]


def judge(margin, posterior):
    """Cost, efficiency and accuracy as they are reported."""
    chains, length, _ = margin.draws.shape
    of_theta, of_square = efficiency(margin.draws, posterior)
    worst, draw = min(of_theta.min(), of_square.min()), statistics.median(margin.seconds)
    z = (margin.draws - posterior.mean) / posterior.sd
    ratio = z.std((0, 1))
    return {
        "draws": length,
        "draw_us": draw * 1e6,
        "draw_us_range": [min(margin.seconds) * 1e6, max(margin.seconds) * 1e6],
        "efficiency_theta": [of_theta.min(), np.median(of_theta)],
        "efficiency_square": [of_square.min(), np.median(of_square)],
        "efficiency": worst,
        "margin_us": draw / worst * 1e6,
        "margin_us_median": draw / min(np.median(of_theta), np.median(of_square)) * 1e6,
        "shift": np.abs(z.mean((0, 1))).max(),
        "sd_ratio": [ratio.min(), ratio.max()],
        "draws_error": z.mean(1).std(0, ddof=1).max() / math.sqrt(chains),
    }


def wrongness(found):
    """How far the worst sd ratio is from 1."""
    return max(abs(ratio - 1) for ratio in found["sd_ratio"])


def best_sgld(found):
    """The cheapest of those whose sds are right to a tenth, or else the one whose sds are least wrong."""
    right = [one for one in found if wrongness(one) <= 0.1]
    return min(right, key=lambda one: one["margin_us"]) if right else min(found, key=wrongness)


def contestants(given):
    """In the order in which they run; the quick ones first."""
    ecs = [{"subsample": n, "blocks": b} for n, b in itertools.product(given.subsamples, given.blocks)]
    langevin = [{"minibatch": n, "pace": h} for n, h in itertools.product((100, 1000), (0.1, 0.2, 0.25))]
    return [
        Contestant("laplace", [{}], 10_000, by_pieces),
        Contestant("lwa", [{}], given.draws, by_difference),
        Contestant("lwa-exact", [{}], given.exact_draws, by_difference),
        Contestant("sgld", langevin, 500, by_pieces, best_sgld),
        Contestant("hmcecs", ecs, 300, by_pieces),
        Contestant("nuts", [{}], given.nuts_draws, by_pieces),
    ]


NAMES = ("laplace", "lwa", "lwa-exact", "sgld", "hmcecs", "nuts")


def cold(name, folder):
    """In a process of its own: seconds from before the first import to the last draw; prints JSON."""
    job = json.loads((folder / f"{name}.json").read_text())
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    began = time.perf_counter()
    draws = next(generator_of(name)(x, y, job["chains"], job["draws"], **job["setting"]))
    took = time.perf_counter() - began
    np.save(folder / f"{name}.npy", draws)
    print(json.dumps({"seconds": took}))


def cold_start(name, best, chains, folder, posterior):
    """Seconds to 1000 effective draws from a cold start, and how many of them there were by the draws themselves."""
    job = {"chains": chains, "setting": best["setting"], "draws": math.ceil(ENOUGH / chains / best["efficiency"])}
    (folder / f"{name}.json").write_text(json.dumps(job))
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, __file__, "--cold", name, str(folder)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    reached = chains * job["draws"] * np.concatenate(efficiency(np.load(folder / f"{name}.npy"), posterior))
    return {
        "draws": job["draws"],
        "seconds": json.loads(answer.splitlines()[-1])["seconds"],
        "effective": reached.min(),
        "effective_median": np.median(reached),
    }


HEAD = (
    "who, µs a draw, range, efficiency of θ, of θ², µs an effective draw, shift / sd, sd ratio, error of draws, draws"
)


def label(found):
    """Who, with what."""
    return found["name"] + "".join(f", {key} {value}" for key, value in found["setting"].items())


def row_of(found):
    """A line of the table; efficiencies are of the worst parameter, with the median in brackets."""
    pairs = (found["efficiency_theta"], found["efficiency_square"])
    first, second = (f"{worst:.2f} ({middle:.2f})" for worst, middle in pairs)
    low, high = found["sd_ratio"]
    fastest, slowest = found["draw_us_range"]
    return (
        f"| {label(found)} | {found['draw_us']:.4g} | {fastest:.4g}–{slowest:.4g} | {first} | {second} | "
        f"{found['margin_us']:.4g} | {found['shift']:.3f} | {low:.3f}–{high:.3f} | "
        f"{found['draws_error']:.3f} | {found['draws']:,} |"
    )


def summary(report):
    """The best of each, cold times, and what an effective draw costs in units of lwa's."""
    best = report["best"]
    ours = best.get("lwa", {}).get("margin_us", math.nan)
    lines = [f"| best of each | µs an effective draw | in units of lwa's | cold, s to {ENOUGH} |", "|---|---|---|---|"]
    for found in best.values():
        ratio, start = found["margin_us"] / ours, found["cold"]["seconds"]
        lines.append(f"| {label(found)} | {found['margin_us']:.4g} | {ratio:.3g} | {start:.1f} |")
    for name, title in (("hmcecs", "HMCECS, best setting"), ("nuts", "NUTS"), ("sgld", "SGLD")):
        if name in best and "lwa" in best:
            margin = best[name]["margin_us"] / ours
            start = best[name]["cold"]["seconds"] / best["lwa"]["cold"]["seconds"]
            lines.append(f"\n{title} / lwa: {margin:.3g} at the margin, {start:.3g} from a cold start.")
    return "\n".join(lines)


def rounded(value):
    """Five digits of every number, for JSON."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(inner) for inner in value]
    return float(f"{float(value):.5g}") if isinstance(value, (float, np.floating)) else value


def save(report, out):
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rounded(report), indent=1) + "\n")


def compare(given, x, y, folder):
    """Everyone in turn; what is known is written down after each, since the whole takes long."""
    from tall_logistic_rivals import find_mode, full_posterior

    posterior = full_posterior(x, y, find_mode(x, y), given.pairs)
    chosen = [one for one in contestants(given) if one.name in given.only and one.name not in given.skip]
    report = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "versions": {name: version(name) for name in ("blackjax", "jax", "lwa", "numpyro")},
        "rows": len(y),
        "parameters": PARAMETERS,
        "chains": given.chains,
        "reference_error": posterior.error,
        "table": [],
        "best": {},
    }
    print(f"N = {len(y):,}, {given.chains} chains; error of the reference {posterior.error:.4f} sd\n")
    print(f"| {HEAD.replace(', ', ' | ')} |\n|{'---|' * 10}", flush=True)
    for one in chosen:
        table = []
        for setting in one.settings:
            generator = generator_of(one.name)

            def make(draws, generator=generator, setting=setting):
                return generator(x, y, given.chains, draws, **setting)

            margin = one.measure(make, given.chains, one.draws, given.seconds)
            table.append({"name": one.name, "setting": setting, **judge(margin, posterior)})
            print(row_of(table[-1]), flush=True)
            report["table"].append(table[-1])
            save(report, given.out)
        best = one.best(table)
        report["best"][one.name] = {**best, "cold": cold_start(one.name, best, given.chains, folder, posterior)}
        save(report, given.out)
    print(f"\n{summary(report)}\nWritten to {given.out}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--chains", type=int, default=32)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--skip", nargs="+", choices=NAMES, default=())
    parser.add_argument("--seconds", type=float, default=10, help="timed, for a rival's setting (default 10)")
    parser.add_argument("--draws", type=int, default=50_000, help="of lwa's long runs (default 50000)")
    parser.add_argument("--exact-draws", type=int, default=100, help="of its long runs with exact=True (default 100)")
    parser.add_argument("--nuts-draws", type=int, default=8, help="of a piece of NUTS (default 8)")
    parser.add_argument("--subsamples", nargs="+", type=int, default=(100, 300, 1000), help="of HMCECS")
    parser.add_argument("--blocks", nargs="+", type=int, default=(10, 50), help="of HMCECS")
    parser.add_argument("--pairs", type=int, default=1000, help="antithetic pairs of the reference (default 1000)")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "tall_logistic.json")
    parser.add_argument("--cold", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.chains % given.cores:
        parser.error(f"--chains {given.chains} must be a multiple of --cores {given.cores}")
    if given.cold:
        cold(given.cold[0], Path(given.cold[1]))
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])  # before JAX counts them; inherited
    from lwa.rivals.problems import simulate_logistic

    data = simulate_logistic(int(given.rows), seed=1, parameters=PARAMETERS).data
    with tempfile.TemporaryDirectory() as folder:
        for name, values in data.items():
            np.save(Path(folder) / f"{name}.npy", values)
        compare(given, data["x"], data["y"], Path(folder))


if __name__ == "__main__":
    main()
