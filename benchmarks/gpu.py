"""lwa on a GPU: steps per second, how near the limit of its memory, and what others make of the same device.

    python benchmarks/gpu.py --parts logistic            # some five minutes on an H200, most of it compiling
    python benchmarks/gpu.py --parts arma rivals arma_rivals
    python benchmarks/gpu.py --parts logistic --cells 100x16384 1000x4096
    python benchmarks/gpu.py --page                      # tables and figure of docs/performance.md, without a GPU

logistic: `lwa.rivals.problems.simulate_logistic`, N = 10⁶, d = 10, one plain `lwa.sample(model, data, subset_size=n,
chains=C, keep="summary")` for every n in {100, 1000, 10000} and C in {1, 128, 1024, 4096, 16384}. arma: ARMA(1,1),
N = 10⁶, windows of n steps. Chain-steps are moves of θ of all chains. Their rate is read off the second half of the
run's own clock: a second or so of sampling, with all randomness, exchanges of rows and summaries in it.

Floor: a program that reads the bytes of every chain's rows, n (d + 1) float32, from the device's memory at each move,
and does nothing else, at the measured speed of a copy. A program that keeps the subset in registers may be faster.

Effective draws: chains · Var(θ) / Var(chain means), the worst parameter; of one chain by autocorrelation. Accuracy:
mean shift in sds and sd ratios against importance sampling on all rows in float64
(`tall_logistic_rivals.weighed`).

programs: the same runs with the two programs of a page timed by themselves, each waited for: the one that draws its
randomness and gathers the rows that come in, and the one that plays it. No summaries, clocks and Python in between.

rivals: NumPyro's NUTS on all rows and HMCECS with 128 chains on the same device, set up as in `tall_logistic.py`: at
the mode, with the right scales, without warm-up. µs per effective draw is the median of pieces, chains together.
arma_rivals: NUTS on all steps of the series, 32 chains, its recursion run in parallel; HMCECS does not support
sequences.

Results are written after every cell. With `--deadline` seconds, the cells left by then are skipped.
"""

import argparse
import json
import math
import os
import sys
import time
import warnings
from datetime import date
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import lwa
from lwa.diagnostics.autocorrelation import autocorrelation_time
from lwa.diagnostics.running import effective_draws_from_means, pooled_mean, pooled_variance
from lwa.engine.device.cohort import PAGE_READS
from lwa.rivals.problems import logistic_log_likelihood, simulate_logistic, wide_log_prior
from lwa.subsets.tape import MOST_MOVES

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
ROWS, PARAMETERS = 1_000_000, 10
SIZES, CHAINS = (100, 1000, 10_000), (1, 128, 1024, 4096, 16_384)
FIRST = [(100, 16_384), (1000, 16_384), (1000, 4096), (100, 4096), (10_000, 4096), (100, 1024), (1000, 1024)]
"""Cells that are run first, should time run out."""
EXPECTED = {"logistic": {100: 4e8, 1000: 7e7, 10_000: 5e6}, "arma": {100: 3e8, 1000: 6e7, 10_000: 6e6}}
"""Chain-steps a second, about, by which the length of a run is chosen."""
LONGEST = {"logistic": {100: 200_000, 1000: 200_000, 10_000: 32_768}, "arma": {100: 65_536, 1000: 16_384, 10_000: 2048}}
"""Moves of a chain at the most: a few chains are not moved faster for being few."""
PARTS = ["logistic", "programs", "rivals", "arma", "arma_rivals"]


def copy_bandwidth():
    """Bytes a second of a copy within the device's memory, read and written ones."""
    x = jnp.ones(2**29, jnp.float32)
    copy = jax.jit(lambda x, c: x * c)
    c = jnp.float32(1.5)
    copy(x, c).block_until_ready()
    best = math.inf
    for _ in range(5):
        began = time.perf_counter()
        copy(x, c).block_until_ready()
        best = min(best, time.perf_counter() - began)
    return 2 * x.nbytes / best


