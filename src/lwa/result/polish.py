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
"""Share of the error of the draws that came in with which states are kept."""


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
    left: float  # share of the error of the draws that came in


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
        memory = measure_memory(np.stack([theta.reshape(-1, d), *(one.theta for one in made)]))
        kept, left = made[count_dropped(memory, len(made)) :], memory ** len(made)
        display.say(judge_corrections(rate, left, chains * draws))
        every = jax.tree.map(lambda *leaves: np.stack(leaves, 1).reshape(chains, -1, *leaves[0].shape[1:]), *kept)
        return Polished(
            theta=every.theta, log_posterior=every.log_posterior, acceptance=every.acceptance, accepted=every.accepted,
            refreshed=every.refreshed, distance=every.distance, passes=len(made), states=len(kept), rate=rate,
            left=left,
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


def measure_memory(theta: Float64[np.ndarray, "states draws d"]) -> float:
    """Return by how much each pass multiplies the error of the draws: how much of a state the next one keeps.

    This is the largest correlation between states before and after a pass, of parameters and of their squares, which
    far draws decide, less two standard errors. It exceeds the share of corrections refused if moves are short, or if
    far draws are refused more often than others.
    """
    away = theta - theta.mean((0, 1))
    values = np.concatenate([away, away**2], axis=-1)
    before, after = (part - part.mean((0, 1)) for part in (values[:-1], values[1:]))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (before * after).mean((0, 1)) / np.sqrt((before**2).mean((0, 1)) * (after**2).mean((0, 1)))
    samples = before.shape[0] * before.shape[1]
    return float(np.clip(np.nanmax(found) - 2 * samples**-0.5, 0.0, 1.0))


def count_dropped(memory: float, passes: int) -> int:
    """Return how many passes come before the first whose states have less than `ERROR_LEFT` of the error."""
    needed = 1 if memory <= ERROR_LEFT else np.ceil(np.log(ERROR_LEFT) / np.log(memory)) if memory < 1 else np.inf
    return int(min(passes, needed)) - 1


def judge_corrections(rate: float, left: float, draws: int) -> str:
    """Return whether correcting draws helped."""
    accepted = f"{rate:.1%} of the corrections were accepted"
    if 1.0 - rate < draws**-0.5:
        return f"{accepted}: these draws were right within their Monte Carlo error. To make that smaller, draw more."
    more = ". Polish again for less." if left > ERROR_LEFT else "."
    return f"{accepted}, and about {left:.1%} of the error that there was is left{more}"
