"""What every rival is: `init` and `step`, and why it may not apply."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lwa.kernels.autoregressive import Noise
from lwa.kernels.blockwise import Blockwise
from lwa.kernels.blockwise import Noise as BlockNoise
from lwa.kernels.kernel import MetropolisKernel
from lwa.models.model import Model
from lwa.rivals.eager import always_compiled
from lwa.rivals.problem import Problem

MOVING = 2**31 - 1
"""Of a step's key, the child that θ′ comes from: no other use of the key comes that far."""


class Walker(NamedTuple):
    """The state of methods that forget what rows said once they have decided: θ, and what its kernel learnt."""

    theta: Array
    walk: Any


class Info(NamedTuple):
    """What diagnostics need of one step."""

    acceptance: Array  # min(1, ratio) where it is known, else whether it was accepted
    accepted: Array
    invalid: Array  # the proposal's log density was NaN or +inf
    rows: Array  # rows read, int64: one that is evaluated at θ and at θ' is read twice
    lp: Array  # log posterior of the current θ up to a constant; NaN where the method never knows it
    extra: dict[str, Array]


@dataclass(frozen=True)
class Setting:
    """What is known of a model and its data before anything is computed."""

    model: Model
    differentiable: str  # "", or why JAX cannot differentiate the model twice
    mode: str  # "", or why no mode was found

    @property
    def ordered(self) -> bool:
        """Whether rows are a sequence."""
        return self.model.ordered is not False

    @property
    def without_gradient(self) -> str:
        """Why a method that expands the log-likelihood at the mode is out; nothing where it is not."""
        if self.differentiable:
            return f"needs derivatives of the log-likelihood, and there are none: {self.differentiable}"
        return f"needs the mode of the posterior: {self.mode}" if self.mode else ""


class Rival(ABC):
    """A sampler of θ by all rows or some of them. Frozen: hyperparameters are its fields.

    `step(key, state, problem)` is compiled, and called from one thread a chain.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    exact: ClassVar[bool]  # whether the posterior of all rows is its limit
    independent: ClassVar[str] = "draws single rows"  # what it does that asks for independent rows; or nothing
    expands: bool = False  # whether it needs the mode and derivatives there
    single: ClassVar[bool] = False  # whether terms may be in float32, where that is measured to be harmless
    in_words: ClassVar[tuple[str, ...]] = ()  # hyperparameters that the label tells in its own words
    walks: ClassVar[bool] = True  # whether θ′ comes from `problem.kernel`; what that learnt is `state.walk`

    @property
    def label(self) -> str:
        """What tables call it: its name, and what is not as usual."""
        return ", ".join([self.name, *self.unusual()])

    def unusual(self) -> list[str]:
        """Hyperparameters that are not the default, functions and those that `label` tells in its own words apart."""
        told = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]  # type: ignore[arg-type]
        return [
            f"{name} = {value}"
            for name, value, usual in told
            if value != usual and name not in self.in_words and not callable(value)
        ]

    def excluded(self, setting: Setting) -> str:
        """Why it does not apply; nothing where it does."""
        if setting.ordered and self.independent:
            return (
                f"{self.independent}, as if these were independent, but they are ordered: a row's term depends on all "
                "rows before it"
            )
        return setting.without_gradient if self.expands else ""

    def prepare(self, key: Array, problem: Problem) -> tuple[Any, list[str]]:
        """What it must know of all rows before the first step, and what a user should know of that."""
        return None, []

    @abstractmethod
    def init(self, key: Array, theta: Array, problem: Problem) -> Any:
        """The state of a chain that starts at θ: a NamedTuple with a field `theta`, and `walk` where it walks."""

    @abstractmethod
    def step(self, key: Array, state: Any, problem: Problem) -> tuple[Any, Info]:
        """One step."""

    def tell(self, extra: dict[str, Any]) -> list[str]:
        """What a user should know of the draws, from `Info.extra` of all of them."""
        return []


def first_walk(theta: Array, problem: Problem) -> Any:
    """What the kernel knows before the first step."""
    given: Any = problem.gaussian
    return problem.kernel.init(theta, given)


def proposal(key: Array, state: Any, problem: Problem) -> tuple[Array, Array, Array]:
    """θ′ ~ Q(θ, ·), log u and log Q(θ′, θ)/Q(θ, θ′), from the key of a step, which stays free for other uses."""
    noise = noise_of(key, state.theta, problem.kernel)
    there, log_hastings = proposed(noise, state.theta, state.walk, problem.kernel)
    return there, noise.log_u, log_hastings


@partial(always_compiled, static=("kernel",))
def noise_of(key: Array, theta: Array, kernel: MetropolisKernel) -> Any:
    """The randomness of a step's proposal, as the kernel has it."""
    direction, uniform, kind = jax.random.split(jax.random.fold_in(key, MOVING), 3)
    normal = jax.random.normal(direction, theta.shape, theta.dtype)
    log_u = jnp.log(jax.random.uniform(uniform, (), jnp.float64))
    if isinstance(kernel, Blockwise):
        return BlockNoise(jax.random.randint(kind, (), 0, kernel.count), normal, log_u)
    return Noise(normal, log_u, jax.random.uniform(kind))


@partial(always_compiled, static=("kernel",))
def proposed(noise: Noise, theta: Array, walk: Any, kernel: MetropolisKernel) -> tuple[Array, Array]:
    """θ′ and log Q(θ′, θ)/Q(θ, θ′)."""
    there, log_hastings = kernel.propose(noise, walk, theta)
    return there, jnp.asarray(log_hastings, jnp.float64)
