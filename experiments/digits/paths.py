"""The two chains of the exhibit, by lwa, from a blank image: every state from the first on, and when it was there."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import lwa
from experiments.digits.exact import distance
from experiments.digits.model import Templates

ACCEPTED = 0.25
"""The share of moves that the paper's random walks are steered to accept."""
EPSILON = 1e-5
ENDLESS = 10**9
"""More moves than any budget allows."""


@dataclass(frozen=True)
class Path:
    """A chain's states, thinned, in the order they were made; arrays `(kept, ...)`."""

    name: str
    squares: np.ndarray  # θ, (kept, 5, grid, grid)
    seconds: np.ndarray  # since the first move
    moves: np.ndarray  # made until then
    rows: np.ndarray  # read until then
    fit: lwa.Result

    @cached_property
    def means(self) -> np.ndarray:
        """μ(θ_1:k) of the paper, at each state."""
        return np.cumsum(self.squares, axis=0) / np.arange(1, len(self.squares) + 1)[:, None, None, None]

    @property
    def accepted(self) -> float:
        """Share of the moves of the second half."""
        rate = self.fit.warmup_stats["acceptance_rate"][0]
        return float(rate[len(rate) // 2 :].mean())

    @property
    def proposal_variance(self) -> float:
        """Of one control point, as adapted at the end, over all blocks."""
        return float(np.mean(self.fit.attributes["proposal_variances"]))

    def distances(self, templates: Templates, goal: np.ndarray) -> dict[str, np.ndarray]:
        """d of the running mean to a θ, in pixels and in control points."""
        return {
            "pixels": distance(templates.phi(self.means), templates.phi(goal)),
            "controls": distance(self.means, goal),
        }


def adaptive(budget: Any, thinning: int, seed: int) -> dict[str, Any]:
    """What both chains are asked for: as the paper has them, they adapt from the first move to the last.

    So all of the path is tune, which lwa gives half of a budget, and one draw ends the run.
    """
    twice = lwa.RowReads(2 * budget.count) if isinstance(budget, lwa.RowReads) else 2 * budget
    return {
        "kernel": lwa.kernels.Blockwise(target_accept=ACCEPTED), "tune": ENDLESS, "draws": 1, "keep_tune": True,
        "budget": twice, "thinning": thinning, "chains": 1, "seed": seed, "progress": False,
    }  # fmt: skip


def on_all_rows(templates: Templates, images: dict[str, np.ndarray], budget: Any, thinning: int, seed: int) -> Path:
    """Metropolis-Hastings, with no help from the mode."""
    asked = adaptive(budget, thinning, seed)
    fit = lwa.rivals.sample("metropolis", templates.model(), images, reference=False, **asked)
    return path_of(fit, "M-H on all images", templates, thinning)


def on_subsets(
    templates: Templates, images: dict[str, np.ndarray], subset_size: int, budget: Any, thinning: int, seed: int
) -> Path:
    """LWA-MCMC as the paper has it: subsets with as many images of each digit."""
    with warnings.catch_warnings():  # tune is all that is wanted
        warnings.filterwarnings("ignore", "Stopped early: tune ended", lwa.LwaWarning)
        fit = lwa.sample(
            templates.model(), images, target="subposterior", subset_size=subset_size,
            summary=lwa.summaries.Counts("digit"), epsilon=EPSILON, **adaptive(budget, thinning, seed),
        )  # fmt: skip
    return path_of(fit, f"LWA-MCMC, n = {subset_size}", templates, thinning)


def path_of(fit: lwa.Result, name: str, templates: Templates, thinning: int) -> Path:
    """The path of tune, with the time between two looks at the clock spread evenly over the states kept."""
    squares = templates.squares(fit.warmup)[0]
    before = fit.attributes["seconds"] - fit.attributes["sampling_seconds"]  # the first move
    kept, at = np.array([[0, before], *fit.attributes["tune_clock"]]).T
    numbers = np.arange(1, len(squares) + 1)
    seconds = np.interp(numbers, kept, at) - before
    return Path(name, squares, seconds, thinning * numbers, np.cumsum(fit.warmup_stats["n_rows_read"][0]), fit)
