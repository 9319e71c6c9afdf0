"""The walk of windows, for all chains of a run at once: the law of `subsets/windows/law.py` over arrays.

A window never depends on θ, so a page of transitions is walked before θ moves.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, PyTree

from lwa.engine.device.resident import DeviceGenerator, draw_page_noise, fold_in_page
from lwa.kernels.kernel import AnyArray, Kernel, Noise, Precision, accepts
from lwa.rows.units import Span
from lwa.subsets.windows.law import WindowDraws, WindowLaw
from lwa.targets.target import Given

LARGEST_RATE = 700.0
"""Past it e^λ is more than a float64 holds."""


class Walked(NamedTuple):
    """What a page of transitions did to windows."""

    x: Int[Array, "*chains transitions"]  # the window after each
    accepted: Bool[Array, "*chains transitions"]


class Series(NamedTuple):
    """All series on the device, one after the other, and how windows in them are numbered."""

    rows: PyTree  # leaves (N, *shape)
    first_window: Int[Array, " series+1"]
    first_row: Int[Array, " series"]
    law: WindowLaw
    sums: Float[Array, "N+1 c"] | None  # running sums at θ̂, if there is one


class WindowPage(NamedTuple):
    """A page of transitions as it was walked, leaves `(chains, transitions, ...)`, and θ's noise for its moves."""

    walked: Walked
    span: Span
    given: Given | None
    noise: Noise  # leaves (chains, moves, ...)


def sum_decay(steps: Array, rate: float | Array) -> Array:
    """Return Σ_{k=1}^{steps} e^{-λk}."""
    return jnp.exp(-rate) * jnp.expm1(-rate * steps) / jnp.expm1(-rate)


def draw_neighbour(x: Array, u: AnyArray, law: WindowLaw) -> Array:
    """Draw x' with probability e^{-λ|x-x'|} / Z(x), from one uniform number."""
    below, above = sum_decay(x, law.rate), sum_decay(law.windows - 1 - x, law.rate)
    at = u * (1.0 + below + above)
    upwards = at >= 1.0 + below
    most = jnp.where(upwards, law.windows - 1 - x, x)
    steps = count_decay_steps(jnp.where(upwards, at - 1.0 - below, at - 1.0), most, law.rate)
    return jnp.where(at < 1.0, x, jnp.where(upwards, x + steps, x - steps))


def count_decay_steps(at: Array, most: Array, rate: float | Array) -> Array:
    """Return the k in 1, …, most for which Σ_{j<k} e^{-λj} ≤ at < Σ_{j≤k} e^{-λj}."""
    left = jnp.where(rate < LARGEST_RATE, 1.0 - at * jnp.expm1(jnp.minimum(rate, LARGEST_RATE)), 0.0)
    inside = -jnp.log(jnp.where(left > 0.0, left, 1.0)) / rate
    return jnp.where(left > 0.0, jnp.minimum(inside, most - 1.0).astype(most.dtype) + 1, most)


def jump_probability(x: Array, new: Array, law: WindowLaw) -> Array:
    """Return R(x, x')."""

    def from_end(x: Array) -> Array:
        return jnp.minimum(jnp.minimum(x, law.windows - 1 - x), len(law.arrivals) - 1)

    normalisers, arrivals = jnp.asarray(law.normalisers), jnp.asarray(law.arrivals)
    near = jnp.exp(-law.rate * jnp.abs(x - new)) / normalisers[from_end(x)]
    return law.local * near + (1.0 - law.local) * arrivals[from_end(new)]


def log_jump_ratio(x: Array, new: Array, law: WindowLaw) -> Array:
    """Return log R(x', x) - log R(x, x')."""
    return jnp.log(jump_probability(new, x, law) / jump_probability(x, new, law))


def draw_jumps(key: Array, size: int, law: WindowLaw) -> WindowDraws:
    """Draw the randomness of `size` proposals; remote windows are found here, around uniform n'."""
    rng = DeviceGenerator(key)
    is_local, local_u = rng.random(size) < law.local, rng.random(size)
    around = (rng.random(size) * law.windows).astype(jnp.int64)
    remote = draw_neighbour(jnp.minimum(around, law.windows - 1), rng.random(size), law)
    return WindowDraws._make((is_local, local_u, remote, jnp.log(rng.random(size))))


def walk_on_device(x: Array, draws: WindowDraws, law: WindowLaw) -> Walked:
    """Walk over a page for one chain from the window x, with ν uniform: lines 2-5 of Algorithm 1."""

    def transition(x: Array, draw: WindowDraws) -> tuple[Array, Walked]:
        new = jnp.where(draw.is_local, draw_neighbour(x, draw.local_u, law), draw.remote)
        accept = (new != x) & accepts(draw.log_u, log_jump_ratio(x, new, law))
        x = jnp.where(accept, new, x)
        return x, Walked(x, accept)

    return jax.lax.scan(transition, x, draws)[1]


@partial(jax.jit, static_argnames=("kernel", "transitions", "moves", "d", "dtype"))
def draw_windows(
    subset_keys: Array, theta_keys: Array, number: int, x: Array, law: WindowLaw, *, kernel: Kernel, transitions: int,
    moves: int, d: int, dtype: Precision
) -> tuple[Walked, Noise]:  # fmt: skip
    """Draw the page of that number for each chain, from its window x and one key each for the subset and for θ."""

    def one(x: Array, key: Array) -> Walked:
        return walk_on_device(x, draw_jumps(key, transitions, law), law)

    walked = jax.vmap(one)(x, fold_in_page(subset_keys, number))
    return walked, draw_page_noise(fold_in_page(theta_keys, number), kernel, moves, d, dtype)


@partial(jax.jit, static_argnames=("n", "lead_in"))
def locate_windows(x: Array, series: Series, *, n: int, lead_in: int) -> tuple[Span, Array | None]:
    """Return where windows of n steps lie, as `rows.units.build_windows` does, and their sums at θ̂."""
    part = jnp.searchsorted(series.first_window, x, side="right") - 1
    begin = series.first_row[part] + x - series.first_window[part]
    span = Span._make((jnp.maximum(begin - lead_in, series.first_row[part]), begin, begin + n))
    return span, None if series.sums is None else series.sums[span.stop] - series.sums[span.begin]
