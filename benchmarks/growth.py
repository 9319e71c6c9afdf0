"""How the cost of a move grows: with the rows N, the rows n of a subset, the parameters d and the chains.

    python benchmarks/growth.py                        # all parts; about a quarter of an hour, 5 GB of disk for a while
    python benchmarks/growth.py --parts subset chains  # some of rows, subset, parameters, chains; the others stay
    python benchmarks/growth.py --plot                 # figure and table again, from the results
    python benchmarks/growth.py --small --seconds 0.3 --rounds 1 --out quick.json --docs .    # a look

A logistic regression with the default (calibrated) target and the default settings of `lwa.sample`: N = 10⁶, n = 1000,
d = 10 and 8 chains, of which one changes.

- rows: N = 10⁴ … 10⁸, memory-mapped stores of `out_of_core.py`.
- subset: n = 50 … 10⁵.
- parameters: d = 2 … 500, written as a formula, N = 10⁵. Subsets are transported up to 12 parameters, beyond them rows
  are expanded to second order, as "auto" chooses; "auto" also chooses the kernel. n = 1000, or ten rows per parameter
  if that is more, which is what lwa asks for.
- chains: 1 … 64, n = 100.

Microseconds per move and chain are taken at the margin: each run has a budget in seconds, and the first fifth of its
draws is left out, so that neither preparation nor compilation is in it. Rounds are interleaved and medians reported.
`setup_s` is all that comes before the first move, in the first round; later rounds are given the reference point, on
which nothing at the margin depends. In the first round of `rows` all programs are compiled already, so that it shows
the passes over all rows.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import warnings
from datetime import date
from importlib.metadata import version
from pathlib import Path

import exhibits
import numpy as np
from out_of_core import batches, model, number

HERE = Path(__file__).parent
ROWS, SUBSET, PARAMETERS, CHAINS = 1_000_000, 1000, 10, 8
SIZES = {
    "rows": [10**4, 10**5, 10**6, 10**7, 10**8],
    "subset": [50, 100, 300, 1000, 3000, 10_000, 30_000, 100_000],
    "parameters": [2, 5, 10, 16, 24, 32, 33, 50, 100, 200, 500],
    "chains": [1, 2, 4, 8, 16, 32, 64],
}
TUNE, THINNING = 100, 4
SLOW_ROWS, SLOW_D = 30_000, 200
"""From here on every move is kept: a run makes few."""
FEWEST_TICKS = 4
"""Of a run's clock, for what it says to mean anything."""
FEW_ROWS = 100_000
"""N of `parameters`: moves do not depend on it, and 500 columns of a million rows are passed over slowly."""
ROWS_A_PARAMETER = 10
WAYS = {True: "transported", "second_order": "second order"}


def timed(problem, data, seconds, *, n=SUBSET, chains=CHAINS, thinning=THINNING, reference=None):
    """One run, and the reference point; a longer one where its clock has hardly gone."""
    import lwa

    fit = lwa.sample(
        problem, data, subset_size=n, chains=chains, tune=TUNE, draws="auto", budget=seconds, thinning=thinning, seed=1,
        target=lwa.targets.Calibrated(reference=reference), progress=False,
    )  # fmt: skip
    told, point = fit.attributes, fit.origin.model.unravel(fit.origin.polish.problem.reference.theta)
    before = {"setup_s": told["seconds"] - told["sampling_seconds"], "stages": told["stages"]}
    if len(told["clock"]) < FEWEST_TICKS:
        longer, _ = timed(problem, data, 4 * seconds, n=n, chains=chains, thinning=1, reference=point)
        return longer | before, point
    found = before | {
        "us": margin(told["clock"], told["thinning"]) / chains,
        "n": told["subset_size"],
        "kernel": told["kernel"].split(",")[0].split(" ")[0],
        "transport": told["transport"],
        "evaluations": told["rows_read"] / (told["moves"] * chains * told["subset_size"]),
        "moves": told["moves"],
    }
    return found, point


