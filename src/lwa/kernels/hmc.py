"""Hamiltonian Monte Carlo with trajectories of random length."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float64, Int32

from lwa.kernels.gradient import GradientKernel, describe_step_size, leapfrog
from lwa.kernels.kernel import AnyArray, Evaluate, MoveInfo, Precision, log_uniform
from lwa.kernels.random_walk import Tuning
from lwa.targets.target import Terms
from lwa.user.validate import require_share, require_whole


class Noise(NamedTuple):
    """The randomness of one move."""

    momentum: Float64[AnyArray, " d"]  # standard normal
    log_u: Float64[AnyArray, ""]
    steps: Int32[AnyArray, ""]  # leapfrog steps


@dataclass(frozen=True)
class HMC(GradientKernel):
    """Up to `steps` leapfrog steps along the gradient, accepted or rejected.

    Their number is drawn uniformly from 1, …, steps: a trajectory of fixed length returns to its start if the target
    has that period. The number does not depend on θ, so each of them, and their mixture, is reversible.

    Parameters
    ----------
    steps
        The largest number of leapfrog steps per move.
    target_accept
        The acceptance rate to aim for; a larger one means shorter steps.

    Examples
    --------
    >>> import lwa
    >>> lwa.kernels.HMC(steps=16)
    HMC(steps=16, target_accept=0.8)
    """

    steps: int = 8
    target_accept: float = 0.8

    def __post_init__(self) -> None:
        """Check the number of steps and the acceptance rate."""
        require_share("target_accept", self.target_accept, example=0.8)
        require_whole("steps", self.steps, least=1, example=8)

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Precision) -> Noise:
        """Draw the momenta, uniforms and numbers of steps of a page."""
        steps = rng.integers(1, self.steps, size=moves, dtype=np.int32, endpoint=True)
        return Noise(rng.standard_normal((moves, d)), log_uniform(rng, moves), steps)

    def step(
        self, noise: Noise, tuning: Tuning, theta: Array, terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, MoveInfo]:
        """Follow a trajectory, then accept or reject."""
        momentum, log_u, steps = noise
        return leapfrog(momentum, log_u, steps, tuning=tuning, theta=theta, terms=terms, evaluate=evaluate)

    def most_evaluations(self) -> int:
        """Count the gradients where it begins and at each step, and the terms where it ends."""
        return int(self.steps) + 2

    def describe(self, tuning: Tuning) -> str:
        """Report the number of steps and their size."""
        return f"HMC, 1 to {self.steps} leapfrog steps, {describe_step_size(tuning)}"
