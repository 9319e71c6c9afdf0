"""Lines 2-11 of Algorithm 1 with U in registers: one program a chain reads its subset once a page, not once a move.

A move that read U's rows from memory could not be faster than memory is. Here each program loads its chain's rows when a
page begins, one vector of lanes for each number of a row, exchanges rows among its registers, and writes them back when
the page ends. It is what `together.py` does, for chains whose tuning is frozen and kernels that propose and decide.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl

from lwa.algorithm import Draw
from lwa.decision import accepts, probability
from lwa.device.lanes import NotInLanes, written_out
from lwa.device.resident import Page
from lwa.device.together import Place, Played
from lwa.parameters.kernel import Info, Kernel, Metropolis
from lwa.target import Target, Terms

MOST_REGISTERS = 16_384
"""Numbers of a chain's rows that a program holds: 64 KiB of the 256 KiB of registers that four programs share."""
LANES_A_WARP = 256


class Parts(NamedTuple):
    """The target and the kernel, written out."""

    propose: Callable[..., list[list[Any]]]  # noise, tuning, theta -> theta', log Hastings ratio
    row_terms: Callable[..., list[list[Any]]]  # theta, target, rows -> one number a row
    rest: Callable[..., list[list[Any]]]  # theta, target -> log p(θ) and what else does not depend on U


def lanes_of(n: int) -> int:
    """A power of two: vectors have such lengths."""
    return 1 << max(5, (n - 1).bit_length())


