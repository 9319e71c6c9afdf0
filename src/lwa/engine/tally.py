"""What is counted of a block of moves: a few numbers, found where the moves are and asked for once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.engine.cohort import Moves
from lwa.targets.reference import Reference
from lwa.targets.target import WRITTEN_OUT


class Tally(NamedTuple):
    """Sums over all moves of a cohort."""

    moves: Any  # of all chains
    evaluations: Any  # ... of those chains that the run has
    invalid: Any
    refreshed: Any
    transitions: Any
    standing: Any  # moves during which the log target was -inf
    acceptance: Any
    furthest: Any  # the largest distance from the reference point, in posterior sds; 0 where there is none


def count_block(moves: Moves, chains: int, reference: Reference | None) -> Tally:
    """Of moves on the host or on a device; of a cohort filled up, the first `chains` are the run's."""
    if isinstance(moves.theta, Array):
        known = None if reference is None else (reference.theta, reference.whitening)
        with jax.enable_x64(True):
            return jax.device_get(tally_on_device(moves, chains, known))
    return count_moves(np, moves, chains, 0.0 if reference is None else reference.furthest(moves.theta))


def add_tallies(tallies: Sequence[Tally]) -> Tally:
    """Of all cohorts."""
    total = Tally(*(sum(map(float, one)) for one in zip(*tallies, strict=True)))
    counts = {name: int(value) for name, value in total._asdict().items() if name not in ("acceptance", "furthest")}
    return total._replace(**counts, furthest=max(float(one.furthest) for one in tallies))


@jax.jit
def tally_on_device(moves: Moves, chains: int, reference: Any) -> Tally:
    """All of them in one program: each number that is asked for by itself keeps the device waiting."""
    furthest: Any = 0.0
    if reference is not None:
        theta: Any = moves.theta
        furthest = jnp.sqrt(jnp.max(distances(theta, *reference), initial=0.0))
    return count_moves(jnp, moves, chains, furthest)


def count_moves(xp: Any, moves: Moves, chains: int, furthest: Any) -> Tally:
    """By NumPy, or by JAX's."""
    own = moves.evaluations.sum(0, dtype=np.int64)  # of each chain
    return Tally(
        moves=moves.invalid.size, evaluations=xp.sum(xp.where(xp.arange(len(own)) < chains, own, 0)),
        invalid=xp.count_nonzero(moves.invalid), refreshed=xp.count_nonzero(moves.refreshed),
        transitions=xp.count_nonzero(moves.ends), standing=xp.count_nonzero(moves.log_density == -np.inf),
        acceptance=xp.sum(moves.acceptance, dtype=np.float64), furthest=furthest,
    )  # fmt: skip


def distances(theta: Array, centre: Array, whitening: Array) -> Array:
    """‖F⁻¹ (θ - θ̂)‖² of many θ, `(..., d)`, on a device: of few parameters written out, entry by entry, since a
    library's product with so narrow a matrix takes longer than to read θ."""
    away, whitening = (theta - centre).astype(theta.dtype), whitening.astype(theta.dtype)
    d = away.shape[-1]
    if d > WRITTEN_OUT:
        return jnp.sum((away @ whitening.T) ** 2, -1)
    total: Any = 0.0
    for i in range(d):
        total = total + sum(whitening[i, j] * away[..., j] for j in range(i, d)) ** 2  # F⁻¹ is upper triangular
    return jnp.asarray(total)
