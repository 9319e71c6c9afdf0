"""Rows that no memory holds: a logistic regression on 10⁵ to 10⁸ rows of a store, and its cost against N.

    python benchmarks/out_of_core.py                    # N = 10⁵ … 10⁸: a quarter of an hour, 5 GB of disk for a while
    python benchmarks/out_of_core.py --largest 1e7      # smaller
    python benchmarks/out_of_core.py --folder /scratch --keep
    python benchmarks/out_of_core.py --draw             # page and figure again, from the results

The regression of `tall_logistic.py`, ten parameters, 11 float32 per row, is simulated batch by batch straight into a
row store (`lwa.rows.write_store`), then fitted by `lwa.sample` at n = 100 and 1000 and certified, each N in a process
of its own, rounds interleaved. Reported are medians over rounds:

- the seconds of a pass over all rows, by what it does: look through them (`survey`), gradient and curvature (`mode`),
  the log posterior at one θ per chain (`exact`, the cost of a draw with exact=True), the certificate (`certificate`);
- the seconds of preparation, from the call to the first move;
- microseconds per move and chain at the margin: from the clock of the run, its first fifth left out;
- the peak of anonymous memory, sampled every 10 ms: all that the process holds but pages of mapped files;
- effective draws, and the certificate's outcome;
- microseconds per row of a gather of 2048 rows of the largest store, if the system holds the file and if it does not,
  with and without asking ahead;
- how far draws of float32 and float64 differ there, at the larger n;
- what `lwa plan` predicts of all that, from a few seconds' measurements on 100,000 of the rows.

The certificate is timed in the first round alone. The cost model of `lwa plan` is then applied to 10¹⁰ rows on 100 such
machines. Writes results/out_of_core.json, the parts of docs/scaling.md between their marks, and
docs/figures/scaling.{png,svg}.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "scaling.md"
FIGURE = HERE.parent / "docs" / "figures" / "scaling"
PARAMETERS, CHAINS = 10, 8
BATCH = 1_000_000
SIZES = {100: 400_000, 1000: 60_000}
"""Moves a chain for each n: some seconds."""
THINNING = 20
GATHERED = 2048
NAMES = {"survey": "survey", "mode": "Newton pass", "exact": f"{CHAINS} θ", "certificate": "certificate"}
"""Of passes."""


def batches(rows, seed=1):
    """Yield `lwa.rivals.problems.simulate_logistic` in batches: intercept, nine standard normal covariates, 0 or 1."""
    rng = np.random.default_rng(seed)
    truth = np.round(rng.normal(scale=0.5, size=PARAMETERS), 2).astype(np.float32)
    for start in range(0, rows, BATCH):
        x = rng.standard_normal((PARAMETERS, min(BATCH, rows - start)), dtype=np.float32)
        x[0] = 1.0
        chance = 1.0 / (1.0 + np.exp(-(truth @ x)))
        y = (rng.random(x.shape[1], dtype=np.float32) < chance).astype(np.float32)
        yield {f"x{i}": column for i, column in enumerate(x)} | {"y": y}


def model():
    """The same regression on named columns."""
    import jax
    import jax.numpy as jnp

    import lwa

    def log_likelihood(beta, rows):
        predictor = sum(beta[i] * rows[f"x{i}"] for i in range(PARAMETERS))
        return -jax.nn.softplus((1.0 - 2.0 * rows["y"]) * predictor)

    return lwa.Model(log_likelihood, lambda beta: -0.5 * jnp.sum((beta / 5.0) ** 2), init=jnp.zeros(PARAMETERS))


def memory(kind):
    """MiB of this process: RssAnon, all but mapped files, or RssFile."""
    return int(Path("/proc/self/status").read_text().split(f"{kind}:")[1].split()[0]) / 1024


class Peak(threading.Thread):
    """The most memory seen."""

    def __init__(self):
        super().__init__(daemon=True)
        self.anonymous = self.mapped = 0.0

    def run(self):
        while True:
            self.anonymous = max(self.anonymous, memory("RssAnon"))
            self.mapped = max(self.mapped, memory("RssFile"))
            time.sleep(0.01)


def timed(work):
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def margin(clock, draws):
    """Microseconds per move and chain, from what the run's clock says of the last four fifths of its draws."""
    later = [(done, at) for done, at in clock if done >= draws / 5]
    (first, begun), (last, ended) = later[0], later[-1]
    return (ended - begun) / ((last - first) * THINNING) / CHAINS * 1e6