def margin(clock, thinning):
    """Microseconds a move of all chains, from what the clock says of the last four fifths of the draws."""
    later = [(done, at) for done, at in clock if done >= clock[-1][0] / 5]
    (first, begun), (last, ended) = (later if len(later) > 1 else clock[-2:])[0], clock[-1]
    return (ended - begun) / ((last - first) * thinning) * 1e6


def measured(cases, given):
    """All sizes, round by round; `cases` gives for each its arguments of `timed`."""
    rounds, references = {size: [] for size in cases}, {}
    for again in range(given.rounds):
        for size, (problem, data, options) in cases.items():
            told, references[size] = timed(
                problem, data, given.seconds, **options, reference=references.get(size) if again else None
            )
            rounds[size].append(told)
            print(
                f"{size:>11,}: {told['us']:10.2f} us, set up in {told['setup_s']:.2f} s, {told['kernel']}", flush=True
            )
    return [row(size, all_of) for size, all_of in rounds.items()]


def row(size, rounds):
    """Medians at the margin; what comes before it, from the first round."""
    first = {name: value for name, value in rounds[0].items() if name not in ("us", "moves")}
    us = statistics.median(one["us"] for one in rounds)
    spread = [float(f"{end(one['us'] for one in rounds):.4g}") for end in (min, max)]
    return {"size": size, **first, "us": float(f"{us:.4g}"), "us_range": spread, "setup_s": round(first["setup_s"], 3)}


def over_rows(given):
    """Part 1: stores that are mapped."""
    from lwa.rows import open_store, write_store

    sizes = [size for size in SIZES["rows"] if size <= given.largest]
    scratch = Path(tempfile.mkdtemp(prefix="lwa-growth-", dir=given.folder))
    try:
        for size in sizes:
            write_store(batches(size), scratch / str(size))
        logistic = model()
        timed(logistic, open_store(scratch / str(sizes[0])), given.seconds)  # compiles
        return measured({size: (logistic, open_store(scratch / str(size)), {}) for size in sizes}, given)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def columns(rows, parameters=PARAMETERS):
    """The same regression in memory, with any number of parameters."""
    if parameters == PARAMETERS:
        whole = list(batches(rows))
        return {name: np.concatenate([one[name] for one in whole]) for name in whole[0]}
    rng = np.random.default_rng(1)
    x = rng.standard_normal((parameters, rows), dtype=np.float32)
    truth = rng.normal(scale=(1 / parameters) ** 0.5, size=parameters).astype(np.float32)  # chances stay off 0 and 1
    y = rng.random(rows, dtype=np.float32) < 1.0 / (1.0 + np.exp(-(truth[0] + truth[1:] @ x[1:])))
    return {f"x{i}": x[i] for i in range(1, parameters)} | {"y": y.astype(np.float32)}


def over_subsets(given):
    """Part 2."""
    data, logistic = columns(ROWS), model()
    cases = {
        n: (logistic, data, {"n": n, "thinning": 1 if n >= SLOW_ROWS else THINNING}) for n in some("subset", given)
    }
    return measured(cases, given)


def over_parameters(given):
    """Part 3: as formulas, whose curvature comes through the linear predictor whatever d."""
    import lwa

    cases = {}
    for d in some("parameters", given):
        data = columns(FEW_ROWS, d)
        names = [name for name in data if name not in ("x0", "y")]
        formula = lwa.glm(f"y ~ {' + '.join(names)}", "bernoulli")
        cases[d] = formula, data, {"n": max(SUBSET, ROWS_A_PARAMETER * d), "thinning": 1 if d >= SLOW_D else THINNING}
    return measured(cases, given)


def over_chains(given):
    """Part 4."""
    data, logistic = columns(ROWS), model()
    return measured({size: (logistic, data, {"n": 100, "chains": size}) for size in some("chains", given)}, given)


def some(part, given):
    """The sizes of a part."""
    return SIZES[part][:3] if given.small else SIZES[part]


PARTS = {"rows": over_rows, "subset": over_subsets, "parameters": over_parameters, "chains": over_chains}


