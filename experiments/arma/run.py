"""ARMA(1,1), the paper's first illustration: sub-posteriors of windows of a series of ten million steps.

python -m experiments.arma.run --scale small
python -m experiments.arma.run --scale paper
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, NamedTuple

import numpy as np

import lwa
from experiments.arma import figures
from experiments.arma.model import (
    FIXED,
    FREE,
    KERNEL,
    MODEL,
    NAMES,
    S1,
    S2,
    TRUTH,
    flat,
    starts,
    sub_posterior,
    weighed,
)
from experiments.arma.paths import Arrival, Path, arrival, path_of
from experiments.arma.posterior import Moments, moments
from experiments.arma.runs import Runs, ahead, best, criteria, reduce
from experiments.arma.simulate import series
from experiments.exhibit import COLOURS, Out, command

EPSILONS = (1.0, 0.1, 1e-2, 1e-3, 1e-4)
SHOWN = (1.0, 1e-2, 1e-4)
"""Bandwidths of the paper's table, and those of its figure."""
READINGS = {"gaussian": "exp(−x²/2)", "laplace": "exp(−x)"}
PAPER_REFRESH = ("1", ".81", ".34", ".05", ".001", "1e-4", "0")


@dataclass(frozen=True)
class Size:
    """All that differs between scales."""

    rows: int
    path_budget: Any  # of one chain: the paper's hour
    path_tune: int
    path_sizes: tuple[int, int]
    box_budget: Any  # of all runs of one n
    box_sizes: tuple[int, int, int]
    box_tune: int
    runs: int
    transitions: int
    tune: int
    thinning: int
    windows: int  # fixed ones, whose sub-posteriors together are those of all windows
    window_transitions: int
    chains: int  # of the calibrated target
    draws: int

    @property
    def draws_a_run(self) -> int:
        """What the runs keep of their transitions."""
        return (self.transitions - self.tune) // self.thinning


SIZES = {
    "paper": Size(
        10**7, "60 s", 500, (10_000, 1_000), "60 s", (10_000, 1_000, 100), 1_000, 100, 200_000, 10_000, 10, 1_000,
        20_000, 16, 2_000,
    ),
    "small": Size(
        10**5, lwa.RowReads(3 * 10**7), 150, (10_000, 1_000), lwa.RowReads(3 * 10**7), (1_000, 300, 100), 700, 20,
        5_000, 1_000, 2, 40, 3_000, 8, 1_000,
    ),
}  # fmt: skip


class Findings(NamedTuple):
    """What tests assert on."""

    paths: dict[str, Path]
    arrivals: dict[str, Arrival]
    boxes: dict[int, Runs]
    setups: dict[str, Runs]
    """Free, fixed and every ε, Φ read as the Gaussian density; `all windows` is the mixture over fixed ones."""
    laplace: dict[str, Runs]
    summaries: dict[str, Runs]
    verdicts: dict[tuple[str, str], str]
    """Whether ε = 0.01 is best, by criterion and parameter."""
    full: Moments
    calibrated: np.ndarray
    certificate: Any


