"""Delayed acceptance: the ratio in blocks, ending at the first that rejects (Banterle, Grazian, Lee and Robert)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float64, Int, Int64

from lwa.errors import InputError
from lwa.kernels.kernel import Tuning, accepts, choose
from lwa.rivals.problem import RivalProblem
from lwa.rivals.rival import Decision, Info, Rival, init_walk, propose_theta
from lwa.user.validate import is_real


class State(NamedTuple):
    """θ, its log prior and the log-likelihood of each block, which are not computed again."""

    theta: Float64[Array, " d"]
    prior: Float64[Array, ""]
    blocks: Float64[Array, " k"]
    walk: Tuning


class Carry(NamedTuple):
    """How far a decision has come."""

    block: Int[Array, ""]  # the next one
    alive: Bool[Array, ""]
    values: Float64[Array, " k"]  # log-likelihoods at θ′ of the blocks that were read
    invalid: Bool[Array, ""]


@dataclass(frozen=True)
class DelayedAcceptance(Rival):
    """Accept θ′ if u_k < ρ_k for every block k, and stop at the first block that rejects.

    π(θ′)/π(θ) = ∏ ρ_k with the prior and a few rows in the first block. The acceptance probability ∏ min(1, ρ_k) is
    below that of Metropolis-Hastings, and every acceptance costs N reads. Exact.

    Parameters
    ----------
    shares
        The share of all rows in each block, smallest first. Rows are split at random, once. Many blocks reject much:
        each has noise of its own.

    References
    ----------
    Banterle, Grazian, Lee and Robert (2014), Accelerating Metropolis-Hastings algorithms by delayed acceptance.
    """

    shares: tuple[float, ...] = (0.1, 0.9)
    name = "delayed_acceptance"
    paper = "Banterle, Grazian, Lee and Robert 2014"
    exact = True
    reads_singly = ""
    may_round = True

    def __post_init__(self) -> None:
        """Check that shares are positive and sum to 1."""
        shares = tuple(self.shares) if isinstance(self.shares, tuple | list) else ()
        if not shares or not all(is_real(x) and x > 0 for x in shares) or abs(sum(shares) - 1.0) > 1e-9:
            raise InputError(f"shares={self.shares!r} must be positive and sum to 1. Pass shares=(0.1, 0.9).")
        object.__setattr__(self, "shares", shares)

    def find_ends(self, N: int) -> Int64[np.ndarray, " k"]:
        """Return where each block ends."""
        return np.maximum(np.round(np.cumsum(self.shares) * N).astype(np.int64), 1)

    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> State:
        """Return the start, from one pass over all rows."""
        ends = self.find_ends(problem.length)
        starts = np.concatenate([[0], ends[:-1]])
        values = [problem.log_likelihood(theta, int(a), int(b)) for a, b in zip(starts, ends, strict=True)]
        return State(theta, problem.log_prior(theta), jnp.stack(values), init_walk(theta, problem))

    def step(self, key: Array, state: State, problem: RivalProblem) -> tuple[State, Info]:
        """Propose, then read and decide block by block."""
        proposed, _, log_hastings = propose_theta(key, state, problem)
        count, ends = len(self.shares), jnp.asarray(self.find_ends(problem.length))
        log_u = jnp.log(jax.random.uniform(key, (count,)))
        prior = problem.log_prior(proposed)
        shares = jnp.asarray(self.shares)  # of Q(θ′, θ)/Q(θ, θ′) too: what Q knows of the target, it knows of all rows

        def read(carry: Carry) -> Carry:
            k = carry.block
            value = problem.log_likelihood(proposed, jnp.where(k == 0, 0, ends[k - 1]), ends[k])
            log_ratio = value - state.blocks[k] + jnp.where(k == 0, prior - state.prior, 0.0) + shares[k] * log_hastings
            invalid = ~(log_ratio < jnp.inf)
            log_ratio = jnp.where(invalid, -jnp.inf, log_ratio)
            return Carry(k + 1, accepts(log_u[k], log_ratio), carry.values.at[k].set(value), carry.invalid | invalid)

        first = Carry(jnp.asarray(0), jnp.asarray(True), state.blocks, jnp.asarray(False))
        done = lax.while_loop(lambda carry: carry.alive & (carry.block < count), read, first)
        accept = done.alive
        theta, prior, blocks = choose(accept, (proposed, prior, done.values), (state.theta, state.prior, state.blocks))
        decision = Decision(accept.astype(jnp.float64), accept, done.invalid)
        info = Info(*decision, rows=ends[done.block - 1], lp=prior + blocks.sum(), extra={"blocks": done.block})
        return State(theta, prior, blocks, state.walk), info
