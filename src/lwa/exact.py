"""Surrogate transitions: K moves on π(·|Y_U), then one decision by the full posterior π, which leaves π invariant.

Given U, the K moves are reversible for π_U, so θ → θ′ has the Hastings ratio π_U(θ)/π_U(θ′), and

    accept θ′ with probability min(1, π(θ′) π_U(θ) / π(θ) π_U(θ′))

is Metropolis-Hastings on π, whatever U is, as long as U does not look at θ. One streamed pass over the rows scores the
proposals of all chains at once. What is refused measures how far π_U is from π. (Liu's surrogate transitions; Christen
and Fox's delayed acceptance.)
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.algorithm import Subset, Tape, play
from lwa.decision import accepts, probability
from lwa.models.model import Model
from lwa.pipeline import Cohort, Problem, blank_page, first_state, page_noise
from lwa.randomness import Purpose, generator, keys
from lwa.reference import BLOCK
from lwa.rows import Rows
from lwa.rows.slots import fill_up, to_columns


class Corrected(NamedTuple):
    """What came of one surrogate transition of each chain; arrays are `(chains, ...)`."""

    theta: NDArray[np.float64]
    log_posterior: NDArray[np.float64]
    acceptance: NDArray[np.float64]
    accepted: NDArray[np.bool_]
    refreshed: NDArray[np.float64]  # share of U proposals accepted since the last transition
    distance: NDArray[np.float64]


class Surrogate:
    """A cohort whose θ moves on π_U while U holds still, between corrections."""

    def __init__(self, cohort: Cohort, steps: int) -> None:
        self.problem, self.chains, self.steps = cohort.problem, cohort.chains, steps
        subsets = self.problem.subsets
        # A U chain of its own: where the tape of tune ended depends on how far it had run ahead.
        self.U: Subset = subsets.burn_in(subsets.start(self.chains), self.chains)
        self.tuning = cohort.state.tuning
        self.theta: NDArray[Any] = np.asarray(cohort.state.theta)
        self.done = 0
        self.refreshed = self.distance = np.empty(0)

    def propose(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """θ′ after K moves given a new U, and log π_U(θ)/π_U(θ′)."""
        problem = self.problem
        self.U, page = problem.subsets.advance(self.U, self.chains, self.done, Purpose.EXACT_SUBSET)
        self.refreshed, self.distance = page.accepted.mean(0), page.distance[-1]
        columns = to_columns(problem.subsets.take(self.U), problem.dtype, axis=1)
        state = first_state(problem, columns, self.theta, self.U.tilt, problem.subsets.counts(self.U))._replace(
            tuning=self.tuning
        )
        before = np.asarray(state.terms.log_density)
        tape = self._tape()
        mine = jax.tree.map(jnp.copy, self.tuning)  # `play` takes the state's memory over
        room = blank_page(problem, state, self.steps)
        state, _ = play(state, room, tape, 0, self.steps, problem.target, problem.kernel)
        self.tuning = mine
        return np.asarray(state.theta), before - np.asarray(state.terms.log_density)

    def _tape(self) -> Tape:
        """K moves during which no row comes in."""
        problem, shape = self.problem, (self.steps, len(self.chains))
        drawn = keys(problem.seed, Purpose.EXACT_THETA, self.chains, self.done)
        noise = page_noise(drawn, jnp.asarray(self.theta), self.steps, problem.kernel)
        none = to_columns(problem.subsets.rows.take(np.empty(0, np.int64)), problem.dtype)
        rows = jax.tree.map(lambda leaf: jnp.zeros((*shape, *leaf.shape), leaf.dtype), none)
        tilt = None if self.U.tilt is None else jnp.broadcast_to(self.U.tilt, (self.steps, *self.U.tilt.shape))
        return Tape(jnp.zeros((*shape, 0), jnp.int32), rows, noise, jnp.zeros(shape, problem.dtype), tilt)

    def decide(
        self,
        proposed: NDArray[Any],
        log_surrogate: NDArray[np.float64],
        old: NDArray[np.float64],
        new: NDArray[np.float64],
    ) -> Corrected:
        """Accept or refuse by the full posterior, `old` at θ and `new` at θ′."""
        log_u = np.array([decision(self.problem.seed, chain, self.done) for chain in self.chains])
        with np.errstate(invalid="ignore"):
            log_ratio = np.where(new > -np.inf, new - old + log_surrogate, -np.inf)
        accept = np.asarray(accepts(jnp.asarray(log_u), jnp.asarray(log_ratio)))
        self.theta = np.where(accept[:, None], proposed, self.theta)
        self.done += 1
        return Corrected(
            self.theta.astype(np.float64),
            np.where(accept, new, old),
            np.asarray(probability(jnp.asarray(log_ratio))),
            accept,
            self.refreshed,
            self.distance,
        )


def decision(seed: int, chain: int, step: int) -> float:
    """The log uniform of one correction."""
    return float(np.log(generator(seed, Purpose.EXACT, chain, step).random()))


@partial(jax.jit, static_argnames=("model",))
def block_values(model: Model, thetas: Array, columns: Any, mask: Array) -> Array:
    """Σ ℓ_k(θ) over a block, for each θ."""
    return jax.vmap(lambda theta: jnp.where(mask, model.log_likelihood_at(theta, columns), 0.0).sum())(thetas)


@partial(jax.jit, static_argnames=("model",))
def prior_values(model: Model, thetas: Array) -> Array:
    """log p(θ), for each θ."""
    return jax.vmap(model.log_prior_at)(thetas)


def log_posterior(model: Model, rows: Rows, thetas: NDArray[Any]) -> NDArray[np.float64]:
    """log π of each θ up to a constant, from one streamed pass in float64; -inf where it is no density."""
    thetas = thetas.astype(np.float64)
    total = np.asarray(prior_values(model, thetas), np.float64)
    for batch in rows.blocks(BLOCK):
        total = total + np.asarray(block_values(model, thetas, *fill_up(batch, BLOCK, np.float64)))
    return np.where(total < np.inf, total, -np.inf)


def surrogates_of(cohorts: Sequence[Cohort], steps: int) -> list[Surrogate]:
    """Every cohort as it stands after tune, for corrections every so many moves."""
    with jax.enable_x64(True):
        return [Surrogate(cohort, steps) for cohort in cohorts]


def correct(
    surrogates: Sequence[Surrogate], problem: Problem, values: list[NDArray[np.float64]] | None
) -> tuple[list[Corrected], list[NDArray[np.float64]]]:
    """One surrogate transition of every chain, for one pass over the rows (two for the first)."""
    model, rows = problem.target.model, problem.subsets.rows
    with jax.enable_x64(True):
        sizes = np.cumsum([len(surrogate.chains) for surrogate in surrogates])[:-1]
        if values is None:
            values = np.split(log_posterior(model, rows, np.concatenate([s.theta for s in surrogates])), sizes)
        proposals = [surrogate.propose() for surrogate in surrogates]
        scored = np.split(log_posterior(model, rows, np.concatenate([theta for theta, _ in proposals])), sizes)
        done = [
            surrogate.decide(theta, log_surrogate, old, new)
            for surrogate, (theta, log_surrogate), old, new in zip(surrogates, proposals, values, scored, strict=True)
        ]
    return done, [one.log_posterior for one in done]
