"""Independent runs of one setup: each run's density and mean, how near θ* they come, how often U was refreshed."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter1d

import lwa
from experiments.arma.model import NAMES, TRUTH, flat

GRIDS = {
    name: np.linspace(truth - reach, truth + reach, 401)
    for name, truth, reach in zip(NAMES, TRUTH, (1.0, 1.0, 2.0), strict=True)
}
"""Where densities are evaluated, alike for all setups."""
BANDWIDTH = 0.15
"""In sds of a run: what Silverman's rule gives for 19,000 draws."""
RESAMPLES, DECIDED = 400, 3.0
"""Times that runs are resampled for a standard error, and how many of these a difference must be to decide."""


class Runs(NamedTuple):
    """What is kept of the runs of one setup."""

    density: np.ndarray  # (3, runs, grid)
    means: np.ndarray  # (runs, 3)
    away: np.ndarray  # (runs, 3)  mean |θ - θ*|
    sd: np.ndarray  # (3,)  of all draws together, so of the mean density
    quantiles: np.ndarray  # (3, 5)  of all draws: 5, 25, 50, 75 and 95 %
    acceptance: float
    refresh: tuple[float, float, float]  # during tune, after it, in the last half of the run
    transitions: int  # a run, tune included
    rows: float  # read by a transition

    @property
    def mean(self) -> np.ndarray:
        """Of the mean density."""
        return self.means.mean(0)

    @property
    def caught(self) -> float:
        """Share of the runs that lie where the moving average cannot be inverted, β > 1."""
        return float((self.means[:, 1] > 1.0).mean())

    @property
    def error(self) -> np.ndarray:
        """Its standard error, from how runs differ."""
        return self.means.std(0, ddof=1) / np.sqrt(len(self.means))


def reduce(fit: lwa.Result) -> Runs:
    """A run a chain."""
    theta, stats, thinning = flat(fit.posterior), fit.sample_stats, fit.attributes["thinning"]
    during = np.asarray(fit.warmup_stats["subset_accepted"])
    after = np.asarray(stats["subset_accepted"])
    tuned, moves = fit.attributes["tune_moves"], fit.attributes["moves"]
    late = after[:, max(0, (moves // 2 - tuned) // thinning) :]
    density = np.stack([densities(theta[:, :, i], GRIDS[name]) for i, name in enumerate(NAMES)])
    return Runs(
        density, theta.mean(1), np.abs(theta - TRUTH).mean(1), theta.std((0, 1)),
        np.quantile(theta, [0.05, 0.25, 0.5, 0.75, 0.95], axis=(0, 1)).T, float(stats["acceptance_rate"].mean()),
        (float(during.mean()), float(after.mean()), float(late.mean())), int(moves),
        float(stats["n_rows_read"].mean() / thinning),
    )  # fmt: skip


def densities(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Of each run's draws, `(runs, draws)`, on a grid: a histogram with its bins around the points, smoothed."""
    step = grid[1] - grid[0]
    edges = np.append(grid, grid[-1] + step) - step / 2
    heights = [np.histogram(run, edges)[0] / (len(run) * step) for run in values]
    return np.stack(
        [gaussian_filter1d(one, BANDWIDTH * run.std() / step) for one, run in zip(heights, values, strict=True)]
    )


type Criterion = Callable[[np.ndarray, np.ndarray], float]
"""From the means and mean distances of some runs, each `(runs, 3)`."""


def criteria() -> dict[tuple[str, str], Criterion]:
    """How far a mean density is from θ*, by name and parameter: its mean alone, and all of its mass.

    At this scale the posterior of all rows is a point, so the mean of |θ - θ*| is the Wasserstein distance to it.
    """

    def bias(i: int) -> Criterion:
        return lambda means, away: float(abs(means[:, i].mean() - TRUTH[i]))

    def distance(i: int) -> Criterion:
        return lambda means, away: float(away[:, i].mean())

    found: dict[tuple[str, str], Criterion] = {}
    found |= {("bias of the mean", name): bias(i) for i, name in enumerate(NAMES)}
    found["bias of the mean", "all"] = lambda means, away: float(np.linalg.norm(means.mean(0) - TRUTH))
    found |= {("mean distance from θ*", name): distance(i) for i, name in enumerate(NAMES)}
    found["mean distance from θ*", "all"] = lambda means, away: float(away.mean(0).sum())
    return found


def ahead(criterion: Criterion, one: Runs, other: Runs) -> float:
    """By how many standard errors one setup is nearer to θ* than another; runs are resampled for the error."""
    rng = np.random.default_rng(0)

    def resampled(runs: Runs) -> np.ndarray:
        picked = rng.integers(len(runs.means), size=(RESAMPLES, len(runs.means)))
        return np.array([criterion(runs.means[pick], runs.away[pick]) for pick in picked])

    gap = criterion(other.means, other.away) - criterion(one.means, one.away)
    return gap / float(np.hypot(resampled(one).std(), resampled(other).std()))


def best(criterion: Criterion, one: Runs, others: list[Runs]) -> str:
    """Whether one setup is nearer to θ* than all others: yes, no, or not decided by so many runs."""
    leads = [ahead(criterion, one, other) for other in others]
    if min(leads) < -DECIDED:
        return "no"
    return "yes" if min(leads) > DECIDED else "not decided"