def warps_of(lanes: int) -> int:
    """Warps of a program."""
    return max(1, min(8, lanes // LANES_A_WARP))


def parts_of(target: Target, kernel: Kernel, state: Any, noise: Any) -> Parts:
    """Target and kernel written out; raises `NotInLanes` where one cannot be. Arguments are those of one chain."""
    if not isinstance(kernel, Metropolis):
        raise NotInLanes(f"{type(kernel).__name__} follows the gradient")
    one = jax.tree.map(lambda leaf: leaf[..., :1], state.rows)

    def propose(noise: Any, tuning: Any, theta: Array) -> tuple[Array, Array]:
        proposed, hastings = kernel.propose(noise, tuning, theta)
        return proposed, jnp.asarray(hastings, jnp.float64)

    def row_terms(theta: Array, target: Target, rows: Any) -> Array:
        return target.row_terms(theta, rows, None)

    def rest(theta: Array, target: Target) -> Array:
        none = jnp.zeros((1,), theta.dtype)
        return target.summed(theta, target.model.log_prior_at(theta), none, None, None).total

    return Parts(
        written_out(propose, noise, state.tuning, state.theta),
        written_out(row_terms, state.theta, target, one),
        written_out(rest, state.theta, target),
    )


def fits(place: Place, target: Target, kernel: Kernel, page: Page) -> str:
    """Why it cannot be done in registers; nothing where it can."""
    n = place.indices.shape[-1]
    numbers = sum(int(np.prod(leaf.shape[1:-1])) for leaf in jax.tree.leaves(place.state.rows))
    if (numbers + 1) * lanes_of(n) > MOST_REGISTERS:
        return f"{n} rows of {numbers} numbers do not fit into registers"
    try:
        state, noise = jax.tree.map(lambda leaf: leaf[0], (place.state, jax.tree.map(lambda leaf: leaf[:, 0], page.noise)))
        parts_of(target, kernel, state, noise)
    except NotInLanes as reason:
        return str(reason)
    return ""


def flat(leaf: Array, kept: int) -> Array:
    """All axes but the first few in one."""
    return leaf.reshape(*leaf.shape[:kept], -1)


@partial(jax.jit, static_argnames=("kernel", "every", "interpret"), donate_argnames=("place",))
def play_in_registers(
    place: Place, page: Page, start: int, stop: int, target: Target, kernel: Metropolis, *, every: int, interpret: bool = False
) -> tuple[Place, Played]:  # fmt: skip
    """The moves `start` to `stop` of a page, as `play_together` makes them with a gain of 0. Other moves are not written."""
    state, indices = place
    chains, n = indices.shape
    transitions, k = page.slots.shape[1:]
    moves, d = jax.tree.leaves(page.noise)[0].shape[1], state.theta.shape[-1]
    one, noise_of_one = jax.tree.map(lambda leaf: leaf[0], (state, jax.tree.map(lambda leaf: leaf[:, 0], page.noise)))
    parts = parts_of(target, kernel, one, noise_of_one)
    P = lanes_of(n)

    def padded(leaf: Array) -> Array:  # with rows of U, so that lanes past n hold nothing odd
        wide = leaf.reshape(chains, -1, n)
        return jnp.concatenate([wide, jnp.broadcast_to(wide[..., :1], (*wide.shape[:-1], P - n))], axis=-1)

    row_leaves, row_tree = jax.tree.flatten(state.rows)
    own = [
        *map(padded, row_leaves),
        padded(indices),
        state.theta,
        state.terms.total[:, None],
        flat(page.slots, 2),
        flat(page.incoming, 2),
        *(flat(leaf, 3) for leaf in jax.tree.leaves(page.rows)),
        *(flat(leaf, 2) for leaf in jax.tree.leaves(page.noise)),
        *(flat(leaf, 1) for leaf in jax.tree.leaves(state.tuning)),
    ]
    shared = [jnp.asarray([start, stop], jnp.int32), *(jnp.atleast_1d(leaf).ravel() for leaf in jax.tree.leaves(target))]
    count_rows, count_noise, count_tuning = (len(jax.tree.leaves(x)) for x in (state.rows, page.noise, state.tuning))
    sizes = [leaf.shape[1] for leaf in own[:count_rows]]

    def program(*refs: Any) -> None:
        refs = list(refs)

        def following(count: int) -> list[Any]:
            out = refs[:count]
            del refs[:count]
            return out

        rows_in, (indices_in, theta_in, total_in, slots, incoming) = following(count_rows), following(5)
        rows_coming, noise, tuning = following(count_rows), following(count_noise), following(count_tuning)
        (bounds,), constants = following(1), following(len(shared) - 1)
        rows_out, (indices_out, theta_out, total_out) = following(count_rows), following(3)
        theta_page, density_page, acceptance_page, flags_page, refreshed_page = following(5)

        lane = jnp.arange(P)
        live = lane < n

        def numbers(refs: Sequence[Any]) -> list[list[Any]]:
            return [[ref[i] for i in range(ref.shape[0])] for ref in refs]

        def at(refs: Sequence[Any], t: Any) -> list[list[Any]]:
            return [[ref[0, t, i] for i in range(ref.shape[2])] for ref in refs]

        def of_chain(refs: Sequence[Any]) -> list[list[Any]]:
            return [[ref[0, i] for i in range(ref.shape[1])] for ref in refs]

        def split(columns: Sequence[Any]) -> list[list[Any]]:
            out, at = [], 0
            for size in sizes:
                out.append(list(columns[at : at + size]))
                at += size
            return out

        def log_target(theta: Sequence[Any], columns: Sequence[Any]) -> Any:
            held = numbers(constants)
            terms = parts.row_terms(theta, *held, *split(columns))[0][0]
            likelihood = jnp.sum(jnp.where(live, terms.astype(jnp.float64), 0.0))
            (rest,) = parts.rest(theta, *held)[0]
            return rest + power(held) * likelihood

        def power(held: list[list[Any]]) -> Any:
            return held[power_at][0]

        def exchange(t: Any, columns: Any, U: Any) -> tuple[Any, Any]:
            new = [incoming[0, t, j] for j in range(k)]
            known = jnp.zeros((), bool)
            for j in range(k):
                known |= jnp.max(jnp.where(U == new[j], 1, 0)) > 0
                for i in range(j):
                    known |= new[i] == new[j]
            for j in range(k):
                here = (lane == slots[0, t, j]) & ~known
                U = jnp.where(here, new[j], U)
                entries = [ref[0, t, j, i] for ref in rows_coming for i in range(ref.shape[3])]
                columns = [jnp.where(here, entry, column) for entry, column in zip(entries, columns, strict=True)]
            refreshed_page[0, t] = (~known).astype(jnp.int8)
            return tuple(columns), U

        def refresh(t: Any, columns: Any, U: Any, theta: Any, total: Any) -> tuple[Any, Any, Any]:
            columns, U = exchange(t, columns, U)
            return columns, U, log_target(theta, columns)

        def step(t: Any, carry: Any) -> Any:
            columns, U, theta, total = carry
            columns, U, total = jax.lax.cond(
                t % every == 0,
                lambda: refresh(t // every, columns, U, theta, total),
                lambda: (columns, U, total),
            )
            (*proposed,), (hastings,) = parts.propose(*at(noise, t), *of_chain(tuning), theta)
            new = Terms(None, None, log_target(proposed, columns))  # type: ignore[arg-type]
            old = Terms(None, None, total)  # type: ignore[arg-type]
            ratio = new.log_density - old.log_density + hastings
            accept = accepts(noise[log_u_at][0, t, 0], ratio)
            theta = tuple(jnp.where(accept, a, b) for a, b in zip(proposed, theta, strict=True))
            total = jnp.where(accept, new.total, total)
            for j in range(d):
                theta_page[0, t, j] = theta[j]
            density_page[0, t] = Terms(None, None, total).log_density  # type: ignore[arg-type]
            acceptance_page[0, t] = probability(ratio)
            flags_page[0, t] = (accept.astype(jnp.int8) + 2 * new.invalid.astype(jnp.int8)).astype(jnp.int8)
            return columns, U, theta, total

        columns = tuple(ref[0, i, :] for ref in rows_in for i in range(ref.shape[1]))
        theta = tuple(theta_in[0, j] for j in range(d))
        carry = (columns, indices_in[0, 0, :], theta, total_in[0, 0])
        columns, U, theta, total = jax.lax.fori_loop(bounds[0], bounds[1], step, carry)
        at_column = 0
        for ref in rows_out:
            for i in range(ref.shape[1]):
                ref[0, i, :] = columns[at_column]
                at_column += 1
        indices_out[0, 0, :] = U
        for j in range(d):
            theta_out[0, j] = theta[j]
        total_out[0, 0] = total

    power_at = [i for i, leaf in enumerate(jax.tree.leaves(target)) if leaf is target.power][0]
    log_u_at = [i for i, leaf in enumerate(jax.tree.leaves(page.noise)) if leaf is page.noise.log_u][0]

    def block(leaf: Array) -> pl.BlockSpec:
        return pl.BlockSpec((1, *leaf.shape[1:]), lambda c, rank=leaf.ndim: (c, *(0 for _ in range(rank - 1))))

    def whole(leaf: Array) -> pl.BlockSpec:
        return pl.BlockSpec(leaf.shape, lambda c, rank=leaf.ndim: (0,) * rank)

    back = own[: count_rows + 3]
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in back]
    shapes += [
        jax.ShapeDtypeStruct((chains, moves, d), state.theta.dtype),
        jax.ShapeDtypeStruct((chains, moves), jnp.float64),
        jax.ShapeDtypeStruct((chains, moves), jnp.float64),
        jax.ShapeDtypeStruct((chains, moves), jnp.int8),
        jax.ShapeDtypeStruct((chains, transitions), jnp.int8),
    ]
    given: dict[str, Any] = {} if interpret else {"compiler_params": triton_params(warps_of(P))}
    out = pl.pallas_call(
        program,
        grid=(chains,),
        in_specs=[*map(block, own), *map(whole, shared)],
        out_specs=[pl.BlockSpec((1, *shape.shape[1:]), lambda c, rank=len(shape.shape): (c, *(0 for _ in range(rank - 1)))) for shape in shapes],
        out_shape=shapes,
        input_output_aliases={i: i for i in range(len(back))},
        interpret=interpret,
        **given,
    )(*own, *shared)
    rows = [leaf[..., :n].reshape(old.shape) for leaf, old in zip(out, row_leaves, strict=False)]
    indices, theta, total = out[count_rows][:, 0, :n], out[count_rows + 1], out[count_rows + 2][:, 0]
    thetas, densities, acceptance, flags, refreshed = out[count_rows + 3 :]
    terms = state.terms._replace(total=total)
    info = Info(acceptance, (flags & 1) > 0, (flags & 2) > 0, jnp.ones(flags.shape, jnp.int32), {})
    place = Place(state._replace(theta=theta, terms=terms, rows=jax.tree.unflatten(row_tree, rows)), indices)
    return place, Played(Draw(thetas, densities, info), refreshed > 0)


def triton_params(warps: int) -> Any:
    """How many warps a program gets."""
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=warps, num_stages=1)