@cache
def regression():
    _, data, *_ = simulate_logistic(ROWS, seed=1, parameters=PARAMETERS)
    return lwa.Model(logistic_log_likelihood, wide_log_prior, init={"beta": jnp.zeros(PARAMETERS)}), data


@cache
def series():
    from scipy.signal import lfilter

    rng = np.random.default_rng(1)
    data = lfilter([1.0, 0.7], [1.0, -0.5], rng.normal(size=ROWS) + 0.1 / 1.7).astype(np.float32)
    return lwa.arma(1, 1, sigma=1.0), data


SERIES_SDS = (10.0, 100.0, 10.0)
"""Of the prior: ar, drift and ma."""


@cache
def reference(part="logistic"):
    """Means and sds of the posterior."""
    from tall_logistic_rivals import find_mode, full_posterior

    if part == "arma":
        return reference_of_series()[0]
    x, y = regression()[1]["x"], regression()[1]["y"]
    return full_posterior(x, y, find_mode(x, y), 200)


@cache
def reference_of_series():
    """By filters of all steps in float64: Gauss and Newton's way to the mode, then importance sampling around it."""
    from scipy.signal import lfilter
    from tall_logistic_rivals import weighed

    y = series()[1].astype(np.float64)
    before, sds = before_each(y), np.array(SERIES_SDS)

    def shocks(theta):
        ar, drift, ma = theta
        return lfilter([1.0], [1.0, ma], y - drift - ar * before)

    theta = np.zeros(3)
    for _ in range(20):
        z = shocks(theta)
        late = np.concatenate([[0.0], z[:-1]])
        slopes = np.stack([lfilter([1.0], [1.0, theta[2]], x) for x in (before, np.ones_like(y), late)])
        precision = slopes @ slopes.T + np.diag(1 / sds**2)
        theta = theta + np.linalg.solve(precision, slopes @ z - theta / sds**2)
    gaussian, top = gaussian_at(theta, precision), shocks(theta) ** 2

    def log_posteriors(thetas):
        return np.array([-0.5 * (shocks(t) ** 2 - top).sum() - 0.5 * ((t / sds) ** 2).sum() for t in thetas])

    return weighed(log_posteriors, gaussian, 100), gaussian, shocks(theta)


def before_each(y):
    """The step before each; the first stood where it begins."""
    return np.concatenate([y[:1], y[:-1]])


def gaussian_at(theta, precision):
    from tall_logistic_rivals import Gaussian

    return Gaussian(theta, np.linalg.inv(np.linalg.cholesky(precision)).T)


def arma_in_numpyro(before, y, at_mode):
    """ARMA(1,1) for NUTS: the recursion in parallel, by composing its steps, which a GPU runs fastest."""
    import numpyro
    from numpyro import distributions

    theta = numpyro.sample("beta", distributions.Normal(0.0, jnp.array(SERIES_SDS)).to_event(1))
    w = y - theta[1] - theta[0] * before
    _, z = jax.lax.associative_scan(
        lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (jnp.full_like(w, 1.0) * -theta[2], w)
    )
    numpyro.factor("y", -0.5 * jnp.sum((z - at_mode) * (z + at_mode)))  # float32 would round the sum of squares


def rate_of(fit, chains):
    """Chain-steps a second, from the second half of the run's clock: programs are compiled in the first."""
    clock = fit.attributes["clock"]
    later = [one for one in clock if one[0] >= clock[-1][0] / 2]
    if len(later) < 2:
        return fit.attributes["moves_a_second"] * chains
    (first, began), (last, ended) = later[0], later[-1]
    return (last - first) * fit.attributes["thinning"] * chains / (ended - began)


def efficiency_of(fit, draws, chains):
    """Effective draws for each draw, of the worst parameter."""
    if chains > 1:
        return float(np.min(effective_draws_from_means(fit.running.moments)[0])) / (draws * chains)
    path = np.concatenate([np.asarray(values[0]).reshape(values.shape[1], -1) for values in fit.posterior.values()], 1)
    return 1.0 / max(autocorrelation_time(path[:, j][None]) for j in range(path.shape[1]))


