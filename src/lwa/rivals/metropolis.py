"""Metropolis-Hastings on all rows: what the others are measured by."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float64

from lwa.kernels.kernel import Tuning, choose
from lwa.rivals.problem import RivalProblem
from lwa.rivals.rival import Info, Rival, accept_or_reject, init_walk, propose_theta


class State(NamedTuple):
    """θ, and its log posterior, which is not computed again."""

    theta: Float64[Array, " d"]
    lp: Float64[Array, ""]
    walk: Tuning


@dataclass(frozen=True)
class Metropolis(Rival):
    """Accept θ′ with probability min(1, π(θ′)/π(θ)), from all N rows: N reads per step.

    References
    ----------
    Metropolis, Rosenbluth, Rosenbluth, Teller and Teller (1953); Hastings (1970).
    """

    name = "metropolis"
    paper = "Metropolis et al. 1953, Hastings 1970"
    exact = True
    reads_singly = ""
    may_round = True

    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> State:
        """Return the start, from one pass over all rows."""
        return State(theta, full_log_posterior(theta, problem), init_walk(theta, problem))

    def step(self, key: Array, state: State, problem: RivalProblem) -> tuple[State, Info]:
        """Propose, make one pass over all rows, accept or reject."""
        proposed, log_u, log_hastings = propose_theta(key, state, problem)
        new = full_log_posterior(proposed, problem)
        decision = accept_or_reject(log_u, new - state.lp + log_hastings, new)
        theta, lp = choose(decision.accepted, (proposed, new), (state.theta, state.lp))
        info = Info(*decision, rows=jnp.asarray(problem.length, jnp.int64), lp=lp, extra={})
        return State(theta, lp, state.walk), info


def full_log_posterior(theta: Float64[Array, " d"], problem: RivalProblem) -> Float64[Array, ""]:
    """Return log p(θ) + Σ log f(Y_k|θ) over all rows."""
    return problem.log_prior(theta) + problem.log_likelihood(theta)
