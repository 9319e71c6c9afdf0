"""The tall-data protocol: rows per step of every method, on data that suit it and on data that do not.

    python benchmarks/tall_data.py                      # about fifteen minutes on two cores
    python benchmarks/tall_data.py --table              # of the docs, from the results
    python benchmarks/tall_data.py --plot docs/figures/tall_data.png
    python benchmarks/tall_data.py --rows 1e4 --steps 1000 --reference 5000 --out quick.json

N = 10⁵ rows, Gaussian and log-normal, both fitted by a Gaussian of unknown mean and sd (Bardenet, Doucet and Holmes,
2017), and a logistic regression with ten parameters, for which there is Firefly's bound. The reference is 50,000 steps
of Metropolis-Hastings on all rows. Each method makes 10,000 steps with two chains, tune not counted. Reported are the
largest shift of a mean in sds of the reference, the range of sd ratios, and the rows that a step reads. A row that is
evaluated at θ and at θ' is read twice, and a third and fourth time if it is expanded at the mode.
"""

import argparse
import json
import warnings
from datetime import date
from pathlib import Path

import numpy as np
from accuracy import machine

import lwa
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.draws import collect_draws
from lwa.errors import LwaError
from lwa.rivals import Austerity, Confidence
from lwa.rivals.comparison.methods import METHOD_NAMES, Lwa, draw_by, find_method
from lwa.rivals.problems import simulate

HERE = Path(__file__).parent
PROBLEMS = ["gaussian", "lognormal", "logistic"]
CHAINS = 2
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def methods(bound):
    """All that there are, the paper's own schedule of MHSubLhd and a stricter Austerity among them."""
    others = [find_method(name, 1000, bound) for name in METHOD_NAMES if name not in ("lwa", "lwa_exact")]
    place = [method.label for method in others].index("austerity") + 1
    return [
        Lwa(1000, target="calibrated"),
        *others[:place],
        Austerity(epsilon=0.01),
        Confidence(growth="linear"),
        *others[place:],
    ]


def measure(fit, model, reference):
    """Shift and sd ratio against the reference, and quantiles of rows a step."""
    draws, truth = collect_draws(model, fit), collect_draws(model, reference)
    sign = np.asarray(fit.sample_stats.get("sign", np.ones(draws.shape[:2])))[..., None]
    mean = (sign * draws).sum((0, 1)) / sign.sum()
    sd = np.sqrt((sign * (draws - mean) ** 2).sum((0, 1)) / sign.sum())
    centre, width = truth.mean((0, 1)), truth.std((0, 1))
    rows = fit.sample_stats["n_rows_read"].ravel()
    return {
        "rows_a_step": float(rows.mean()),
        "quantiles": np.quantile(rows, QUANTILES).tolist(),
        "acceptance": float(fit.sample_stats["acceptance_rate"].mean()),
        "effective_draws": float(np.nanmin(effective_draws(draws))),
        "shift": float(np.abs((mean - centre) / width).max()),
        "sd_ratio": [float((sd / width).min()), float((sd / width).max())],
        "seconds": fit.attributes["sampling_seconds"],
    }


