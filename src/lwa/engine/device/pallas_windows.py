"""Lines 7-11 of Algorithm 1 for windows: one lane a chain, each of which runs through its own window step by step.

A recursion cannot be spread over lanes, but chains can. Nothing of a window is held: every lane reads the sequence
where its window is, remembers what the recursion remembers, and adds up. It does what `play_windows` does, for chains
whose tuning is frozen, kernels whose steps are known ahead and models that tell their recursion.
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
from lwa.engine.device.pallas_subsets import (
    MOST_PARAMETERS,
    PLATFORMS,
    Numbers,
    of_everyone,
    position,
    scored,
    steps_between,
)
from lwa.engine.device.partial_eval import shaped
from lwa.engine.device.scalarise import NotInLanes, written_out
from lwa.engine.device.windows import Series, WindowPage
from lwa.engine.device.xla_loop import Place, Played
from lwa.kernels.decision import accepts, probability
from lwa.kernels.kernel import Info, Kernel, Metropolis
from lwa.targets.target import Given, Target

LANES = 32
"""Chains of a program: a warp."""
UNROLL = 16
"""Steps of a window whose rows are asked for together, while those before them are dealt with."""


class Parts(NamedTuple):
    """The target, written out; each also takes what all rows know, the target's own leaves."""

    transported: Callable[..., Numbers]  # θ, A_U
    besides_rows: Callable[..., Numbers]  # θ, slope, feasible
    sds: Callable[..., Numbers]  # θ
    start: Callable[..., Numbers]  # θ, a row -> what is remembered
    step: Callable[..., Numbers]  # θ, that, a row -> that, and log f
    remembered: list[Any]  # types


def given_as(slope: Any, transport: Any, feasible: Any) -> Given | None:
    """What is known of a window; an empty array stands for what is not there."""
    if slope.size == 0:
        return None
    return Given(slope, transport if transport.size else None, feasible.reshape(()) if feasible.size else None)


def parts_of(target: Target, kernel: Kernel, theta: Any, noise: Any, tuning: Any, given: Any, row: Any) -> Parts:
    """The target written out; raises `NotInLanes` where it or the kernel cannot be. Arguments are one chain's."""
    model = target.model
    if not isinstance(kernel, Metropolis) or kernel.ahead(noise, tuning) is None:
        raise NotInLanes(f"steps of {type(kernel).__name__} depend on where the chain is")
    if model.recursion is None:
        raise NotInLanes("the model does not tell its recursion")
    recursion = model.recursion

    def transported(theta: Array, transport: Array, target: Target) -> Array:
        known: Any = transport if transport.size else None
        return target.transported(theta, Given(None, known))

    def besides_rows(theta: Array, slope: Array, feasible: Array, target: Target) -> Array:
        known = given_as(slope, jnp.zeros(0), feasible)
        return target.besides_rows(theta, model.log_prior_at(theta), target.sds(theta), known)

    def sds(theta: Array, target: Target) -> Array:
        found = target.sds(theta)
        return theta[:0] if found is None else found

    def start(theta: Array, row: Any) -> Any:
        return recursion.start(model.unravel(theta), row)

    def step(theta: Array, past: Any, row: Any) -> Any:
        return recursion.step(model.unravel(theta), past, row)

    remembered = jax.eval_shape(start, theta, row)
    if any(leaf.shape for leaf in jax.tree.leaves(remembered)):
        raise NotInLanes("a recursion must remember single numbers")
    slope, transport, feasible = given
    return Parts(
        written_out(transported, theta, transport, target),
        written_out(besides_rows, theta, slope, feasible, target),
        written_out(sds, theta, target),
        written_out(start, theta, row),
        written_out(step, theta, remembered, row),
        [leaf.dtype for leaf in jax.tree.leaves(remembered)],
    )


