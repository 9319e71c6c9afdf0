"""Where each second goes, from a table on disk to a certified posterior.

    python benchmarks/cold_start.py                      # 10⁶ rows; about a minute
    python benchmarks/cold_start.py --rows 1e4 --rounds 1 --imports 1 --out quick.json --docs .    # a look
    python benchmarks/cold_start.py --plot               # figure and table again, from the results

`lwa fit` on a Parquet file of ten numeric columns, a response of 0 and 1 and nine covariates, in a process of its own:
cold, with no converted table, no compiled program, nothing in any cache but Python's own bytecode, then once more with
what that left behind. Stages are those that lwa records with every run (`attributes["stages"]`); the rest of the wall
time is the end of the process. Compilation beside other work counts only as the wait for it. One more cold run, not
timed, listens to JAX: how long it traces, lowers and compiles each program, on any thread. Also measured: `import lwa`
and what `lwa.sample` needs first, against `import jax`. Medians over rounds.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

import exhibits
import numpy as np

HERE = Path(__file__).parent
COLUMNS = 10
LIMIT = 20.0
"""Seconds that a cold start may take on two cores."""
STAGES = {
    "imports": "interpreter and imports",
    "conversion": "conversion",
    "layout": "formula",
    "survey": "survey",
    "mode": "mode",
    "planning": "planning",
    "compiling": "waiting for compilation",
    "tune": "tune",
    "draws": "draws",
    "saving": "saving",
    "certificate": "certificate",
    "report": "summary and report",
    "exit": "exit",
}
"""In the order in which they come, by and large, and what they are called."""
KINDS = {
    "jaxpr_trace_duration": "tracing",
    "jaxpr_to_mlir_module_duration": "lowering",
    "backend_compile_duration": "compiling",
}
"""What JAX calls what it does with a program."""
MOST_PROGRAMS = 12
IMPORTS = {"jax": "import jax", "lwa": "import lwa", "lwa.sample": "import lwa; lwa.sample"}


def simulate(path, rows, seed=1):
    """A Parquet file: y of 0 and 1, and standard normal columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    truth = np.linspace(-0.5, 0.5, COLUMNS)
    x = rng.standard_normal((COLUMNS - 1, rows))
    y = rng.random(rows) < 1.0 / (1.0 + np.exp(-(truth[0] + truth[1:] @ x)))
    pq.write_table(pa.table({"y": y.astype(np.int64)} | {f"x{i + 1}": column for i, column in enumerate(x)}), path)


