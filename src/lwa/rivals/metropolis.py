"""Metropolis-Hastings on all rows: what the others are measured by."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from lwa.kernels.kernel import accepts, choose, acceptance_probability
from lwa.kernels.random_walk import Tuning
from lwa.rivals.problem import Problem
from lwa.rivals.rival import Info, Rival, first_walk, proposal


class State(NamedTuple):
    """θ and its log posterior, which is kept."""

    theta: Array
    lp: Array
    walk: Tuning


@dataclass(frozen=True)
class Metropolis(Rival):
    """Accept θ′ with probability min(1, π(θ′)/π(θ)), from all N rows: N reads a step.

    References
    ----------
    Metropolis, Rosenbluth, Rosenbluth, Teller and Teller (1953); Hastings (1970).
    """

    name = "metropolis"
    paper = "Metropolis et al. 1953, Hastings 1970"
    exact = True
    independent = ""
    single = True

    def init(self, key: Array, theta: Array, problem: Problem) -> State:
        """One pass."""
        return State(theta, log_posterior(theta, problem), first_walk(theta, problem))

    def step(self, key: Array, state: State, problem: Problem) -> tuple[State, Info]:
        """Propose, one pass, accept or leave."""
        proposed, log_u, log_hastings = proposal(key, state, problem)
        new = log_posterior(proposed, problem)
        invalid = ~(new < jnp.inf)
        log_ratio = jnp.where(invalid, -jnp.inf, new - state.lp + log_hastings)
        accept = accepts(log_u, log_ratio)
        theta, lp = choose(accept, (proposed, new), (state.theta, state.lp))
        rows = jnp.asarray(problem.length, jnp.int64)
        return State(theta, lp, state.walk), Info(acceptance_probability(log_ratio), accept, invalid, rows, lp, {})


def log_posterior(theta: Array, problem: Problem) -> Array:
    """log p(θ) + Σ log f(Y_k|θ) over all rows, in float64."""
    return problem.log_prior(theta) + problem.log_likelihood(theta)
