"""Lines 7-11 of Algorithm 1 for windows: one lane per chain, each of which runs through its own window step by step.

A recursion cannot be spread over lanes, but chains can. No window is held: every lane reads the sequence where its
window is, remembers what the recursion remembers, and adds up. It does what `play_windows` does, for chains whose
tuning is frozen, kernels whose steps are known ahead and models with a recursion.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl
from jaxtyping import PyTree

from lwa.algorithm import State
from lwa.engine.device import pallas_shared as shared
from lwa.engine.device.pallas_shared import Refs, log_proposal, zeros_past
from lwa.engine.device.partial_eval import describe_array
from lwa.engine.device.scalarise import FlatLeaves, NotInLanes, write_out
from lwa.engine.device.window_walk import Series, WindowPage
from lwa.engine.device.xla_loop import Place, Played
from lwa.kernels.kernel import AnyArray, Kernel, MetropolisKernel, Noise, Tuning
from lwa.targets.target import Given, Target

LANES = 32
"""Chains of a program: a warp."""
ROWS_TOGETHER = 16
"""Steps of a window whose rows are requested together, while the program works on those before them."""


class WindowParts(NamedTuple):
    """The target, written out; the first three also take the target's own leaves."""

    transported: Callable[..., FlatLeaves]  # θ, A_U
    besides_rows: Callable[..., FlatLeaves]  # θ, slope, feasible
    sds: Callable[..., FlatLeaves]  # θ
    start: Callable[..., FlatLeaves]  # θ, a row -> what is remembered
    step: Callable[..., FlatLeaves]  # θ, that, a row -> that, and log f
    remembered: list[jnp.dtype]


def transport(theta: Array, matrix: Array, target: Target) -> Array:
    """Return θ̂ + A_U δ; θ itself if the matrix is empty."""
    return target.transport(theta, Given(theta, matrix if matrix.size else None))  # no slope is needed


def evaluate_outside_window(theta: Array, slope: Array, feasible: Array, target: Target) -> Array:
    """Return all of the log target but the rows' own terms; empty arrays stand for what is not there."""
    given = Given(slope, None, feasible.reshape(()) if feasible.size else None) if slope.size else None
    return target.besides_rows(theta, target.model.log_prior_at(theta), target.sds(theta), given)


def find_sds(theta: Array, target: Target) -> Array:
    """Return where θ is in posterior sds; nothing if there is no reference."""
    found = target.sds(theta)
    return theta[:0] if found is None else found


def write_out_window_target(
    target: Target, kernel: Kernel, place: Place, page: WindowPage, rows: PyTree
) -> WindowParts:
    """Write out the target; raise `NotInLanes` if that is impossible for it or for the kernel."""
    model, state, row = target.model, place.state, zeros_past(rows, 1)
    theta: Array = zeros_past(state.theta, 1)
    shared.require_planned_steps(kernel, zeros_past(page.noise, 2), zeros_past(state.tuning, 1))
    if model.recursion is None:
        raise NotInLanes("the model has no recursion")
    recursion = model.recursion

    def start(theta: Array, row: PyTree) -> tuple[Array, ...]:
        return recursion.start(model.unravel(theta), row)

    def step(theta: Array, past: tuple[Array, ...], row: PyTree) -> tuple[tuple[Array, ...], Array]:
        return recursion.step(model.unravel(theta), past, row)

    remembered = jax.eval_shape(start, theta, row)
    if any(leaf.shape for leaf in jax.tree.leaves(remembered)):
        raise NotInLanes("a recursion must remember single numbers")
    slope, matrix, feasible = zeros_past(split_given(page.given, theta.dtype, page.walked.x.shape), 2)
    return WindowParts(
        transported=write_out(transport, theta, matrix, target),
        besides_rows=write_out(evaluate_outside_window, theta, slope, feasible, target),
        sds=write_out(find_sds, theta, target),
        start=write_out(start, theta, row),
        step=write_out(step, theta, remembered, row),
        remembered=[leaf.dtype for leaf in jax.tree.leaves(remembered)],
    )


def split_given(given: Given | None, dtype: jnp.dtype, shape: tuple[int, ...]) -> tuple[AnyArray, ...]:
    """Return slope, transport and feasibility of windows, `(*shape, ...)`; empty if they are not there."""
    none = jnp.zeros((*shape, 0))
    if given is None:
        return none, none.astype(dtype), none.astype(bool)
    matrix = none.astype(dtype) if given.transport is None else given.transport
    feasible = none.astype(bool) if given.feasible is None else given.feasible[..., None]
    return given.slope, matrix, feasible


def why_not_in_streams(place: Place, page: WindowPage, series: Series, target: Target, kernel: Kernel) -> str:
    """Return why chains cannot be played so, or nothing if they can. Only shapes are looked at."""
    is_long = max(leaf.size for leaf in jax.tree.leaves(series.rows)) >= 2**31
    too_long = "the sequence is too long for short indices" if is_long else ""
    d = place.state.theta.shape[-1]
    return shared.explain(d, too_long, lambda: write_out_window_target(target, kernel, place, page, series.rows))


