"""Austerity: a sequential t-test in the place of the accept/reject step (Korattikara, Chen and Welling)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betainc

from lwa.rivals.hyperparameters import require_share, require_whole
from lwa.rivals.looks import Seen, concluded, decide
from lwa.rivals.problem import Problem
from lwa.rivals.rival import Info, Rival, Walker, first_walk, proposal


@dataclass(frozen=True)
class Austerity(Rival):
    """Accept θ′ where the mean of ℓ_k = log f(Y_k|θ′)/f(Y_k|θ) over the rows read exceeds ψ, once a t-test is sure.

    Rows are read `batch` at a time without replacement, until 1 - F_t(|t|) < epsilon with
    t = (Λ - ψ) / (s/√n · √(1 - (n-1)/(N-1))). The test takes the mean of ℓ_k for Gaussian, which heavy tails are not,
    and each look is another chance to be wrong. Approximate.

    Parameters
    ----------
    epsilon
        The chance of a wrong decision that one look may leave.
    batch
        Rows between two looks.

    References
    ----------
    Korattikara, Chen and Welling (2014), Austerity in MCMC land: cutting the Metropolis-Hastings budget.
    """

    epsilon: float = 0.05
    batch: int = 500
    name = "austerity"
    paper = "Korattikara, Chen and Welling 2014"
    exact = False
    independent = "tests the mean over single rows drawn at random"

    def __post_init__(self) -> None:
        """Refuse what is no error rate and no number of rows."""
        require_share("epsilon", self.epsilon, 0.05)
        require_whole("batch", self.batch, 2, 500)

    def init(self, key: Array, theta: Array, problem: Problem) -> Walker:
        """Nothing to compute."""
        return Walker(theta, first_walk(theta, problem))

    def step(self, key: Array, state: Walker, problem: Problem) -> tuple[Walker, Info]:
        """Propose, test."""
        proposed, log_u, log_hastings = proposal(key, state, problem)
        N = problem.length
        threshold = (log_u - log_hastings + problem.log_prior(state.theta) - problem.log_prior(proposed)) / N  # ψ

        def sure(seen: Seen, look: Array) -> Array:
            n = seen.read
            spread = jnp.sqrt(seen.variance * n / jnp.maximum(n - 1, 1))
            error = spread / jnp.sqrt(n) * jnp.sqrt(1.0 - (n - 1) / (N - 1))
            return tail(jnp.abs(seen.mean - threshold) / error, n - 1) < self.epsilon

        found = decide(
            key, lambda rows: problem.terms(proposed, rows) - problem.terms(state.theta, rows), threshold, sure,
            lambda count, _: count + self.batch, min(self.batch, N), problem,
        )  # fmt: skip
        return concluded(found, proposed, state, reads=2)


def tail(t: Array, freedom: Array) -> Array:
    """1 - F(t) of Student's t with so many degrees of freedom, for t ≥ 0."""
    freedom = jnp.maximum(freedom, 1).astype(jnp.float64)
    return 0.5 * betainc(freedom / 2, 0.5, freedom / (freedom + t**2))
