"""What a step of the paper's own target costs: lwa beside the bare floor, and against the number of rows.

    python benchmarks/step_cost.py                   # all parts; about six minutes, 5 GB of disk for a while
    python benchmarks/step_cost.py --largest 1e7     # the last part up to 10⁷ rows only
    python benchmarks/step_cost.py --parts windows   # one of beside_the_floor, windows, against_rows

All parts have `target="subposterior"`; `growth.py` measures the default target. beside_the_floor: logistic regression,
d = 10, 8 chains, N = 10⁶ in memory, n = 100 and 1000. Microseconds per step and chain of `lwa.sample` at the margin (a
long run minus a short one, so that set-up and compilation are out), beside `floor.py`, which does nothing but evaluate
n rows per step on one fixed subset. windows: the paper's ARMA(1,1), windows of n = 100 steps of 10⁶, 100 chains, with
its summary S₀ and without one, beside the floor of the same recursion. against_rows: the regression at N = 10⁵ … 10⁸,
memory-mapped, with the anonymous memory of the whole process. Timings are interleaved, and medians are reported.
"""

import argparse
import importlib.util
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import lfilter

import lwa
from lwa.rivals.problems import simulate_logistic
from lwa.subsets import Window
from lwa.summaries import Autocorrelations, Combine, Quantiles

HERE = Path(__file__).parent
PARAMETERS, CHAINS, SERIES = 10, 8, 100
PARTS = ["beside_the_floor", "windows", "against_rows"]
SHARED = HERE.parents[1] / "shared" / "floor.py"


