"""Lines 2-11 of Algorithm 1 in one loop, as an ordinary JAX program, for subsets that are drawn uniformly.

`algorithm.py` runs the subset ahead of θ because they may live apart. Here both are on the device, so one loop holds
them. Every function of a single transition is that of `algorithm.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from lwa.algorithm import Candidate, Draw, State, assess, repeats
from lwa.engine.device.partial_eval import Split
from lwa.engine.device.resident import SubsetPage
from lwa.kernels.kernel import Evaluate, Kernel, Noise
from lwa.rows.slots import put
from lwa.targets.target import Target, Terms


class Place(NamedTuple):
    """Where chains are: θ and all that its next move needs, and which rows or which window each subset is."""

    state: State
    indices: Int[Array, "*chains n"]  # n is 1 for windows


class Played(NamedTuple):
    """What moves did, leaves `(chains, moves, ...)`, and whether each transition changed the subset."""

    draws: Draw
    refreshed: Bool[Array, "*chains transitions"]


def drop_rows(terms: Terms) -> Terms:
    """Keep only the sum of terms: reading the rows again costs less than moving n numbers per chain about."""
    return terms._replace(rows=terms.rows[..., :0])


def exchange_uniformly(
    place: Place, slots: Int[Array, " k"], incoming: Int[Array, " k"], rows: list[Array]
) -> tuple[Place, Array]:
    """Put one chain's incoming rows into their slots, unless one is in the subset already: lines 2-5."""
    n = place.indices.shape[-1]
    nothing = jnp.zeros((0, slots.shape[-1]))
    U = assess(place.indices, jnp.zeros((0, n)))
    changed = ~repeats(Candidate(slots, incoming, nothing, jnp.zeros(())), U)
    slots = jnp.where(changed, slots, n + jnp.arange(slots.shape[-1], dtype=slots.dtype))
    held = jax.tree.map(lambda new, old: put(slots, jnp.moveaxis(new, 0, -1), old), rows, place.state.rows)
    indices = put(slots, incoming.astype(place.indices.dtype), place.indices)
    return Place(place.state._replace(rows=held), indices), changed


def evaluate_prepared(theta: Array, rows: list[Array], target: Target, split: Split) -> Terms:
    """Return the log target of one chain, given what its rows were prepared to."""
    terms = split.terms(split.numbers(theta, target), rows)
    return drop_rows(target.sum_terms(theta, target.model.log_prior_at(theta), terms, None, None))


def move_once(state: State, noise: Noise, gain: Array, kernel: Kernel, evaluate: Evaluate) -> tuple[State, Draw]:
    """Make one move of one chain: lines 7-9."""
    theta, terms, info = kernel.step(noise, state.tuning, state.theta, state.terms, evaluate)
    tuning = kernel.steer(state.tuning, noise, info, gain)
    return state._replace(theta=theta, terms=terms, tuning=tuning), Draw(theta, terms.log_density, info)


def play_page(
    place: Place, played: Played, *, noise: Noise, gain: Float[Array, " moves"], start: int, stop: int, kernel: Kernel,
    every: int, renew: Callable[[Array, Place], tuple[Place, Array]], score: Callable[[Array, Place, Array], Terms]
) -> tuple[Place, Played]:  # fmt: skip
    """Play the moves `start` to `stop` of a page for one chain, with a transition of the subset before every few.

    `renew` makes the t-th transition and returns whether the subset changed; `score` is the log target of θ after it.
    """

    def transition(t: Array, place: Place, refreshed: Array) -> tuple[Place, Array]:
        place, changed = renew(t, place)
        state = place.state._replace(terms=score(t, place, place.state.theta))
        return place._replace(state=state), refreshed.at[t].set(changed)

    def step(t: Array, carry: tuple[Place, Played]) -> tuple[Place, Played]:
        place, played = carry
        now = (t // every, place, played.refreshed)
        place, refreshed = jax.lax.cond(t % every == 0, transition, lambda t, *same: same, *now)
        own = jax.tree.map(lambda leaf: leaf[t], noise)
        state, draw = move_once(place.state, own, gain[t], kernel, partial(score, t // every, place))
        draws = jax.tree.map(lambda room, new: room.at[t].set(new), played.draws, draw)
        return place._replace(state=state), Played(draws, refreshed)

    return jax.lax.fori_loop(start, stop, step, (place, played))


@partial(jax.jit, static_argnames=("kernel", "split", "every"), donate_argnames=("place", "played"))
def play_together(
    place: Place, played: Played, page: SubsetPage, *, gain: Array, start: int, stop: int, target: Target,
    kernel: Kernel, split: Split, every: int
) -> tuple[Place, Played]:  # fmt: skip
    """Play the moves `start` to `stop` of a page for all chains."""

    def one_chain(place: Place, played: Played, page: SubsetPage) -> tuple[Place, Played]:
        def renew(t: Array, place: Place) -> tuple[Place, Array]:
            return exchange_uniformly(place, *jax.tree.map(lambda leaf: leaf[t], page[:3]))

        def score(t: Array, place: Place, theta: Array) -> Terms:
            return evaluate_prepared(theta, place.state.rows, target, split)

        return play_page(
            place, played, noise=page.noise, gain=gain, start=start, stop=stop, kernel=kernel, every=every, renew=renew,
            score=score,
        )  # fmt: skip

    return jax.vmap(one_chain)(place, played, page)
