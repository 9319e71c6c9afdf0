"""What every rival is: `init` and `step`, and when it does not apply."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Float64, PyTree
from numpy.typing import NDArray

from lwa.kernels.autoregressive import Noise
from lwa.kernels.blockwise import Blockwise
from lwa.kernels.blockwise import Noise as BlockNoise
from lwa.kernels.kernel import AnyArray, MetropolisKernel, Tuning, acceptance_probability, accepts
from lwa.models.model import Model
from lwa.rivals.problem import RivalProblem, always_compiled

MOVING = 2**31 - 1
"""The child of a step's key that θ′ comes from: no other use of the key counts that far."""


class Walker(NamedTuple):
    """The state of methods that keep nothing of the rows after a decision: θ, and what its kernel has learnt."""

    theta: Float64[Array, " d"]
    walk: Tuning


class Info(NamedTuple):
    """What diagnostics need of one step, or of many: then leaves have the axes of `Steps` first."""

    acceptance: AnyArray  # min(1, ratio) if it is known, else whether θ′ was accepted
    accepted: AnyArray
    invalid: AnyArray  # the proposal's log density was NaN or +inf
    rows: AnyArray  # rows read: one that is evaluated at θ and at θ' is read twice
    lp: AnyArray  # log posterior of the current θ up to a constant; NaN if the method never knows it
    extra: Mapping[str, AnyArray]


@dataclass(frozen=True)
class Setting:
    """What is known of a model and its data before anything is computed."""

    model: Model
    no_derivatives: str  # "", or why JAX cannot differentiate the model twice
    no_mode: str  # "", or why no mode was found

    @property
    def no_expansion(self) -> str:
        """Why the log-likelihood cannot be expanded at the mode; empty if it can."""
        if self.no_derivatives:
            return f"needs derivatives of the log-likelihood, and there are none: {self.no_derivatives}"
        return f"needs the mode of the posterior: {self.no_mode}" if self.no_mode else ""


class Rival(ABC):
    """A sampler of θ that reads all rows or some of them. Rivals are frozen: hyperparameters are fields.

    `step(key, state, problem)` is compiled, and called from one thread per chain.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    exact: ClassVar[bool]  # whether its draws converge to the posterior of all rows
    reads_singly: ClassVar[str] = "draws single rows"  # what it does that needs independent rows; empty if nothing
    needs_mode: bool = False  # whether it needs the mode and derivatives there
    may_round: ClassVar[bool] = False  # whether terms may be in float32, if a measurement finds that harmless
    labelled_apart: ClassVar[tuple[str, ...]] = ()  # hyperparameters that `label` puts in words
    walks: ClassVar[bool] = True  # whether θ′ comes from `problem.kernel`; what that has learnt is `state.walk`

    @property
    def label(self) -> str:
        """What tables call it: its name, and the hyperparameters that are not the default."""
        return ", ".join([self.name, *self.list_changes()])

    def list_changes(self) -> list[str]:
        """List the hyperparameters that differ from the default, except functions and those in `labelled_apart`."""
        held = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]  # type: ignore[arg-type]
        return [
            f"{name} = {value}"
            for name, value, usual in held
            if value != usual and name not in self.labelled_apart and not callable(value)
        ]

    def explain_exclusion(self, setting: Setting) -> str:
        """Return why the method does not apply; empty if it does."""
        if setting.model.ordered is not False and self.reads_singly:
            return (
                f"{self.reads_singly}, as if these were independent, but they are ordered: a row's term depends on all "
                "rows before it"
            )
        return setting.no_expansion if self.needs_mode else ""

    def prepare(self, key: Array, problem: RivalProblem) -> tuple[PyTree, list[str]]:
        """Return what the method must know of all rows before the first step, and warnings about it."""
        return None, []

    @abstractmethod
    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> PyTree:
        """Return the state of a chain that starts at θ: a NamedTuple with `theta`, and `walk` if the method walks."""

    @abstractmethod
    def step(self, key: Array, state: PyTree, problem: RivalProblem) -> tuple[PyTree, Info]:
        """Make one step; return the new state and what diagnostics need."""

    def collect_warnings(self, stats: Mapping[str, NDArray[Any]]) -> list[str]:
        """Return what a user should know of the draws, from `Info.extra` of all of them."""
        return []


class Decision(NamedTuple):
    """Whether θ′ is accepted; the first fields of `Info`."""

    acceptance: Float[Array, ""]
    accepted: Bool[Array, ""]
    invalid: Bool[Array, ""]


def accept_or_reject(log_u: Array, log_ratio: Array, new: Array) -> Decision:
    """Accept with probability min(1, ratio), unless `new`, the log density of θ′, is NaN or +inf."""
    invalid = ~(new < jnp.inf)
    log_ratio = jnp.where(invalid, -jnp.inf, log_ratio)
    return Decision(acceptance_probability(log_ratio), accepts(log_u, log_ratio), invalid)


def init_walk(theta: Float64[Array, " d"], problem: RivalProblem) -> Tuning:
    """Return what the kernel knows before the first step."""
    return problem.kernel.init(theta, problem.gaussian)  # type: ignore[arg-type]  # it has what kernels read


def propose_theta(key: Array, state: PyTree, problem: RivalProblem) -> tuple[Array, Array, Array]:
    """Return θ′ ~ Q(θ, ·), log u and log Q(θ′, θ)/Q(θ, θ′) from the key of a step, which stays free for other uses."""
    noise = draw_noise(key, state.theta, problem.kernel)
    there, log_hastings = propose_from(noise, state.theta, state.walk, problem.kernel)
    return there, jnp.asarray(noise.log_u), log_hastings


@partial(always_compiled, static=("kernel",))
def draw_noise(key: Array, theta: Float64[Array, " d"], kernel: MetropolisKernel) -> Noise | BlockNoise:
    """Draw the randomness of a step's proposal, in the kernel's own form."""
    direction, uniform, kind = jax.random.split(jax.random.fold_in(key, MOVING), 3)
    normal = jax.random.normal(direction, theta.shape, theta.dtype)
    log_u = jnp.log(jax.random.uniform(uniform, (), jnp.float64))
    if isinstance(kernel, Blockwise):
        return BlockNoise(jax.random.randint(kind, (), 0, kernel.count), normal, log_u)
    return Noise(normal, log_u, jax.random.uniform(kind))


@partial(always_compiled, static=("kernel",))
def propose_from(
    noise: Noise | BlockNoise, theta: Float64[Array, " d"], walk: Tuning, kernel: MetropolisKernel
) -> tuple[Array, Array]:
    """Return θ′ and log Q(θ′, θ)/Q(θ, θ′)."""
    there, log_hastings = kernel.propose(noise, walk, theta)
    return there, jnp.asarray(log_hastings, jnp.float64)
