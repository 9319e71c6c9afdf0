"""Surrogate transitions: K moves on π(·|Y_U), then one decision by the full posterior π, which leaves π invariant.

Given U, the K moves are reversible for π_U, so θ → θ′ has the Hastings ratio π_U(θ)/π_U(θ′), and

    accept θ′ with probability min(1, π(θ′) π_U(θ) / π(θ) π_U(θ′))

is Metropolis-Hastings on π, whatever U is, as long as U does not depend on θ. One pass over the rows scores the
proposals of all chains at once. The share of rejections measures how far π_U is from π. (Liu's surrogate transitions;
Christen and Fox's delayed acceptance.)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float64
from numpy.typing import NDArray

from lwa.algorithm import Subset, Tape
from lwa.backend.random import Purpose, generator
from lwa.engine.cohort import Cohort, build_first_state, draw_noise_of_page, make_blank_page
from lwa.engine.problem import Problem
from lwa.engine.recorder import sum_or_any
from lwa.errors import ModelError
from lwa.kernels.kernel import ADDED_UP, MoveInfo, Tuning, acceptance_probability, accepts
from lwa.rows.slots import to_columns
from lwa.targets.reference import compute_log_posterior
from lwa.targets.target import Given, as_held

MOST_SEARCHES = 20
"""Passes in which a chain must find a θ of positive density."""


class Correction(NamedTuple):
    """The result of one surrogate transition of each chain; arrays are `(chains, ...)`."""

    theta: NDArray[np.float64]
    log_posterior: NDArray[np.float64]
    acceptance: NDArray[np.float64]
    accepted: NDArray[np.bool_]
    refreshed: NDArray[np.float64]  # share of U proposals accepted since the last transition
    distance: NDArray[np.float64]
    evaluations: NDArray[np.int64]  # of U's rows since the last transition
    extra: dict[str, NDArray[Any]]  # the kernel's own statistics, as in `Kept`


class Streams(NamedTuple):
    """The sources of a surrogate's randomness, and how many transitions used them before."""

    subset: Purpose
    theta: Purpose
    decision: Purpose
    used: int = 0


ALONGSIDE = Streams(Purpose.EXACT_SUBSET, Purpose.EXACT_THETA, Purpose.EXACT)
"""The sources for `exact=True`."""


