"""Rows that no memory holds: a logistic regression on 10⁵ to 10⁸ rows of a store, and what it costs against N.

    python benchmarks/out_of_core.py                    # N = 10⁵ … 10⁸, 5 GB of disk for a while
    python benchmarks/out_of_core.py --largest 1e7      # smaller
    python benchmarks/out_of_core.py --folder /scratch --keep

The regression of `tall_logistic.py`, ten parameters, 11 float32 a row, is simulated batch by batch straight into a row
store (`lwa.rows.write_store`), then fitted by `lwa.sample` at n = 100 and 1000 and certified, each N in a process of
its own, rounds interleaved. Reported are medians over rounds:

- the seconds of a pass over all rows, by what it does: look through them (`survey`), gradient and curvature (`newton`),
  the log posterior of 4 θ (`values`, what a draw of exact=True costs) and the certificate's gradients (`certificate`);
- the seconds of preparation, programs compiled before, and how many passes found the mode;
- microseconds per move and chain at the margin: from the clock of the run, its first fifth left out;
- the peak of anonymous memory, sampled every 10 ms: all that the process holds but pages of mapped files;
- effective draws, and the certificate's outcome;
- what `lwa plan` forecasts of all that beforehand, from a few seconds' measurements.

Writes results/out_of_core.json, the table of docs/scaling.md between its marks, and docs/figures/scaling.{png,svg}.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PARAMETERS, CHAINS = 10, 8
BATCH = 1_000_000
SIZES = {100: 400_000, 1000: 60_000}
"""Moves a chain for each n: some seconds."""
THINNING = 20


def batches(rows, seed=1):
    """`lwa.demo.logistic` in batches: an intercept, nine standard normal covariates, y in {0, 1}."""
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


def one(folder, moves):
    """Everything about one store, in a process of its own; prints JSON."""
    import jax

    import lwa
    from lwa.diagnostics.monte_carlo_error import effective_draws
    from lwa.reference import block_size, log_posterior, sums_over
    from lwa.rows import open_store, survey

    peak = Peak()
    peak.start()
    rows, logistic = open_store(folder), model()
    found = {"rows": len(rows), "us": {}, "effective": {}, "seconds": {}}
    for n, count in SIZES.items():
        draws = max(100, int(count * moves) // THINNING)
        took, fit = timed(
            lambda n=n, draws=draws: lwa.sample(
                logistic, rows, subset_size=n, draws=draws, chains=CHAINS, thinning=THINNING, seed=1, progress=False
            )
        )
        told = fit.attributes
        found["us"][n] = margin(told["clock"], draws)
        found["effective"][n] = float(effective_draws(np.asarray(fit.posterior["theta"])).min()) / (CHAINS * draws)
        found["preparation"] = took - told["sampling_seconds"]  # of the last: nothing is left to compile
        found["seconds"][n] = took
        if n == min(SIZES):
            fits = {n: fit}
    fit = fits[min(SIZES)]
    found["fit_mib"] = peak.anonymous
    found["certify"], certificate = timed(lambda: fit.certify(progress=False))
    found["certificate"] = certificate.outcome
    found["anonymous_mib"], found["mapped_mib"] = peak.anonymous, peak.mapped
    theta = np.asarray(fit.posterior["theta"])[:4, -1].astype(np.float64)
    with jax.enable_x64(True):
        sums_over(logistic, [rows.take(np.arange(1000))], theta[0])  # compiled
        found["passes"] = {
            "survey": timed(lambda: survey(rows))[0],
            "newton": timed(lambda: sums_over(logistic, rows.blocks(block_size(rows)), theta[0]))[0],
            "values": timed(lambda: log_posterior(logistic, rows, theta))[0],
        }
    print(json.dumps(found))


def middle(rounds):
    """Medians over rounds, of every number wherever it stands."""
    first = rounds[0]
    if isinstance(first, dict):
        return {name: middle([one[name] for one in rounds]) for name in first}
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
    answer = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(answer.stdout.splitlines()[-1])


def measure(given, scratch):
    """All sizes, round by round."""
    from lwa.rows import write_store

    sizes = [10**k for k in range(5, 12) if 10**k <= given.largest]
    for rows in sizes:
        folder = scratch / f"{rows}"
        if not (folder / "manifest.json").exists():
            took, _ = timed(lambda rows=rows, folder=folder: write_store(batches(rows), folder))
            print(f"N = {rows:.0e}: simulated and written in {took:.1f} s", flush=True)
    rounds = {rows: [] for rows in sizes}
    for _ in range(given.rounds):
        for rows in sizes:
            rounds[rows].append(child("--one", scratch / f"{rows}", "--moves", given.moves))
            print(json.dumps(rounded(rounds[rows][-1])), flush=True)
    return [middle(rounds[rows]) for rows in sizes]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=1e8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--moves", type=float, default=1.0, help="share of the usual length of runs (default 1)")
    parser.add_argument("--folder", type=Path, help="where to put the stores (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="leave the stores there")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "out_of_core.json")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.one, given.moves)
        return
    scratch = Path(tempfile.mkdtemp(prefix="lwa-out-of-core-", dir=given.folder)) if not given.keep else given.folder
    print(scratch)


if __name__ == "__main__":
    main()