def one(folder, moves, certify):
    """Everything about one store, in a process of its own; prints JSON."""
    import jax

    import lwa
    from lwa.diagnostics.autocorrelation import effective_draws
    from lwa.rows import open_store, survey
    from lwa.targets.reference import compute_log_posterior, sum_all_rows

    peak = Peak()
    peak.start()
    rows, logistic = open_store(folder), model()
    found, fits = {"rows": len(rows), "us": {}, "effective_a_draw": {}}, []
    for n, count in SIZES.items():
        draws = max(100, int(count * moves) // THINNING)
        took, fit = timed(
            lambda n=n, draws=draws: lwa.sample(
                logistic, rows, subset_size=n, draws=draws, chains=CHAINS, thinning=THINNING, seed=1, progress=False
            )
        )
        fits.append(fit)
        found["us"][n] = margin(fit.attributes["clock"], draws)
        worth = effective_draws(np.asarray(fit.posterior["theta"], np.float64)).min()
        found["effective_a_draw"][n] = float(worth) / (CHAINS * draws)
        found["preparation"] = took - fit.attributes["sampling_seconds"]  # of the last: passes are compiled by then
    found["fit_mib"] = peak.anonymous
    theta = np.asarray(fits[0].posterior["theta"])[:, -1].astype(np.float64)
    with jax.enable_x64(True):
        compute_log_posterior(logistic, rows_of(rows, 1000), theta)  # compiled, as the others are
        found["passes"] = {
            "survey": timed(lambda: survey(rows))[0],
            "mode": timed(lambda: sum_all_rows(logistic, rows, theta[0]))[0],
            "exact": timed(lambda: compute_log_posterior(logistic, rows, theta))[0],
        }
    if certify:
        lwa.certify(logistic, rows_of(rows, 100_000), fits[0], progress=False)  # compiled
        found["passes"]["certificate"], certificate = timed(lambda: fits[0].certify(progress=False))
        found["certificate"] = certificate.outcome
    found["anonymous_mib"], found["mapped_mib"] = peak.anonymous, peak.mapped
    print(json.dumps(found))


def rows_of(rows, count):
    """The first rows, in memory."""
    from lwa.rows.memory import ArrayRows

    return ArrayRows(rows.take(np.arange(count)))


def planned(folder):
    """What `lwa plan` says of the same runs, in a process of its own; prints JSON."""
    from lwa.cli.fitting import silence_warnings
    from lwa.cli.forecast.forecast import forecast_from_sample
    from lwa.cli.forecast.row_sample import sample_rows
    from lwa.cli.forecast.work import estimate_pass, estimate_total, find_worthwhile_workers, scale_rows
    from lwa.cli.source import Source
    from lwa.rows import open_store

    rows, logistic, found = open_store(folder), model(), {"us": {}}
    with tempfile.TemporaryDirectory() as scratch, silence_warnings():
        some = sample_rows(rows, Path(scratch))
        for n in SIZES:
            options = {"subset_size": n, "chains": CHAINS, "tune": 1000, "draws": 1000, "budget": None, "exact": False}
            options |= {"target": "calibrated", "epsilon": "auto", "seed": 1, "keep": "auto"}
            said = forecast_from_sample(logistic, some, Source("", str(folder)), options, certify=True)
            found["us"][n] = 1e6 * said.move
    found["passes"] = {phase: estimate_pass(said.work, said.costs, phase, cold=False) for phase in NAMES}
    found["mode_passes"] = said.work.passes["mode"]
    passes = found["passes"]["survey"] + found["mode_passes"] * found["passes"]["mode"]
    found["preparation"] = said.costs.start + passes
    found["anonymous_mib"] = said.memory / 2**20
    found["start"], found["disk"] = said.costs.start, said.costs.disk
    far = scale_rows(said.work, 10**10)
    found["far"] = {
        "rows": 10**10,
        "bytes": far.pass_bytes,
        "one": {phase: estimate_pass(far, said.costs, phase, cold=True) for phase in found["passes"]},
        "hundred": {phase: estimate_pass(far, said.costs, phase, cold=True, workers=100) for phase in found["passes"]},
        "one_in_all": estimate_total(far, said.costs),
        "hundred_in_all": estimate_total(far, said.costs, 100),
        "workers": find_worthwhile_workers(far, said.costs),
    }
    print(json.dumps(found))


def gather_us(rows, rng):
    """Microseconds a row of one gather."""
    indices = rng.integers(len(rows), size=GATHERED)
    return 1e6 * timed(lambda: rows.take(indices))[0] / GATHERED


def gathers(folder):
    """Microseconds a row of a gather, from a file that the system does not hold and from one that it does; prints JSON.

    Cold: the first gather after the file was let go, since the system reads megabytes around each row that it was not
    asked for, and so fills its memory with the file. Warm: the median of those that follow a pass.
    """
    from lwa.rows import memory, open_store

    found = {}
    for asked in (False, True):
        rows, rng = open_store(folder), np.random.default_rng(1)
        memory.WATCHED = 0
        for column in rows.groups.values():
            column.release(0, len(rows))
            for file in column.files:
                file.asking = 10**9 if asked else 0
        for shard in rows.shards:
            with shard.path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        cold = gather_us(rows, rng)
        for block in rows.blocks(2**20):
            block["y"].sum()
        warm = statistics.median(gather_us(rows, rng) for _ in range(50))
        found["asked" if asked else "plain"] = {"cold_us": cold, "warm_us": warm}
    print(json.dumps(found))


def precisions(folder):
    """Draws of both precisions at the largest n, from one reference point; prints JSON."""
    import lwa
    from lwa.diagnostics.autocorrelation import effective_draws
    from lwa.rows import open_store

    rows, logistic, n, draws, reference = open_store(folder), model(), max(SIZES), 3000, None
    found, moments = {"n": n}, {}
    for precision in ("float32", "float64"):
        fit = lwa.sample(
            logistic, rows, subset_size=n, draws=draws, chains=CHAINS, thinning=THINNING, seed=1, progress=False,
            precision=precision, target=lwa.targets.Calibrated(reference=reference),
        )  # fmt: skip
        reference = fit.origin.polish.problem.reference.theta
        theta = np.asarray(fit.posterior["theta"], np.float64)
        moments[precision] = theta.reshape(-1, PARAMETERS)
        found[f"{precision}_us"] = margin(fit.attributes["clock"], draws)
        found["effective"] = min(found.get("effective", np.inf), float(effective_draws(theta).min()))
    single, double = moments.values()
    found["shift"] = float(np.abs((single.mean(0) - double.mean(0)) / double.std(0)).max())
    found["sd_ratio"] = [float(end(single.std(0) / double.std(0))) for end in (np.min, np.max)]
    print(json.dumps(found))


def middle(rounds):
    """Medians over the rounds in which a number was measured, wherever it stands; of memory the most."""
    first = rounds[0]
    if isinstance(first, dict):
        return {
            name: max(one[name] for one in rounds if name in one)
            if name.endswith("_mib")
            else middle([one[name] for one in rounds if name in one])
            for name in first
        }
    return statistics.median(rounds) if isinstance(first, float) else first


def rounded(value):
    """Four digits of every number, for JSON."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def child(*arguments):
    """Another process of this file; what it printed last, as JSON."""
    command = [sys.executable, __file__, *map(str, arguments)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(answer.splitlines()[-1], flush=True)
    return json.loads(answer.splitlines()[-1])


def measure(given, scratch):
    """All sizes, round by round; the forecast of each before its first run."""
    from lwa.rows import write_store

    sizes = [10**k for k in range(5, 12) if 10**k <= given.largest]
    table = {}
    for rows in sizes:
        folder = scratch / f"{rows}"
        if not (folder / "manifest.json").exists():
            took, _ = timed(lambda rows=rows, folder=folder: write_store(batches(rows), folder))
            print(f"N = {rows:.0e}: simulated and written in {took:.1f} s", flush=True)
        table[rows] = {"rounds": []}
    for number in range(given.rounds):
        for rows in sizes:
            if number == 0:
                table[rows]["plan"] = child("--plan", scratch / f"{rows}")
            certify = ["--certify"] if number == 0 else []
            table[rows]["rounds"].append(child("--one", scratch / f"{rows}", "--moves", given.moves, *certify))
    return [{**middle(found["rounds"]), "plan": found["plan"]} for found in table.values()]


def power(rows):
    """10⁵ and the like."""
    return "10" + str(len(str(int(rows))) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def number(value):
    """Two or three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def beside(said, measured):
    """Model and measurement."""
    return f"{number(said)} / {number(measured)}"


def markdown(report):
    """Model / measurement, a line a size."""
    lines = [
        f"| N | µs per move, n = 100 | n = 1000 | {' | '.join(f'{name}, s' for name in NAMES.values())} | "
        "preparation, s | anonymous, MiB | effective draws per draw |",
        f"|{'---|' * 10}",
    ]
    for row in report["table"]:
        plan, passes = row["plan"], row["passes"]
        cells = [
            power(row["rows"]),
            *(beside(plan["us"][n], row["us"][n]) for n in row["us"]),
            *(beside(plan["passes"][phase], passes[phase]) for phase in NAMES),
            beside(plan["preparation"], row["preparation"]),
            f"≤ {number(plan['anonymous_mib'])} / {number(row['anonymous_mib'])}",
            number(row["effective_a_draw"]["100"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def requirements(report):
    """What is to hold of the largest N, beside the smallest."""
    first, last = report["table"][0], report["table"][-1]
    ratio = {n: last["us"][n] / first["us"][n] for n in first["us"]}
    slow = ", ".join(f"{value:.2f} at n = {n}" for n, value in ratio.items())
    holds = max(ratio.values()) <= 1.3 and last["anonymous_mib"] <= 1536
    return (
        f"Time per move at N = {power(last['rows'])} over that at {power(first['rows'])}: {slow} (at most 1.3). "
        f"Anonymous memory at {power(last['rows'])}: {number(last['anonymous_mib'])} MiB (at most 1536). "
        f"{'Both hold.' if holds else 'These do NOT both hold.'}"
    )


def reading(report):
    """What rows cost that are read at random."""
    plain, asked = report["gathers"]["plain"], report["gathers"]["asked"]
    return (
        f"Gathering {GATHERED:,} rows from the largest table takes {number(plain['warm_us'])} µs per row if the system "
        f"holds the file, and {number(asked['warm_us'])} µs with asking ahead; if the system does not hold the file, "
        f"{number(plain['cold_us'])} µs, and {number(asked['cold_us'])} µs with asking ahead."
    )


def rounding(report):
    """What float32 does to draws of the largest table."""
    found = report["precisions"]
    low, high = found["sd_ratio"]
    error = (2 / found["effective"]) ** 0.5
    return (
        f"float32 against float64 there, n = {found['n']}: means differ by at most {found['shift']:.3f} sd and sds by "
        f"{low - 1:+.3f} to {high - 1:+.3f}, with a Monte Carlo error of {error:.3f} for each mean and "
        f"{error / 2**0.5:.3f} for each sd; a move takes {number(found['float32_us'])} and "
        f"{number(found['float64_us'])} µs."
    )


def prediction(report):
    """10¹⁰ rows, as the cost model has it with the constants of the largest table."""
    from lwa.cli.quantities import format_seconds

    far = report["table"][-1]["plan"]["far"]
    lines = ["| pass over 10¹⁰ rows | one machine | 100 machines |", "|---|---|---|"]
    lines += [
        f"| {name} | {format_seconds(far['one'][phase])} | {format_seconds(far['hundred'][phase])} |"
        for phase, name in NAMES.items()
    ]
    lines.append(f"| the whole run | {format_seconds(far['one_in_all'])} | {format_seconds(far['hundred_in_all'])} |")
    disk = report["table"][-1]["plan"]["disk"]
    return (
        "\n".join(lines) + f"\n\nOne pass reads {far['bytes'] / 1e9:,.0f} GB; the disk of each machine is taken to "
        f"read {disk / 1e9:.2g} GB/s, as this one does. More than {far['workers']} machines would gain less than a "
        "tenth."
    )


def write_page(report):
    """The parts of docs/scaling.md that stand between marks."""
    machine = f"Made on {report['date']} by `python benchmarks/out_of_core.py` on {report['machine']}."
    parts = {
        "measured": "\n\n".join([markdown(report), requirements(report), reading(report), rounding(report), machine]),
        "predicted": prediction(report),
    }
    between_marks(parts)


def between_marks(parts):
    """Put text between its marks on the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, content in parts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, encoding="utf-8")


def draw(report):
    """Time per move and time per pass against N: measured, and as `lwa plan` said."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = report["table"]
    rows = [row["rows"] for row in table]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for color, n in zip(("C0", "C1"), table[0]["us"], strict=True):
        left.plot(rows, [row["us"][n] for row in table], "o", color=color, label=f"n = {n}")
        left.plot(rows, [row["plan"]["us"][n] for row in table], "-", color=color, alpha=0.6)
    left.set(ylabel="µs per move and chain", title="Time per move", xscale="log", yscale="log")
    left.set_ylim(1, 100)
    top = max(row["passes"]["certificate"] for row in table)
    for i, (phase, name) in enumerate(NAMES.items()):
        right.plot(rows, [row["passes"][phase] for row in table], "o", color=f"C{i}", label=name)
        right.plot(rows, [row["plan"]["passes"][phase] for row in table], "-", color=f"C{i}", alpha=0.6)
    right.set(ylabel="seconds per pass", title="Time per pass", xscale="log", yscale="log")
    right.set_ylim(top=30 * top)
    for axes, place in ((left, "lower left"), (right, "upper left")):
        axes.set_xlabel("rows N")
        axes.grid(alpha=0.3)
        axes.legend(title="points measured, lines as planned", frameon=False, loc=place, fontsize="small")
    for end in ("png", "svg"):
        figure.savefig(f"{FIGURE}.{end}", dpi=150, metadata={"Date": None} if end == "svg" else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=1e8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--moves", type=float, default=1.0, help="share of the usual length of runs (default 1)")
    parser.add_argument("--folder", type=Path, help="where to put the stores (default: the system's temporary folder)")
    parser.add_argument("--keep", action="store_true", help="leave the stores in --folder, for another time")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "out_of_core.json")
    parser.add_argument("--draw", action="store_true", help="only write page and figure from the results again")
    parser.add_argument("--no-page", action="store_true", help="leave page and figure as they are")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--certify", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--gathers", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--precisions", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.one, given.moves, given.certify)
        return
    if given.plan:
        planned(given.plan)
        return
    if given.gathers:
        gathers(given.gathers)
        return
    if given.precisions:
        precisions(given.precisions)
        return
    if not given.draw:
        place = given.folder or Path(tempfile.gettempdir())
        scratch = (
            place / "lwa-out-of-core" if given.keep else Path(tempfile.mkdtemp(prefix="lwa-out-of-core-", dir=place))
        )
        try:
            report = {
                "date": date.today().isoformat(),
                "machine": f"{len(os.sched_getaffinity(0))} {platform.machine()} cores (JAX {version('jax')})",
                "chains": CHAINS,
                "rounds": given.rounds,
                "table": measure(given, scratch),
            }
            largest = scratch / str(report["table"][-1]["rows"])
            report["gathers"], report["precisions"] = child("--gathers", largest), child("--precisions", largest)
        finally:
            if not given.keep:
                shutil.rmtree(scratch, ignore_errors=True)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(rounded(report), indent=1) + "\n")
        print(f"Written to {given.out}")
    report = json.loads(given.out.read_text())
    print(
        f"\n{markdown(report)}\n\n{requirements(report)}\n\n{reading(report)}\n\n{rounding(report)}\n\n{prediction(report)}"
    )
    if not given.no_page:
        write_page(report)
        draw(report)


if __name__ == "__main__":
    main()