class Surrogate:
    """θ moves on π_U with U fixed, between corrections: one θ or several for each chain's U.

    `theta` is `(chains * several, d)`, chain after chain, `tuning` what each chain's kernel has learnt.
    """

    def __init__(
        self, problem: Problem, chains: Sequence[int], theta: NDArray[Any], tuning: Tuning, steps: int,
        streams: Streams = ALONGSIDE
    ) -> None:  # fmt: skip
        self.problem, self.chains, self.steps, self.streams = problem, chains, steps, streams
        self.several = len(theta) // len(chains)
        self.names = [chain * self.several + i for chain in chains for i in range(self.several)]
        subsets = problem.subsets
        # It has its own U chain: where the tape of tune ended depends on how far it had run ahead.
        self.U: Subset = subsets.burn_in(subsets.start(chains), chains)[0]
        self.tuning = self._repeat(tuning)
        self.theta: NDArray[Any] = np.asarray(theta, problem.dtype)
        self.done = streams.used
        self.refreshed = self.distance = np.empty(0)
        self.evaluations: NDArray[np.int64] = np.empty(0, np.int64)
        self.extra: dict[str, NDArray[Any]] = {}

    def _repeat[T](self, of_chains: T) -> T:
        """Repeat what belongs to a chain for each of its θ."""
        if self.several == 1:
            return of_chains
        return jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), self.several, axis=0), of_chains)

    def propose(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return θ′ after K moves given a new U, and log π_U(θ)/π_U(θ′)."""
        problem, subsets = self.problem, self.problem.subsets
        self.U, page = subsets.advance(self.U, self.chains, self.done, self.streams.subset)
        self.refreshed, self.distance = self._repeat((page.accepted.mean(0), page.distance[-1]))
        columns = self._repeat(to_columns(subsets.take(self.U), problem.dtype, axis=1))
        given, counts = self._repeat((as_held(subsets.given(self.U), problem.dtype), subsets.counts(self.U)))
        state = build_first_state(problem, columns, self.theta, given, counts)
        state = state._replace(tuning=jax.tree.map(jnp.array, self.tuning))  # `play` reuses the memory of the state
        before = np.asarray(state.terms.log_density)
        room = make_blank_page(problem, state, self.steps)
        tape, options = self._build_tape(given), {"target": problem.target, "kernel": problem.kernel}
        state, made = problem.play(state, room, tape, 0, self.steps, **options)
        self.evaluations, self.extra = sum_info(jax.tree.map(np.asarray, made.info))
        with np.errstate(invalid="ignore"):  # -inf - -inf if U is infeasible: NaN, which is rejected
            return np.asarray(state.theta), before - np.asarray(state.terms.log_density)

    def _build_tape(self, given: Given | None) -> Tape:
        """Return the tape of K moves during which no row comes in."""
        problem, shape = self.problem, (self.steps, len(self.names))
        noise = jax.device_put(draw_noise_of_page(problem, self.streams.theta, self.names, self.done, self.steps))
        none = to_columns(problem.subsets.rows.take(np.empty(0, np.int64)), problem.dtype)
        rows = jax.tree.map(lambda leaf: jnp.zeros((*shape, *leaf.shape), leaf.dtype), none)
        still = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.steps, *leaf.shape)), given)
        return Tape(jnp.zeros((*shape, 0), jnp.int32), rows, noise, jnp.zeros(shape, problem.dtype), still)

    def decide(
        self, proposed: Float[np.ndarray, "chains d"], log_surrogate: Float64[np.ndarray, " chains"],
        old: Float64[np.ndarray, " chains"], new: Float64[np.ndarray, " chains"]
    ) -> Correction:  # fmt: skip
        """Accept or reject by the log full posterior, which is `old` at θ and `new` at θ′.

        A θ of density 0, such as one outside a support that all rows bound but U does not, is left at once.
        """
        seed, decision = self.problem.seed, self.streams.decision
        log_u = np.array([float(np.log(generator(seed, decision, name, self.done).random())) for name in self.names])
        with np.errstate(invalid="ignore"):
            log_ratio = np.where(new > -np.inf, new - old + log_surrogate, -np.inf)
        log_ratio = np.where(old > -np.inf, log_ratio, 0.0)
        accept = np.asarray(accepts(jnp.asarray(log_u), jnp.asarray(log_ratio)))
        self.theta = np.where(accept[:, None], proposed, self.theta)
        self.done += 1
        return Correction(
            theta=self.theta.astype(np.float64), log_posterior=np.where(accept, new, old),
            acceptance=np.asarray(acceptance_probability(jnp.asarray(log_ratio))), accepted=accept,
            refreshed=self.refreshed, distance=self.distance, evaluations=self.evaluations, extra=self.extra,
        )  # fmt: skip


def sum_info(info: MoveInfo) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Return the evaluations and the kernel's own statistics of K moves, from arrays `(K, ...)`."""
    extra = {
        name: sum_or_any(name, values.sum(0, dtype=np.int64)) if name in ADDED_UP else values[-1]
        for name, values in jax.tree.map(np.asarray, dict(info.extra)).items()
    }
    return np.asarray(info.evaluations).sum(0, dtype=np.int64), extra


def build_surrogates(cohorts: Sequence[Cohort], steps: int) -> list[Surrogate]:
    """Return a surrogate of every cohort after tune, with `steps` moves between corrections."""
    with jax.enable_x64(True):
        return [
            Surrogate(cohort.problem, cohort.chains, np.asarray(cohort.state.theta), cohort.state.tuning, steps)
            for cohort in cohorts
        ]


def score(problem: Problem, thetas: Sequence[NDArray[Any]]) -> list[NDArray[np.float64]]:
    """Return log π of the θ of each surrogate, in one pass over the rows."""
    found = compute_log_posterior(problem.target.model, problem.full, np.concatenate(thetas))
    return np.split(found, np.cumsum([len(theta) for theta in thetas])[:-1])


def enter_support(surrogates: Sequence[Surrogate], problem: Problem) -> list[NDArray[np.float64]]:
    """Return log π where every chain is, after chains that began where it is -inf have moved to where it is not."""
    with jax.enable_x64(True):
        values = score(problem, [surrogate.theta for surrogate in surrogates])
    for _ in range(MOST_SEARCHES):
        if all((value > -np.inf).all() for value in values):
            return values
        values = correct(surrogates, problem, values)[1]
    N = len(problem.subsets.rows)
    raise ModelError(
        f"After tune and {MOST_SEARCHES} passes over all rows, a chain is still where the posterior of all rows is 0: "
        f"subsets do not know all bounds of theta. Pass target='powered', subset_size={N}.",
        advice={"target": "powered", "subset_size": N, "exact": False},
    )


def correct(
    surrogates: Sequence[Surrogate], problem: Problem, values: list[NDArray[np.float64]]
) -> tuple[list[Correction], list[NDArray[np.float64]]]:
    """Make one surrogate transition of every chain, in one pass over the rows; `values` is log π before it."""
    with jax.enable_x64(True):
        proposals = [surrogate.propose() for surrogate in surrogates]
        scored = score(problem, [theta for theta, _ in proposals])
        done = [
            surrogate.decide(theta, log_surrogate, old, new)
            for surrogate, (theta, log_surrogate), old, new in zip(surrogates, proposals, values, scored, strict=True)
        ]
    return done, [one.log_posterior for one in done]