def run(size: Size, seed: int, out: Out) -> Findings:
    """All parts of the exhibit."""
    with out.stage("simulate the series"):
        data = series(size.rows, seed)
    with out.stage("paths against time"):
        paths = {name: path_of(fit) for name, fit in timed_paths(data, size, seed).items()}
    with out.stage("boxplots"):
        boxes = {n: boxed(data, n, size, seed) for n in size.box_sizes}
    setups = {}
    with out.stage("free and fixed subsets"):
        setups["free"] = many(data, FREE, size, seed)
        setups["fixed"] = many(data, FIXED, size, seed)
    with out.stage("every epsilon, Gaussian"):
        setups |= {label(epsilon): many(data, weighed(epsilon), size, seed) for epsilon in EPSILONS}
    with out.stage("every epsilon, exp(-x)"):
        laplace = {label(e): many(data, weighed(e, weight="laplace"), size, seed) for e in EPSILONS}
    with out.stage("the other summaries"):
        summaries = {"S₀": setups[label(1e-2)]}
        summaries |= {name: many(data, weighed(1e-2, S), size, seed) for name, S in (("S₁", S1), ("S₂", S2))}
    with out.stage("the mixture over all windows"):
        setups["all windows"] = fixed_windows(data, size, seed, largest_drift=1.0)
        wide = fixed_windows(data, size, seed, largest_drift=np.inf)
    with out.stage("the calibrated posterior"):
        fit = lwa.sample(
            MODEL, data, subset_size=1000, chains=size.chains, draws=size.draws, seed=seed, progress=False
        )  # fmt: skip
        certificate = fit.certify(progress=False)
    with out.stage("the full posterior by quadrature"):
        calibrated = flat(fit.posterior)
        together = calibrated.reshape(-1, 3)
        full = moments(np.load(data).astype(np.float64), together.mean(0), np.cov(together.T))
    arrivals = {name: arrival(path) for name, path in paths.items()}
    columns = {"free": setups["free"]} | {label(e): setups[label(e)] for e in SHOWN} | {"fixed": setups["fixed"]}
    verdicts = {key: verdict(criterion, columns) for key, criterion in criteria().items()}
    with out.stage("figures and tables"):
        paths_out(out, paths, arrivals, size)
        boxes_out(out, boxes)
        title = "n = 100, S₀: {} runs of {:,} transitions for each subset policy"
        out.figure("epsilon", figures.densities_figure(columns, title.format(size.runs, size.transitions)))
        epsilon_out(out, columns | {"all windows": setups["all windows"]})
        best_out(out, columns, verdicts)
        beside = summaries | {"free": setups["free"]}
        title = "n = 100, ε = 0.01: the three summaries, and no summary at all"
        out.figure("summaries", figures.densities_figure(beside, title))
        summaries_out(out, beside)
        refresh_out(out, {"gaussian": setups, "laplace": laplace}, setups)
        starts_out(out, {"γ within ±1": setups["all windows"], "any γ of the prior": wide})
        sub = boxes[1000]
        out.figure("calibrated", figures.calibrated_figure(full, calibrated, sub, 1000))
        calibrated_out(out, full, calibrated, sub, certificate, size)
    return Findings(
        paths, arrivals, boxes, setups, laplace, summaries, verdicts, full, calibrated, certificate
    )  # fmt: skip


def timed_paths(data: File, size: Size, seed: int) -> dict[str, lwa.Result]:
    """One chain each of M-H on all rows and of LWA, from the same start, under the same budget."""
    common = {
        "chains": 1, "draws": "auto", "thinning": 1, "tune": size.path_tune, "budget": size.path_budget,
        "initvals": starts(1, seed), "kernel": KERNEL, "keep_tune": True,
    }  # fmt: skip
    with tune_may_end_early():
        found = {
            "M–H, all rows": lwa.rivals.sample(
                "metropolis", MODEL, data, reference=False, seed=seed, progress=False, **common
            )
        }
        for n in size.path_sizes:
            # What is compiled at the first transitions is there before the clock runs, as for M-H.
            few = common | {"tune": 64, "draws": 64, "budget": None}
            sub_posterior(np.load(data, mmap_mode="r")[:100_000], n, weighed(1.0), seed, **few)
            found[f"LWA, n = {n:,}"] = sub_posterior(data, n, weighed(1.0), seed, **common)
    return found


