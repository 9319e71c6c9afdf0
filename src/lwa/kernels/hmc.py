"""Hamiltonian Monte Carlo with trajectories of random length."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from lwa.errors import InputError
from lwa.kernels.gradient import Gradient, leapfrog, step_size_in_words
from lwa.kernels.kernel import Evaluate, Info, log_uniform
from lwa.kernels.random_walk import Tuning, require_rate
from lwa.targets.target import Terms


class Noise(NamedTuple):
    """The randomness of one move: NumPy's as it is drawn, JAX's as it is used."""

    momentum: Any  # (d,)  standard normal, float64
    log_u: Any
    steps: Any  # ()    leapfrog steps


@dataclass(frozen=True)
class HMC(Gradient):
    """Up to so many leapfrog steps along the gradient, accepted or refused.

    How many is drawn uniformly from 1, …, steps: a trajectory of one length comes back to where it began wherever the
    target has that period. The number does not depend on θ, so each of them, and their mixture, is reversible.

    Parameters
    ----------
    steps
        The most leapfrog steps of a move.
    target_accept
        The acceptance rate steered to; larger, steps are shorter.

    Examples
    --------
    >>> import lwa
    >>> lwa.kernels.HMC(steps=16)
    HMC(steps=16, target_accept=0.8)
    """

    steps: int = 8
    target_accept: float = 0.8

    def __post_init__(self) -> None:
        """Refuse what is no number of steps and no acceptance rate."""
        require_rate(self.target_accept, 0.8)
        if not isinstance(self.steps, int | np.integer) or isinstance(self.steps, bool) or self.steps < 1:
            raise InputError(f"steps={self.steps!r} must be a whole number >= 1. Pass steps=8.")

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Any) -> Noise:
        """Momenta, uniforms and numbers of steps of a page."""
        steps = rng.integers(1, self.steps, size=moves, dtype=np.int32, endpoint=True)
        return Noise(rng.standard_normal((moves, d)), log_uniform(rng, moves), steps)

    def step(
        self, noise: Noise, tuning: Tuning, theta: Array, terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, Info]:
        """A trajectory, accepted or refused."""
        return leapfrog(noise.momentum, noise.log_u, noise.steps, tuning, theta, terms, evaluate)

    def most_evaluations(self) -> int:
        """Where it begins, each step, and the terms where it ends."""
        return int(self.steps) + 2

    def describe(self, tuning: Tuning) -> str:
        """The number of steps and their size."""
        return f"HMC, 1 to {self.steps} leapfrog steps, {step_size_in_words(tuning)}"
