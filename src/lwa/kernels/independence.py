"""Independent proposals around θ̂, with tails that outweigh the target's."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.kernels.kernel import Info, Metropolis, Step, log_uniform
from lwa.kernels.random_walk import is_real
from lwa.targets.reference import Reference


class Tuning(NamedTuple):
    """The reference's Gaussian; nothing is learnt."""

    centre: Array  # θ̂
    factor: Array  # F
    whitening: Array  # F⁻¹


class Noise(NamedTuple):
    """The randomness of one move: NumPy's as it is drawn, JAX's as it is used."""

    direction: Any  # (d,)  standard Student's t with as many degrees of freedom as the proposal
    log_u: Any


def student(rng: np.random.Generator, moves: int, d: int, dtype: Any, df: float) -> NDArray[Any]:
    """t = z / √(χ²/df) of a page, `(moves, d)`; standard normal where df is infinite."""
    if np.isinf(df):
        return rng.standard_normal((moves, d), dtype)
    return (rng.standard_normal((moves, d)) / (rng.chisquare(df, (moves, 1)) / df) ** 0.5).astype(dtype)


def log_student(t: Array, df: float) -> Array:
    """The log density of `student`, up to a constant."""
    return log_density_of(jnp.sum(t.astype(jnp.float64) ** 2), t.shape[-1], df)


def log_density_of(square: Array, d: int, df: float) -> Array:
    """-(df + d)/2 log(1 + ‖t‖²/df), from ‖t‖²."""
    return -0.5 * square if np.isinf(df) else -0.5 * (df + d) * jnp.log1p(square / df)


@dataclass(frozen=True)
class Independence(Metropolis):
    """θ' = θ̂ + F t, with t of a multivariate Student's t, wherever the chain is.

    Its tails are heavier than the Gaussian's of `Autoregressive()`, so no part of a target of lighter tails is visited
    so rarely that the chain stays there for long once it has come.

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
        """Refuse what is no number of degrees of freedom."""
        if not is_real(self.df) or not self.df > 0.0:
            raise InputError(f"df={self.df!r} must be positive. Pass df=8.0, or df=float('inf') for a Gaussian.")

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Any) -> Noise:
        """Directions and uniforms of a page."""
        return Noise(student(rng, moves, d, dtype, self.df), log_uniform(rng, moves))

    def init(self, theta: Array, reference: Reference | None) -> Tuning:
        """The reference's Gaussian, without which there is nothing to propose from."""
        if reference is None:
            raise InputError("kernel=Independence(...) needs a reference point. Pass target='calibrated' with it.")
        gaussian = (reference.theta, reference.factor, reference.whitening)
        return Tuning(*(jnp.asarray(x, theta.dtype) for x in gaussian))

    def propose(self, noise: Noise, tuning: Tuning, theta: Array) -> tuple[Array, Array]:
        """Q(θ', θ)/Q(θ, θ') is the proposal's density at θ over that at θ'."""
        proposed = tuning.centre + tuning.factor @ noise.direction
        old = tuning.whitening @ (theta - tuning.centre)
        return proposed, log_student(old, self.df) - log_student(noise.direction, self.df)

    def ahead(self, noise: Noise, tuning: Tuning) -> Step:
        """Wherever the chain is."""
        return Step(tuning.centre + tuning.factor @ noise.direction, jnp.zeros((), bool))

    def log_q(self, square: Array, d: int) -> Array:
        """That of the Student's t."""
        return log_density_of(square, d, self.df)

    def steer(self, tuning: Tuning, noise: Noise, info: Info, gain: Array) -> Tuning:
        """Nothing is learnt."""
        return tuning

    def adapt(self, tuning: Tuning, path: Array, moves: Array) -> Tuning:
        """Nothing is learnt."""
        return tuning

    def describe(self, tuning: Tuning) -> str:
        """What is proposed from."""
        law = "Gaussian" if np.isinf(self.df) else f"Student's t with {self.df:g} degrees of freedom"
        return f"independent proposals around the reference, {law}"