@contextmanager
def tune_may_end_early() -> Iterator[None]:
    """Where transitions are slow, half the budget is spent before all of tune is made; proposals are then frozen."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Stopped early: tune ended", lwa.LwaWarning)
        yield


def boxed(data: File, n: int, size: Size, seed: int) -> Runs:
    """The runs of one n at ε = 1 within the budget that every n has."""
    with tune_may_end_early():
        fit = sub_posterior(
            data, n, weighed(1.0), seed, chains=size.runs, draws="auto", thinning=1, tune=size.box_tune,
            budget=size.box_budget,
        )  # fmt: skip
    return reduce(fit)


def many(data: File, setup: Mapping[str, Any], size: Size, seed: int) -> Runs:
    """The runs of one setup at n = 100."""
    return reduce(
        sub_posterior(
            data, 100, setup, seed, chains=size.runs, draws=size.draws_a_run, thinning=size.thinning, tune=size.tune
        )
    )


def fixed_windows(data: File, size: Size, seed: int, largest_drift: float) -> Runs:
    """A short run on each of many windows drawn uniformly: their mixture is the law that L → ∞ and ε → ∞ would give."""
    quarter = size.window_transitions // 4
    return reduce(
        sub_posterior(
            data, 100, FIXED, seed, chains=size.windows, tune=quarter, thinning=size.thinning,
            draws=(size.window_transitions - quarter) // size.thinning,
            initvals=starts(size.windows, seed, largest_drift),
        )
    )  # fmt: skip


def label(epsilon: float) -> str:
    """As tables and figures have it."""
    return f"ε = {epsilon:g}"


def verdict(criterion: Any, columns: Mapping[str, Runs]) -> str:
    """Whether ε = 0.01 is nearest to θ*."""
    chosen = label(1e-2)
    return best(criterion, columns[chosen], [runs for name, runs in columns.items() if name != chosen])


def paths_out(out: Out, paths: Mapping[str, Path], arrivals: Mapping[str, Arrival], size: Size) -> None:
    """Figure and table of the paths."""
    colours = dict(zip(paths, (COLOURS["full"], COLOURS["lwa_light"], COLOURS["lwa"]), strict=True))
    budget = size.path_budget if isinstance(size.path_budget, str) else "the same number of rows read"
    out.figure("paths", figures.paths_figure(paths, colours, budget))
    header = [
        "chain", "rows per transition", "transitions in the budget", "seconds of set-up", "seconds until near θ*",
        "transitions until near", "rows read until near", "share of draws near afterwards", "sd of α in the last half",
        "paper: near θ* within its hour",
    ]  # fmt: skip
    rows = []
    for name, path in paths.items():
        came, last = arrivals[name], path.theta[path.transitions > path.transitions[-1] / 2]
        rows.append(
            [
                name, int(path.rows[0] / path.transitions[0]), int(path.transitions[-1]), path.set_up,
                came.seconds, came.transitions, came.rows, came.stays, float(last[:, 0].std()),
                "no" if name.startswith("M–H") else "yes",
            ]
        )  # fmt: skip
    out.table("paths", header, rows)


def boxes_out(out: Out, boxes: Mapping[int, Runs]) -> None:
    """Figure and table of the boxplots."""
    out.figure("boxplots", figures.boxplots_figure(boxes))
    header = [
        "n", "parameter", "θ*", "median", "quarter to three quarters", "mean", "standard error", "sd",
        "transitions a run",
    ]  # fmt: skip
    rows = []
    for n, runs in boxes.items():
        for i, name in enumerate(NAMES):
            low, high = runs.quantiles[i, [1, 3]]
            rows.append(
                [
                    n, name, TRUTH[i], runs.quantiles[i, 2], f"{low:.3f} to {high:.3f}", runs.mean[i], runs.error[i],
                    runs.sd[i], runs.transitions,
                ]
            )  # fmt: skip
    out.table("boxplots", header, rows)


def epsilon_out(out: Out, columns: Mapping[str, Runs]) -> None:
    """Mean densities in numbers."""
    header = [
        "windows", "parameter", "θ*", "mean of the mean density", "standard error", "bias", "bias / error", "sd of it",
        "θ accepted", "U refreshed", "paper: mean of the mean density",
    ]  # fmt: skip
    rows = []
    for name, runs in columns.items():
        for i, parameter in enumerate(NAMES):
            bias = runs.mean[i] - TRUTH[i]
            rows.append(
                [
                    name, parameter, TRUTH[i], runs.mean[i], runs.error[i], bias, bias / runs.error[i], runs.sd[i],
                    runs.acceptance, runs.refresh[1], "meets θ*" if name == label(1e-2) else "",
                ]
            )  # fmt: skip
    out.table("epsilon", header, rows)


def best_out(out: Out, columns: Mapping[str, Runs], verdicts: Mapping[tuple[str, str], str]) -> None:
    """Which policy is nearest to θ*, by two criteria, and whether the runs decide it."""
    header = ["criterion", "parameter", *columns, "nearest here", "is ε = 0.01 the nearest?", "paper"]
    rows = []
    for (what, parameter), criterion in criteria().items():
        values = {name: criterion(runs.means, runs.away) for name, runs in columns.items()}
        found = verdicts[what, parameter]
        rows.append([what, parameter, *values.values(), min(values, key=lambda name: values[name]), found, "yes"])
    out.table("best", header, rows)


def summaries_out(out: Out, beside: Mapping[str, Runs]) -> None:
    """The three summaries in numbers, each against no summary."""
    header = [
        "S", "parameter", "mean of the mean density", "standard error", "bias", "sd of it", "mean distance from θ*",
        "against free, by the bias", "against free, by mean distance from θ*", "paper, against free",
    ]  # fmt: skip
    told, rows = {"S₀": "better", "S₁": "", "S₂": "worse"}, []
    for name, runs in beside.items():
        for i, parameter in enumerate(NAMES):
            against = [
                "" if name == "free" else compared(ahead(criteria()[what, parameter], runs, beside["free"]))
                for what in ("bias of the mean", "mean distance from θ*")
            ]
            rows.append(
                [
                    name, parameter, runs.mean[i], runs.error[i], runs.mean[i] - TRUTH[i], runs.sd[i],
                    runs.away[:, i].mean(), *against, told.get(name, ""),
                ]
            )  # fmt: skip
    out.table("summaries", header, rows)


def compared(lead: float) -> str:
    """A lead in standard errors, in words."""
    return f"{'better' if lead > 0 else 'worse'}, {abs(lead):.1f} errors"


def refresh_out(out: Out, readings: Mapping[str, Mapping[str, Runs]], setups: Mapping[str, Runs]) -> None:
    """Refresh rates in the paper's layout, both readings of Φ."""
    header = ["Φ(x)", "transitions", "free", *(f"{e:g}" for e in EPSILONS), "fixed"]
    rows: list[list[Any]] = [["paper", "not said", *PAPER_REFRESH]]
    for name, found in readings.items():
        for part, when in enumerate(("during tune", "after tune", "last half of the run")):
            rates = [setups["free"], *(found[label(e)] for e in EPSILONS), setups["fixed"]]
            rows.append([READINGS[name], when, *(runs.refresh[part] for runs in rates)])
    out.table("refresh", header, rows)