def numbers_of(given: Given | None, dtype: Any, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Slope, transport and feasibility of windows, `(*shape, ...)`; empty where they are not there."""
    none = jnp.zeros((*shape, 0))
    if given is None:
        return none, none.astype(dtype), none.astype(bool)
    transport = none.astype(dtype) if given.transport is None else given.transport
    feasible = none.astype(bool) if given.feasible is None else given.feasible[..., None]
    return given.slope, transport, feasible


def of_one_chain(place: Place, page: WindowPage, series: Series) -> tuple[Any, ...]:
    """θ, one move's noise, tuning, what is known of a window, and a row: zeros of their shapes."""

    def zeros(leaf: Any, axes: int) -> Array:
        return jnp.zeros(leaf.shape[axes:], leaf.dtype)

    theta, tuning = (jax.tree.map(partial(zeros, axes=1), part) for part in (place.state.theta, place.state.tuning))
    noise = jax.tree.map(partial(zeros, axes=2), page.noise)
    known = numbers_of(page.given, theta.dtype, page.walked.x.shape)
    return (
        theta,
        noise,
        tuning,
        jax.tree.map(partial(zeros, axes=2), known),
        jax.tree.map(partial(zeros, axes=1), series.rows),
    )


def why_not(place: Place, page: WindowPage, series: Series, target: Target, kernel: Kernel) -> str:
    """Why it cannot be done so; nothing where it can. Shapes are all that is looked at."""
    d = place.state.theta.shape[-1]
    if jax.default_backend() not in PLATFORMS:
        return f"there is no such program for {jax.default_backend()}"
    if d > MOST_PARAMETERS:
        return f"{d} parameters would be written out one by one"
    if max(leaf.size for leaf in jax.tree.leaves(series.rows)) >= 2**31:
        return "the sequence is too long for short indices"
    try:
        parts_of(target, kernel, *of_one_chain(place, page, series))
    except NotInLanes as reason:
        return str(reason)
    return ""


@partial(jax.jit, static_argnames=("kernel", "every", "length", "interpret"), donate_argnames=("place",))
def play_in_streams(
    place: Place, page: WindowPage, start: int, stop: int, series: Series, target: Target, kernel: Metropolis, *,
    every: int, length: int, interpret: bool = False
) -> tuple[Place, Played]:  # fmt: skip
    """The moves `start` to `stop` of a page, as `play_windows` makes them with a gain of 0. Others are not written."""
    state = place.state
    (chains, d), dtype = state.theta.shape, state.theta.dtype
    moves, transitions = jax.tree.leaves(page.noise)[0].shape[1], page.walked.x.shape[1]
    parts = parts_of(target, kernel, *of_one_chain(place, page, series))
    filled = -(-chains // LANES) * LANES

    def steps_of(noise: Any, tuning: Any) -> tuple[Array, Array]:
        step = kernel.ahead(noise, tuning)
        assert step is not None
        return step.by, step.from_here.astype(dtype)

    steps, from_here = jax.vmap(jax.vmap(steps_of, in_axes=(0, None)))(page.noise, state.tuning)

    def lanes_last(leaf: Array, axes: int) -> Array:  # (chains, ...) -> (..., numbers, filled)
        flat = leaf.reshape(*leaf.shape[:axes], -1)
        flat = jnp.pad(flat, ((0, filled - chains), *((0, 0),) * axes), mode="edge")
        return jnp.moveaxis(flat, 0, -1)

    slope, transport, feasible = numbers_of(page.given, dtype, page.walked.x.shape)
    given = {
        "theta": lanes_last(state.theta, 1),
        "total": lanes_last(state.terms.total, 1),
        "steps": lanes_last(jnp.pad(steps, ((0, 0), (0, 1), (0, 0))), 2),
        "from_here": lanes_last(jnp.pad(from_here, ((0, 0), (0, 1)), constant_values=1), 2),
        "log_u": lanes_last(page.noise.log_u, 2),
        "span": lanes_last(jnp.stack(page.span, axis=-1).astype(jnp.int32), 2),
        "slope": lanes_last(slope, 2),
        "transport": lanes_last(transport, 2),
        "feasible": lanes_last(feasible.astype(jnp.int32), 2),
    }
    given = {name: leaf for name, leaf in given.items() if leaf.size}
    widths = [int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(series.rows)]
    shared = {
        "bounds": steps_between(start, stop, every),
        "target": [jnp.ravel(leaf) for leaf in jax.tree.leaves(target)],
        "rows": [jnp.ravel(leaf) for leaf in jax.tree.leaves(series.rows)],
    }
    out = {
        "theta": shaped((d, filled), dtype),
        "total": shaped((1, filled), jnp.float64),
        "thetas": shaped((moves, d, filled), dtype),
        "densities": shaped((moves, filled), jnp.float64),
        "acceptance": shaped((moves, filled), jnp.float32),
        "flags": shaped((moves, filled), jnp.int8),
    }
    power_at = position(target, target.power)

    def program(*refs: Any) -> None:
        before, common, after = jax.tree.unflatten(jax.tree.structure((given, shared, out)), refs)

        def of(name: str, *at: Any) -> list[Any]:
            ref = before.get(name)
            return [] if ref is None else [ref[(*at, i, slice(None))] for i in range(ref.shape[-2])]

        def constants() -> Numbers:
            return [[ref[i] for i in range(ref.shape[0])] for ref in common["target"]]

        def log_target(theta: Sequence[Any], t: Any, known: Numbers) -> Any:
            """Of each lane at its θ, given its window."""
            first, begin, end = of("span", t)
            own = parts.transported(theta, of("transport", t), *known)[0]

            def row_at(s: Any) -> Numbers:
                at = first + jnp.minimum(s, end - first - 1)
                return [
                    [ref[at * width + j] for j in range(width)]
                    for ref, width in zip(common["rows"], widths, strict=True)
                ]

            def group(i: Any) -> list[Numbers]:
                return [row_at(i * UNROLL + u) for u in range(UNROLL)]

            def some(i: Any, carry: Any) -> Any:
                past, total, rows = carry
                coming = group(i + 1)
                for u, row in enumerate(rows):
                    *past, (term,) = parts.step(own, *past, *row)
                    inside = (first + (i * UNROLL + u) >= begin) & (first + (i * UNROLL + u) < end)
                    total = total + jnp.where(inside, term, 0.0).astype(jnp.float64)
                return in_lanes(past), total, coming

            def in_lanes(past: Sequence[Any]) -> list[list[Any]]:
                return [
                    [jnp.broadcast_to(jnp.asarray(one, kind), (LANES,))]
                    for (one,), kind in zip(past, parts.remembered, strict=True)
                ]

            rows = group(0)
            carry = in_lanes(parts.start(own, *rows[0])), jnp.zeros(LANES, jnp.float64), rows
            _, total, _ = jax.lax.fori_loop(0, -(-length // UNROLL), some, carry)
            feasible = [one > 0 for one in of("feasible", t)]
            ((rest,),) = parts.besides_rows(theta, of("slope", t), feasible, *known)
            return known[power_at][0] * total + rest

        def log_q(theta: Sequence[Any], known: Numbers) -> Any:
            sds = parts.sds(theta, *known)[0]
            return kernel.log_q(sum(x * x for x in sds), d) if sds else 0.0

        def step(s: Any, carry: Any) -> Any:
            """Before the first of `every` moves U is another and θ scored anew; it is one step more, of no length."""
            here, total = carry
            transition, moves_since = s // (every + 1), s % (every + 1)
            refresh = moves_since == 0
            t = transition * every + jnp.maximum(moves_since - 1, 0)
            drawn, known = jnp.where(refresh, moves, t), constants()
            (from_here,) = of("from_here", drawn)
            there = [from_here * x + by for x, by in zip(here, of("steps", drawn), strict=True)]
            new, old = scored(log_target(there, transition, known)), scored(total)
            hastings = (1 - from_here) * (log_q(here, known) - log_q(there, known))
            ratio = new.log_density - old.log_density + hastings
            accept = refresh | accepts(of("log_u", t)[0], ratio)
            *here, total = (jnp.where(accept, a, b) for a, b in zip((*there, new.total), (*here, total), strict=True))

            @pl.when(~refresh)
            def _() -> None:
                for j in range(d):
                    after["thetas"][t, j, :] = here[j]
                after["densities"][t, :] = scored(total).log_density
                after["acceptance"][t, :] = probability(ratio.astype(jnp.float32))
                flags = jnp.where(accept, 1, 0) + jnp.where(new.invalid, 2, 0)
                after["flags"][t, :] = flags.astype(jnp.int8)

            return tuple(here), total

        carry = tuple(of("theta")), of("total")[0]
        here, total = jax.lax.fori_loop(common["bounds"][0], common["bounds"][1], step, carry)
        for j in range(d):
            after["theta"][j, :] = here[j]
        after["total"][0, :] = total

    def of_program(leaf: Any) -> pl.BlockSpec:
        rank = len(leaf.shape)
        return pl.BlockSpec((*leaf.shape[:-1], LANES), lambda c: (*(0 for _ in range(rank - 1)), c))

    leaves = jax.tree.leaves
    results = pl.pallas_call(
        program,
        name="lwa_in_streams",
        grid=(filled // LANES,),
        in_specs=[*map(of_program, leaves(given)), *map(of_everyone, leaves(shared))],
        out_specs=[*map(of_program, leaves(out))],
        out_shape=leaves(out),
        interpret=interpret,
        **({} if interpret else {"compiler_params": one_warp()}),
    )(*leaves((given, shared)))
    found = jax.tree.unflatten(jax.tree.structure(out), [jnp.moveaxis(leaf, -1, 0)[:chains] for leaf in results])
    state = state._replace(theta=found["theta"], terms=state.terms._replace(total=found["total"][:, 0]))
    flags = found["flags"]
    info = Info(found["acceptance"], (flags & 1) > 0, (flags & 2) > 0, jnp.ones(flags.shape, jnp.int32), {})
    last = jnp.minimum((stop - 1) // every, transitions - 1)
    indices = jax.lax.dynamic_slice_in_dim(page.walked.x, last, 1, 1)
    return Place(state, indices), Played(Draw(found["thetas"], found["densities"], info), page.walked.accepted)


def one_warp() -> Any:
    """As many threads as lanes."""
    from jax.experimental.pallas import triton  # where there is no GPU it need not be there

    return triton.CompilerParams(num_warps=LANES // 32, num_stages=1)
