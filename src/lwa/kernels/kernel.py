"""What every θ kernel is: a proposal Q, one accept/reject, and what it learns during tune."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from lwa.models.model import Model
from lwa.targets.reference import Reference
from lwa.targets.target import Terms

type Evaluate = Callable[[Array], Terms]
"""θ -> the log target given the current subset. Gradient kernels differentiate its `total`."""
type Noise = Any
"""The randomness of a move: a NamedTuple of arrays that each kernel's module defines."""
type Tuning = Any
"""What a kernel has learnt: a NamedTuple of arrays that each kernel's module defines."""
type Precision = type[np.float32] | type[np.float64]
"""The working precision of θ and of rows."""
AnyArray = Array | np.ndarray
"""NumPy's as it is drawn and kept, JAX's as it is used."""


class MoveInfo(NamedTuple):
    """What diagnostics need of one move."""

    acceptance: AnyArray  # min(1, ratio)
    accepted: AnyArray
    invalid: AnyArray  # the proposal's log target was NaN or +inf, so it was rejected
    evaluations: AnyArray  # how many times the n rows of the subset were read, int32
    extra: Mapping[str, AnyArray]  # what `Kernel.extra` declares


ADDED_UP = ("diverging", "n_steps")
"""The entries of `MoveInfo.extra` that are added up between kept draws; of every other entry the last value is kept."""


class Kernel(ABC):
    """One Metropolis-Hastings move of θ on π(·|Y_U), on flat vectors.

    Kernels are frozen: hyperparameters are fields, and what is learnt during tune is passed along as `tuning`.
    """

    needs_gradients: ClassVar[bool] = False

    @abstractmethod
    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Precision) -> Noise:
        """Draw all the randomness of a page of moves, for θ of d entries of this type; leaves are `(moves, ...)`."""

    @abstractmethod
    def init(self, theta: Float[Array, " d"], reference: Reference | None) -> Tuning:
        """Return what is known before the first move, from the reference if there is one."""

    @abstractmethod
    def step(
        self, noise: Noise, tuning: Tuning, theta: Float[Array, " d"], terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, MoveInfo]:
        """Make one move: lines 7-9 of Algorithm 1."""

    @abstractmethod
    def steer(self, tuning: Tuning, noise: Noise, info: MoveInfo, gain: Float[Array, ""]) -> Tuning:
        """Learn from one move and its noise; must return `tuning` unchanged if the gain is 0."""

    @abstractmethod
    def adapt(self, tuning: Tuning, path: Float[Array, "m d"], moves: Float[Array, ""]) -> Tuning:
        """Learn from the path of θ over the last m moves; `moves` is the number of moves so far."""

    @abstractmethod
    def describe(self, tuning: Tuning) -> str:
        """Describe in one line how θ was moved; `tuning` is that of all chains, leaves `(chains, ...)`."""

    def proposal_variances(self, tuning: Tuning) -> list[float]:
        """Return how far a random walk proposes to go, one number per block: the variance of one entry of θ' - θ,
        averaged over the entries that move together and over chains. Empty if the kernel is no walk.
        """
        return []

    def bind(self, model: Model) -> "Kernel":
        """Return the kernel that knows which entries of θ belong to which parameter of the model."""
        return self

    def most_evaluations(self) -> int:
        """Return how many times one move may read the rows of the subset at most, so that no budget is overdrawn."""
        return 1

    def extra(self) -> dict[str, np.generic]:
        """Return what `MoveInfo.extra` holds, by ArviZ's names: a zero of each type."""
        return {}


class Step(NamedTuple):
    """A proposal but for where it starts, so that it can be drawn up ahead: θ' = θ + by, or by alone."""

    by: Float[Array, " d"]
    from_here: Bool[Array, ""]  # whether it starts from θ


class MetropolisKernel(Kernel):
    """A kernel that proposes, evaluates the target once, and accepts or rejects. Its noise has a `log_u`."""

    @abstractmethod
    def propose(self, noise: Noise, tuning: Tuning, theta: Float[Array, " d"]) -> tuple[Array, float | Array]:
        """Return θ' ~ Q(θ, ·) and log Q(θ', θ)/Q(θ, θ'): line 7."""

    def plan_step(self, noise: Noise, tuning: Tuning) -> Step | None:
        """Return what `propose` will propose, as far as it is known before θ is; None if it depends on θ otherwise."""
        return None

    def log_q(self, square: Array, d: int) -> Array:
        """Return the log density of steps that do not start from θ, up to a constant; `square` is ‖F⁻¹(θ - θ̂)‖²."""
        return jnp.zeros_like(square)

    @final
    def step(
        self, noise: Noise, tuning: Tuning, theta: Float[Array, " d"], terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, MoveInfo]:
        """Propose, then accept or reject: lines 7-9."""
        proposed, log_hastings = self.propose(noise, tuning, theta)
        return metropolis(noise.log_u, (theta, terms), (proposed, evaluate(proposed)), log_hastings)


def accepts(log_u: Any, log_ratio: Any) -> Any:
    """Return whether a uniform u falls under min(1, ratio): the only accept/reject of lwa. A NaN ratio rejects."""
    return log_u < log_ratio


def acceptance_probability(log_ratio: Array) -> Array:
    """Return min(1, ratio); 0 if the ratio is NaN."""
    return jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))


def choose[T](accept: AnyArray, new: T, old: T) -> T:
    """Return `new` if accepted, else `old`, leaf by leaf: lines 4-5 and 8-9 of Algorithm 1."""
    return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old)


def log_uniform(rng: np.random.Generator, moves: int) -> AnyArray:
    """Draw the logarithms of uniforms, by which moves are decided; -inf, if one is zero, accepts any density > 0."""
    uniform: AnyArray = rng.random(moves)
    if isinstance(uniform, Array):  # drawn on the device
        return jnp.log(uniform)
    with np.errstate(divide="ignore"):
        return np.log(uniform)


def metropolis(
    log_u: AnyArray, here: tuple[Array, Terms], proposed: tuple[Array, Terms], log_hastings: float | Array = 0.0
) -> tuple[Array, Terms, MoveInfo]:
    """Accept the proposed θ and its terms or stay here: lines 8-9, eq. (cacc2)."""
    new = proposed[1]
    log_ratio = new.log_density - here[1].log_density + log_hastings
    accept = accepts(log_u, log_ratio)
    theta, terms = choose(accept, proposed, here)
    probability = acceptance_probability(log_ratio)
    return theta, terms, MoveInfo(probability, accept, new.invalid, jnp.ones((), jnp.int32), {})


def steering_gain[A: (np.ndarray, Array)](moves: A) -> A:
    """Return how strongly the scale follows the acceptance rate: firmly at first, ever less as tune goes on."""
    return (1.0 + moves / 10.0) ** -0.6
