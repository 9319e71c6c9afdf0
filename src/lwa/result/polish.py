"""`fit.polish`: correct draws of a calibrated run by the full posterior, in a few more passes over all rows."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float64

from lwa.backend.random import Purpose
from lwa.engine.exact import Correction, Streams, Surrogate, correct, score
from lwa.engine.problem import Problem
from lwa.errors import warn
from lwa.kernels.kernel import Tuning
from lwa.models.python_model import is_users_error
from lwa.user.progress import Display, catch_interrupts

MOVES_PER_PASS = 10
"""Moves on the surrogate between two passes: enough for Gaussian proposals to forget, and cheap beside a pass."""


class Polished(NamedTuple):
    """Corrected draws, and what happened to them."""

    theta: Float64[np.ndarray, "chains draws d"]
    log_posterior: Float64[np.ndarray, "chains draws"]
    acceptance: Float64[np.ndarray, "chains draws"]  # mean over the passes
    accepted: Bool[np.ndarray, "chains draws"]  # in the last pass
    refreshed: Float64[np.ndarray, "chains draws"]
    distance: Float64[np.ndarray, "chains draws"]
    passes: int


@dataclass(frozen=True)
class Polisher:
    """What a run must leave behind for its draws to be corrected later."""

    problem: Problem
    tuning: Tuning  # of every chain

    def __call__(
        self, theta: Float64[np.ndarray, "chains draws d"], passes: int, used: int, display: Display
    ) -> Polished:
        """Correct all draws `passes` times, less often if Ctrl-C ends it; `used` passes were made before."""
        chains, draws, d = theta.shape
        rows = len(self.problem.subsets.rows)
        display.say(f"Correcting {chains * draws} draws by all {rows:,} rows, {passes} times, and scoring them first.")
        streams = Streams(Purpose.POLISH_SUBSET, Purpose.POLISH_THETA, Purpose.POLISH, used)
        with jax.enable_x64(True), catch_interrupts() as interruption:
            surrogate = Surrogate(
                self.problem, range(chains), theta.reshape(-1, d), self.tuning, steps=MOVES_PER_PASS, streams=streams
            )
            values, made = score(self.problem, [surrogate.theta]), list[Correction]()
            while len(made) < passes and not (interruption.asked and made):
                try:
                    done, values = correct([surrogate], self.problem, values)
                except Exception as error:
                    if not made or is_users_error(error):
                        raise
                    warn(f"{type(error).__name__} after {len(made)} of {passes} passes, which are kept: {error}")
                    break
                made.append(done[0])
                rate = np.mean([one.acceptance.mean() for one in made])
                display.show("passes", len(made), passes, f"corrections accepted {rate:.3f}")
        last = jax.tree.map(lambda leaf: leaf.reshape(chains, draws, *leaf.shape[1:]), made[-1])
        return Polished(
            theta=last.theta, log_posterior=last.log_posterior,
            acceptance=np.mean([one.acceptance for one in made], axis=0).reshape(chains, draws), accepted=last.accepted,
            refreshed=last.refreshed, distance=last.distance, passes=len(made),
        )  # fmt: skip
