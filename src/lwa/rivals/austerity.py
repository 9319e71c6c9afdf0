"""Austerity: a sequential t-test in place of the accept/reject step (Korattikara, Chen and Welling)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betainc
from jaxtyping import Float64

from lwa.rivals.problem import RivalProblem
from lwa.rivals.rival import Info, Rival, Walker, init_walk, propose_theta
from lwa.rivals.sequential_test import MeanTest, RowSums, decide_by_rows
from lwa.user.validate import require_share, require_whole


@dataclass(frozen=True)
class Austerity(Rival):
    """Accept θ′ if the mean of ℓ_k = log f(Y_k|θ′)/f(Y_k|θ) over the rows read exceeds ψ, once a t-test is sure.

    Rows are read `batch` at a time without replacement, until 1 - F_t(|t|) < epsilon with
    t = (Λ - ψ) / (s/√n · √(1 - (n-1)/(N-1))). The test assumes that the mean of ℓ_k is Gaussian, which it is not for
    heavy tails, and each look is another chance to be wrong. Approximate.

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
    reads_singly = "tests the mean over single rows drawn at random"

    def __post_init__(self) -> None:
        """Check the error rate and the number of rows."""
        require_share("epsilon", self.epsilon, example=0.05)
        require_whole("batch", self.batch, least=2, example=500)

    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> Walker:
        """Return the start; nothing is computed."""
        return Walker(theta, init_walk(theta, problem))

    def step(self, key: Array, state: Walker, problem: RivalProblem) -> tuple[Walker, Info]:
        """Propose, and read rows until the test is sure."""
        proposed, log_u, log_hastings = propose_theta(key, state, problem)
        N = problem.length
        threshold = (log_u - log_hastings + problem.log_prior(state.theta) - problem.log_prior(proposed)) / N  # ψ

        def is_enough(seen: RowSums, look: Array) -> Array:
            n = seen.read
            spread = jnp.sqrt(seen.variance * n / jnp.maximum(n - 1, 1))
            error = spread / jnp.sqrt(n) * jnp.sqrt(1.0 - (n - 1) / (N - 1))
            return student_tail(jnp.abs(seen.mean - threshold) / error, n - 1) < self.epsilon

        test = MeanTest(
            terms=lambda rows: problem.terms(proposed, rows) - problem.terms(state.theta, rows), threshold=threshold,
            is_enough=is_enough, grow=lambda count, _: count + self.batch, batch=min(self.batch, N), reads=2,
        )  # fmt: skip
        return decide_by_rows(key, test, proposed, state, problem)


def student_tail(t: Array, freedom: Array) -> Array:
    """Return 1 - F(t) of Student's t with so many degrees of freedom, for t ≥ 0."""
    freedom = jnp.maximum(freedom, 1).astype(jnp.float64)
    return 0.5 * betainc(freedom / 2, 0.5, freedom / (freedom + t**2))
