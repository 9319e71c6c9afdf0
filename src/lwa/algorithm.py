"""Algorithm 1 of the paper: refresh the subset U, then move the parameter θ.

Each function is the mathematics of one chain, and its docstring names the line of the paper that it implements. Nothing
here draws a random number: proposals and uniforms are arguments, so tests can enumerate every transition. The two loops
at the end run a cohort of chains: `write` plays lines 2-5 ahead of θ, `play` plays lines 7-11 behind them.
"""

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.backend.xla import program
from lwa.kernels.kernel import Kernel, MoveInfo, accepts, choose
from lwa.rows.slots import Columns, put, put_rows
from lwa.targets.target import Given, Target, Terms


class Phi(Protocol):
    """Φ of line 4: one of `lwa.subsets.weights`."""

    def log(self, x: Array) -> Array:
        """Return log Φ(x) for x = distance / ε ≥ 0, up to a constant."""


class Subset(NamedTuple):
    """The state of the chain on ν (line 1): the current subset U and its summary statistics."""

    indices: Array  # (n,)    which rows
    statistics: Array  # (s, n)  S(Y_k) - s_N of each of them, float64
    total: Array  # (s,)    their sum, so that S̄(Y_U) - s_N = total / n
    distance: Array  # ()      ‖S̄(Y_U) - s_N‖
    carried: Array | None = None  # (c, n)  what else θ's target needs of each row; no part of ν
    sums: Array | None = None  # (c,)    their sum


class Candidate(NamedTuple):
    """A proposed U' ~ R(U, ·): the incoming rows, the slots they take, and the uniform that decides."""

    slots: Array  # (k,)
    incoming: Array  # (k,)
    statistics: Array  # (s, k)  S(Y_k) - s_N of the incoming rows
    log_u: Array  # ()
    carried: Array | None = None  # (c, k)


class Tape(NamedTuple):
    """What one θ move needs: which slots of U changed just before it, and its own randomness."""

    slots: Any  # (k,)  out of range, so ignored, if U did not change
    rows: Columns  # the incoming rows, (*shape, k)
    noise: Any  # the random numbers of the kernel
    gain: Any  # ()    how strongly this move steers the kernel; 0 once tune has ended
    given: Given | None = None  # what else θ's target needs of U
    counts: Any = None  # (k,)  1/(N q_k) of the incoming rows, if rows are not drawn uniformly


class State(NamedTuple):
    """Everything that the next θ move needs."""

    theta: Array  # (d,)
    terms: Terms  # the log target given U at θ, term by term
    rows: Columns  # Y_U
    tuning: Any  # what the kernel has learnt
    counts: Array | None = None  # (n,)  1/(N q_k), if rows are not drawn uniformly


class Draw(NamedTuple):
    """What diagnostics need of one θ move."""

    theta: Any
    log_density: Any
    info: MoveInfo


def assess(indices: Array, statistics: Array, carried: Array | None = None) -> Subset:
    """Return a subset with its sums and distance computed afresh from its rows' statistics."""
    total = statistics.sum(-1)
    sums = None if carried is None else carried.sum(-1)
    return Subset(indices, statistics, total, distance(total, indices.shape[-1]), carried=carried, sums=sums)


def distance(total: Array, n: int) -> Array:
    """Return ‖S̄(Y_U) - s_N‖ from the sum of centred statistics."""
    return jnp.sqrt(jnp.sum((total / n) ** 2))


def repeats(candidate: Candidate, U: Subset) -> Array:
    """Return whether an incoming row is already in U, or comes in twice: then U' is no subset of n rows.

    Such a proposal is a self-loop. Drawing again instead would make R depend on U.
    """
    incoming = candidate.incoming
    k = incoming.shape[-1]
    twice = jnp.triu(incoming[:, None] == incoming[None, :], 1) if k > 1 else jnp.zeros((), bool)
    return jnp.any(U.indices[None, :] == incoming[:, None]) | jnp.any(twice)


def propose(U: Subset, candidate: Candidate) -> tuple[Array, Array]:
    """Lines 2-3: return the summary statistics of U', from the rows that come and go, and their distance to s_N."""
    total = U.total + (candidate.statistics - U.statistics[:, candidate.slots]).sum(-1)
    return total, distance(total, U.indices.shape[-1])


