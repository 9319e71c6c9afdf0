"""Lines 2-11 of Algorithm 1 with the subset in registers: one program per chain reads its subset once per page.

A move that reads the subset's rows from memory cannot be faster than memory. Here each program loads its chain's rows
when a page begins, one vector of lanes for each number of a row, exchanges rows among its registers, and writes them
back when the page ends. It does what `xla_loop.py` does, for chains whose tuning is frozen and kernels whose steps are
known ahead.

What depends on θ alone costs as much as what depends on 32 rows. So steps are drawn up before, for a whole page, and
they give where θ is in posterior sds: V(θ + step) = V θ + V step.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl
from jaxtyping import Int, PyTree

from lwa.algorithm import State
from lwa.engine.device import pallas_shared as shared
from lwa.engine.device.pallas_shared import Refs, log_proposal, zeros_past
from lwa.engine.device.partial_eval import Split, describe_array
from lwa.engine.device.resident import SubsetPage
from lwa.engine.device.scalarise import FlatLeaves, write_out
from lwa.engine.device.xla_loop import Place, Played
from lwa.kernels.kernel import Kernel, MetropolisKernel, Noise, Tuning
from lwa.targets.target import LARGEST_REMAINDER, Target

MOST_NUMBERS_HELD = 32_768
"""Numbers of a chain's rows that a program holds: 128 KiB, of the 256 KiB of registers that a processor has."""
NUMBERS_PER_THREAD = 128
"""Of a thread's 255 registers. Every warp computes what depends on θ alone, so few warps are better than many."""


class SubsetParts(NamedTuple):
    """The target, written out."""

    besides_rows: Callable[..., FlatLeaves]  # θ, where it is in sds, target -> what does not depend on the subset
    numbers: Callable[..., FlatLeaves]  # θ, target -> what rows' terms need of θ
    terms: Callable[..., FlatLeaves]  # those numbers, rows -> one number per row


def count_lanes(n: int) -> int:
    """Return the length of vectors that hold n rows: a power of two."""
    return 1 << max(5, (n - 1).bit_length())


