"""Whether twice or half of epsilon="auto" would serve better, over the models of accuracy.py.

    python benchmarks/bandwidth.py --jobs 4                         # all of them at N = 10⁶; ten minutes on 16 cores
    python benchmarks/bandwidth.py --jobs 4 --subset-size 100 --add # with smaller subsets, beside what is in the file
    python benchmarks/bandwidth.py --only poisson --rows 1e5

ε matters if subsets are chosen by their curvature: with `summary=lwa.summaries.Curvature()`, with or without transport.
For both, runs at half of auto's ε, at it and at twice, with the same number of moves: the same draws, and the thinning
of the run at auto. The error is the root of the mean over parameters of shift² + log(sd ratio)²; independent draws,
which have only Monte Carlo error, have √(1.5 / draws). Its standard error, and that of differences between runs, come
from a jackknife over chains. By default subsets are not weighed and ε plays no part: the first line reports whether
draws are the same, bit for bit.
"""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from accuracy import arguments, kept_draws, options_of, save, truth_of

import lwa

FACTORS = (0.5, 1.0, 2.0)
KINDS = {
    "curvature": {"summary": lwa.summaries.Curvature(), "target": lwa.targets.Calibrated(transport=False)},
    "curvature, transported": {"summary": lwa.summaries.Curvature(), "target": lwa.targets.Calibrated(transport=True)},
}


def errors(truth, kept):
    """The error of all draws, and of all but one chain's, for each chain."""
    away = (kept - truth.mean) / truth.sd
    sums = np.stack([away.sum(1), (away**2).sum(1)])  # (2, chains, d)
    count = kept.shape[0] * kept.shape[1]

    def error(sums, count):
        shift, square = sums / count
        return np.sqrt((shift**2 + (0.5 * np.log(square - shift**2)) ** 2).mean(-1))

    total = sums.sum(1)
    return error(total, count), error(total[:, None] - sums, count - kept.shape[1])


def standard_error(without):
    """From values with one chain left out at a time."""
    return float(np.sqrt((len(without) - 1) * without.var()))


def rounded(value, digits):
    return None if value is None else round(value, digits)


def run(truth, **options):
    """A fit, or why there is none."""
    try:
        return lwa.sample(truth.model, truth.data, seed=1, progress=False, **options)
    except lwa.LwaError as error:
        return str(error)


def compare(truth, **options):
    """Runs at half, at and at twice auto's ε."""
    auto = run(truth, **options)
    if isinstance(auto, str):
        return {"refused": auto}
    epsilon, thinning = auto.attributes["epsilon"], auto.attributes["thinning"]
    fits = [
        auto if factor == 1.0 else run(truth, epsilon=factor * epsilon, thinning=thinning, **options)
        for factor in FACTORS
    ]
    at_auto, auto_without = errors(truth, kept_draws(auto))
    runs = []
    for factor, fit in zip(FACTORS, fits, strict=True):
        if isinstance(fit, str):
            runs.append({"factor": factor, "refused": fit})
            continue
        error, without = errors(truth, kept_draws(fit))
        gain, spread = at_auto - error, standard_error(auto_without - without)
        runs.append(
            {
                "factor": factor,
                "error": round(float(error), 4),
                "standard_error": round(standard_error(without), 4),
                "gain": round(float(gain), 4),  # over auto
                "gain_standard_error": round(spread, 4),
                "better": bool(gain > 2 * spread > 0),
                "refresh_rate": round(fit.attributes["subset_refresh_rate"], 3),
                "renewal": rounded(fit.attributes["subset_renewal_moves"], 0),
                "predicted_sd_error": rounded(fit.attributes["predicted_sd_error"], 4),
                "warnings": fit.attributes["warnings"],
            }
        )
    return {
        "subset_size": auto.attributes["subset_size"],
        "draws": options["draws"],
        "epsilon": epsilon,
        "thinning": thinning,
        "leverage": auto.attributes["leverage"],
        "floor": round(float(np.sqrt(1.5 / kept_draws(auto)[..., 0].size)), 4),
        "runs": runs,
    }


def table_of(name, given):
    truth = truth_of(name, int(given.rows), given.pairs, given.most_pairs)
    return [{"model": name, "kind": kind, **compare(truth, **options_of(given), **KINDS[kind])} for kind in given.kinds]


def in_a_process(name, given):
    """The same in a process of its own, for no longer than allowed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "one.json"
        command = [sys.executable, __file__, "--only", name, "--out", out, "--kinds", *given.kinds]
        command += ["--rows", given.rows, "--chains", given.chains, "--draws", given.draws]
        command += ["--pairs", given.pairs, "--most-pairs", given.most_pairs]
        command += [] if given.subset_size is None else ["--subset-size", given.subset_size]
        try:
            done = subprocess.run(list(map(str, command)), timeout=given.limit, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            why = f"not done after {given.limit:.0f} s"
            return [{"model": name, "kind": kind, "stopped": why} for kind in given.kinds]
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr}")
        return json.loads(out.read_text())["table"]


def default_is_unmoved(given):
    """Whether draws with default arguments are the same whatever ε, on one model."""
    truth = truth_of("linear", int(given.rows), 10, 10)
    fits = [
        lwa.sample(truth.model, truth.data, seed=1, progress=False, draws=100, epsilon=e) for e in ("auto", 0.1, 10)
    ]
    return all(np.array_equal(kept_draws(fits[0]), kept_draws(fit)) for fit in fits[1:])


def rows_of(found):
    """One line of the table."""
    name = f"| {found['model'].replace('_', ' ')} | {found['kind']} |"
    for why in ("refused", "stopped"):
        if why in found:
            return f"{name} {why}: {found[why]} |"

    def cells(show):
        return " / ".join("refused" if "refused" in one else show(one) for one in found["runs"])

    better = [f"{one['factor']:g} ε" for one in found["runs"] if one.get("better")]
    columns = [
        found["subset_size"],
        f"{found['epsilon']:.3g}",
        cells(lambda one: f"{one['error']:.3f} ± {one['standard_error']:.3f}"),
        cells(lambda one: f"{one['refresh_rate']:.2f}"),
        cells(lambda one: "∞" if one["renewal"] is None else f"{one['renewal']:,.0f}"),
        ", ".join(better) or "no",
    ]
    return f"{name} {' | '.join(map(str, columns))} |"


HEAD = """
| model | U chosen by | n | ε, auto's | error at ε/2, ε, 2ε | refresh rates | moves to renew U | better than auto's |
|---|---|---|---|---|---|---|---|"""


def main():
    parser = arguments(__doc__, "bandwidth.json")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--limit", type=float, default=3600, help="seconds a model")
    parser.add_argument("--add", action="store_true", help="keep what the file of results holds")
    given = parser.parse_args()
    held = json.loads(given.out.read_text())["table"] if given.add else []
    if len(given.only) == 1:
        table = table_of(given.only[0], given)
        print(HEAD, *map(rows_of, table), sep="\n", flush=True)
        save(given, table=held + table)
        return
    unmoved = default_is_unmoved(given)
    print(f"Default arguments: draws are {'the same' if unmoved else 'NOT the same'} at epsilon 'auto', 0.1 and 10.")
    print(HEAD, flush=True)
    table = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for found in pool.map(lambda name: in_a_process(name, given), given.only):
            table += found
            print(*map(rows_of, found), sep="\n", flush=True)
            save(given, jobs=given.jobs, default_unmoved=unmoved, table=held + table)


if __name__ == "__main__":
    main()