def starts_out(out: Out, by_start: Mapping[str, Runs]) -> None:
    """How many runs on a fixed window end beyond β = 1."""
    header = ["starts", "windows", "share of runs that end at β > 1", "mean of β"]
    rows = [[name, len(runs.means), runs.caught, runs.mean[1]] for name, runs in by_start.items()]
    out.table("starts", header, rows)


def calibrated_out(
    out: Out, full: Moments, calibrated: np.ndarray, sub: Runs, certificate: Any, size: Size
) -> None:  # fmt: skip
    """The calibrated draws against the full posterior, with the certificate's opinion and the sub-posterior's width."""
    header = [
        "parameter", "full posterior: mean", "sd", "calibrated: shift / sd", "sd ratio", "certificate: shift / sd",
        "error bar", "certificate: sd ratio", "error bar", "sub-posterior: shift / sd", "sub-posterior: sd ratio",
        "√(N/n)",
    ]  # fmt: skip
    order = [[name.split("[")[0] for name in certificate.names].index(name) for name in ("ar", "ma", "drift")]
    together, rows = calibrated.reshape(-1, 3), []
    for i, (name, at) in enumerate(zip(NAMES, order, strict=True)):
        sd = full.sd[i]
        rows.append(
            [
                name, f"{full.mean[i]:.5f}", f"{sd:.6f}", (together[:, i].mean() - full.mean[i]) / sd,
                together[:, i].std() / sd, certificate.shift[at], certificate.shift_error[at], certificate.sd_ratio[at],
                certificate.sd_ratio_error[at], (sub.mean[i] - full.mean[i]) / sd, sub.sd[i] / sd,
                float(np.sqrt(size.rows / 1000)),
            ]
        )  # fmt: skip
    out.table("calibrated", header, rows)


if __name__ == "__main__":
    command("arma", run, SIZES, __doc__)