def count_warps(numbers: int) -> int:
    """Return the number of warps for a program that holds this many numbers."""
    return min(16, 1 << max(0, (-(-numbers // (32 * NUMBERS_PER_THREAD)) - 1).bit_length()))


def count_numbers_per_row(place: Place) -> int:
    """Return how many registers a row takes: its numbers and its index."""
    return 1 + sum(int(np.prod(leaf.shape[1:-1])) * max(1, leaf.dtype.itemsize // 4) for leaf in place.state.rows)


def evaluate_besides_rows(theta: Array, sds: Array | None, target: Target) -> Array:
    """Return all of the log target that does not depend on the subset."""
    return target.besides_rows(theta, target.model.log_prior_at(theta), sds)


def write_out_subset_target(target: Target, kernel: Kernel, split: Split, place: Place, noise: Noise) -> SubsetParts:
    """Write out the target; raise `NotInLanes` if that is impossible for it or for the kernel."""
    state: State = zeros_past(place.state, 1)
    shared.require_planned_steps(kernel, zeros_past(noise, 2), state.tuning)
    one = [leaf[..., :1] for leaf in state.rows]
    return SubsetParts(
        write_out(evaluate_besides_rows, state.theta, target.sds(state.theta), target),
        write_out(split.numbers, state.theta, target),
        write_out(split.terms, jax.eval_shape(split.numbers, state.theta, target), one),
    )


def why_not_in_registers(place: Place, page: SubsetPage, target: Target, kernel: Kernel, split: Split) -> str:
    """Return why chains cannot be played in registers, or nothing if they can. Only shapes are looked at."""
    n, numbers = place.indices.shape[-1], count_numbers_per_row(place)
    fits = numbers * count_lanes(n) <= MOST_NUMBERS_HELD
    too_large = "" if fits else f"{n} rows of {numbers} numbers do not fit into registers"
    d = place.state.theta.shape[-1]
    return shared.explain(d, too_large, lambda: write_out_subset_target(target, kernel, split, place, page.noise))


def draw_up_steps(noise: Noise, tuning: Tuning, target: Target, kernel: MetropolisKernel) -> tuple[Array, Array]:
    """Return a page's steps and how far they lead in posterior sds, `(chains, moves, 2d)`, and which start at θ."""

    def one(noise: Noise, tuning: Tuning) -> tuple[Array, Array]:
        step = kernel.plan_step(noise, tuning)
        assert step is not None
        if target.expansion is None:
            return step.by, step.from_here
        origin = jnp.where(step.from_here, target.expansion.theta, 0.0).astype(step.by.dtype)
        return jnp.concatenate([step.by, jnp.asarray(target.sds(step.by + origin))]), step.from_here

    return jax.vmap(jax.vmap(one, in_axes=(0, None)))(noise, tuning)


def widen(leaf: Array) -> Array:
    """Return numbers of one size, so that they lie alike among threads."""
    return leaf.astype(jnp.int32) if leaf.dtype.itemsize < 4 else leaf


def pad_lanes(leaf: Array) -> Array:
    """Fill up the last axis of `(chains, ..., n)` with rows of the subset, so that lanes past n hold nothing odd."""
    chains, n = leaf.shape[0], leaf.shape[-1]
    wide = widen(leaf).reshape(chains, -1, n)
    return jnp.concatenate([wide, jnp.broadcast_to(wide[..., :1], (*wide.shape[:-1], count_lanes(n) - n))], axis=-1)


class SubsetArrays(NamedTuple):
    """What programs work on, by name."""

    held: dict[str, PyTree]  # what a program holds, of each chain; its outputs take their memory
    given: dict[str, PyTree]  # the page, of each chain
    common: dict[str, PyTree]  # what all programs see
    out: dict[str, PyTree]  # what it writes, shapes and types


def collect_subset_arrays(
    place: Place, page: SubsetPage, bounds: Array, target: Target, kernel: MetropolisKernel
) -> SubsetArrays:
    """Collect what programs work on."""
    state, chains = place.state, len(place.indices)
    steps, from_here = draw_up_steps(page.noise, state.tuning, target, kernel)
    sds = jax.vmap(target.sds)(state.theta)
    rest = jax.vmap(evaluate_besides_rows, (0, None if sds is None else 0, None))(state.theta, sds, target)
    held: dict[str, PyTree] = {
        "rows": [pad_lanes(leaf) for leaf in state.rows],
        "U": pad_lanes(place.indices),
        "theta": state.theta if sds is None else jnp.concatenate([state.theta, sds], axis=1),
        "density": jnp.stack([state.terms.total, rest], axis=1),
    }
    given = {
        "slots": page.slots,
        "incoming": page.incoming,
        "coming": [widen(leaf).reshape(*leaf.shape[:3], -1) for leaf in page.rows],
        "steps": jnp.pad(steps, ((0, 0), (0, 1), (0, 0))),  # past the last move is a step of no length
        "from_here": jnp.pad(from_here.astype(state.theta.dtype), ((0, 0), (0, 1)), constant_values=1),
        "log_u": page.noise.log_u,
    }
    out = {
        **jax.tree.map(lambda leaf: describe_array(leaf.shape, leaf.dtype), held),
        **shared.describe_draws((chains, page.noise.log_u.shape[1]), state.theta.shape[-1], state.theta.dtype),
        "refreshed": describe_array((chains, page.slots.shape[1]), jnp.int8),
    }
    return SubsetArrays(held, given, {"bounds": bounds, "target": shared.flatten_target(target)}, out)


class Registers(NamedTuple):
    """What a program holds from step to step."""

    columns: tuple[Array, ...]  # the subset's rows, one vector of lanes for each number of a row
    U: Array  # which rows they are
    here: tuple[Array, ...]  # θ, and where it is in posterior sds
    total: Array  # the log target
    rest: Array  # of it, what does not depend on the subset


class ChainProgram(NamedTuple):
    """The moves of one chain, as a Pallas program on references to its arrays."""

    parts: SubsetParts
    kernel: MetropolisKernel
    n: int  # rows of the subset
    every: int
    power_at: int  # where the power is among the target's leaves
    share_at: int | None  # where H_N's share is, if rows' terms are remainders: small beside what they remain of
    lane: Int[Array, " lanes"]  # their numbers
    held: dict[str, Refs]
    given: dict[str, Refs]
    common: dict[str, Refs]
    out: dict[str, Refs]

    @property
    def d(self) -> int:
        """The number of parameters."""
        return int(self.out["thetas"].shape[-1])

    def run(self) -> None:
        """Load what is held, make all steps, and store it again."""
        rows = [(ref, i) for ref in self.out["rows"] for i in range(ref.shape[1])]
        width = self.held["theta"].shape[1]
        columns = tuple(ref[0, i, :] for ref, i in rows)
        here = tuple(self.held["theta"][0, j] for j in range(width))
        first = Registers(columns, self.out["U"][0, 0, :], here, self.held["density"][0, 0], self.held["density"][0, 1])
        bounds = self.common["bounds"]
        last = jax.lax.fori_loop(bounds[0], bounds[1], self.step, first)
        for (ref, i), column in zip(rows, last.columns, strict=True):
            ref[0, i, :] = column
        self.out["U"][0, 0, :] = last.U
        for j in range(width):
            self.out["theta"][0, j] = last.here[j]
        self.out["density"][0, 0] = last.total
        self.out["density"][0, 1] = last.rest

    def step(self, s: Array, now: Registers) -> Registers:
        """Make one step: a move, or before the first of `every` moves a proposal of U' and a step of no length."""
        given, d, when = self.given, self.d, shared.locate_step(s, self.every)
        columns, U = jax.lax.cond(
            when.refresh, lambda: self.exchange(when.transition, now.columns, now.U), lambda: (now.columns, now.U)
        )
        drawn = jnp.where(when.refresh, given["log_u"].shape[1], when.move)  # past the last is the one of no length
        from_here = given["from_here"][0, drawn]
        there = [from_here * x + given["steps"][0, drawn, j] for j, x in enumerate(now.here)]
        new_rest, new_total = self.score(there, columns)
        hastings = (1 - from_here) * (
            log_proposal(self.kernel, now.here[d:], d) - log_proposal(self.kernel, there[d:], d)
        )
        decision = shared.decide_step(now.total, new_total, hastings, given["log_u"][0, when.move], when.refresh)
        either = zip((*there, new_total, new_rest), (*now.here, now.total, now.rest), strict=True)
        *here, total, rest = (jnp.where(decision.accept, a, b) for a, b in either)

        @pl.when(~when.refresh)
        def _() -> None:
            shared.write_draw(self.out, lambda *j: (0, when.move, *j), here[:d], total, decision)

        return Registers(columns, U, tuple(here), total, rest)

    def exchange(self, t: Array, columns: tuple[Array, ...], U: Array) -> tuple[tuple[Array, ...], Array]:
        """Put the incoming rows into their slots, unless one of them is in U already: lines 2-5."""
        given, lane = self.given, self.lane
        k = given["incoming"].shape[-1]
        new = [given["incoming"][0, t, j] for j in range(k)]
        there = reduce(jnp.logical_or, [one == U for one in new])
        changed = jnp.max(jnp.where(there, 1, 0)) == 0
        for a, b in combinations(new, 2):
            changed &= a != b
        self.out["refreshed"][0, t] = changed.astype(jnp.int8)

        def put(j: int | Array, held: tuple[tuple[Array, ...], Array]) -> tuple[tuple[Array, ...], Array]:
            columns, U = held
            here = (lane == given["slots"][0, t, j]) & changed
            entries = [ref[0, t, j, i] for ref in given["coming"] for i in range(ref.shape[3])]
            columns = tuple(jnp.where(here, entry, column) for entry, column in zip(entries, columns, strict=True))
            return columns, jnp.where(here, given["incoming"][0, t, j], U)

        return jax.lax.fori_loop(0, k, put, (columns, U)) if k > 1 else put(0, (columns, U))

    def score(self, there: Sequence[Array], columns: Sequence[Array]) -> tuple[Array, Array]:
        """Return what of the log target does not depend on the subset, and all of it."""
        constants = self.common["target"]
        theta, sds = there[: self.d], there[self.d :]
        known = [[ref[i] for i in range(ref.shape[0])] for ref in constants]
        ((rest,),) = self.parts.besides_rows(theta, *([sds] if sds else []), *known)
        ends = accumulate((ref.shape[1] for ref in self.out["rows"]), initial=0)
        rows = [list(columns[a:b]) for a, b in pairwise(ends)]
        ((terms,),) = self.parts.terms(*self.parts.numbers(theta, *known), *rows)
        double = terms if self.share_at is not None else terms.astype(jnp.float64)
        summed = jnp.sum(jnp.where(self.lane < self.n, double, 0.0))
        remainder = constants[self.power_at][0] * summed.astype(jnp.float64)
        if self.share_at is not None:  # `Target.limit`, written out
            bend = sum(share * z**2 for share, z in zip(known[self.share_at], sds, strict=True))
            most = (0.5 * LARGEST_REMAINDER * jnp.asarray(bend)).astype(remainder.dtype)
            remainder = jnp.where(remainder > most, most, remainder)
        return rest, rest + remainder


@partial(jax.jit, static_argnames=("kernel", "split", "every", "interpret"), donate_argnames=("place",))
def play_in_registers(
    place: Place, page: SubsetPage, *, start: int, stop: int, target: Target, kernel: MetropolisKernel, split: Split,
    every: int, interpret: bool = False
) -> tuple[Place, Played]:  # fmt: skip
    """Play the moves `start` to `stop` of a page, as `play_together` does with a gain of 0. Others are not written."""
    state, (chains, n), d = place.state, place.indices.shape, place.state.theta.shape[-1]
    arrays = collect_subset_arrays(place, page, shared.find_steps(start, stop, every), target, kernel)
    parts = write_out_subset_target(target, kernel, split, place, page.noise)
    power_at = shared.find_leaf(target, target.power)
    share = None if target.expansion is None else target.expansion.share
    share_at = None if share is None else shared.find_leaf(target, share)

    def program(*refs: Refs) -> None:
        named = jax.tree.unflatten(jax.tree.structure(tuple(arrays)), refs)
        lane = jnp.arange(count_lanes(n))
        ChainProgram(parts, kernel, n, every, power_at, share_at, lane, *named).run()

    found = shared.run_programs(
        program, "lwa_in_registers", programs=chains, own=(arrays.held, arrays.given), common=arrays.common,
        out=arrays.out, give=give_own, warps=count_warps(count_numbers_per_row(place) * count_lanes(n)),
        interpret=interpret, aliases=find_aliases(arrays.held, arrays.out),
    )  # fmt: skip
    pairs = zip(found["rows"], state.rows, strict=True)
    rows = [new[..., :n].reshape(old.shape).astype(old.dtype) for new, old in pairs]
    terms = state.terms._replace(total=found["density"][:, 0])
    state = state._replace(theta=found["theta"][:, :d], rows=rows, terms=terms)
    return Place(state, found["U"][:, 0, :n]), Played(shared.unpack_draws(found), found["refreshed"] > 0)


def give_own(leaf: Array) -> pl.BlockSpec:
    """Give each program its own chain's part of an array."""
    rank = len(leaf.shape)
    return pl.BlockSpec((1, *leaf.shape[1:]), lambda c: (c, *(0 for _ in range(rank - 1))))


def find_aliases(held: dict[str, PyTree], out: dict[str, PyTree]) -> dict[int, int]:
    """Return which outputs take the memory of which inputs: all that a program holds."""
    numbered = jax.tree.unflatten(jax.tree.structure(out), range(len(jax.tree.leaves(out))))
    return dict(enumerate(jax.tree.leaves({name: numbered[name] for name in held})))