class WindowArrays(NamedTuple):
    """What programs work on, by name; chains on the last axis, filled up to whole programs."""

    given: dict[str, Array]  # of each chain; without what is empty
    common: dict[str, PyTree]  # what all programs see
    out: dict[str, PyTree]  # what is written, shapes and types


def put_lanes_last(leaf: AnyArray, axes: int) -> Array:
    """Turn `(chains, ...)`, whose axes past the first few are numbers, into `(..., numbers, filled)`."""
    flat = leaf.reshape(*leaf.shape[:axes], -1)
    flat = jnp.pad(flat, ((0, -len(leaf) % LANES), *((0, 0),) * axes), mode="edge")
    return jnp.moveaxis(flat, 0, -1)


def collect_window_arrays(
    state: State, page: WindowPage, bounds: Array, series: Series, target: Target, kernel: MetropolisKernel
) -> WindowArrays:
    """Collect what programs work on."""
    (chains, d), dtype = state.theta.shape, state.theta.dtype
    filled = chains + -chains % LANES

    def plan_step(noise: Noise, tuning: Tuning) -> tuple[Array, Array]:
        step = kernel.plan_step(noise, tuning)
        assert step is not None
        return step.by, step.from_here.astype(dtype)

    steps, from_here = jax.vmap(jax.vmap(plan_step, in_axes=(0, None)))(page.noise, state.tuning)
    slope, matrix, feasible = split_given(page.given, dtype, page.walked.x.shape)
    given = {
        "theta": put_lanes_last(state.theta, 1),
        "total": put_lanes_last(state.terms.total, 1),
        "steps": put_lanes_last(jnp.pad(steps, ((0, 0), (0, 1), (0, 0))), 2),  # past the last is one of no length
        "from_here": put_lanes_last(jnp.pad(from_here, ((0, 0), (0, 1)), constant_values=1), 2),
        "log_u": put_lanes_last(page.noise.log_u, 2),
        "span": put_lanes_last(jnp.stack(page.span, axis=-1).astype(jnp.int32), 2),
        "slope": put_lanes_last(slope, 2),
        "transport": put_lanes_last(matrix, 2),
        "feasible": put_lanes_last(feasible.astype(jnp.int32), 2),
    }
    rows = [jnp.ravel(leaf) for leaf in jax.tree.leaves(series.rows)]
    out = {
        "theta": describe_array((d, filled), dtype),
        "total": describe_array((1, filled), jnp.float64),
        **shared.describe_draws((page.noise.log_u.shape[1],), d, dtype, (filled,)),
    }
    return WindowArrays(
        {name: leaf for name, leaf in given.items() if leaf.size},
        {"bounds": bounds, "target": shared.flatten_target(target), "rows": rows},
        out,
    )


