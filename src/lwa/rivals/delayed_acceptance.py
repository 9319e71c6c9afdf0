"""Delayed acceptance: the ratio in blocks, and an end at the first that refuses (Banterle, Grazian, Lee and Robert)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from lwa.errors import InputError
from lwa.kernels.kernel import accepts, choose
from lwa.kernels.random_walk import Tuning, is_real
from lwa.rivals.problem import Problem
from lwa.rivals.rival import Info, Rival, first_walk, proposal


class State(NamedTuple):
    """θ, its log prior and the log-likelihood of each block, which are kept."""

    theta: Array
    prior: Array
    blocks: Array  # (k,)
    walk: Tuning


class Carry(NamedTuple):
    """How far a decision has come."""

    block: Array  # the next one
    alive: Array
    values: Array  # (k,)  log-likelihoods at θ′, of the blocks that were read
    invalid: Array


@dataclass(frozen=True)
class DelayedAcceptance(Rival):
    """Accept θ′ where u_k < ρ_k for every block k, and stop at the first block that refuses.

    π(θ′)/π(θ) = ∏ ρ_k with the prior and a few rows in the first block. The acceptance probability ∏ min(1, ρ_k) is
    below that of Metropolis-Hastings, and every acceptance costs N reads. Exact.

    Parameters
    ----------
    shares
        The share of all rows in each block, smallest first. Rows are split at random, once. Many blocks refuse much:
        each has noise of its own.

    References
    ----------
    Banterle, Grazian, Lee and Robert (2014), Accelerating Metropolis-Hastings algorithms by delayed acceptance.
    """

    shares: tuple[float, ...] = (0.1, 0.9)
    name = "delayed_acceptance"
    paper = "Banterle, Grazian, Lee and Robert 2014"
    exact = True
    independent = ""
    single = True

    def __post_init__(self) -> None:
        """Refuse what are no shares of one whole."""
        shares = tuple(self.shares) if isinstance(self.shares, tuple | list) else ()
        if not shares or not all(is_real(x) and x > 0 for x in shares) or abs(sum(shares) - 1.0) > 1e-9:
            raise InputError(f"shares={self.shares!r} must be positive and sum to 1. Pass shares=(0.1, 0.9).")
        object.__setattr__(self, "shares", shares)

    def ends(self, N: int) -> np.ndarray:
        """Where each block ends."""
        ends = np.round(np.cumsum(self.shares) * N).astype(np.int64)
        return np.maximum(ends, 1)

    def init(self, key: Array, theta: Array, problem: Problem) -> State:
        """One pass."""
        ends = self.ends(problem.length)
        starts = np.concatenate([[0], ends[:-1]])
        values = [problem.log_likelihood(theta, int(a), int(b)) for a, b in zip(starts, ends, strict=True)]
        return State(theta, problem.log_prior(theta), jnp.stack(values), first_walk(theta, problem))

    def step(self, key: Array, state: State, problem: Problem) -> tuple[State, Info]:
        """Propose, block by block."""
        proposed, _, log_hastings = proposal(key, state, problem)
        count, ends = len(self.shares), jnp.asarray(self.ends(problem.length))
        log_u = jnp.log(jax.random.uniform(key, (count,)))
        prior = problem.log_prior(proposed)
        shares = jnp.asarray(self.shares)  # of Q(θ′, θ)/Q(θ, θ′) too: what Q knows of the target, it knows of all rows

        def more(carry: Carry) -> Array:
            return carry.alive & (carry.block < count)

        def one(carry: Carry) -> Carry:
            k = carry.block
            value = problem.log_likelihood(proposed, jnp.where(k == 0, 0, ends[k - 1]), ends[k])
            log_ratio = value - state.blocks[k] + jnp.where(k == 0, prior - state.prior, 0.0) + shares[k] * log_hastings
            invalid = ~(log_ratio < jnp.inf)
            log_ratio = jnp.where(invalid, -jnp.inf, log_ratio)
            return Carry(k + 1, accepts(log_u[k], log_ratio), carry.values.at[k].set(value), carry.invalid | invalid)

        first = Carry(jnp.asarray(0), jnp.asarray(True), state.blocks, jnp.asarray(False))
        done = lax.while_loop(more, one, first)
        accept = done.alive
        theta, prior, blocks = choose(accept, (proposed, prior, done.values), (state.theta, state.prior, state.blocks))
        rows = ends[done.block - 1]
        info = Info(
            accept.astype(jnp.float64), accept, done.invalid, rows, prior + blocks.sum(), {"blocks": done.block}
        )
        return State(theta, prior, blocks, state.walk), info