def environment(cache):
    """This one, with caches nowhere but in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "NUMBA_", "LWA_"))}
    return kept | {"XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": str(cache / "numba")}


def fit(code, table, run, cache):
    """`lwa fit` in a process that begins with some code."""
    formula = "y ~ " + " + ".join(f"x{i}" for i in range(1, COLUMNS))
    arguments = ["fit", formula, str(table), "--family", "bernoulli", "--seed", "1", "--out", str(run)]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=environment(cache), capture_output=True)


def fitted(table, run, cache):
    """One `lwa fit`; its stages, and what came of it."""
    began = time.perf_counter()
    fit("from lwa.cli.app import main; main()", table, run, cache)
    total = time.perf_counter() - began
    told = json.loads((run / "manifest.json").read_text())["attributes"]
    stages = told["stages"] | {"exit": max(0.0, total - sum(told["stages"].values()))}
    return {"total": total, "stages": stages, "certificate": told["certificate"]["outcome"], "run": run}


def listened(table, scratch):
    """What a cold run spends on programs: seconds by kind, and those of the programs that take longest."""
    heard = scratch / "heard.json"
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import cold_start; cold_start.listen({str(heard)!r})"
    fit(code, table, scratch / "listened", scratch / "cache-listened")
    kinds, programs = dict.fromkeys(KINDS.values(), 0.0), {}
    events = json.loads(heard.read_text())
    for kind, program, seconds in events:
        kinds[KINDS[kind]] += seconds
        programs[program] = programs.get(program, 0.0) + seconds
    longest = sorted(programs, key=programs.get, reverse=True)[:MOST_PROGRAMS]
    return {
        "programs": sum(kind == "backend_compile_duration" for kind, _, _ in events),
        "seconds": {kind: round(seconds, 3) for kind, seconds in kinds.items()},
        "longest": {program: round(programs[program], 3) for program in longest},
    }


def listen(where):
    """`lwa fit` in this process, and what JAX says of its programs, as JSON."""
    from jax import monitoring

    from lwa.cli.app import main

    heard = []

    def hear(event, seconds, fun_name="", **_):
        if (kind := event.rpartition("/")[2]) in KINDS:
            heard.append((kind, fun_name.removeprefix("jit(").removesuffix(")"), seconds))

    monitoring.register_event_duration_secs_listener(hear)
    try:
        main()
    finally:
        Path(where).write_text(json.dumps(heard))


def least_effective(run):
    """Effective draws of the parameter that has fewest, in bulk or tails, as ArviZ counts them."""
    import lwa

    table = lwa.load(run).summary(round_to="none")
    return float(table[["ess_bulk", "ess_tail"]].min().min())


def imported(statement):
    """Seconds of an import, in a process of its own."""
    code = f"import time; began = time.perf_counter(); {statement}; print(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def measure(given):
    """Cold and warm, round by round, then imports."""
    rounds = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory(prefix="lwa-cold-start-", dir=given.folder) as scratch:
        table = Path(scratch) / "table.parquet"
        simulate(table, int(given.rows))
        for number in range(given.rounds):
            for state, found in rounds.items():
                found.append(fitted(table, Path(scratch) / f"{state}-{number}", Path(scratch) / f"cache-{number}"))
                print(f"{state}: {found[-1]['total']:.2f} s, certificate: {found[-1]['certificate']}", flush=True)
        effective = least_effective(rounds["cold"][0]["run"])
        compilation = listened(table, Path(scratch))
    times = {name: [] for name in IMPORTS}
    for _ in range(given.imports):
        for name, statement in IMPORTS.items():
            times[name].append(imported(statement))
    return {
        "date": date.today().isoformat(),
        "machine": f"{len(os.sched_getaffinity(0))} {platform.machine()} cores (JAX {version('jax')})",
        "rows": int(given.rows),
        "rounds": given.rounds,
        "effective_draws": round(effective),
        "certificate": rounds["cold"][0]["certificate"],
        **{state: medians(found) for state, found in rounds.items()},
        "compilation": compilation,
        "imports": {name: round(statistics.median(seconds), 4) for name, seconds in times.items()},
    }


def medians(rounds):
    """Of each stage, and of all of it."""
    names = [name for name in STAGES if any(name in one["stages"] for one in rounds)]
    strange = {name for one in rounds for name in one["stages"]} - set(STAGES)
    if strange:
        raise SystemExit(f"lwa has stages that have no name here: {', '.join(sorted(strange))}. Add them to STAGES.")
    middle = {name: statistics.median(one["stages"].get(name, 0.0) for one in rounds) for name in names}
    return {
        "total": round(statistics.median(one["total"] for one in rounds), 3),
        "stages": {name: round(seconds, 3) for name, seconds in middle.items()},
    }


def markdown(found):
    """A line a stage, then what came of it."""
    lines = ["| stage | cold, s | warm, s |", "|---|---|---|"]
    for name, words in STAGES.items():
        cold, warm = (found[state]["stages"].get(name) for state in ("cold", "warm"))
        if max(cold or 0.0, warm or 0.0) >= 0.005:
            lines.append(f"| {words} | {cold or 0.0:.2f} | {warm or 0.0:.2f} |")
    lines.append(f"| **all of it** | **{found['cold']['total']:.1f}** | **{found['warm']['total']:.1f}** |")
    holds = "holds" if found["cold"]["total"] <= LIMIT and found["effective_draws"] >= 1000 else "does NOT hold"
    imports = found["imports"]
    return "\n".join(lines) + (
        f"\n\n{found['rows']:,} rows of {COLUMNS} columns; certificate: {found['certificate']}; at least "
        f"{found['effective_draws']:,} effective draws of every parameter. At most {LIMIT:.0f} s cold with 1,000: "
        f"{holds}.\n\n"
        f"`import jax` takes {imports['jax']:.2f} s, `import lwa` {1e3 * imports['lwa']:.1f} ms "
        f"({imports['lwa'] / imports['jax']:.3f} times as long, at most 1.5), and what `lwa.sample` needs first "
        f"{imports['lwa.sample']:.2f} s, JAX included ({imports['lwa.sample'] / imports['jax']:.2f} times).\n\n"
        f"Made on {found['date']} by `python benchmarks/cold_start.py` on {found['machine']}, medians of "
        f"{found['rounds']} rounds."
    )


def programs(found):
    """What compilation takes, on all threads together."""
    told = found["compilation"]
    kinds = ", ".join(f"{seconds:.1f} s of {kind}" for kind, seconds in told["seconds"].items())
    lines = ["| program | s |", "|---|---|", *(f"| `{name}` | {s:.2f} |" for name, s in told["longest"].items())]
    return (
        f"A cold start makes {told['programs']} programs: {kinds}, added up over threads, of which one compiles the "
        "moves of the chains while the other finds the mode. The longest, all three together:\n\n" + "\n".join(lines)
    )


def plot(found, docs):
    """Two bars of stages, one after the other."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots()
    colours = dict(zip(STAGES, colormaps["tab20"].colors, strict=False))
    shown = [name for name in STAGES if max(found[s]["stages"].get(name, 0.0) for s in ("cold", "warm")) >= 0.05]
    for height, state in enumerate(("warm", "cold")):
        left = 0.0
        for name in shown:
            seconds = found[state]["stages"].get(name, 0.0)
            axes.barh(height, seconds, left=left, color=colours[name], edgecolor="white", linewidth=0.6,
                      label=STAGES[name] if state == "cold" else None)  # fmt: skip
            if seconds >= 0.03 * found["cold"]["total"]:
                axes.annotate(f"{seconds:.1f}", (left + seconds / 2, height), ha="center", va="center", fontsize=8)
            left += seconds
        axes.annotate(f" {found[state]['total']:.1f} s", (left, height), va="center", fontsize=10)
    axes.set_yticks([0, 1], ["caches warm", "everything cold"])
    axes.set_xlim(0, 1.12 * found["cold"]["total"])
    axes.set_xlabel("seconds")
    axes.set_title(
        f"From a Parquet file of {found['rows']:,} rows to a certified posterior: "
        f"{found['cold']['total']:.1f} s cold, {found['warm']['total']:.1f} s the next time",
        loc="left", fontsize=11,
    )  # fmt: skip
    exhibits.tidy(axes)
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    exhibits.write(figure, "cold_start", docs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--imports", type=int, default=7, help="processes that import each (default 7)")
    parser.add_argument("--folder", help="where to put table, caches and runs (default: the temporary folder)")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "cold_start.json")
    parser.add_argument("--docs", type=Path, help="folder of performance.md and figures/ (default: docs)")
    parser.add_argument("--plot", action="store_true", help="figure and table of what is in --out, and run nothing")
    given = parser.parse_args()
    if not given.plot:
        found = measure(given)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    found = json.loads(given.out.read_text())
    print(markdown(found))
    print(programs(found))
    exhibits.put("cold start", markdown(found), given.docs)
    exhibits.put("profile", programs(found), given.docs)
    plot(found, given.docs)


if __name__ == "__main__":
    main()