def slope(x, y):
    """Of a line through logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if len(x) > 1 else float("nan")


def slope_of(table, key):
    """Of what a table says of its sizes."""
    return slope([one["size"] for one in table], [one[key] for one in table])


def upper(table):
    """The larger half of the sizes, where what grows has outgrown what does not."""
    return table[len(table) // 2 :] if len(table) > 3 else table


def markdown(results):
    """A line a part: costs by size, and the slope of their logarithms."""
    lines = ["| what grows | µs per move and chain | slope, upper half |", "|---|---|---|"]
    for part, name in {"rows": "N", "subset": "n", "parameters": "d", "chains": "chains"}.items():
        for way, table in ways_of(results[part]["table"]).items():
            words = f"{name}, {WAYS[way]}" if part == "parameters" else name
            lines.append(f"| {words} | {listed(table, 'us')} | {slope_of(upper(table), 'us'):+.2f} |")
    made = "; ".join(sorted({f"{one['date']}, {one['machine']}" for one in results.values()}))
    return "\n".join(lines) + (
        f"\n\nSeconds before the first move, by N: {listed(results['rows']['table'], 'setup_s')}.\n\n"
        f"Made by `python benchmarks/growth.py` ({made})."
    )


def listed(table, key):
    """Values, each with its size."""
    return ", ".join(f"{number(one[key])} ({one['size']:,})" for one in table)


def ways_of(table):
    """The lines of a table by how U's curvature was made that of all rows."""
    return {way: own for way in WAYS if (own := [one for one in table if one["transport"] == way])}


def plot(results, docs):
    """Four panels, each with a line of proportional growth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = dict(zip(PARTS, figure.subplots(2, 2).flat, strict=True))
    draw_rows(panels["rows"], results["rows"]["table"])
    draw_subset(panels["subset"], results["subset"]["table"])
    draw_parameters(panels["parameters"], results["parameters"]["table"])
    draw_chains(panels["chains"], results["chains"]["table"])
    exhibits.write(figure, "growth", docs)


def prepared(axes, title, xlabel, ylabel):
    """Logarithms on both axes."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3, linewidth=0.5)
    exhibits.tidy(axes)


def proportional(axes, x, at):
    """A line of slope 1 through the last point."""
    x = np.asarray(x, float)
    axes.plot(x, at * x / x[-1], "--", color=exhibits.GREY, linewidth=1, label="proportional growth", zorder=0)


def roomy(axes, values):
    """So that noise does not fill a panel."""
    low, high = min(values), max(values)
    axes.set_ylim(min(low / 2, high / 30), max(2 * high, 30 * low))


def draw_rows(axes, table):
    """Moves, and what comes before them."""
    x, us, setup = ([one[key] for one in table] for key in ("size", "us", "setup_s"))
    title = f"Over all N a move varies by a factor of {max(us) / min(us):.2f}:\nnothing grows but the passes before it"
    prepared(axes, title, "rows N", "µs per move and chain")
    axes.plot(x, us, "o-", color=exhibits.OURS, label=f"a move, slope {slope(x, us):+.2f}")
    roomy(axes, us)
    beside, steep = axes.twinx(), slope_of(upper(table), "setup_s")
    beside.plot(
        x, setup, "s:", color=exhibits.OTHER, label=f"before the first move, slope {steep:.2f} in the upper half"
    )
    proportional(beside, x, setup[-1])
    beside.set_yscale("log")
    beside.set_ylabel("seconds before the first move", color=exhibits.OTHER)
    beside.set_ylim(min(setup) / 3, 30 * max(setup))
    beside.spines["top"].set_visible(False)
    lines = [*axes.lines, *beside.lines]
    beside.legend(lines, [line.get_label() for line in lines], frameon=False, fontsize=8, loc="upper left")