def cell(part, n, chains, bandwidth, seconds):
    """One run."""
    model, data = regression() if part == "logistic" else series()
    width = PARAMETERS + 1 if part == "logistic" else 1
    steps = min(LONGEST[part][n], EXPECTED[part][n] / chains * seconds)
    reads = n if part == "logistic" else 1.03 * n  # with what leads in, about
    page = 2 ** int(math.log2(min(MOST_MOVES, PAGE_READS / (reads * chains))))
    tune = max(64, page // 4)
    draws = page * max(8, round(steps / page)) - tune % page  # whole pages: programs are compiled for each length
    began = time.perf_counter()
    fit = lwa.sample(
        model, data, subset_size=n, chains=chains, draws=draws, tune=tune, thinning=1, keep="summary", seed=1,
        progress=False,
    )  # fmt: skip
    took = time.perf_counter() - began
    rate, floor = rate_of(fit, chains), bandwidth / (4 * n * width)
    worth = efficiency_of(fit, draws, chains)
    found = {
        "n": n,
        "chains": chains,
        "draws": draws,
        "steps_per_s": rate,
        "effective_per_s": rate * worth,
        "efficiency": worth,
        "of_floor": rate / floor,
        "seconds": took,
        "stages": fit.attributes.get("stages"),
        "transport": fit.attributes["transport"],
        "precision": fit.attributes["precision"],
    }
    if chains > 1:
        exact, moments = reference(part), fit.running.moments
        ratio = np.sqrt(pooled_variance(moments)) / exact.sd
        found["shift"] = float(np.abs((pooled_mean(moments) - exact.mean) / exact.sd).max())
        found["sd_ratio"] = [float(ratio.min()), float(ratio.max())]
        found["draws_error"] = 1.0 / math.sqrt(worth * draws * chains)
    if (n, chains) == (1000, 4096):
        began = time.perf_counter()
        found["certificate"] = str(fit.certify(progress=False)).splitlines()[0]
        found["certificate_seconds"] = time.perf_counter() - began
    return found


def programs(n, chains):
    """Chain-steps a second of a page's programs alone, by the median over pages."""
    from lwa.engine.device.subsets import SubsetsOnDevice

    took = {"_page": [], "_play": []}

    def timed(name):
        function = getattr(SubsetsOnDevice, name)

        def run(self, *given):
            jax.block_until_ready(self.place)
            began = time.perf_counter()
            found = jax.block_until_ready(function(self, *given))
            if self.frozen:
                took[name].append(time.perf_counter() - began)
            return found

        return function, run

    originals = {}
    for name in took:
        originals[name], replacement = timed(name)
        setattr(SubsetsOnDevice, name, replacement)
    try:
        model, data = regression()
        fit = lwa.sample(
            model, data, subset_size=n, chains=chains, draws=16 * 1024 - 256, tune=256, thinning=1, keep="summary",
            seed=1, progress=False,
        )  # fmt: skip
    finally:
        for name, function in originals.items():
            setattr(SubsetsOnDevice, name, function)
    steps = fit.attributes["page_moves"] * chains
    page, play = (float(np.median(took[name][len(took[name]) // 2 :])) for name in ("_page", "_play"))
    return {"n": n, "chains": chains, "draw_steps_per_s": steps / page, "play_steps_per_s": steps / play}


def rivals():
    """NUTS and HMCECS."""
    import tall_logistic

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # all chains in one program
    x, y = regression()[1]["x"], regression()[1]["y"]
    few, more = ({"subsample": n, "blocks": 50} for n in (100, 1000))
    for name, setting, draws in [("hmcecs", few, 500), ("nuts", {}, 20), ("hmcecs", more, 500)]:
        make = tall_logistic.generator_of(name)
        measured = tall_logistic.by_pieces(
            lambda count, make=make, s=setting: make(x, y, 128, count, **s), 128, draws, 3
        )
        yield {"name": name, "setting": setting, "chains": 128, **tall_logistic.judge(measured, reference())}


def rivals_of_series(chains=32, draws=20):
    """NUTS on all steps; HMCECS takes single rows away, which a sequence does not have."""
    import tall_logistic
    from tall_logistic_rivals import nuts_kernel, run_kernel

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # all chains in one program
    posterior, gaussian, at_mode = reference_of_series()
    y = series()[1]
    kernel = nuts_kernel(partial(arma_in_numpyro, at_mode=jnp.asarray(at_mode, jnp.float32)), gaussian)
    measured = tall_logistic.by_pieces(
        lambda count: run_kernel(kernel, gaussian, before_each(y), y, chains, count), chains, draws, 3
    )
    yield {"name": "nuts", "setting": {}, "chains": chains, **tall_logistic.judge(measured, posterior)}


def in_order():
    """All cells, the most telling first."""
    cells = [(n, chains) for n in SIZES for chains in CHAINS]
    return sorted(cells, key=lambda one: FIRST.index(one) if one in FIRST else len(FIRST))


def in_words(value):
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table_of(part):
    """A line for each cell."""
    lines = [
        "| n | chains | M steps/s | M effective draws/s | of the floor | shift / sd | sd ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in sorted(part["table"], key=lambda one: (one["n"], one["chains"])):
        low, high = one.get("sd_ratio", (None, None))
        accuracy = f"{one['shift']:.4f} | {low:.4f}–{high:.4f}" if low else "– | –"
        speeds = [in_words(one[name] / 1e6) for name in ("steps_per_s", "effective_per_s")]
        share = in_words(one["of_floor"]) if one["of_floor"] >= 0.01 else "< 0.01"
        lines.append(f"| {one['n']:,} | {one['chains']:,} | {' | '.join(speeds)} | {share} | {accuracy} |")
    return "\n".join(lines)


def effective_of_rival(one):
    """Effective draws a second, by the variance of chains' means as lwa's are."""
    return one["efficiency_theta"][0] / one["draw_us"] * 1e6


def rivals_table(report):
    """Beside lwa's best cells."""
    lines = [
        "| posterior | method | chains | M effective draws/s | shift / sd | sd ratio |",
        "|---|---|---|---|---|---|",
    ]

    def line(model, name, one, effective):
        low, high = one["sd_ratio"]
        lines.append(
            f"| {model} | {name} | {one['chains']:,} | {in_words(effective / 1e6)} | {one['shift']:.4f} | "
            f"{low:.4f}–{high:.4f} |"
        )

    for model, part, others in (("logistic", "logistic", "rivals"), ("ARMA(1,1)", "arma", "arma_rivals")):
        for n in (100, 1000):
            best = max((one for one in report[part]["table"] if one["n"] == n), key=lambda one: one["effective_per_s"])
            line(model, f"lwa, n = {n:,}", best, best["effective_per_s"])
        for one in report[others]["table"]:
            size = f", {one['setting']['subsample']:,} rows" if one["setting"] else ", all rows"
            line(model, {"nuts": "NUTS", "hmcecs": "HMCECS"}[one["name"]] + size, one, effective_of_rival(one))
    return "\n".join(lines)


def draw(report, docs):
    """Speed by the number of chains, beside the floor of each n, and beside others."""
    import exhibits
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for panel, part, title in ((axes[0], "logistic", "logistic, d = 10"), (axes[1], "arma", "ARMA(1,1), windows")):
        for n, colour in zip(SIZES, (exhibits.OURS, exhibits.LIGHT, exhibits.OTHER), strict=True):
            cells = sorted((one for one in report[part]["table"] if one["n"] == n), key=lambda one: one["chains"])
            chains, speed, share = (np.array([one[k] for one in cells]) for k in ("chains", "steps_per_s", "of_floor"))
            panel.loglog(chains, speed, "o-", color=colour, label=f"n = {n:,}")
            panel.axhline(np.median(speed / share), color=colour, linestyle=":", linewidth=1)
            blank = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            panel.annotate(f"{speed[-1] / 1e6:,.0f} M", (chains[-1], speed[-1]), (7, -4), textcoords="offset points",
                           color=colour, fontsize=9, bbox=blank)  # fmt: skip
        panel.set_xlabel("chains")
        panel.set_title(title, fontsize=11)
        panel.set_xlim(0.7, 100_000)
    axes[0].set_ylabel("chain-steps a second")
    axes[0].plot([], [], ":", color=exhibits.GREY, linewidth=1, label="one reading of all subsets a move")
    axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    exhibits.tidy(*axes)
    exhibits.write(figure, "gpu", docs)


def show(report, docs):
    """Tables and the figure, on the page."""
    import exhibits

    draw(report, docs)
    about, tables = report["logistic"], [table_of(report[part]) for part in ("logistic", "arma")]
    text = (
        f"One {about['device']}, {about['date']}, JAX {about['jax']}, N = 10⁶.\n\n"
        f"![Chain-steps a second by chains and n](figures/gpu.png)\n\nLogistic regression, d = 10:\n\n{tables[0]}\n\n"
        "ARMA(1,1), windows of n steps:\n\n"
        f"{tables[1]}\n\nBeside others on the same GPU, effective draws of the worst parameter by the variance of "
        f"chains' means:\n\n{rivals_table(report)}"
    )
    exhibits.put("gpu", text, docs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--cells", nargs="+", help="some of them, as 100x4096")
    parser.add_argument("--seconds", type=float, default=1.5, help="of sampling in a cell, about (default 1.5)")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds after which no cell is begun")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu.json")
    parser.add_argument("--page", action="store_true", help="only put what is there on docs/performance.md")
    given = parser.parse_args()
    if given.page:
        show(json.loads(given.out.read_text()), None)
        return
    warnings.simplefilter("ignore")  # chains too short to trust: these are timings
    began, device = time.perf_counter(), jax.devices()[0]
    report = json.loads(given.out.read_text()) if given.out.exists() else {}
    bandwidth = copy_bandwidth()
    about = {"date": date.today().isoformat(), "device": device.device_kind, "jax": jax.__version__}
    about |= {"numpyro": version("numpyro"), "copy_bytes_per_s": bandwidth}
    print(json.dumps(about), flush=True)

    def keep(part, found):
        from tall_logistic import rounded

        report.setdefault(part, {"table": []})
        table = [
            old
            for old in report[part]["table"]
            if any(old.get(k) != found.get(k) for k in ("n", "chains", "name", "setting"))
        ]
        report[part] = {**about, "table": [*table, found]}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(rounded(report), indent=1) + "\n")

    for part in given.parts:
        if part in ("rivals", "arma_rivals"):
            with jax.default_matmul_precision("highest"):  # as lwa's own; by default a GPU rounds to ten bits
                for found in rivals() if part == "rivals" else rivals_of_series():
                    keep(part, found)
                    print(found["name"], found["setting"], f"{found['margin_us']:.3g} us an effective draw", flush=True)
            continue
        cells = [tuple(map(int, one.split("x"))) for one in given.cells] if given.cells else in_order()
        if part == "programs":
            for n, chains in cells:
                found = programs(n, chains)
                keep(part, found)
                print(f"{n} x {chains}: {found['play_steps_per_s'] / 1e6:.0f} M steps/s to play", flush=True)
            continue
        for n, chains in cells:
            if time.perf_counter() - began > given.deadline:
                print(f"{part} {n} x {chains}: no time left")
                continue
            try:
                found = cell(part, n, chains, bandwidth, given.seconds)
            except Exception as error:
                found = {"n": n, "chains": chains, "error": f"{type(error).__name__}: {str(error)[:300]}"}
                print(f"{part} {n} x {chains}: {found['error']}", flush=True)
            else:
                accuracy = (
                    f", shift {found['shift']:.4f}, sds {found['sd_ratio'][0]:.4f}-{found['sd_ratio'][1]:.4f}"
                    if "shift" in found
                    else ""
                )
                print(
                    f"{part} n = {n}, {chains} chains: {found['steps_per_s'] / 1e6:.1f} M steps/s "
                    f"({found['of_floor']:.2f} of the floor), {found['effective_per_s'] / 1e6:.2f} M effective/s, "
                    f"{found['seconds']:.0f} s in all{accuracy}",
                    flush=True,
                )
            keep(part, found)


if __name__ == "__main__":
    main()
