"""The chain on windows, for all chains of a run at once: the law of `subsets/windows/law.py` over arrays.

U never looks at θ, so a page of transitions is walked before θ moves.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lwa.engine.device.random import DeviceGenerator
from lwa.kernels.decision import accepts
from lwa.subsets.windows.law import WindowDraws, WindowLaw

LARGEST_RATE = 700.0
"""Past it e^λ is more than a float64 holds."""


class Walked(NamedTuple):
    """What a page of transitions did to U; leaves `(transitions, ...)`."""

    x: Array  # the window after each
    accepted: Array


def one_side(steps: Array, rate: Any) -> Any:
    """Σ_{k=1}^{steps} e^{-λk}."""
    return jnp.exp(-rate) * jnp.expm1(-rate * steps) / jnp.expm1(-rate)


def neighbour(x: Array, u: Array, law: WindowLaw) -> Array:
    """x' with probability e^{-λ|x-x'|} / Z(x), from one uniform number."""
    below, above = one_side(x, law.rate), one_side(law.windows - 1 - x, law.rate)
    at = u * (1.0 + below + above)
    upwards = at >= 1.0 + below
    most = jnp.where(upwards, law.windows - 1 - x, x)
    steps = steps_to(jnp.where(upwards, at - 1.0 - below, at - 1.0), most, law.rate)
    return jnp.where(at < 1.0, x, jnp.where(upwards, x + steps, x - steps))


def steps_to(at: Array, most: Array, rate: Any) -> Array:
    """The k in 1, …, most for which Σ_{j<k} e^{-λj} ≤ at < Σ_{j≤k} e^{-λj}."""
    left = jnp.where(rate < LARGEST_RATE, 1.0 - at * jnp.expm1(jnp.minimum(rate, LARGEST_RATE)), 0.0)
    inside = -jnp.log(jnp.where(left > 0.0, left, 1.0)) / rate
    return jnp.where(left > 0.0, jnp.minimum(inside, most - 1.0).astype(most.dtype) + 1, most)


def probability(x: Array, new: Array, law: WindowLaw) -> Array:
    """R(x, x')."""

    def from_end(x: Array) -> Array:
        return jnp.minimum(jnp.minimum(x, law.windows - 1 - x), len(law.arrivals) - 1)

    normalisers, arrivals = jnp.asarray(law.normalisers), jnp.asarray(law.arrivals)
    near = jnp.exp(-law.rate * jnp.abs(x - new)) / normalisers[from_end(x)]
    return law.local * near + (1.0 - law.local) * arrivals[from_end(new)]


def log_hastings(x: Array, new: Array, law: WindowLaw) -> Array:
    """log R(x', x) - log R(x, x')."""
    return jnp.log(probability(new, x, law) / probability(x, new, law))


def draws_of(key: Array, size: int, law: WindowLaw) -> WindowDraws:
    """`size` proposals' worth of randomness; remote windows are settled here, around uniform n'."""
    rng = DeviceGenerator(key)
    is_local: Any = rng.random(size) < law.local
    local_u: Any = rng.random(size)
    around = (rng.random(size) * law.windows).astype(jnp.int64)
    remote: Any = neighbour(jnp.minimum(around, law.windows - 1), rng.random(size), law)
    log_u: Any = jnp.log(rng.random(size))
    return WindowDraws(is_local, local_u, remote, log_u)


def walk(x: Array, draws: WindowDraws, law: WindowLaw) -> Walked:
    """Lines 2-5 of Algorithm 1 over a page for one chain, from the window x. ν is uniform."""

    def transition(x: Array, draw: Any) -> tuple[Array, Walked]:
        new = jnp.where(draw.is_local, neighbour(x, draw.local_u, law), draw.remote)
        accept = (new != x) & accepts(draw.log_u, log_hastings(x, new, law))
        x = jnp.where(accept, new, x)
        return x, Walked(x, accept)

    return jax.lax.scan(transition, x, draws)[1]