def run(name, N, steps, reference_steps, tune, seed):
    """All methods on one problem."""
    case = simulate(name, N, seed)
    common = dict(tune=tune, chains=CHAINS, seed=seed, progress=False, thinning=1)
    warnings.simplefilter("ignore")
    reference = lwa.rivals.sample("metropolis", case.model, case.data, draws=reference_steps // CHAINS, **common)
    error = float(np.nanmin(effective_draws(collect_draws(case.model, reference)))) ** -0.5
    print(f"\n{name}: error of the reference {error:.3f} sds", flush=True)
    found = {}
    for method in methods(case.bound):
        label = method.label
        try:
            own = common | {"draws": steps // CHAINS, "seed": seed + 1}
            fit = draw_by(method, case.model, case.data, mode=None, kernel="walk", common=own)
        except LwaError as refusal:
            found[label] = {"reason": str(refusal)}
        else:
            found[label] = measure(fit, case.model, reference)
        print(line(label, found[label], N), flush=True)
    return {"reference_error": error, "methods": found}


def line(label, one, N):
    """One row of the table."""
    if "reason" in one:
        return f"| {label} | {one['reason']} |"
    low, high = one["sd_ratio"]
    rows = one["rows_a_step"]
    return (
        f"| {label} | {rows:,.0f} | {100 * rows / N:.3g} % | {one['acceptance']:.2f} | {one['effective_draws']:,.0f} | "
        f"{one['shift']:.2f} | {low:.2f}-{high:.2f} |"
    )


def side_by_side(results):
    """The table of the docs: rows a step as a share of N, shift and sd ratio, one group of columns a problem."""
    problems, N = results["problems"], results["rows"]
    print("| method | " + " | ".join(f"{name}: rows per step | shift | sd ratio" for name in problems) + " |")
    print("|---|" + "---|---|---|" * len(problems))
    for label in next(iter(problems.values()))["methods"]:
        cells = []
        for found in problems.values():
            one = found["methods"][label]
            if "reason" in one:
                cells.append("no bound | | " if "bound" in one["reason"] else "does not apply | | ")
                continue
            rows, (low, high) = one["rows_a_step"], one["sd_ratio"]
            share = f"{rows / N:.1%}" if rows >= 0.001 * N else f"{rows / N:.3%}"
            cells.append(f"{rows:,.0f} ({share}) | {one['shift']:.2f} | {low:.2f}–{high:.2f}")
        print(f"| {label} | " + " | ".join(cells) + " |")
    errors = ", ".join(f"{name} {found['reference_error']:.3f}" for name, found in problems.items())
    print(f"\nError of the reference in sds: {errors}.")


def plot(results, path):
    """Rows a step, one panel a problem: the middle half as a bar, nine tenths as a line, a dot for the mean."""
    from matplotlib.figure import Figure

    names = [name for name in results["problems"]]
    labels = list(results["problems"][names[0]]["methods"])[::-1]
    figure = Figure(figsize=(13, 5.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), sharey=True), names, strict=True):
        for height, label in enumerate(labels):
            one = results["problems"][name]["methods"][label]
            if "reason" in one:
                axes.annotate("does not apply", (0.02, height), xycoords=("axes fraction", "data"), fontsize=8,
                              color="0.5", va="center")  # fmt: skip
                continue
            low, first, _, last, high = one["quantiles"]
            colour = "C0" if label.startswith("lwa") else "C7"
            axes.plot([low, high], [height, height], color=colour, linewidth=1.2)
            axes.plot([first, last], [height, height], color=colour, linewidth=7, solid_capstyle="butt", alpha=0.55)
            axes.plot(one["rows_a_step"], height, "o", color=colour, markersize=5)
            off = abs(one["sd_ratio"][1] - 1) > 0.1 or one["shift"] > 0.25
            axes.annotate(
                f"sd ratio {one['sd_ratio'][0]:.2f}-{one['sd_ratio'][1]:.2f}", (0.99, height),
                xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=7,
                color="C3" if off else "0.45",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(0.5, results["rows"] * 500)
        axes.axvline(results["rows"], color="0.3", linestyle=":", linewidth=1)
        axes.set_title(name, loc="left")
        axes.set_xlabel("rows read per step (dotted: N)")
        axes.set_yticks(range(len(labels)), labels, fontsize=8.5)
        axes.grid(axis="x", alpha=0.3, linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main():
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=PROBLEMS)
    parser.add_argument("--rows", type=float, default=1e5)
    parser.add_argument("--steps", type=int, default=10_000, help="of each method, all chains together")
    parser.add_argument("--reference", type=int, default=50_000, help="steps of Metropolis-Hastings")
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "tall_data.json")
    parser.add_argument("--plot", type=Path, help="draw the results that are in --out, and run nothing")
    parser.add_argument("--table", action="store_true", help="print the results that are in --out, and run nothing")
    asked = parser.parse_args()
    if asked.plot or asked.table:
        results = json.loads(asked.out.read_text())
        return plot(results, asked.plot) if asked.plot else side_by_side(results)
    N = int(asked.rows)
    print("| method | rows per step | of N | accepted | effective draws | shift / sd | sd ratio |")
    found = {name: run(name, N, asked.steps, asked.reference, asked.tune, asked.seed) for name in asked.problems}
    told = {"date": str(date.today()), "machine": machine(), "rows": N, "steps": asked.steps, "problems": found}
    asked.out.write_text(json.dumps(told, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
