"""Subsets of single rows on the device: all rows lie there, and each chain's own rows beside its θ."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, PyTree

from lwa.algorithm import State, Subset
from lwa.engine.device.cohort import ROWS_SHARE, DeviceCohort, count_device_proposals, device_memory, is_playable
from lwa.engine.device.partial_eval import Split, split_target
from lwa.engine.device.resident import UPLOAD_ROWS, SubsetPage, count_bytes, draw_subset_page, upload_rows
from lwa.engine.device.xla_loop import Place, Played, evaluate_prepared, play_together
from lwa.engine.problem import Problem
from lwa.kernels.kernel import Precision
from lwa.subsets.chain import SubsetChain
from lwa.subsets.moves import Swap
from lwa.targets.target import Target, Terms


class SubsetsOnDevice(DeviceCohort):
    """Some chains whose subset is uniform and gives the target nothing but its rows."""

    def __init__(self, problem: Problem, chains: Sequence[int], U: Subset) -> None:
        super().__init__(problem, chains)
        with jax.enable_x64(True):
            self.target = round_target(jax.tree.map(jnp.asarray, problem.target), problem.dtype)
            rows = upload_rows(problem.subsets.rows.blocks(UPLOAD_ROWS), problem.dtype)
            one = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:1], 0, -1), rows)
            theta = jnp.zeros(problem.target.model.dimension, problem.dtype)
            self.split: Split = split_target(self.target, theta, one)
            self.rows = prepare_rows(self.target, rows, self.split)
            N = len(jax.tree.leaves(rows)[0])
            self.first = jnp.asarray(np.asarray(U.indices), jnp.int32 if N < 2**31 else jnp.int64)

    @classmethod
    def suits(cls, problem: Problem, chains: int) -> bool:
        """Return whether the subset is uniform and gives the target nothing but its rows, and there is room."""
        subsets = problem.subsets
        if not isinstance(subsets, SubsetChain) or not isinstance(subsets.move, Swap) or not is_playable(problem):
            return False
        if subsets.leverage is not None or subsets.calibration is not None or subsets.statistic.dimension:
            return False
        rows = count_bytes(subsets.rows, problem.dtype)
        held = rows / len(subsets.rows) * subsets.n * chains
        return max(rows, held) < ROWS_SHARE * device_memory()

    @classmethod
    def choose_page(cls, problem: Problem, chains: int) -> int:
        """Return the proposals per page: fewer if chains are many, or many rows come in."""
        subsets, d = problem.subsets, problem.target.model.dimension
        each = count_bytes(subsets.rows, problem.dtype) / len(subsets.rows)
        move = 32 * d + 64 + 3 * each * subsets.move.replaced(subsets.n) / subsets.move.every
        return count_device_proposals(subsets, move, subsets.n, chains)

    def score(self, theta: Float[np.ndarray, "chains d"]) -> Terms:
        """Return the log target of every chain at its θ, given its first subset."""
        with jax.enable_x64(True):
            return score_subsets(jnp.asarray(theta), self.first, self.rows, self.target, self.split)

    def put(self, state: State, indices: Array) -> Place:
        """Put chains at these subsets, with their rows."""
        return Place(state._replace(rows=take_rows(indices, self.rows)), indices)

    @property
    def indices(self) -> Array:
        """The rows of each subset."""
        return self.place.indices

    def _play(self, page: SubsetPage, at: int, end: int) -> Played:
        from lwa.engine.device import pallas_subsets  # Pallas: nothing else needs it

        kernel, target, split = self.problem.kernel, self.target, self.split
        options = {"start": at, "stop": end, "target": target, "kernel": kernel, "split": split, "every": self.every}
        played = self.play_by_pallas(
            lambda: pallas_subsets.why_not_in_registers(self.place, page, target, kernel, split),
            lambda interpret: pallas_subsets.play_in_registers(self.place, page, interpret=interpret, **options),
        )
        if played is not None:
            return played
        self.place, self.played = play_together(self.place, self.room, page, gain=self._gain(at), **options)
        return self.played

    def _draw_page(self, number: int) -> SubsetPage:
        problem, subsets = self.problem, self.problem.subsets
        return draw_subset_page(
            *self.keys, number, self.rows, kernel=problem.kernel, transitions=problem.page // self.every,
            moves=problem.page, k=subsets.move.replaced(subsets.n), n=subsets.n, d=problem.target.model.dimension,
            dtype=problem.dtype,
        )  # fmt: skip


def round_target(target: Target, dtype: Precision) -> Target:
    """Round what the target knows of all rows to the working precision, so that no program has to convert it.

    θ̂ is rounded too, by as much as any θ in that precision.
    """
    if target.expansion is None:
        return target
    return replace(target, expansion=jax.tree.map(lambda leaf: leaf.astype(dtype), target.expansion))


@partial(jax.jit, static_argnames=("split",))
def prepare_rows(target: Target, rows: PyTree, split: Split) -> list[Array]:
    """Compute what the target needs of each row at θ̂."""
    return split.prepare(target, rows)


@jax.jit
def take_rows(indices: Int[Array, "chains n"], rows: list[Array]) -> list[Array]:
    """Return what was prepared of each subset's rows, leaves `(chains, *shape, n)`."""
    return [jnp.moveaxis(leaf[indices], 1, -1) for leaf in rows]


@partial(jax.jit, static_argnames=("split",))
def score_subsets(theta: Array, indices: Array, rows: list[Array], target: Target, split: Split) -> Terms:
    """Return the log target of each chain."""
    return jax.vmap(partial(evaluate_prepared, target=target, split=split))(theta, take_rows(indices, rows))
