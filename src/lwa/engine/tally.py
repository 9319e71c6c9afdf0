"""Counts over a block of moves, computed where the moves are, on the host or on a device."""

from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PyTree

from lwa.engine.cohort import Moves
from lwa.targets.reference import Reference
from lwa.targets.target import WRITTEN_OUT


class Tally(NamedTuple):
    """Sums over all moves of a cohort."""

    moves: int  # of all chains
    evaluations: int  # of the chains that the run has
    invalid: int
    refreshed: int
    transitions: int
    standing: int  # moves during which the log target was -inf
    acceptance: float
    furthest: float  # the largest distance from the reference point, in posterior sds; 0 if there is none


def count_block(moves: Moves, chains: int, reference: Reference | None) -> Tally:
    """Return the tally of moves on the host or on a device. The first `chains` of a cohort that is filled up count."""
    if isinstance(moves.theta, Array):
        known = None if reference is None else (reference.theta, reference.whitening)
        with jax.enable_x64(True):
            return jax.device_get(tally_on_device(moves, chains, known))
    return count_moves(np, moves, chains, 0.0 if reference is None else reference.furthest(moves.theta))


def add_tallies(tallies: Sequence[Tally]) -> Tally:
    """Return the tally of all cohorts."""
    total = Tally._make(sum(map(float, one)) for one in zip(*tallies, strict=True))
    counts = {name: int(value) for name, value in total._asdict().items() if name not in ("acceptance", "furthest")}
    return total._replace(**counts, furthest=max(float(one.furthest) for one in tallies))


@jax.jit
def tally_on_device(moves: Moves, chains: int, reference: tuple[Array, Array] | None) -> Tally:
    """Count everything in one program: each number that is fetched by itself keeps the device waiting."""
    if reference is None:
        return count_moves(jnp, moves, chains, 0.0)
    furthest: PyTree = jnp.sqrt(jnp.max(square_distances(jnp.asarray(moves.theta), *reference), initial=0.0))
    return count_moves(jnp, moves, chains, furthest)


def count_moves(xp: ModuleType, moves: Moves, chains: int, furthest: float) -> Tally:
    """Count by NumPy, or by `jax.numpy`."""
    own = moves.evaluations.sum(0, dtype=np.int64)  # of each chain
    return Tally(
        moves=moves.invalid.size, evaluations=xp.sum(xp.where(xp.arange(len(own)) < chains, own, 0)),
        invalid=xp.count_nonzero(moves.invalid), refreshed=xp.count_nonzero(moves.refreshed),
        transitions=xp.count_nonzero(moves.ends), standing=xp.count_nonzero(moves.log_density == -np.inf),
        acceptance=xp.sum(moves.acceptance, dtype=np.float64), furthest=furthest,
    )  # fmt: skip


def square_distances(theta: Float[Array, "... d"], centre: Array, whitening: Array) -> Array:
    """Return ‖F⁻¹ (θ - θ̂)‖² of many θ on a device; for few parameters entry by entry, since a library's product with
    so narrow a matrix takes longer than reading θ."""
    away, whitening = (theta - centre).astype(theta.dtype), whitening.astype(theta.dtype)
    d = away.shape[-1]
    if d > WRITTEN_OUT:
        return jnp.sum((away @ whitening.T) ** 2, -1)
    # F⁻¹ is upper triangular.
    return jnp.asarray(sum(sum(whitening[i, j] * away[..., j] for j in range(i, d)) ** 2 for i in range(d)))