def log_acceptance(old: Array, new: Array, weight: Phi, epsilon: Array) -> Array:
    """Line 4, eq. (acc1): log Φ(‖S' - s_N‖/ε) - log Φ(‖S - s_N‖/ε). The R of every move is symmetric and cancels."""
    return weight.log(new / epsilon) - weight.log(old / epsilon)


def refresh(
    U: Subset, candidate: Candidate, weight: Phi, epsilon: Array, *, exchange: bool = True, reach: float = jnp.inf
) -> tuple[Subset, Array]:
    """Lines 2-5: propose U' and accept or reject it. Return the subset and whether it changed.

    ν is zero beyond a distance of `reach`; a U that starts there may only come nearer.
    """
    if candidate.slots.shape[-1] == 0:  # nothing comes in
        return U, jnp.zeros((), bool)
    total, away = propose(U, candidate)
    accept = accepts(candidate.log_u, log_acceptance(U.distance, away, weight, epsilon))
    accept &= (away < reach) | (away < U.distance)
    if exchange:  # a fresh subset may share rows with the old one; an exchange may not
        accept &= ~repeats(candidate, U)
    # Read U before writing to it: otherwise XLA copies all of it at every transition, to have both.
    U, total, accept = jax.lax.optimization_barrier((U, total, accept))  # type: ignore[no-untyped-call]
    slots = jnp.where(accept, candidate.slots, dropped(candidate.slots, U.indices.shape[-1]))
    indices = put(slots, candidate.incoming, U.indices)
    statistics = put(slots, candidate.statistics, U.statistics)
    total, away = choose(accept, (total, away), (U.total, U.distance))
    return U._replace(indices=indices, statistics=statistics, total=total, distance=away), accept


def dropped(slots: Array, n: int) -> Array:
    """Return as many slots as given that `put` ignores."""
    return n + jnp.arange(slots.shape[-1], dtype=slots.dtype)


