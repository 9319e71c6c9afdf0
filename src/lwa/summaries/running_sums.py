"""Running sums of what each step of a sequence adds to gradient and curvature at θ̂.

The sums over a window are then two reads and a difference, however long the window is. They lie in a temporary file:
8 (d + d(d+1)/2) bytes a step.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.models.model import Model
from lwa.rows.slots import double, repeat_to
from lwa.rows.units import Stretch, Units
from lwa.summaries.curvature import carried_of
from lwa.targets.reference import Reference

LARGEST_FILE = 2**33
"""Bytes of disk that running sums may take: 10⁷ steps of 13 parameters, or 10⁸ of 3. They also leave half of what is
free to others."""
PART = 2**21
"""Numbers at once: 16 MiB."""


@dataclass(frozen=True, eq=False)
class RunningSums:
    """Σ over the first k steps, `(N + 1, c)`, on disk."""

    sums: NDArray[np.float64]

    def between(self, begin: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sums over steps `begin` up to `stop`."""
        return np.asarray(self.sums[stop] - self.sums[begin])


def running_width(d: int, *, curvature: bool) -> int:
    """c, the numbers a step."""
    return d + d * (d + 1) // 2 if curvature else d


def room_for(steps: int, width: int) -> bool:
    """Whether the file may be written."""
    size = 8 * (steps + 1) * width
    return size <= LARGEST_FILE and size <= shutil.disk_usage(tempfile.gettempdir()).free / 2


def running_sums(
    model: Model,
    segments: Units,
    reference: Reference,
    *,
    curvature: bool,
    progress: Callable[[int], None] = lambda done: None,
) -> RunningSums:
    """One pass over all steps: ∇ℓ_k(θ̂) and, where asked for, the upper triangle of -∇²ℓ_k(θ̂)."""
    d, N = model.dimension, segments.parts.rows
    width = running_width(d, curvature=curvature)
    with tempfile.TemporaryFile(prefix="lwa-sums-") as file:  # it has no name, and lasts as long as its mapping
        sums: NDArray[Any] = np.memmap(file, np.float64, "w+", shape=(N + 1, width))
    together, start, total = max(1, PART // (segments.length * d * d)), 0, np.zeros(width)
    for batch in segments.blocks(together):
        units = len(batch.scored)
        if model.host:
            terms = np.concatenate([one_unit(model, reference.theta, batch, i, curvature) for i in range(units)])
        else:
            filled = jax.tree.map(double, repeat_to(batch, together))
            terms = np.asarray(per_step(model, reference.theta, filled, curvature=curvature))[:units][batch.scored]
        running = total + np.cumsum(terms, axis=0)
        sums[start + 1 : start + 1 + len(running)] = running
        start, total = start + len(running), running[-1]
        progress(start)
    return RunningSums(sums)


def one_unit(model: Model, theta: NDArray[np.float64], units: Stretch, i: int, curvature: bool) -> NDArray[np.float64]:
    """What each scored step of one unit adds, in Python; rows that only fill it up are left out."""
    stop = int(np.flatnonzero(units.scored[i])[-1]) + 1
    rows = jax.tree.map(lambda leaf: leaf[i, :stop], units.rows)
    return carried_of(model, theta, rows, curvature=curvature)[units.scored[i, :stop]]


@partial(jax.jit, static_argnames=("model", "curvature"))
def per_step(model: Model, theta: Array, units: Stretch, *, curvature: bool) -> Array:
    """What each step of each unit adds, `(m, length, c)`."""
    rows, columns = np.triu_indices(model.dimension)

    def one(batch: Any) -> Array:
        def terms(x: Array) -> Array:
            return jnp.asarray(model.log_likelihood(model.unravel(x), batch))

        scores = jax.jacfwd(terms)
        if not curvature:
            return scores(theta)
        return jnp.concatenate([scores(theta), -jax.jacfwd(scores)(theta)[:, rows, columns]], axis=-1)

    return jax.vmap(one)(units.rows)
