"""Independent proposals around θ̂, with tails that outweigh the target's."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from lwa.errors import InputError
from lwa.kernels.autoregressive import draw_student, log_student, log_student_of_square
from lwa.kernels.kernel import AnyArray, MetropolisKernel, MoveInfo, Precision, Step, log_uniform
from lwa.targets.reference import Reference
from lwa.user.validate import is_real


class Tuning(NamedTuple):
    """The reference's Gaussian; nothing is learnt."""

    centre: Float[Array, " d"]  # θ̂
    factor: Float[Array, "d d"]  # F
    whitening: Float[Array, "d d"]  # F⁻¹


class Noise(NamedTuple):
    """The randomness of one move."""

    direction: Float[AnyArray, " d"]  # standard Student's t with the proposal's degrees of freedom
    log_u: Float[AnyArray, ""]


@dataclass(frozen=True)
class Independence(MetropolisKernel):
    """θ' = θ̂ + F t, with t from a multivariate Student's t, wherever the chain is.

    Its tails are heavier than those of `Autoregressive()`. A target with lighter tails has no region that is proposed
    so rarely that the chain gets stuck there.

    Parameters
    ----------
    df
        Degrees of freedom of t; `float("inf")` proposes from the Gaussian.

    Examples
    --------
    >>> import lwa
    >>> lwa.kernels.Independence(df=4.0)
    Independence(df=4.0)
    """

    df: float = 8.0

    def __post_init__(self) -> None:
        """Check the degrees of freedom."""
        if not is_real(self.df) or not self.df > 0.0:
            raise InputError(f"df={self.df!r} must be positive. Pass df=8.0, or df=float('inf') for a Gaussian.")

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Precision) -> Noise:
        """Draw the directions and uniforms of a page."""
        return Noise(draw_student(rng, moves, d, dtype, self.df), log_uniform(rng, moves))

    def init(self, theta: Array, reference: Reference | None) -> Tuning:
        """Return the reference's Gaussian; raise if there is none."""
        if reference is None:
            raise InputError(
                "kernel=Independence(...) needs a reference point. Pass target='calibrated' with it.",
                advice={"target": "calibrated"},
            )
        return Tuning(*(jnp.asarray(x, theta.dtype) for x in (reference.theta, reference.factor, reference.whitening)))

    def propose(self, noise: Noise, tuning: Tuning, theta: Array) -> tuple[Array, Array]:
        """Return θ'; Q(θ', θ)/Q(θ, θ') is the proposal's density at θ over that at θ'."""
        proposed = tuning.centre + tuning.factor @ noise.direction
        old = tuning.whitening @ (theta - tuning.centre)
        return proposed, log_student(old, self.df) - log_student(noise.direction, self.df)

    def plan_step(self, noise: Noise, tuning: Tuning) -> Step:
        """Return θ' itself: it does not start from θ."""
        return Step(tuning.centre + tuning.factor @ noise.direction, jnp.zeros((), bool))

    def log_q(self, square: Array, d: int) -> Array:
        """Return the log density of Student's t."""
        return log_student_of_square(square, d, self.df)

    def steer(self, tuning: Tuning, noise: Noise, info: MoveInfo, gain: Array) -> Tuning:
        """Learn nothing: return `tuning` unchanged."""
        return tuning

    def adapt(self, tuning: Tuning, path: Array, moves: Array) -> Tuning:
        """Learn nothing: return `tuning` unchanged."""
        return tuning

    def describe(self, tuning: Tuning) -> str:
        """Report which law proposals come from."""
        law = "Gaussian" if np.isinf(self.df) else f"Student's t with {self.df:g} degrees of freedom"
        return f"independent proposals around the reference, {law}"
