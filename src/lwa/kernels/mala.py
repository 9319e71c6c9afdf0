"""MALA: a random walk that drifts up the gradient, which is one leapfrog step."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float64

from lwa.kernels.gradient import GradientKernel, describe_step_size, leapfrog
from lwa.kernels.kernel import AnyArray, Evaluate, MoveInfo, Precision, log_uniform
from lwa.kernels.random_walk import Tuning
from lwa.targets.target import Terms
from lwa.user.validate import require_share


class Noise(NamedTuple):
    """The randomness of one move."""

    momentum: Float64[AnyArray, " d"]  # standard normal
    log_u: Float64[AnyArray, ""]


@dataclass(frozen=True)
class MALA(GradientKernel):
    """The Metropolis-adjusted Langevin algorithm: θ' = θ + ε²/2 F Fᵀ∇ + ε F z, accepted or rejected.

    It is `HMC` with one leapfrog step, and is computed as that.

    Parameters
    ----------
    target_accept
        The acceptance rate to aim for; 0.574 is best for large d (Roberts and Rosenthal, 1998).

    Examples
    --------
    >>> import lwa
    >>> lwa.kernels.MALA()
    MALA(target_accept=0.574)
    """

    target_accept: float = 0.574

    def __post_init__(self) -> None:
        """Check the acceptance rate."""
        require_share("target_accept", self.target_accept, example=0.574)

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Precision) -> Noise:
        """Draw the momenta and uniforms of a page."""
        return Noise(rng.standard_normal((moves, d)), log_uniform(rng, moves))

    def step(
        self, noise: Noise, tuning: Tuning, theta: Array, terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, MoveInfo]:
        """Make one leapfrog step, then accept or reject."""
        return leapfrog(noise.momentum, noise.log_u, 1, tuning=tuning, theta=theta, terms=terms, evaluate=evaluate)

    def most_evaluations(self) -> int:
        """Count the gradients where it begins and where it ends, and the terms there."""
        return 3

    def describe(self, tuning: Tuning) -> str:
        """Report the step size."""
        return f"MALA, {describe_step_size(tuning)}"
