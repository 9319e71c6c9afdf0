"""What every θ kernel is: Q, one accept/reject, and what it learns during tune."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.kernels.decision import accepts, choose, probability
from lwa.models.model import Model
from lwa.targets.reference import Reference
from lwa.targets.target import Terms

type Evaluate = Callable[[Array], Terms]
"""θ -> the log target given the current U. Gradient kernels differentiate its `total`."""


class Info(NamedTuple):
    """What diagnostics need of one move."""

    acceptance: Any  # min(1, ratio)
    accepted: Any
    invalid: Any  # the proposal's log target was NaN or +inf, so it was rejected
    evaluations: Any  # how many times the n rows of U were read, int32
    extra: dict[str, Any]  # what `Kernel.extra` declares


ADDED_UP = ("diverging", "n_steps")
"""Of `Info.extra`, what is added up from one kept draw to the next; of all else the last value is kept."""


class Kernel(ABC):
    """One M-H move of θ on π(·|Y_U), on flat vectors.

    Frozen: hyperparameters are its fields, what it learns during tune is passed along as `tuning`.
    """

    needs_gradients: ClassVar[bool] = False

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

    def proposal_variances(self, tuning: Any) -> list[float]:
        """Of a random walk: how far it proposes to go, the variance of one entry of θ' - θ, averaged over the entries
        that move together and over chains; one number a block. Nothing where θ' does not come from a walk.
        """
        return []

    def bind(self, model: Model) -> "Kernel":
        """The kernel that knows which entries of θ the model's parameters are, where it asks for them by name."""
        return self

    def most_evaluations(self) -> int:
        """How many times one move may read the rows of U at the most, so that no budget is overdrawn."""
        return 1

    def extra(self) -> dict[str, np.generic]:
        """What `Info.extra` holds, by the names that HMC has for it: a zero of each type."""
        return {}


class Step(NamedTuple):
    """A proposal but for where it starts, so that it can be drawn up ahead: θ' = θ + by, or by alone."""

    by: Array  # (d,)
    from_here: Array  # ()  whether it starts from θ


class Metropolis(Kernel):
    """A kernel that needs the target only to decide: propose, evaluate once, accept or leave.

    Its noise has a `log_u`.
    """

    @abstractmethod
    def propose(self, noise: Any, tuning: Any, theta: Array) -> tuple[Array, float | Array]:
        """Line 7: θ' ~ Q(θ, ·), and log Q(θ', θ)/Q(θ, θ')."""

    def ahead(self, noise: Any, tuning: Any) -> Step | None:
        """What `propose` will propose, where that much of it is known before θ is; None where it is not."""
        return None

    def log_q(self, square: Array, d: int) -> Array:
        """The log density of steps that do not start from θ, up to a constant, where ‖F⁻¹(θ - θ̂)‖² is `square`."""
        return jnp.zeros_like(square)

    @final
    def step(
        self, noise: Any, tuning: Any, theta: Array, terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, Info]:
        """Lines 7-9."""
        proposed, log_hastings = self.propose(noise, tuning, theta)
        return metropolis(noise.log_u, theta, terms, proposed, evaluate(proposed), log_hastings)


def log_uniform(rng: np.random.Generator, moves: int) -> Any:
    """The logarithms of uniforms, by which moves are decided; -inf, should one be zero, accepts what has a density."""
    uniform: Any = rng.random(moves)
    if isinstance(uniform, Array):  # drawn on the device
        return jnp.log(uniform)
    with np.errstate(divide="ignore"):
        return np.log(uniform)


def metropolis(
    log_u: Array, theta: Array, terms: Terms, proposed: Array, new: Terms, log_hastings: float | Array = 0.0
) -> tuple[Array, Terms, Info]:
    """Lines 8-9, eq. (cacc2): accept the proposed θ or leave it."""
    log_ratio = new.log_density - terms.log_density + log_hastings
    accept = accepts(log_u, log_ratio)
    theta, terms = choose(accept, (proposed, new), (theta, terms))
    return theta, terms, Info(probability(log_ratio), accept, new.invalid, jnp.ones((), jnp.int32), {})


def steering_gain(moves: Any) -> Any:
    """How strongly the scale follows the acceptance rate: firmly at first, ever less as tune goes on."""
    return (1.0 + moves / 10.0) ** -0.6
