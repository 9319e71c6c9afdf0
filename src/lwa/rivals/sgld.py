"""Stochastic gradient Langevin dynamics with control variates: BlackJAX's step, in the posterior's own units."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lwa.rivals.hyperparameters import require_positive, require_whole
from lwa.rivals.problem import Problem
from lwa.rivals.rival import Info, Rival


class State(NamedTuple):
    """θ; there is no accept/reject, so nothing else is known."""

    theta: Array


@dataclass(frozen=True)
class SGLD(Rival):
    """z ← z + ε ĝ(z) + √(2ε) ξ with θ = θ̂ + F z, and the gradient from a few rows and all rows' at the mode.

    ĝ = ∇log p(θ) + g_N + N/m Σ_{k drawn} (∇ℓ_k(θ) - ∇ℓ_k(θ̂)), m rows drawn with replacement. In the coordinates z the
    posterior is about standard normal, so one step size suits all directions. Nothing is ever refused: draws are too
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
    independent = "estimates gradients from single rows drawn at random"
    expands = True
    walks = False

    def __post_init__(self) -> None:
        """Refuse what is no number of rows and no step size."""
        require_whole("minibatch", self.minibatch, 1, 100)
        require_positive("step_size", self.step_size, 0.1)

    def init(self, key: Array, theta: Array, problem: Problem) -> State:
        """Nothing to compute."""
        return State(theta)

    def step(self, key: Array, state: State, problem: Problem) -> tuple[State, Info]:
        """Draw rows, follow their gradient."""
        import blackjax

        assert problem.gaussian is not None
        mode, factor, whitening = problem.gaussian.theta, problem.gaussian.factor, problem.gaussian.whitening

        def gradient(z: Array, rows: Any) -> Array:
            return factor.T @ estimate(mode + factor @ z, rows, problem)

        drawing, moving = jax.random.split(key)
        rows = problem.take(jax.random.randint(drawing, (self.minibatch,), 0, problem.length))
        z = blackjax.sgld(gradient).step(moving, whitening @ (state.theta - mode), rows, self.step_size)
        theta = mode + factor @ z
        invalid = ~jnp.all(jnp.isfinite(theta))
        theta = jnp.where(invalid, state.theta, theta)
        reads = jnp.asarray(2 * self.minibatch, jnp.int64)
        return State(theta), Info(1.0 - invalid, ~invalid, invalid, reads, jnp.asarray(jnp.nan), {})


def estimate(theta: Array, rows: Any, problem: Problem) -> Array:
    """The gradient of log π, unbiased, from some rows drawn with replacement."""
    assert problem.gaussian is not None

    def few(at: Array) -> Array:
        return problem.terms(at, rows).mean()

    change = jax.grad(few)(theta) - jax.grad(few)(problem.gaussian.theta)
    return jax.grad(problem.log_prior)(theta) + problem.gaussian.gradient + problem.length * change
