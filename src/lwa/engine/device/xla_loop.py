"""Lines 2-11 of Algorithm 1 in one loop, for U that is uniform and brings nothing along: as an ordinary JAX program.

`algorithm.py` runs U ahead of θ because they may live apart. Here both are on the device, so one loop holds them. Every
function of a single transition is that of `algorithm.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lwa.algorithm import Candidate, Draw, State, assess, repeats
from lwa.engine.device.partial_eval import Split
from lwa.engine.device.resident import Page
from lwa.kernels.kernel import Evaluate, Kernel
from lwa.rows.slots import put
from lwa.targets.target import Target, Terms


class Place(NamedTuple):
    """Where chains are: θ and all that its next move needs, and which rows U holds, or which window it is."""

    state: State
    indices: Array  # (chains, n); of windows (chains, 1)


class Played(NamedTuple):
    """What moves did; leaves `(chains, moves, ...)`, and for each transition whether U changed."""

    draws: Draw
    refreshed: Array  # (chains, transitions)


def without_rows(terms: Terms) -> Terms:
    """Terms of which only the sum is kept: reading U's rows again costs less than moving n numbers a chain about."""
    return terms._replace(rows=terms.rows[..., :0])


def refresh(place: Place, slots: Array, incoming: Array, rows: Any) -> tuple[Place, Array]:
    """Lines 2-5 for one chain: the rows that come in take their slots, unless one is in U already."""
    n = place.indices.shape[-1]
    nothing = jnp.zeros((0, slots.shape[-1]))
    U = assess(place.indices, jnp.zeros((0, n)))
    changed = ~repeats(Candidate(slots, incoming, nothing, jnp.zeros(())), U)
    slots = jnp.where(changed, slots, n + jnp.arange(slots.shape[-1], dtype=slots.dtype))
    held = jax.tree.map(lambda new, old: put(slots, jnp.moveaxis(new, 0, -1), old), rows, place.state.rows)
    return Place(
        place.state._replace(rows=held), put(slots, incoming.astype(place.indices.dtype), place.indices)
    ), changed


def evaluate(theta: Array, rows: list[Array], target: Target, split: Split) -> Terms:
    """The log target of one chain, given what its rows were prepared to."""
    terms = split.terms(split.numbers(theta, target), rows)
    return without_rows(target.summed(theta, target.model.log_prior_at(theta), terms, None, None))


def moved(state: State, noise: Any, gain: Array, kernel: Kernel, scored: Evaluate) -> tuple[State, Draw]:
    """Lines 7-9 for one chain."""
    theta, terms, info = kernel.step(noise, state.tuning, state.theta, state.terms, scored)
    tuning = kernel.steer(state.tuning, noise, info, gain)
    return state._replace(theta=theta, terms=terms, tuning=tuning), Draw(theta, terms.log_density, info)


def over_page(
    place: Place, played: Played, noise: Any, gain: Array, start: int, stop: int, kernel: Kernel, every: int,
    renewed: Callable[[Array, Place], tuple[Place, Array]], scored: Callable[[Array, Place, Array], Terms]
) -> tuple[Place, Played]:  # fmt: skip
    """The moves `start` to `stop` of a page for one chain; before every so many of them comes a transition of U.

    `renewed` makes it and tells whether U changed, and `scored` is the log target of θ after so many of them.
    """

    def transition(t: Array, place: Place, refreshed: Array) -> tuple[Place, Array]:
        place, changed = renewed(t, place)
        state = place.state._replace(terms=scored(t, place, place.state.theta))
        return place._replace(state=state), refreshed.at[t].set(changed)

    def step(t: Array, carry: tuple[Place, Played]) -> tuple[Place, Played]:
        place, played = carry
        place, refreshed = jax.lax.cond(
            t % every == 0, transition, lambda t, place, refreshed: (place, refreshed), t // every, place,
            played.refreshed,
        )  # fmt: skip
        own = jax.tree.map(lambda leaf: leaf[t], noise)
        state, draw = moved(place.state, own, gain[t], kernel, partial(scored, t // every, place))
        draws = jax.tree.map(lambda room, new: room.at[t].set(new), played.draws, draw)
        return place._replace(state=state), Played(draws, refreshed)

    return jax.lax.fori_loop(start, stop, step, (place, played))


@partial(jax.jit, static_argnames=("kernel", "split", "every"), donate_argnames=("place", "played"))
def play_together(
    place: Place, played: Played, page: Page, gain: Array, start: int, stop: int, target: Target, kernel: Kernel,
    split: Split, *, every: int
) -> tuple[Place, Played]:  # fmt: skip
    """The moves `start` to `stop` of a page, U' being proposed before every so many of them."""

    def one_chain(place: Place, played: Played, page: Page) -> tuple[Place, Played]:
        def renewed(t: Array, place: Place) -> tuple[Place, Array]:
            return refresh(place, *jax.tree.map(lambda leaf: leaf[t], page[:3]))

        def scored(t: Array, place: Place, theta: Array) -> Terms:
            return evaluate(theta, place.state.rows, target, split)

        return over_page(place, played, page.noise, gain, start, stop, kernel, every, renewed, scored)

    return jax.vmap(one_chain)(place, played, page)
