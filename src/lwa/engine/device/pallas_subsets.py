"""Lines 2-11 of Algorithm 1 with U in registers: one program a chain reads its subset once a page, not once a move.

A move that read U's rows from memory could not be faster than memory is. Here each program loads its chain's rows
when a page begins, one vector of lanes for each number of a row, exchanges rows among its registers, and writes them
back when the page ends. It does what `together.py` does, for chains whose tuning is frozen and kernels whose steps
are known ahead.

What depends on θ alone costs as much as what depends on 32 rows. So steps are drawn up before, for a whole page, and
where θ is in posterior sds is known from them: V(θ + step) = V θ + V step.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl

from lwa.algorithm import Draw
from lwa.engine.device.partial_eval import Split, shaped
from lwa.engine.device.resident import Page
from lwa.engine.device.scalarise import NotInLanes, written_out
from lwa.engine.device.xla_loop import Place, Played
from lwa.kernels.decision import accepts, probability
from lwa.kernels.kernel import Info, Kernel, Metropolis
from lwa.targets.target import Target, Terms

MOST_NUMBERS = 32_768
"""Numbers of a chain's rows that a program holds: 128 KiB, of the 256 KiB of registers that a processor has."""
MOST_PARAMETERS = 32
"""Each is written out several times over, and a program of many parameters takes long to compile."""
PLATFORMS = ("cpu", "gpu", "cuda", "rocm")
"""Where programs are compiled by Triton; on a CPU, where tests run them, they are interpreted."""
NUMBERS_A_THREAD = 128
"""Of a thread's 255 registers. What depends on θ alone is computed by every warp, so that few are better than many."""

type Numbers = list[list[Any]]
"""Flat lists of numbers, one for each leaf."""


class Parts(NamedTuple):
    """The target, written out."""

    besides_rows: Callable[..., Numbers]  # theta, where it is in sds, target -> what does not depend on U
    numbers: Callable[..., Numbers]  # theta, target -> what rows' terms need of θ
    terms: Callable[..., Numbers]  # those numbers, rows -> one number a row


def lanes_of(n: int) -> int:
    """A power of two: vectors have such lengths."""
    return 1 << max(5, (n - 1).bit_length())


