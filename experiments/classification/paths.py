"""A run as a path in time: where θ was after each kept transition, when that was, and what had been read by then."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.classification.model import bayes_error, expected_error, truth, vector_of
from lwa.result.result import Result

MEAN_WITHIN, SIGMA_WITHIN = 0.2, 0.1
"""θ has arrived where every mean is within so many σ* of the truth, and every σ within this share of it."""
ERROR_WITHIN = 1.5
"""The classifier has arrived where its exact error is within this factor of the smallest there is."""


@dataclass(frozen=True)
class Path:
    """One chain from its start on; arrays have one entry a kept transition, the start first."""

    theta: NDArray[np.float64]  # (kept, 6)
    seconds: NDArray[np.float64]  # since the first transition began
    evaluations: NDArray[np.int64]  # of a row's likelihood so far
    transitions: NDArray[np.int64]
    prepared: float  # seconds from the call to the first transition
    reads: int  # evaluations of a row that a transition looks at

    @property
    def rows(self) -> NDArray[np.float64]:
        """Rows looked at so far."""
        return self.evaluations / self.reads

    def rows_a_transition(self, first: int | None = 0, last: int | None = -1) -> float:
        """On average, between two places of the path; NaN where there is nothing between them."""
        if first is None or last is None or self.transitions[last] == self.transitions[first]:
            return float("nan")
        return float((self.rows[last] - self.rows[first]) / (self.transitions[last] - self.transitions[first]))

    def at(self, times: NDArray[np.float64]) -> NDArray[np.intp]:
        """κ(t): the last place reached by each time."""
        return np.searchsorted(self.seconds, times, side="right") - 1

    def theta_arrives(self, sigma: float) -> int | None:
        """The first place near the truth."""
        away = np.abs(self.theta - truth(sigma)) / sigma
        return first_of((away[:, :4].max(1) <= MEAN_WITHIN) & (away[:, 4:].max(1) <= SIGMA_WITHIN))

    def classifier_arrives(self, sigma: float) -> int | None:
        """The first place at which hardly fewer mistakes are possible."""
        for first in range(0, len(self.theta), 10_000):  # most arrive early
            good = expected_error(self.theta[first : first + 10_000], sigma) <= ERROR_WITHIN * bayes_error(sigma)
            if (found := first_of(good)) is not None:
                return first + found
        return None


def first_of(true: NDArray[np.bool_]) -> int | None:
    """The first place where it is."""
    return int(true.argmax()) if true.any() else None


def path_of(fit: Result, start: NDArray[np.float64], reads: int) -> Path:
    """Tune and draws of a run of one chain. The clock ticks once a block, whose time goes by the rows it read."""
    told = fit.attributes
    warmup, draws = ({name: part[0] for name, part in of.items()} for of in (fit.warmup, fit.posterior))
    theta = np.concatenate([start[None], vector_of(warmup), vector_of(draws)])
    read = np.concatenate([[0], fit.warmup_stats["n_rows_read"][0], fit.sample_stats["n_rows_read"][0]])
    kept = len(fit.warmup_stats["n_rows_read"][0])
    steps = np.full(len(theta), told["thinning"])
    steps[0], steps[1 : kept + 1] = 0, told["tune_moves"] // max(kept, 1)
    prepared = told["seconds"] - told["sampling_seconds"]
    ticks = [(0, prepared), *map(tuple, told["tune_clock"]), *((kept + n, at) for n, at in told["clock"])]
    places, seconds = np.array([n for n, _ in ticks]), np.array([at for _, at in ticks]) - prepared
    evaluations = read.cumsum()
    return Path(
        theta, np.interp(evaluations, evaluations[places], np.maximum.accumulate(seconds)), evaluations,
        steps.cumsum(), prepared, reads,
    )  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """Both samplers from one start, and their classifiers' errors in time."""

    sigma: float
    paths: Mapping[str, Path]  # "lwa" and "rival"
    times: NDArray[np.float64]  # seconds since the first transition
    errors: Mapping[tuple[str, str], NDArray[np.float64]]  # by sampler and data, "train" or "test"
