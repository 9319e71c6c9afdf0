"""MALA: a random walk that drifts up the gradient, which is one leapfrog step."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from lwa.kernels.gradient import Gradient, leapfrog, step_size_in_words
from lwa.kernels.kernel import Evaluate, Info, log_uniform
from lwa.kernels.random_walk import Tuning, require_rate
from lwa.targets.target import Terms


class Noise(NamedTuple):
    """The randomness of one move: NumPy's as it is drawn, JAX's as it is used."""

    momentum: Any  # (d,)  standard normal, float64
    log_u: Any


@dataclass(frozen=True)
class MALA(Gradient):
    """The Metropolis-adjusted Langevin algorithm: θ' = θ + ε²/2 F Fᵀ∇ + ε F z, accepted or refused.

    It is `HMC` with one leapfrog step, and is computed as that.

    Parameters
    ----------
    target_accept
        The acceptance rate steered to; 0.574 is best for large d (Roberts and Rosenthal, 1998).

    Examples
    --------
    >>> import lwa
    >>> lwa.kernels.MALA()
    MALA(target_accept=0.574)
    """

    target_accept: float = 0.574

    def __post_init__(self) -> None:
        """Refuse what is no acceptance rate."""
        require_rate(self.target_accept, 0.574)

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Any) -> Noise:
        """Momenta and uniforms of a page."""
        return Noise(rng.standard_normal((moves, d)), log_uniform(rng, moves))

    def step(
        self, noise: Noise, tuning: Tuning, theta: Array, terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, Info]:
        """One leapfrog step, accepted or refused."""
        return leapfrog(noise.momentum, noise.log_u, 1, tuning, theta, terms, evaluate)

    def most_evaluations(self) -> int:
        """Where it begins, where it ends, and the terms there."""
        return 3

    def describe(self, tuning: Tuning) -> str:
        """The step size."""
        return f"MALA, {step_size_in_words(tuning)}"