def warps_of(numbers: int) -> int:
    """Warps of a program that holds so many numbers."""
    return min(16, 1 << max(0, (-(-numbers // (32 * NUMBERS_A_THREAD)) - 1).bit_length()))


def besides_rows(theta: Array, sds: Array | None, target: Target) -> Array:
    """All of the log target that does not depend on U."""
    return target.besides_rows(theta, target.model.log_prior_at(theta), sds)


def parts_of(target: Target, kernel: Kernel, split: Split, state: Any, noise: Any) -> Parts:
    """The target written out; raises `NotInLanes` where it or the kernel cannot be. Arguments are one chain's."""
    if not isinstance(kernel, Metropolis) or kernel.ahead(noise, state.tuning) is None:
        raise NotInLanes(f"steps of {type(kernel).__name__} depend on where the chain is")
    one = [leaf[..., :1] for leaf in state.rows]
    return Parts(
        written_out(besides_rows, state.theta, target.sds(state.theta), target),
        written_out(split.numbers, state.theta, target),
        written_out(split.terms, jax.eval_shape(split.numbers, state.theta, target), one),
    )


def why_not(place: Place, page: Page, target: Target, kernel: Kernel, split: Split) -> str:
    """Why it cannot be done in registers; nothing where it can. Shapes are all that is looked at."""
    n = place.indices.shape[-1]
    numbers, d = numbers_a_row(place), place.state.theta.shape[-1]
    if jax.default_backend() not in PLATFORMS:
        return f"there is no such program for {jax.default_backend()}"
    if d > MOST_PARAMETERS:
        return f"{d} parameters would be written out one by one"
    if numbers * lanes_of(n) > MOST_NUMBERS:
        return f"{n} rows of {numbers} numbers do not fit into registers"
    try:
        parts_of(target, kernel, split, *of_one_chain(place, page))
    except NotInLanes as reason:
        return str(reason)
    return ""


def numbers_a_row(place: Place) -> int:
    """Registers that a row takes: its numbers and its index."""
    return 1 + sum(int(np.prod(leaf.shape[1:-1])) * max(1, leaf.dtype.itemsize // 4) for leaf in place.state.rows)


def of_one_chain(place: Place, page: Page) -> tuple[Any, Any]:
    """Shapes of one chain's state, and of one move's noise."""

    def without(leaf: Any, axes: int) -> Any:
        return shaped(leaf.shape[axes:], leaf.dtype)

    state = jax.tree.map(partial(without, axes=1), place.state)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)
    noise = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[2:], leaf.dtype), page.noise)
    return zeros, noise


def drawn_up(page: Page, tuning: Any, target: Target, kernel: Metropolis) -> tuple[Array, Array]:
    """The steps of a page, and how far they lead in posterior sds, `(chains, moves, 2d)`; and which start from θ."""

    def one(noise: Any, tuning: Any) -> tuple[Array, Array]:
        step = kernel.ahead(noise, tuning)
        assert step is not None
        if target.expansion is None:
            return step.by, step.from_here
        origin = jnp.where(step.from_here, target.expansion.theta, 0.0).astype(step.by.dtype)
        return jnp.concatenate([step.by, jnp.asarray(target.sds(step.by + origin))]), step.from_here

    return jax.vmap(jax.vmap(one, in_axes=(0, None)))(page.noise, tuning)


@partial(jax.jit, static_argnames=("kernel", "split", "every", "interpret"), donate_argnames=("place",))
def play_in_registers(
    place: Place, page: Page, start: int, stop: int, target: Target, kernel: Metropolis, split: Split, *, every: int,
    interpret: bool = False
) -> tuple[Place, Played]:  # fmt: skip
    """The moves `start` to `stop` of a page, as `play_together` makes them with a gain of 0. Others are not written."""
    state, indices = place
    (chains, n), (transitions, k), d = indices.shape, page.slots.shape[1:], state.theta.shape[-1]
    moves, P = jax.tree.leaves(page.noise)[0].shape[1], lanes_of(indices.shape[-1])
    parts = parts_of(target, kernel, split, *of_one_chain(place, page))
    steps, from_here = drawn_up(page, state.tuning, target, kernel)
    sds = jax.vmap(target.sds)(state.theta)
    known = jax.vmap(besides_rows, (0, None if sds is None else 0, None))(state.theta, sds, target)

    def stored(leaf: Array) -> Array:  # all numbers of one size, so that they lie alike among threads
        return leaf.astype(jnp.int32) if leaf.dtype.itemsize < 4 else leaf

    def padded(leaf: Array) -> Array:  # with rows of U, so that lanes past n hold nothing odd
        wide = stored(leaf).reshape(chains, -1, n)
        return jnp.concatenate([wide, jnp.broadcast_to(wide[..., :1], (*wide.shape[:-1], P - n))], axis=-1)

    def flat(leaf: Array, axes: int) -> Array:
        return leaf.reshape(*leaf.shape[:axes], -1)

    held: dict[str, Any] = {
        "rows": [padded(leaf) for leaf in state.rows],
        "U": padded(indices),
        "theta": state.theta if sds is None else jnp.concatenate([state.theta, sds], axis=1),
        "density": jnp.stack([state.terms.total, known], axis=1),
    }
    given = {
        "slots": page.slots,
        "incoming": page.incoming,
        "coming": [flat(stored(leaf), 3) for leaf in page.rows],
        "steps": jnp.pad(steps, ((0, 0), (0, 1), (0, 0))),
        "from_here": jnp.pad(from_here.astype(state.theta.dtype), ((0, 0), (0, 1)), constant_values=1),
        "log_u": page.noise.log_u,
    }
    shared = {
        "bounds": steps_between(start, stop, every),
        "target": [jnp.ravel(leaf) for leaf in jax.tree.leaves(target)],
    }
    out = {
        **jax.tree.map(lambda leaf: shaped(leaf.shape, leaf.dtype), held),
        "thetas": shaped((chains, moves, d), state.theta.dtype),
        "densities": shaped((chains, moves), jnp.float64),
        "acceptance": shaped((chains, moves), jnp.float32),
        "flags": shaped((chains, moves), jnp.int8),
        "refreshed": shaped((chains, transitions), jnp.int8),
    }
    power_at = position(target, target.power)
    remainders = target.expansion is not None and target.expansion.share is not None  # small beside what they remain of
    sizes = [leaf.shape[1] for leaf in held["rows"]]

    def program(*refs: Any) -> None:
        before, fixed, common, after = jax.tree.unflatten(jax.tree.structure((held, given, shared, out)), refs)
        constants = common["target"]
        lane = jnp.arange(P)

        def of_all(refs: Sequence[Any]) -> Numbers:
            return [[ref[i] for i in range(ref.shape[0])] for ref in refs]

        def by_leaf(columns: Sequence[Any]) -> Numbers:
            ends = np.cumsum([0, *sizes])
            return [list(columns[a:b]) for a, b in pairwise(ends)]

        def likelihood(numbers: Numbers, columns: Sequence[Any]) -> Any:
            ((terms,),) = parts.terms(*numbers, *by_leaf(columns))
            summed = jnp.sum(jnp.where(lane < n, terms if remainders else terms.astype(jnp.float64), 0.0))
            return constants[power_at][0] * summed.astype(jnp.float64)

        def loaded() -> tuple[Any, ...]:
            return tuple(ref[0, i, :] for ref in after["rows"] for i in range(ref.shape[1]))

        def exchange(t: Any, columns: Any, U: Any) -> tuple[Any, Any]:
            """Lines 2-5: the rows that come in take their slots, unless one of them is in U already."""
            new = [fixed["incoming"][0, t, j] for j in range(k)]
            there = reduce(jnp.logical_or, [one == U for one in new])
            changed = jnp.max(jnp.where(there, 1, 0)) == 0
            for a, b in combinations(new, 2):
                changed &= a != b
            after["refreshed"][0, t] = changed.astype(jnp.int8)

            def put(j: Any, held: Any) -> Any:
                columns, U = held
                here = (lane == fixed["slots"][0, t, j]) & changed
                entries = [ref[0, t, j, i] for ref in fixed["coming"] for i in range(ref.shape[3])]
                columns = tuple(jnp.where(here, entry, column) for entry, column in zip(entries, columns, strict=True))
                return columns, jnp.where(here, fixed["incoming"][0, t, j], U)

            return jax.lax.fori_loop(0, k, put, (columns, U)) if k > 1 else put(0, (columns, U))

        def log_q(place: Sequence[Any]) -> Any:
            return kernel.log_q(sum(x * x for x in place[d:]), d) if len(place) > d else 0.0

        def step(s: Any, carry: Any) -> Any:
            """Before the first of `every` moves U' is proposed and θ scored anew; it is one step more, of no length."""
            columns, U, here, total, rest = carry
            transition, moves_since = s // (every + 1), s % (every + 1)
            refresh = moves_since == 0
            t = transition * every + jnp.maximum(moves_since - 1, 0)
            columns, U = jax.lax.cond(refresh, lambda: exchange(transition, columns, U), lambda: (columns, U))
            drawn = jnp.where(refresh, moves, t)  # past the last move is a step of no length
            from_here = fixed["from_here"][0, drawn]
            there = [from_here * here[j] + fixed["steps"][0, drawn, j] for j in range(len(here))]
            held = of_all(constants)
            ((new_rest,),) = parts.besides_rows(there[:d], *([there[d:]] if len(there) > d else []), *held)
            new, old = scored(new_rest + likelihood(parts.numbers(there[:d], *held), columns)), scored(total)
            hastings = (1 - from_here) * (log_q(here) - log_q(there))
            ratio = new.log_density - old.log_density + hastings
            accept = refresh | accepts(fixed["log_u"][0, t], ratio)
            now = ((*there, new.total, new_rest), (*here, total, rest))
            *here, total, rest = (jnp.where(accept, a, b) for a, b in zip(*now, strict=True))

            @pl.when(~refresh)
            def _() -> None:
                for j in range(d):
                    after["thetas"][0, t, j] = here[j]
                after["densities"][0, t] = scored(total).log_density
                after["acceptance"][0, t] = probability(ratio.astype(jnp.float32))
                flags = jnp.where(accept, 1, 0) + jnp.where(new.invalid, 2, 0)
                after["flags"][0, t] = flags.astype(jnp.int8)

            return columns, U, tuple(here), total, rest

        width = before["theta"].shape[1]
        here = tuple(before["theta"][0, j] for j in range(width))
        carry = (loaded(), after["U"][0, 0, :], here, before["density"][0, 0], before["density"][0, 1])
        columns, U, here, total, rest = jax.lax.fori_loop(common["bounds"][0], common["bounds"][1], step, carry)
        places = [(ref, i) for ref in after["rows"] for i in range(ref.shape[1])]
        for (ref, i), column in zip(places, columns, strict=True):
            ref[0, i, :] = column
        after["U"][0, 0, :] = U
        for j in range(width):
            after["theta"][0, j] = here[j]
        after["density"][0, 0] = total
        after["density"][0, 1] = rest

    def of_program(leaf: Any) -> pl.BlockSpec:
        rank = len(leaf.shape)
        return pl.BlockSpec((1, *leaf.shape[1:]), lambda c: (c, *(0 for _ in range(rank - 1))))

    leaves = jax.tree.leaves
    results = pl.pallas_call(
        program,
        name="lwa_in_registers",
        grid=(chains,),
        in_specs=[*map(of_program, leaves((held, given))), *map(of_everyone, leaves(shared))],
        out_specs=[*map(of_program, leaves(out))],
        out_shape=leaves(out),
        input_output_aliases=aliases(held, out),
        interpret=interpret,
        **({} if interpret else {"compiler_params": params_for(numbers_a_row(place) * P)}),
    )(*leaves((held, given, shared)))
    found = jax.tree.unflatten(jax.tree.structure(out), results)
    rows = [
        new[..., :n].reshape(old.shape).astype(old.dtype) for new, old in zip(found["rows"], state.rows, strict=True)
    ]
    state = state._replace(
        theta=found["theta"][:, :d], rows=rows, terms=state.terms._replace(total=found["density"][:, 0])
    )
    flags = found["flags"]
    info = Info(found["acceptance"], (flags & 1) > 0, (flags & 2) > 0, jnp.ones(flags.shape, jnp.int32), {})
    draws = Draw(found["thetas"], found["densities"], info)
    return Place(state, found["U"][:, 0, :n]), Played(draws, found["refreshed"] > 0)


def steps_between(start: int, stop: int, every: int) -> Array:
    """The first step of moves `start` to `stop` and the one past the last, where each proposal of U is a step too."""
    first = start // every * (every + 1) + jnp.where(start % every == 0, 0, start % every + 1)
    return jnp.asarray([first, (stop - 1) // every * (every + 1) + (stop - 1) % every + 2], jnp.int32)


def scored(total: Array) -> Terms:
    """A log target of which only the sum is known."""
    return Terms(jnp.zeros(()), jnp.zeros(()), total)


def of_everyone(leaf: Any) -> pl.BlockSpec:
    """An array that all programs see whole."""
    rank = len(leaf.shape)
    return pl.BlockSpec(leaf.shape, lambda c: (0,) * rank)


def position(tree: Any, leaf: Any) -> int:
    """Where a leaf is among a tree's leaves."""
    return next(i for i, other in enumerate(jax.tree.leaves(tree)) if other is leaf)


def aliases(held: dict[str, Any], out: dict[str, Any]) -> dict[int, int]:
    """Which outputs take the memory of which inputs: all that a program holds."""
    numbered = jax.tree.unflatten(jax.tree.structure(out), range(len(jax.tree.leaves(out))))
    return dict(enumerate(jax.tree.leaves({name: numbered[name] for name in held})))


def params_for(numbers: int) -> Any:
    """How many warps a program gets."""
    from jax.experimental.pallas import triton  # where there is no GPU it need not be there

    return triton.CompilerParams(num_warps=warps_of(numbers), num_stages=1)
