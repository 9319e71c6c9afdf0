"""One chain against time: when it enters the neighbourhood of θ*, and what it has read until then."""

from typing import NamedTuple

import numpy as np

import lwa
from experiments.arma.model import TRUTH, flat

NEAR = 0.1
"""The neighbourhood: all three parameters within this of θ*. Sub-posteriors of 1,000 steps hardly reach beyond it."""


class Path(NamedTuple):
    """A chain from its first transition on, tune included."""

    theta: np.ndarray  # (kept, 3)
    set_up: float  # seconds from the call to the first transition: a look at all rows, their summaries
    seconds: np.ndarray  # since then
    transitions: np.ndarray  # made so far
    rows: np.ndarray  # read so far


class Arrival(NamedTuple):
    """When a path first is near θ*; infinite where it never is."""

    seconds: float
    transitions: float
    rows: float
    stays: float  # share of the draws after it that are near


def path_of(fit: lwa.Result) -> Path:
    """The only chain of a run that kept its tune, a draw a transition, and its draws, thinned or not."""
    told = fit.attributes
    before, after = flat(fit.warmup)[0], flat(fit.posterior)[0]
    since = told["tune_moves"] + told["thinning"] * np.arange(1, len(after) + 1)
    made = np.concatenate([np.arange(1, len(before) + 1), since])
    rows = np.concatenate([fit.warmup_stats["n_rows_read"][0], fit.sample_stats["n_rows_read"][0]])
    set_up = told["seconds"] - told["sampling_seconds"]
    later = [(told["tune_moves"] + told["thinning"] * kept, at) for kept, at in told["clock"]]
    # The clock is read once a block: in between, draws are taken to come evenly.
    seconds = np.interp(made, *np.array([(0, set_up), *told["tune_clock"], *later], float).T) - set_up
    return Path(np.concatenate([before, after]), set_up, seconds, made, np.cumsum(rows, dtype=np.int64))


def arrival(path: Path) -> Arrival:
    """Its first moment near θ*, and how much of the rest stays there."""
    near = (np.abs(path.theta - TRUTH) < NEAR).all(1)
    if not near.any():
        return Arrival(np.inf, np.inf, np.inf, 0.0)
    first = int(near.argmax())
    return Arrival(
        float(path.seconds[first]), float(path.transitions[first]), float(path.rows[first]), float(near[first:].mean())
    )


def shown(path: Path, points: int = 600) -> np.ndarray:
    """Indices of draws that a figure shows: evenly over the logarithm of time, so that no stretch is a block of ink."""
    wanted = np.geomspace(path.seconds[0], path.seconds[-1], points)
    return np.unique(np.searchsorted(path.seconds, wanted).clip(0, len(path.seconds) - 1))
