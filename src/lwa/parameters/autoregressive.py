"""Autoregressive proposals around θ̂: nearly independent draws where the posterior is nearly Gaussian."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lwa.errors import InputError
from lwa.parameters.kernel import Evaluate, Info, Kernel, metropolis
from lwa.parameters.random_walk import is_real, optimal_scale
from lwa.reference import Reference
from lwa.target import Terms


class Shape(NamedTuple):
    """The Gaussian approximation Normal(θ̂, F Fᵀ)."""

    centre: Array  # θ̂
    factor: Array  # F
    whitening: Array  # F⁻¹


class Noise(NamedTuple):
    """The randomness of one move."""

    direction: Array  # (d,)  standard normal
    log_u: Array
    walks: Array  # ()    whether this move is a random walk


@dataclass(frozen=True)
class Autoregressive(Kernel):
    """θ' = θ̂ + ρ (θ - θ̂) + √(1-ρ²) F z, now and then a random walk θ' = θ + 2.38/√d F z instead.

    The first is reversible for Normal(θ̂, F Fᵀ), so only what the target is more than that Gaussian decides on it. The
    second keeps the chain moving where the Gaussian has lighter tails than the target. Nothing is adapted.

    Parameters
    ----------
    rho
        ρ in [0, 1): 0 proposes independently of where the chain is.
    walk
        The share of random-walk moves.
    """

    rho: float = 0.0
    walk: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what is no correlation or no share."""
        for name, example in (("rho", 0.0), ("walk", 0.2)):
            value = getattr(self, name)
            if not is_real(value) or not 0.0 <= value < 1.0:
                raise InputError(f"{name}={value!r} must lie in [0, 1). Pass {name}={example}.")

    def noise(self, key: Array, moves: int, theta: Array) -> Noise:
        """Directions, uniforms and kinds of a page."""
        towards, decide, kind = jax.random.split(key, 3)
        direction = jax.random.normal(towards, (moves, theta.shape[-1]), theta.dtype)
        log_u = jnp.log(jax.random.uniform(decide, (moves,), theta.dtype)).astype(jnp.float64)
        return Noise(direction, log_u, jax.random.uniform(kind, (moves,), jnp.float32) < self.walk)

    def init(self, theta: Array, reference: Reference | None) -> Shape:
        """The reference's Gaussian, without which there is nothing to propose around."""
        if reference is None:
            raise InputError("kernel=Autoregressive(...) needs a reference point. Pass target='calibrated' with it.")
        dtype = theta.dtype
        return Shape(*(jnp.asarray(leaf, dtype) for leaf in (reference.theta, reference.factor, reference.whitening)))

    def step(
        self, noise: Noise, tuning: Shape, theta: Array, terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, Info]:
        """Either proposal; Q(θ', θ)/Q(θ, θ') is the ratio of Gaussian densities for the first, 1 for the second."""
        away = theta - tuning.centre
        push = tuning.factor @ noise.direction
        towards = tuning.centre + self.rho * away + (1.0 - self.rho**2) ** 0.5 * push
        proposed = jnp.where(noise.walks, theta + optimal_scale(theta.shape[-1]).astype(theta.dtype) * push, towards)
        old, new = (jnp.sum((tuning.whitening @ x).astype(jnp.float64) ** 2) for x in (away, proposed - tuning.centre))
        log_hastings = jnp.where(noise.walks, 0.0, 0.5 * (new - old))
        return metropolis(noise.log_u, theta, terms, proposed, evaluate(proposed), log_hastings)

    def steer(self, tuning: Shape, info: Info, gain: Array) -> Shape:
        """Nothing to learn."""
        return tuning

    def adapt(self, tuning: Shape, path: Array, moves: Array) -> Shape:
        """Nothing to learn."""
        return tuning
