"""Stochastic gradient Langevin dynamics with control variates: BlackJAX's step, in the posterior's own units."""

from dataclasses import dataclass
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float64, PyTree

from lwa.rivals.problem import RivalProblem
from lwa.rivals.rival import Decision, Info, Rival
from lwa.user.validate import require_positive, require_whole


class State(NamedTuple):
    """θ; there is no accept/reject, so nothing else is known."""

    theta: Float64[Array, " d"]


@dataclass(frozen=True)
class SGLD(Rival):
    """z ← z + ε ĝ(z) + √(2ε) ξ with θ = θ̂ + F z, and the gradient from a few rows and from all rows at the mode.

    ĝ = ∇log p(θ) + g_N + N/m Σ_{k drawn} (∇ℓ_k(θ) - ∇ℓ_k(θ̂)), m rows drawn with replacement. In the coordinates z the
    posterior is about standard normal, so one step size suits all directions. Nothing is ever rejected: draws are too
    wide by about ε/4 of their sd, and by the gradient's noise. Approximate.

    Parameters
    ----------
    minibatch
        m, the rows that a step draws.
    step_size
        ε, in squared posterior sds.

    References
    ----------
    Welling and Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics; Baker, Fearnhead, Fox and
    Nemeth (2019), Control variates for stochastic gradient MCMC.
    """

    minibatch: int = 100
    step_size: float = 0.1
    name = "sgld"
    paper = "Welling and Teh 2011; Baker, Fearnhead, Fox and Nemeth 2019"
    exact = False
    reads_singly = "estimates gradients from single rows drawn at random"
    needs_mode = True
    walks = False

    def __post_init__(self) -> None:
        """Check the number of rows and the step size."""
        require_whole("minibatch", self.minibatch, least=1, example=100)
        require_positive("step_size", self.step_size, example=0.1)

    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> State:
        """Return the start; nothing is computed."""
        return State(theta)

    def step(self, key: Array, state: State, problem: RivalProblem) -> tuple[State, Info]:
        """Draw rows, follow their gradient."""
        mode, factor, whitening = problem.mode.theta, problem.mode.factor, problem.mode.whitening

        def gradient(z: Array, rows: PyTree) -> Array:
            return factor.T @ estimate_gradient(mode + factor @ z, rows, problem)

        drawing, moving = jax.random.split(key)
        rows = problem.take(jax.random.randint(drawing, (self.minibatch,), 0, problem.length))
        z = blackjax.sgld(gradient).step(moving, whitening @ (state.theta - mode), rows, self.step_size)
        theta = mode + factor @ z
        invalid = ~jnp.all(jnp.isfinite(theta))
        reads = jnp.asarray(2 * self.minibatch, jnp.int64)
        info = Info(*Decision(1.0 - invalid, ~invalid, invalid), rows=reads, lp=jnp.asarray(jnp.nan), extra={})
        return State(jnp.where(invalid, state.theta, theta)), info


def estimate_gradient(theta: Float64[Array, " d"], rows: PyTree, problem: RivalProblem) -> Float64[Array, " d"]:
    """Return an unbiased estimate of ∇log π from some rows drawn with replacement."""
    slope = jax.grad(lambda at: problem.terms(at, rows).mean())
    change = slope(theta) - slope(problem.mode.theta)
    return jax.grad(problem.log_prior)(theta) + problem.mode.gradient + problem.length * change
