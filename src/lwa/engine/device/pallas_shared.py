"""What the Pallas programs for subsets and for windows share: their steps, their decision, and what they write."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jaxtyping import Int32, PyTree

from lwa.algorithm import Draw
from lwa.engine.device.partial_eval import describe_array
from lwa.engine.device.scalarise import NotInLanes
from lwa.kernels.kernel import Kernel, MetropolisKernel, MoveInfo, Noise, Tuning, acceptance_probability, accepts
from lwa.targets.target import Target, Terms

MOST_PARAMETERS = 32
"""Each is written out several times over, and a program of many parameters takes long to compile."""
PLATFORMS = ("cpu", "gpu", "cuda", "rocm")
"""Platforms on which Triton compiles programs; on a CPU, where only tests run them, they are interpreted."""

type Refs = PyTree
"""References to arrays inside a Pallas program, in a tree like the arrays'."""


class When(NamedTuple):
    """The place of a step in a page. Each transition is a step of no length that scores θ anew, then `every` moves."""

    transition: Array
    refresh: Array  # whether it is the step of no length
    move: Array  # the number of the move


class StepDecision(NamedTuple):
    """Whether a step was accepted."""

    accept: Array
    log_ratio: Array
    invalid: Array


def find_steps(start: int | Array, stop: int | Array, every: int) -> Int32[Array, "2"]:
    """Return the first step of the moves `start` to `stop` and the one past the last; each transition is a step too."""
    first = start // every * (every + 1) + jnp.where(start % every == 0, 0, start % every + 1)
    return jnp.asarray([first, (stop - 1) // every * (every + 1) + (stop - 1) % every + 2], jnp.int32)


def locate_step(s: Array, every: int) -> When:
    """Return the place of a step in its page."""
    transition, moves_since = s // (every + 1), s % (every + 1)
    return When(transition, moves_since == 0, transition * every + jnp.maximum(moves_since - 1, 0))


def decide_step(total: Array, new_total: Array, log_hastings: Array, log_u: Array, refresh: Array) -> StepDecision:
    """Accept or reject, lines 8-9 of Algorithm 1; a step that scores θ anew is always accepted."""
    new = as_terms(new_total)
    log_ratio = new.log_density - as_terms(total).log_density + log_hastings
    return StepDecision(refresh | accepts(log_u, log_ratio), log_ratio, new.invalid)


def as_terms(total: Array) -> Terms:
    """Return a log target of which only the sum is known."""
    return Terms(jnp.zeros(()), jnp.zeros(()), total)


def log_proposal(kernel: MetropolisKernel, sds: Sequence[Array], d: int) -> Array | float:
    """Return the log density of a step that does not start from θ, from where it leads in posterior sds."""
    return kernel.log_q(jnp.asarray(sum(x * x for x in sds)), d) if sds else 0.0


def describe_draws(shape: tuple[int, ...], d: int, dtype: jnp.dtype, last: tuple[int, ...] = ()) -> dict[str, PyTree]:
    """Return the shapes and types of what moves write, `(*shape, ..., *last)`."""
    kinds = {"densities": jnp.float64, "acceptance": jnp.float32, "flags": jnp.int8}
    return {
        "thetas": describe_array((*shape, d, *last), dtype),
        **{name: describe_array((*shape, *last), kind) for name, kind in kinds.items()},
    }


def write_draw(
    after: Mapping[str, Refs], at: Callable[..., tuple[Array | int | slice, ...]], theta: Sequence[Array], total: Array,
    decision: StepDecision
) -> None:  # fmt: skip
    """Write what one move did; `at` gives the place of a move, or of an entry of its θ."""
    for j, entry in enumerate(theta):
        after["thetas"][at(j)] = entry
    after["densities"][at()] = as_terms(total).log_density
    after["acceptance"][at()] = acceptance_probability(decision.log_ratio.astype(jnp.float32))
    flags = jnp.where(decision.accept, 1, 0) + jnp.where(decision.invalid, 2, 0)
    after["flags"][at()] = flags.astype(jnp.int8)


def unpack_draws(found: Mapping[str, Array]) -> Draw:
    """Return the draws of a page, as programs wrote them."""
    flags = found["flags"]
    info = MoveInfo(found["acceptance"], (flags & 1) > 0, (flags & 2) > 0, jnp.ones(flags.shape, jnp.int32), {})
    return Draw(found["thetas"], found["densities"], info)


def flatten_target(target: Target) -> list[Array]:
    """Return the target's leaves, each as a vector."""
    return [jnp.ravel(leaf) for leaf in jax.tree.leaves(target)]


def find_leaf(tree: PyTree, leaf: object) -> int:
    """Return the position of a leaf among a tree's leaves."""
    return next(i for i, other in enumerate(jax.tree.leaves(tree)) if other is leaf)


def share_whole(leaf: Array) -> pl.BlockSpec:
    """Let all programs see the whole array."""
    rank = len(leaf.shape)
    return pl.BlockSpec(leaf.shape, lambda c: (0,) * rank)


def run_programs(
    program: Callable[..., None], name: str, *, programs: int, own: PyTree, common: PyTree, out: PyTree,
    give: Callable[[Array], pl.BlockSpec], warps: int, interpret: bool, aliases: Mapping[int, int] | None = None
) -> PyTree:  # fmt: skip
    """Run `programs` instances of a Pallas program; `give` selects the part of `own` for each, all see `common`.

    Return what the programs write, in a tree like `out`, which has the shapes and types.
    """
    parameters, leaves = None, jax.tree.leaves
    if not interpret:
        from jax.experimental.pallas import triton  # it is missing if there is no GPU

        parameters = triton.CompilerParams(num_warps=warps, num_stages=1)
    results = pl.pallas_call(
        program, name=name, grid=(programs,), in_specs=[*map(give, leaves(own)), *map(share_whole, leaves(common))],
        out_specs=[*map(give, leaves(out))], out_shape=leaves(out), input_output_aliases=dict(aliases or {}),
        interpret=interpret, compiler_params=parameters,
    )(*leaves(own), *leaves(common))  # fmt: skip
    return jax.tree.unflatten(jax.tree.structure(out), results)


def zeros_past(tree: PyTree, axes: int) -> PyTree:
    """Return zeros of the shape that leaves have past their first axes."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[axes:], leaf.dtype), tree)


def require_planned_steps(kernel: Kernel, noise: Noise, tuning: Tuning) -> None:
    """Raise `NotInLanes` if steps are not known before θ is."""
    if not isinstance(kernel, MetropolisKernel) or kernel.plan_step(noise, tuning) is None:
        raise NotInLanes(f"steps of {type(kernel).__name__} depend on where the chain is")


def explain(d: int, too_large: str, write_out: Callable[[], object]) -> str:
    """Return why chains cannot be played by a Pallas program, or nothing if they can. Nothing is compiled."""
    if jax.default_backend() not in PLATFORMS:
        return f"there is no such program for {jax.default_backend()}"
    if d > MOST_PARAMETERS:
        return f"{d} parameters would be written out one by one"
    if too_large:
        return too_large
    try:
        write_out()
    except NotInLanes as reason:
        return str(reason)
    return ""
