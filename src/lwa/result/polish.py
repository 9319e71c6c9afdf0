"""A few passes more: draws of a calibrated run, corrected by the full posterior until none of its error is left."""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.backend.random import Purpose
from lwa.engine.exact import Corrected, Streams, Surrogate, correct
from lwa.engine.problem import Problem
from lwa.errors import LwaWarning
from lwa.models.user_calls import is_theirs
from lwa.user.progress import Display, catch_interrupts

MOVES_PER_PASS = 10
"""On the surrogate between two passes: enough for the Gaussian proposals to forget, and cheap beside a pass."""


class Polished(NamedTuple):
    """What came of it; arrays are `(chains, draws, ...)`."""

    theta: NDArray[np.float64]
    log_posterior: NDArray[np.float64]
    acceptance: NDArray[np.float64]  # mean over the passes
    accepted: NDArray[np.bool_]  # in the last
    refreshed: NDArray[np.float64]
    distance: NDArray[np.float64]
    passes: int


@dataclass(frozen=True)
class Polisher:
    """What a run must leave behind for its draws to be corrected later."""

    problem: Problem
    tuning: Any  # every chain's

    def __call__(self, theta: NDArray[np.float64], passes: int, used: int, display: Display) -> Polished:
        """`passes` corrections of all draws `(chains, draws, d)`, fewer where Ctrl-C ends it."""
        chains, draws, d = theta.shape
        rows = len(self.problem.subsets.rows)
        display.say(f"Correcting {chains * draws} draws by all {rows:,} rows, {passes} times, and scoring them first.")
        streams = Streams(Purpose.POLISH_SUBSET, Purpose.POLISH_THETA, Purpose.POLISH, used)
        with jax.enable_x64(True), catch_interrupts() as interruption:
            surrogate = Surrogate(self.problem, range(chains), theta.reshape(-1, d), self.tuning, MOVES_PER_PASS, streams)
            values, made = None, list[Corrected]()
            while len(made) < passes and not (interruption.asked and made):
                try:
                    done, values = correct([surrogate], self.problem, values)
                except Exception as error:
                    if not made or is_theirs(error):
                        raise
                    warnings.warn(
                        f"{type(error).__name__} after {len(made)} of {passes} passes, which are kept: {error}",
                        LwaWarning,
                        stacklevel=3,
                    )
                    break
                made.append(done[0])
                rate = np.mean([one.acceptance.mean() for one in made])
                display.show("passes", len(made), passes, f"corrections accepted {rate:.3f}")
        last = jax.tree.map(lambda leaf: leaf.reshape(chains, draws, *leaf.shape[1:]), made[-1])
        acceptance = np.mean([one.acceptance for one in made], axis=0).reshape(chains, draws)
        return Polished(
            last.theta, last.log_posterior, acceptance, last.accepted, last.refreshed, last.distance, len(made)
        )
