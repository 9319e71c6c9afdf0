"""A pass over all rows by several processes: a Dask cluster against plain processes of the same machine.

    python benchmarks/cluster.py                  # 10⁷ rows, one and two workers: about three minutes
    python benchmarks/cluster.py --rows 1e6

The regression of `out_of_core.py` in a row store. The same pieces are computed by this process, by one and two
processes of `lwa.executors.Processes`, and by one and two workers of a `distributed.LocalCluster` of spawned processes
with one thread each. Rounds are interleaved, and a number is the median over rounds. All must give the same bits. Then
each makes the whole fit, at n = 100. Writes results/cluster.json and the part of docs/scaling.md between its marks.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
from contextlib import ExitStack
from datetime import date
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
from out_of_core import CHAINS, HERE, PARAMETERS, batches, between_marks, model, number, rounded, timed

import lwa
from lwa.rows import open_store, survey, write_store
from lwa.rows.passes import spread_passes
from lwa.targets.reference import compute_log_posterior, sum_all_rows

PASSES = {"survey": "survey", "mode": "Newton pass", "exact": f"{CHAINS} θ"}


def passes_of(logistic, rows, draws):
    """A function for each pass, of rows that some executor computes."""
    theta = draws["theta"][:, -1]
    return {
        "survey": lambda: survey(rows).fingerprint,
        "mode": lambda: sum_all_rows(logistic, rows, theta[0]),
        "exact": lambda: compute_log_posterior(logistic, rows, theta),
    }


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def measure(given, folder):
    from distributed import Client, LocalCluster

    write_store(batches(int(given.rows)), folder)
    rows, logistic = open_store(folder), model()
    with ExitStack() as stack:
        executors = {"this process": None}
        for workers in (1, 2):
            executors[f"{workers} process{'es' * (workers > 1)}"] = stack.enter_context(
                lwa.executors.Processes(workers)
            )
            cluster = stack.enter_context(
                LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0")
            )
            client = stack.enter_context(Client(cluster))
            executors[f"{workers} Dask worker{'s' * (workers > 1)}"] = lwa.executors.Dask(client)
        fits = {name: fitted(logistic, rows, executor) for name, executor in executors.items()}
        draws = {"theta": np.asarray(fits["this process"][1].posterior["theta"], np.float64)}
        if not all(same(fit.posterior, fits["this process"][1].posterior) for _, fit in fits.values()):
            raise SystemExit("draws differ")
        taken = {name: {phase: [] for phase in PASSES} for name in executors}
        with jax.enable_x64(True):
            whose = {
                name: passes_of(logistic, spread_passes(rows, executor), draws) for name, executor in executors.items()
            }
            expected = {phase: work() for phase, work in whose["this process"].items()}
            for number_of_round in range(given.rounds + 1):
                for phase in PASSES:
                    for name, passes in whose.items():
                        seconds, found = timed(passes[phase])
                        if not same(found, expected[phase]):
                            raise SystemExit(f"{phase} of {name} has other bits")
                        if number_of_round:  # the first one compiles
                            taken[name][phase].append(seconds)
                print(f"round {number_of_round} of {given.rounds}", flush=True)
        again = {name: fitted(logistic, rows, executor)[0] for name, executor in executors.items()}
    return [
        {
            "who": name,
            "passes": {phase: statistics.median(times) for phase, times in taken[name].items()},
            "fit": again[name],
        }
        for name in executors
    ]


def fitted(logistic, rows, executor):
    return timed(
        lambda: lwa.sample(
            logistic, rows, subset_size=100, draws=1000, chains=CHAINS, seed=1, progress=False, executor=executor
        )
    )


def markdown(report):
    lines = [f"| who | {' | '.join(f'{name}, s' for name in PASSES.values())} | whole fit, s |", f"|{'---|' * 5}"]
    for row in report["table"]:
        cells = [number(row["passes"][phase]) for phase in PASSES]
        lines.append(f"| {row['who']} | {' | '.join(cells)} | {number(row['fit'])} |")
    return "\n".join(lines)


def ratios(report):
    who = {row["who"]: row["passes"] for row in report["table"]}
    found = {phase: who["2 Dask workers"][phase] / who["2 processes"][phase] for phase in PASSES}
    told = ", ".join(f"{PASSES[phase]} {value:.2f}" for phase, value in found.items())
    holds = "all hold" if max(found.values()) <= 1.3 else "NOT all hold"
    return f"A pass of two Dask workers over one of two processes: {told} (at most 1.3: {holds})."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "cluster.json")
    parser.add_argument("--draw", action="store_true", help="only write the page from the results again")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    given = parser.parse_args()
    if not given.draw:
        folder = Path(tempfile.mkdtemp(prefix="lwa-cluster-"))
        try:
            report = {
                "date": date.today().isoformat(),
                "machine": f"{len(os.sched_getaffinity(0))} {platform.machine()} cores (JAX {version('jax')})",
                "rows": int(given.rows),
                "rounds": given.rounds,
                "table": measure(given, folder / "rows"),
            }
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        given.out.write_text(json.dumps(rounded(report), indent=1) + "\n")
    report = json.loads(given.out.read_text())
    made = f"Made on {report['date']} by `python benchmarks/cluster.py` on {report['machine']}."
    what = f"{report['rows']:,} rows × {PARAMETERS + 1} float32 in a row store, medians of {report['rounds']} rounds."
    text = f"{what}\n\n{markdown(report)}\n\n{ratios(report)}\n\n{made}"
    print(text)
    if not given.no_page:
        between_marks({"cluster": text})


if __name__ == "__main__":
    main()