def draw_subset(axes, table):
    """One line."""
    x, us, last = [one["size"] for one in table], [one["us"] for one in table], upper(table)
    steep = f"{slope_of(last, 'us'):.2f}"
    title = f"A move reads n rows: from n = {last[0]['size']:,} on\ncost grows like n to the power {steep}"
    prepared(axes, title, "rows n of a subset", "µs per move and chain")
    proportional(axes, x, us[-1])
    axes.plot(x, us, "o-", color=exhibits.OURS, label=f"a move, slope {steep} in the upper half")
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def draw_parameters(axes, table):
    """One line for each way in which U's curvature is made that of all rows; n and kernel where they are others."""
    ways, styles = ways_of(table), {True: ("o-", exhibits.OURS), "second_order": ("s-", exhibits.OTHER)}
    border = max((one["size"] for one in ways.get(True, [])), default=0)
    title = f"Up to {border} parameters subsets are transported;\nbeyond them rows are expanded to second order"
    prepared(axes, title, "parameters d", "µs per move and chain")
    for way, own in ways.items():
        style, colour = styles[way]
        x, us = ([one[key] for one in own] for key in ("size", "us"))
        axes.plot(
            x, us, style, color=colour, label=f"{WAYS[way]}, slope {slope_of(upper(own), 'us'):.2f} in the upper half"
        )
    alike = [one["us"] / one["evaluations"] * SUBSET / one["n"] for one in own]
    if max(abs(one - other) for one, other in zip(alike, us, strict=True)) > 0.05 * max(us):
        words = f"the same for each evaluation of {SUBSET:,} rows, slope {slope(x, alike):.2f}"
        axes.plot(x, alike, style, color=colour, markerfacecolor="white", linewidth=0.8, label=words)
    proportional(axes, x, alike[-1])
    for one in table:
        others = [f"n = {one['n']:,}"] if one["n"] != SUBSET else []
        others += (
            [f"{one['kernel']}, {one['evaluations']:.1f} evaluations"] if one["kernel"] != "autoregressive" else []
        )
        if others:
            axes.annotate("\n".join(others), (one["size"], one["us"]), xytext=(-8, -4), textcoords="offset points",
                          fontsize=7, ha="right")  # fmt: skip
    if len(ways) > 1:
        axes.axvline(border + 0.5, color=exhibits.GREY, linewidth=0.8, linestyle=":")
    axes.set_ylim(top=20 * max(one["us"] for one in table))
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def draw_chains(axes, table):
    """All chains together, so that proportional growth is what one would pay for chains apart."""
    x, us = [one["size"] for one in table], [one["us"] * one["size"] for one in table]
    title = f"Chains side by side: {x[-1]} cost {us[-1] / us[0] * x[0]:.0f} times as much as one"
    prepared(axes, title, "chains", "µs per move of all chains")
    apart = np.asarray(x, float) * us[0] / x[0]
    axes.plot(x, apart, "--", color=exhibits.GREY, linewidth=1, label="proportional growth", zorder=0)
    axes.plot(x, us, "o-", color=exhibits.OURS, label=f"a move, slope {slope(x, us):.2f}")
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parts", nargs="+", default=list(PARTS), choices=list(PARTS), help="others keep their results"
    )
    parser.add_argument("--largest", type=float, default=1e8, help="rows of the largest store (default 1e8)")
    parser.add_argument("--small", action="store_true", help="the three smallest sizes of each part")
    parser.add_argument("--seconds", type=float, default=2.0, help="of tune and sampling, each run (default 2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to put the stores (default: the system's temporary folder)")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "growth.json")
    parser.add_argument("--docs", type=Path, help="folder of performance.md and figures/ (default: docs)")
    parser.add_argument("--plot", action="store_true", help="figure and table of what is in --out, and run nothing")
    given = parser.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    if not given.plot:
        given.largest = min(given.largest, SIZES["rows"][2]) if given.small else given.largest
        warnings.simplefilter("ignore")  # of budgets that end a run, which is what they are for here
        for part in given.parts:
            print(f"{part}:")
            found[part] = {
                "date": date.today().isoformat(),
                "machine": f"{len(os.sched_getaffinity(0))} {platform.machine()} cores (JAX {version('jax')})",
                "table": PARTS[part](given),
            }
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(found, indent=1) + "\n")  # after each part: the next may be cut off
    missing = [part for part in PARTS if part not in found]
    if missing:
        print(f"No figure without {', '.join(missing)}: python benchmarks/growth.py --parts {' '.join(missing)}")
        return
    print(markdown(found))
    exhibits.put("growth", markdown(found), given.docs)
    plot(found, given.docs)


if __name__ == "__main__":
    main()