def spread(
    accepted: NDArray[np.bool_], L: int, every: int = 1
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """Lines 6 and 10: one θ move after a rejected proposal, L after a refresh; then `every` - 1 more with U left alone.

    Return, per θ move, the proposal it follows, whether U changes just before it, and whether it ends its transition.
    """
    first_transition = np.where(accepted, L, 1)
    moves = first_transition + every - 1
    source = np.repeat(np.arange(len(accepted)), moves)
    start = np.cumsum(moves) - moves
    first = np.zeros(len(source), bool)
    first[start] = accepted
    ends = np.arange(len(source)) >= np.repeat(start + first_transition - 1, moves)
    return source, first, ends


def renew(state: State, entry: Tape, target: Target) -> Terms:
    """Return the log target at θ after U changed: the cached terms are stale."""
    given, counts = entry.given, state.counts
    return target.refresh(state.terms, state.theta, entry.slots, entry.rows, state.rows, given=given, counts=counts)


def exchange_rows(state: State, entry: Tape) -> State:
    """Put the incoming rows into their slots of Y_U."""
    if not entry.slots.size:
        return state
    counts = jax.tree.map(partial(put, entry.slots), entry.counts, state.counts)
    return state._replace(rows=put_rows(entry.slots, entry.rows, state.rows), counts=counts)


def move(state: State, entry: Tape, target: Target, kernel: Kernel) -> tuple[State, Draw]:
    """Lines 7-9: one M-H move of θ on π(·|Y_U)."""
    evaluate = partial(target.evaluate, rows=state.rows, given=entry.given, counts=state.counts)
    theta, terms, info = kernel.step(entry.noise, state.tuning, state.theta, state.terms, evaluate)
    tuning = kernel.steer(state.tuning, entry.noise, info, entry.gain)
    return state._replace(theta=theta, terms=terms, tuning=tuning), Draw(theta, terms.log_density, info)


@program(static_argnames=("weight", "exchange", "reach"), donate_argnames=("U",))
def write(
    U: Subset, candidates: Candidate, weight: Phi, epsilon: Array, *, exchange: bool, reach: float = jnp.inf
) -> tuple[Subset, Array, Array, Array | None]:
    """Lines 2-5 over a page of candidates, for a cohort: the U chain alone. U does not depend on θ, so it runs ahead.

    Leaves of `U` are `(chains, ...)`, of `candidates` `(transitions, chains, ...)`. Return the last U and, for each
    transition, whether U changed, its distance and the sums of what rows carry. Sums are computed afresh at the start
    of a page, so rounding errors do not build up.
    """
    fresh = jax.vmap(assess)(U.indices, U.statistics, U.carried)
    (chains, n), shape = U.indices.shape, candidates.slots.shape
    seats = jnp.arange(chains * n, dtype=jnp.int32).reshape(chains, n)  # the row in each slot, by number
    guests = chains * n + jnp.arange(np.prod(shape), dtype=jnp.int32).reshape(shape)

    def one(U: Subset, candidate: Candidate) -> tuple[Subset, Array]:
        return refresh(U, candidate, weight, epsilon, exchange=exchange, reach=reach)

    def transition(
        now: tuple[Subset, Array], proposed: tuple[Candidate, Array]
    ) -> tuple[tuple[Subset, Array], tuple[Array, Array, Array]]:
        (U, seats), (candidate, guests) = now, proposed
        leaving = jnp.take_along_axis(seats, candidate.slots, -1)
        U, accepted = jax.vmap(one)(U, candidate)
        slots = jnp.where(accepted[:, None], candidate.slots, dropped(candidate.slots, n))
        return (U, jax.vmap(put)(slots, guests, seats)), (accepted, U.distance, leaving)

    bare = (fresh._replace(carried=None, sums=None), seats)
    (last, seats), (accepted, distances, leaving) = jax.lax.scan(
        transition, bare, (candidates._replace(carried=None), guests)
    )
    if U.carried is None or fresh.sums is None or candidates.carried is None:
        # Rows that never change may still have known sums.
        sums = None if U.sums is None else jnp.broadcast_to(U.sums, (len(accepted), *U.sums.shape))
        return last._replace(sums=U.sums), accepted, distances, sums
    everyone = jnp.concatenate([one_by_one(U.carried), one_by_one(candidates.carried)])
    change = jnp.where(accepted[..., None], (everyone[guests] - everyone[leaving]).sum(-2), 0.0)
    sums = running(fresh.sums, change)
    carried = jnp.swapaxes(everyone[seats], -1, -2)
    return last._replace(carried=carried, sums=sums[-1]), accepted, distances, sums


def one_by_one(carried: Array) -> Array:
    """Return what rows carry, `(..., c, slots)`, as one line per row."""
    return jnp.swapaxes(carried, -1, -2).reshape(-1, carried.shape[-2])


def running(first: Array, change: Array) -> Array:
    """Return the sums after each change, added in order."""

    def add(total: Array, more: Array) -> tuple[Array, Array]:
        return total + more, total + more

    return jax.lax.scan(add, first, change)[1]


@program(static_argnames=("kernel",), donate_argnames=("state", "draws"))
def play(
    state: State, draws: Draw, tape: Tape, start: int, stop: int, target: Target, kernel: Kernel
) -> tuple[State, Draw]:
    """Lines 7-11 for the moves `start` to `stop` of a page, for a cohort: θ follows the tape.

    The bounds are arguments of one compiled program, so cutting a page into blocks changes no bit of any draw.
    """

    def step(t: Array, carry: tuple[State, Draw]) -> tuple[State, Draw]:
        state, draws = carry
        entry = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, t, keepdims=False), tape)
        state = jax.vmap(exchange_rows)(state, entry)
        changed = jnp.any(entry.slots < state.terms.rows.shape[-1])  # of any chain: one branch for the whole cohort
        terms = jax.lax.cond(changed, lambda: jax.vmap(renew, (0, 0, None))(state, entry, target), lambda: state.terms)
        state, draw = jax.vmap(move, (0, 0, None, None))(state._replace(terms=terms), entry, target, kernel)
        return state, jax.tree.map(lambda page, new: jax.lax.dynamic_update_index_in_dim(page, new, t, 0), draws, draw)

    return jax.lax.fori_loop(start, stop, step, (state, draws))
