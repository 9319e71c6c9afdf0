"""What every θ kernel is: Q, one accept/reject, and what it learns during tune."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.decision import accepts, choose, probability
from lwa.reference import Reference
from lwa.target import Terms

type Evaluate = Callable[[Array], Terms]
"""θ -> the log target given the current U. Gradient kernels differentiate its `total`."""


class Info(NamedTuple):
    """What diagnostics need of one move."""

    acceptance: Any  # min(1, ratio)
    accepted: Any
    invalid: Any  # the proposal's log target was NaN or +inf, so it was rejected


class Kernel(ABC):
    """One M-H move of θ on π(·|Y_U), on flat vectors.

    Frozen: hyperparameters are its fields, what it learns during tune is passed along as `tuning`.
    """

    @abstractmethod
    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Any) -> Any:
        """All the randomness of a page of moves, for θ of d entries of this type; leaves `(moves, ...)`."""

    @abstractmethod
    def init(self, theta: Array, reference: Reference | None) -> Any:
        """What it knows before the first move, from the reference where there is one."""

    @abstractmethod
    def step(
        self, noise: Any, tuning: Any, theta: Array, terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, Info]:
        """Lines 7-9 of Algorithm 1."""

    @abstractmethod
    def steer(self, tuning: Any, noise: Any, info: Info, gain: Array) -> Any:
        """Learn from one move and the noise it was made of; must return `tuning` as it was where the gain is 0."""

    @abstractmethod
    def adapt(self, tuning: Any, path: Array, moves: Array) -> Any:
        """Learn from the θ path `(m, d)` of the last m moves, `moves` being their number so far."""

    @abstractmethod
    def describe(self, tuning: Any) -> str:
        """In one line, how θ was moved; `tuning` is that of all chains, leaves `(chains, ...)`."""


def log_uniform(rng: np.random.Generator, moves: int) -> NDArray[np.float64]:
    """The logarithms of uniforms, by which moves are decided; -inf, should one be zero, accepts what has a density."""
    with np.errstate(divide="ignore"):
        return np.log(rng.random(moves))


def metropolis(
    log_u: Array, theta: Array, terms: Terms, proposed: Array, new: Terms, log_hastings: float | Array = 0.0
) -> tuple[Array, Terms, Info]:
    """Lines 8-9, eq. (cacc2): accept the proposed θ or leave it."""
    log_ratio = new.log_density - terms.log_density + log_hastings
    accept = accepts(log_u, log_ratio)
    theta, terms = choose(accept, (proposed, new), (theta, terms))
    return theta, terms, Info(probability(log_ratio), accept, new.invalid)
