"""Algorithm 1 for models that JAX cannot trace: lines 7-11 in a Python loop over the same tape.

Proposals, sums and decisions are compiled and use the same randomness as every other run; only the log-likelihood and
the log prior are called from Python, once per chain and move.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Float64, PyTree
from numpy.typing import NDArray

from lwa.algorithm import Draw, State, Tape
from lwa.kernels.kernel import AnyArray, MetropolisKernel, Noise, Tuning, metropolis
from lwa.models.python_model import evaluate_priors, evaluate_rows
from lwa.rows.slots import Columns, split_layers, split_slots
from lwa.targets.target import Given, Target, Terms

type Evaluated = tuple[NDArray[Any], Float64[np.ndarray, "chains n"]]
"""log p(θ) of each chain, and log f(Y_k|·) of its rows."""


def play_on_host(
    state: State, draws: Draw, tape: Tape, start: int, stop: int, target: Target, kernel: MetropolisKernel
) -> tuple[State, Draw]:
    """Do what `algorithm.play` does, on the NumPy arrays of `state` and `draws` in place."""
    tape = jax.tree.map(np.asarray, tape)
    for t in range(start, stop):
        entry = jax.tree.map(lambda leaf, t=t: leaf[t], tape)
        changed = np.flatnonzero((entry.slots < state.terms.rows.shape[-1]).any(-1))
        if len(changed):
            exchange_on_host(state, entry, changed)
            state = state._replace(terms=renew_on_host(state, entry, changed, target))
        state, draw = move_on_host(state, entry, target, kernel)
        jax.tree.map(lambda page, new, t=t: np.copyto(page[t], new), draws, draw)
    return state, draws


def exchange_on_host(state: State, entry: Tape, changed: NDArray[np.intp]) -> None:
    """Put the incoming rows into their slots of Y_U, for the chains whose U changed."""

    def put(slots: NDArray[np.int32], new: PyTree, old: PyTree) -> None:
        def exchange(new: NDArray[Any], old: NDArray[Any]) -> None:
            for c in changed:
                old[c][..., slots[c]] = new[c]

        jax.tree.map(exchange, new, old)

    put(entry.slots, entry.counts, state.counts)
    own = split_slots(entry.slots, entry.rows, state.rows)
    for slots, new, old in zip(own, split_layers(entry.rows), split_layers(state.rows), strict=True):
        put(slots, new, old)


def renew_on_host(state: State, entry: Tape, changed: NDArray[np.intp], target: Target) -> Terms:
    """Return the log target at θ after U changed, like `Target.refresh`: from new rows, or all if U transports θ."""
    terms = np.array(state.terms.rows)
    transports = entry.given is not None and entry.given.transport is not None
    at = np.asarray(transport_chains(target, state.theta, entry.given) if transports else state.theta)
    for c in changed:
        if transports:
            terms[c] = evaluate_chain(target, at, state.rows, c)
        else:
            terms[c, entry.slots[c]] = evaluate_chain(target, at, entry.rows, c)
    return sum_chains(target, state.theta, state.terms.prior, terms, given=entry.given, counts=state.counts)


def move_on_host(state: State, entry: Tape, target: Target, kernel: MetropolisKernel) -> tuple[State, Draw]:
    """Lines 7-9 for every chain: propose together, evaluate one by one, decide together."""
    noise, given = entry.noise, entry.given
    proposed, log_hastings, at = propose_on_host(noise, state.tuning, state.theta, given, target=target, kernel=kernel)
    new = evaluate_chains(target, np.asarray(proposed), np.asarray(at), state.rows)
    own, rest = state._replace(rows=None), entry._replace(slots=None, rows=None, counts=None)
    theta, terms, tuning, draw = decide_on_host(own, rest, proposed, log_hastings, new, target=target, kernel=kernel)
    return state._replace(theta=theta, terms=terms, tuning=tuning), draw


def evaluate_on_host(
    target: Target, theta: AnyArray, rows: Columns, given: Given | None, counts: AnyArray | None
) -> Terms:
    """Return the log target of each chain at its θ given its own rows."""
    at = np.asarray(transport_chains(target, theta, given))
    prior, terms = evaluate_chains(target, np.asarray(theta), at, rows)
    return sum_chains(target, theta, prior, terms, given=given, counts=counts)


def evaluate_chains(target: Target, theta: NDArray[Any], at: NDArray[Any], rows: Columns) -> Evaluated:
    """Return log p at θ, and log f(Y_k|·) at the θ to which U transports it."""
    prior = evaluate_priors(target.model, theta)
    return prior, np.stack([evaluate_chain(target, at, rows, c) for c in range(len(theta))])


def evaluate_chain(target: Target, at: Float[np.ndarray, "chains d"], rows: Columns, c: int) -> NDArray[np.float64]:
    """Return log f(Y_k|θ) of the rows of the c-th chain."""
    return evaluate_rows(target.model, at[c], jax.tree.map(lambda leaf: np.moveaxis(np.asarray(leaf)[c], -1, 0), rows))


@jax.jit
def transport_chains(target: Target, theta: Array, given: Given | None) -> Array:
    """Return θ̂ + A_U δ of each chain, or θ."""
    return jax.vmap(target.transport)(theta, given)


@jax.jit
def sum_chains(
    target: Target, theta: Array, prior: Array, rows: Array, given: Given | None, counts: Array | None
) -> Terms:
    """Return the log target of each chain from its terms."""
    return jax.vmap(target.sum_terms)(theta, prior, rows, given, counts)


@partial(jax.jit, static_argnames=("kernel",))
def propose_on_host(
    noise: Noise, tuning: Tuning, theta: Array, given: Given | None, target: Target, kernel: MetropolisKernel
) -> tuple[Array, Array, Array]:
    """Line 7: return θ', its Hastings term and the θ to which U transports it."""

    def one(noise: Noise, tuning: Tuning, theta: Array, given: Given | None) -> tuple[Array, Any, Array]:
        proposed, log_hastings = kernel.propose(noise, tuning, theta)
        return proposed, log_hastings, target.transport(proposed, given)

    return jax.vmap(one)(noise, tuning, theta, given)


@partial(jax.jit, static_argnames=("kernel",))
def decide_on_host(
    state: State, entry: Tape, proposed: Array, log_hastings: Array, new: Evaluated, target: Target,
    kernel: MetropolisKernel
) -> tuple[Array, Terms, Tuning, Draw]:  # fmt: skip
    """Lines 8-9: accept or reject, and let the kernel learn."""

    def one(
        state: State, entry: Tape, proposed: Array, log_hastings: Array, prior: Array, rows: Array
    ) -> tuple[Array, Terms, Tuning, Draw]:
        terms = target.sum_terms(proposed, prior, rows, entry.given, state.counts)
        theta, terms, info = metropolis(entry.noise.log_u, (state.theta, state.terms), (proposed, terms), log_hastings)
        tuning = kernel.steer(state.tuning, entry.noise, info, entry.gain)
        return theta, terms, tuning, Draw(theta, terms.log_density, info)

    return jax.vmap(one)(state, entry, proposed, log_hastings, *map(jnp.asarray, new))