def floor_module():
    """The floor as given beside the repository, or the copy of it that ships here."""
    path = SHARED if SHARED.exists() else HERE / "floor.py"
    spec = importlib.util.spec_from_file_location("floor", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds(model, data, n, moves):
    """Tune and sampling of one run with so many moves."""
    fit = lwa.sample(
        model, data, subset_size=n, target="subposterior", draws=moves // 100, tune=1024, thinning=100, chains=CHAINS,
        epsilon=0.5 / n**0.5, seed=1, precision="float32", progress=False,
    )  # fmt: skip
    return fit.attributes["sampling_seconds"]


def margin(model, data, n, moves):
    """Microseconds per step and chain, from a long run minus a short one."""
    short, long = moves // 5, moves
    return (seconds(model, data, n, long) - seconds(model, data, n, short)) / (long - short) / CHAINS * 1e6


def beside_the_floor(repeats):
    """Part 1."""
    floor, (model, data, *_), table = floor_module(), simulate_logistic(1_000_000, seed=1, parameters=PARAMETERS), []
    for n, moves in ((100, 60_000), (1000, 20_000)):
        margin(model, data, n, 2_000)  # compile
        pairs = [
            (floor.logistic(n, chains=CHAINS, d=PARAMETERS), margin(model, data, n, moves)) for _ in range(repeats)
        ]
        ground, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
        table.append({"n": n, "floor_us": round(ground, 3), "lwa_us": round(ours, 3), "ratio": round(ours / ground, 2)})
        print(f"n = {n:5d}: floor {ground:6.2f} us, lwa {ours:6.2f} us per step and chain, ratio {ours / ground:.2f}")
    return table


def series_seconds(model, data, summary, moves):
    """Tune and sampling of one run over windows with so many moves."""
    fit = lwa.sample(
        model, data, subset_size=100, target="subposterior", summary=summary, epsilon=1.0, draws=moves // 100,
        tune=1024, thinning=100, chains=SERIES, seed=1, precision="float32", subset_move=Window(lead_in=0),
        progress=False,
    )  # fmt: skip
    return fit.attributes["sampling_seconds"]


def windows_beside_the_floor(repeats, moves=12_000):
    """Part 1 for a sequence."""
    floor, rng = floor_module(), np.random.default_rng(1)
    data = lfilter([1.0, 0.7], [1.0, -0.5], rng.normal(size=1_000_000) + 0.1 / 1.7).astype(np.float32)
    model, found = lwa.arma(1, 1, sigma=1.0), {"floor": []}
    summaries = {"S0": Combine(Quantiles(0.2, 0.5, 0.8), Autocorrelations(5)), "no summary": "auto"}
    for name, summary in summaries.items():
        series_seconds(model, data, summary, 1_000)  # compile
        found[name] = []
    for _ in range(repeats):
        found["floor"].append(floor.arma(100, chains=SERIES))
        for name, summary in summaries.items():
            short, long = (series_seconds(model, data, summary, count) for count in (moves // 6, moves))
            found[name].append((long - short) / (moves - moves // 6) / SERIES * 1e6)
    us = {name: round(statistics.median(times), 3) for name, times in found.items()}
    ratio = us["S0"] / us["floor"]
    print(
        f"ARMA(1,1), n = 100, {SERIES} chains: floor {us['floor']:.2f} us, lwa {us['no summary']:.2f} us and "
        f"{us['S0'] - us['no summary']:.2f} us for S0 per step and chain, ratio {ratio:.1f}"
    )
    return {"n": 100, "chains": SERIES, **{f"{name}_us": value for name, value in us.items()}, "ratio": round(ratio, 2)}


def matrix_model():
    """The same regression on a matrix whose last column is the response."""

    def log_likelihood(beta, rows):
        sign = 2.0 * rows[:, PARAMETERS] - 1.0
        return -jax.nn.softplus(-sign * (rows[:, :PARAMETERS] @ beta))

    return lwa.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2) / 25.0, init=jnp.zeros(PARAMETERS))


def simulate(path, rows):
    """A `.npy` file of rows, written block by block."""
    out = np.lib.format.open_memmap(path, "w+", np.float32, (rows, PARAMETERS + 1))
    rng, beta = np.random.default_rng(2), np.linspace(-0.5, 0.5, PARAMETERS, dtype=np.float32)
    for start in range(0, rows, 1_000_000):
        x = rng.standard_normal((min(1_000_000, rows - start), PARAMETERS), dtype=np.float32)
        y = rng.random(len(x), dtype=np.float32) < 1 / (1 + np.exp(-x @ beta))
        out[start : start + len(x)] = np.column_stack([x, y])
    out.flush()


def anonymous_mib():
    """Memory that is not backed by a file: what the process itself holds."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


class Peak(threading.Thread):
    """The largest anonymous memory seen, looked at a hundred times a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.mib = 0.0

    def run(self):
        while True:
            self.mib = max(self.mib, anonymous_mib())
            time.sleep(0.01)


def one_size(path, repeats):
    """Part 2 for one file, in a process of its own; prints JSON."""
    peak = Peak()
    peak.start()
    model, found = matrix_model(), {}
    for n, moves in ((100, 40_000), (1000, 15_000)):
        margin(model, path, n, 2_000)
        found[str(n)] = round(statistics.median(margin(model, path, n, moves) for _ in range(repeats)), 3)
    print(json.dumps({"us": found, "anonymous_mib": round(peak.mib)}))


def against_rows(largest, folder, repeats):
    """Part 2."""
    table = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        rows = 100_000
        while rows <= largest:
            path = Path(scratch) / f"{rows}.npy"
            simulate(path, rows)
            command = [sys.executable, __file__, "--one", str(path), "--repeats", str(repeats)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            table.append({"rows": rows, **json.loads(answer.splitlines()[-1])})
            us, mib = table[-1]["us"], table[-1]["anonymous_mib"]
            print(f"N = {rows:.0e}: {us['100']:.2f} us (n = 100), {us['1000']:.2f} us (n = 1000), {mib} MiB anonymous")
            rows *= 10
            path.unlink()
    for n in ("100", "1000"):
        costs = [row["us"][n] for row in table]
        print(f"n = {n}: slowest / fastest over N = {max(costs) / min(costs):.2f}")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=1e8, help="rows of the largest file of part 2 (default 1e8)")
    parser.add_argument("--folder", help="where to put the files of part 2 (default: the system's temporary folder)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "step_cost.json")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="the others keep their results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one_size(given.one, given.repeats)
        return
    parts = {
        "beside_the_floor": lambda: beside_the_floor(given.repeats),
        "windows": lambda: windows_beside_the_floor(given.repeats),
        "against_rows": lambda: against_rows(int(given.largest), given.folder, given.repeats),
    }
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in given.parts:
        found[name] = {
            "date": date.today().isoformat(),
            "machine": f"{platform.machine()}, {jax.local_devices()[0].platform}, JAX {jax.__version__}",
            "table": parts[name](),
        }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"Written to {given.out}")


if __name__ == "__main__":
    main()