class LaneProgram(NamedTuple):
    """The moves of as many chains as there are lanes, as a Pallas program on references to their arrays."""

    parts: WindowParts
    kernel: MetropolisKernel
    every: int
    length: int  # of a window with its lead-in
    widths: list[int]  # numbers of a row, leaf by leaf
    power_at: int  # where the power is among the target's leaves
    given: dict[str, Refs]
    common: dict[str, Refs]
    out: dict[str, Refs]

    def run(self) -> None:
        """Load where chains are, make all steps, and store where they are."""
        bounds = self.common["bounds"]
        first = tuple(self.read("theta")), self.read("total")[0]
        here, total = jax.lax.fori_loop(bounds[0], bounds[1], self.step, first)
        for j, entry in enumerate(here):
            self.out["theta"][j, :] = entry
        self.out["total"][0, :] = total

    def read(self, name: str, *at: Array) -> list[Array]:
        """Return the numbers of an array at a step, each a vector of lanes; none if the array is not there."""
        ref = self.given.get(name)
        return [] if ref is None else [ref[(*at, i, slice(None))] for i in range(ref.shape[-2])]

    def step(self, s: Array, carry: tuple[tuple[Array, ...], Array]) -> tuple[tuple[Array, ...], Array]:
        """Make one step: a move, or before the first of `every` moves, with U another, a step of no length."""
        (here, total), when = carry, shared.locate_step(s, self.every)
        drawn = jnp.where(when.refresh, self.out["thetas"].shape[0], when.move)
        known = [[ref[i] for i in range(ref.shape[0])] for ref in self.common["target"]]
        (from_here,) = self.read("from_here", drawn)
        there = [from_here * x + by for x, by in zip(here, self.read("steps", drawn), strict=True)]
        new_total = self.score(there, when.transition, known)
        old_q, new_q = (
            log_proposal(self.kernel, self.parts.sds(theta, *known)[0], len(here)) for theta in (here, there)
        )
        hastings = (1 - from_here) * (old_q - new_q)
        decision = shared.decide_step(total, new_total, hastings, self.read("log_u", when.move)[0], when.refresh)
        either = zip((*there, new_total), (*here, total), strict=True)
        *now, total = (jnp.where(decision.accept, a, b) for a, b in either)

        @pl.when(~when.refresh)
        def _() -> None:
            shared.write_draw(self.out, lambda *j: (when.move, *j, slice(None)), now, total, decision)

        return tuple(now), total

    def score(self, theta: Sequence[Array], t: Array, known: FlatLeaves) -> Array:
        """Return the log target of each lane at its θ, given its window after t transitions."""
        first, begin, end = self.read("span", t)
        own = self.parts.transported(theta, self.read("transport", t), *known)[0]

        def add_rows(
            i: Array, carry: tuple[FlatLeaves, Array, list[FlatLeaves]]
        ) -> tuple[FlatLeaves, Array, list[FlatLeaves]]:
            past, total, rows = carry
            coming = self.read_rows(i + 1, first, end)
            for u, row in enumerate(rows):
                *past, (term,) = self.parts.step(own, *past, *row)
                at = first + (i * ROWS_TOGETHER + u)
                total = total + jnp.where((at >= begin) & (at < end), term, 0.0).astype(jnp.float64)
            return self.spread_over_lanes(past), total, coming

        rows = self.read_rows(0, first, end)
        past = self.spread_over_lanes(self.parts.start(own, *rows[0]))
        start = past, jnp.zeros(LANES, jnp.float64), rows
        _, total, _ = jax.lax.fori_loop(0, -(-self.length // ROWS_TOGETHER), add_rows, start)
        feasible = [one > 0 for one in self.read("feasible", t)]
        ((rest,),) = self.parts.besides_rows(theta, self.read("slope", t), feasible, *known)
        return known[self.power_at][0] * total + rest

    def read_rows(self, i: int | Array, first: Array, end: Array) -> list[FlatLeaves]:
        """Return the i-th group of rows of each lane's window; past its end the last row."""

        def read_row(s: int | Array) -> FlatLeaves:
            at = first + jnp.minimum(s, end - first - 1)
            return [
                [ref[at * width + j] for j in range(width)]
                for ref, width in zip(self.common["rows"], self.widths, strict=True)
            ]

        return [read_row(i * ROWS_TOGETHER + u) for u in range(ROWS_TOGETHER)]

    def spread_over_lanes(self, past: FlatLeaves) -> FlatLeaves:
        """Return what is remembered, each number as a vector of lanes of its own type."""
        pairs = zip(past, self.parts.remembered, strict=True)
        return [[jnp.broadcast_to(jnp.asarray(one, kind), (LANES,))] for (one,), kind in pairs]


@partial(jax.jit, static_argnames=("kernel", "every", "length", "interpret"), donate_argnames=("place",))
def play_in_streams(
    place: Place, page: WindowPage, *, start: int, stop: int, series: Series, target: Target, kernel: MetropolisKernel,
    every: int, length: int, interpret: bool = False
) -> tuple[Place, Played]:  # fmt: skip
    """Play the moves `start` to `stop` of a page, as `play_windows` does with a gain of 0. Others are not written."""
    state, chains, transitions = place.state, len(place.state.theta), page.walked.x.shape[1]
    parts = write_out_window_target(target, kernel, place, page, series.rows)
    bounds = shared.find_steps(start, stop, every)
    arrays = collect_window_arrays(state, page, bounds, series=series, target=target, kernel=kernel)
    widths = [int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(series.rows)]
    power_at = shared.find_leaf(target, target.power)

    def program(*refs: Refs) -> None:
        named = jax.tree.unflatten(jax.tree.structure(tuple(arrays)), refs)
        LaneProgram(parts, kernel, every, length, widths, power_at, *named).run()

    found = shared.run_programs(
        program, "lwa_in_streams", programs=-(-chains // LANES), own=arrays.given, common=arrays.common, out=arrays.out,
        give=give_lanes, warps=LANES // 32, interpret=interpret,
    )  # fmt: skip
    found = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0)[:chains], found)
    state = state._replace(theta=found["theta"], terms=state.terms._replace(total=found["total"][:, 0]))
    last = jnp.minimum((stop - 1) // every, transitions - 1)
    indices = jax.lax.dynamic_slice_in_dim(page.walked.x, last, 1, 1)
    return Place(state, indices), Played(shared.unpack_draws(found), page.walked.accepted)


def give_lanes(leaf: Array) -> pl.BlockSpec:
    """Give each program its own chains' part of an array."""
    rank = len(leaf.shape)
    return pl.BlockSpec((*leaf.shape[:-1], LANES), lambda c: (*(0 for _ in range(rank - 1)), c))
