"""`fit.polish`: correct draws of a calibrated run by the full posterior, in a few more passes over all rows."""

import time
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
ERROR_LEFT = 0.05
"""Share of the calibrated target's error with which states are kept; each pass leaves the share that it refuses."""


class Polished(NamedTuple):
    """Corrected draws, and what happened to them."""

    theta: Float64[np.ndarray, "chains draws d"]
    log_posterior: Float64[np.ndarray, "chains draws"]
    acceptance: Float64[np.ndarray, "chains draws"]
    accepted: Bool[np.ndarray, "chains draws"]
    refreshed: Float64[np.ndarray, "chains draws"]
    distance: Float64[np.ndarray, "chains draws"]
    passes: int
    states: int  # kept of each draw that came in
    rate: float  # share of corrections accepted, over all passes


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
        streams = Streams(Purpose.POLISH_SUBSET, Purpose.POLISH_THETA, Purpose.POLISH, used)
        with jax.enable_x64(True), catch_interrupts() as interruption:
            surrogate = Surrogate(
                self.problem, range(chains), theta.reshape(-1, d), self.tuning, steps=MOVES_PER_PASS, streams=streams
            )
            values, made = self.score_first(surrogate, passes, display), list[Correction]()
            while len(made) < passes and not (interruption.asked and made):
                try:
                    done, values = correct([surrogate], self.problem, values)
                except Exception as error:
                    if not made or is_users_error(error):
                        raise
                    warn(f"{type(error).__name__} after {len(made)} of {passes} passes, which are kept: {error}")
                    break
                made.append(done[0])
                rate = float(np.mean([one.acceptance.mean() for one in made]))
                display.show("passes", len(made), passes, f"corrections accepted {rate:.3f}")
        kept = made[count_dropped(rate, len(made)) :]
        display.say(judge_corrections(rate, len(made), chains * draws))
        every = jax.tree.map(lambda *leaves: np.stack(leaves, 1).reshape(chains, -1, *leaves[0].shape[1:]), *kept)
        return Polished(
            theta=every.theta, log_posterior=every.log_posterior, acceptance=every.acceptance, accepted=every.accepted,
            refreshed=every.refreshed, distance=every.distance, passes=len(made), states=len(kept), rate=rate,
        )  # fmt: skip

    def score_first(self, surrogate: Surrogate, passes: int, display: Display) -> list[Float64[np.ndarray, " draws"]]:
        """Return log π of all draws, from the first pass; report beforehand what all passes read, then how long."""
        draws, rows = len(surrogate.theta), len(self.problem.subsets.rows)
        display.say(
            f"Correcting {draws:,} draws by all {rows:,} rows, {passes} times, and scoring them first: "
            f"{(passes + 1) * draws * rows:,} row evaluations."
        )
        began = time.monotonic()
        values = score(self.problem, [surrogate.theta])
        took = time.monotonic() - began
        display.say(f"Scoring took {took:.1f} s, so {passes} corrections take about {passes * took:.0f} s.")
        return values


def count_dropped(rate: float, passes: int) -> int:
    """Return how many passes come before the first whose states have less than `ERROR_LEFT` of the error."""
    refused = min(max(1.0 - rate, 1e-12), 1.0 - 1e-12)
    return min(passes, int(np.ceil(np.log(ERROR_LEFT) / np.log(refused)))) - 1


def judge_corrections(rate: float, passes: int, draws: int) -> str:
    """Return whether correcting draws helped."""
    if 1.0 - rate < draws**-0.5:
        return (
            f"{rate:.1%} of the corrections were accepted: these draws were right within their Monte Carlo error. To "
            "make that smaller, draw more."
        )
    left = (1.0 - rate) ** passes
    return f"{rate:.1%} of the corrections were accepted, which leaves about {left:.1%} of the error that there was."
