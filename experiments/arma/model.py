"""The paper's ARMA(1,1): its model and summaries, how windows move, and where chains start."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import truncnorm

import lwa
from lwa.subsets import Fixed, Free, Window
from lwa.summaries import Autocorrelations, Combine, MinMax, Quantiles

NAMES = ("α", "β", "γ")
TRUTH = np.array([0.5, 0.7, 0.1])
PRIOR_SD = 10.0
MODEL = lwa.arma(1, 1, sigma=1.0, prior_sd=PRIOR_SD)
KERNEL = lwa.kernels.RandomWalk(target_accept=0.35)
WINDOW = Window(local=0.9, rate=0.1, lead_in=0)
S0 = Combine(Quantiles(0.2, 0.5, 0.8), Autocorrelations(5))
S1 = Autocorrelations(15)
S2 = MinMax()
FREE: Mapping[str, Any] = {"subset_move": Free()}
FIXED: Mapping[str, Any] = {"subset_move": Fixed()}


def weighed(epsilon: float, summary: Any = S0, weight: str = "gaussian") -> dict[str, Any]:
    """A setup in which windows are weighed by Φ(‖S(Y_U) - s_N‖/ε)."""
    return {"subset_move": WINDOW, "summary": summary, "epsilon": epsilon, "subset_weight": weight}


def starts(runs: int, seed: int, largest_drift: float = 1.0) -> list[dict[str, Any]]:
    """A draw of the prior for each run, given |α| < 1, |β| < 1 and |γ| < `largest_drift`."""
    ends = np.array([1.0, 1.0, largest_drift]) / PRIOR_SD
    rng = np.random.default_rng([seed, 0])
    drawn = truncnorm.rvs(-ends, ends, scale=PRIOR_SD, size=(runs, 3), random_state=rng)
    return [{"ar": one[:1], "ma": one[1:2], "drift": one[2]} for one in drawn]


def sub_posterior(series: Any, n: int, setup: Mapping[str, Any], seed: int, **options: Any) -> lwa.Result:
    """The paper's target given windows of n steps: starts from the prior, its walk, L = 1."""
    chains = options["chains"]
    given = {"initvals": starts(chains, seed), "kernel": KERNEL, "refresh_steps": 1, "keep_tune": True} | options
    return lwa.sample(
        MODEL, series, subset_size=n, target="subposterior", seed=seed, progress=False, **setup, **given
    )  # fmt: skip


def flat(draws: Mapping[str, Any]) -> np.ndarray:
    """Draws by name as `(chains, draws, 3)`: α, β, γ."""
    return np.concatenate([draws["ar"], draws["ma"], np.asarray(draws["drift"])[..., None]], axis=-1)
