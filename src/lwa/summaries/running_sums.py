"""Running sums of what each step of a sequence adds to gradient and curvature at θ̂.

The sums over a window are then two reads and a difference, however long the window is. They are kept in a temporary
file of 8 (d + d(d+1)/2) bytes per step.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lwa.models.likelihood import find_likelihood
from lwa.models.model import Model
from lwa.rows.units import Units
from lwa.targets.reference import Reference

LARGEST_SUMS_FILE = 2**33
"""Bytes of disk that running sums may take, if twice as many are free: 10⁷ steps of 13 parameters, or 10⁸ of 3."""
SUMS_AT_ONCE = 2**21
"""Numbers computed at once: 16 MiB."""


@dataclass(frozen=True, eq=False)
class RunningSums:
    """Σ over the first k steps, `(N + 1, c)`, on disk."""

    sums: NDArray[np.float64]

    def between(self, begin: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sums over steps `begin` up to `stop`."""
        return np.asarray(self.sums[stop] - self.sums[begin])


def count_sums_per_step(d: int, *, curvature: bool) -> int:
    """Return c, the numbers kept per step."""
    return d + d * (d + 1) // 2 if curvature else d


def has_room_for(steps: int, width: int) -> bool:
    """Return whether a file of these sums may be written."""
    size = 8 * (steps + 1) * width
    return size <= LARGEST_SUMS_FILE and size <= shutil.disk_usage(tempfile.gettempdir()).free / 2


def compute_running_sums(
    model: Model,
    segments: Units,
    reference: Reference,
    *,
    curvature: bool,
    progress: Callable[[int], None] = lambda done: None,
) -> RunningSums:
    """Sum ∇ℓ_k(θ̂) and, if asked for, the upper triangle of -∇²ℓ_k(θ̂), in one pass over all steps."""
    likelihood, d, N = find_likelihood(model), model.dimension, segments.parts.rows
    width = count_sums_per_step(d, curvature=curvature)
    with tempfile.TemporaryFile(prefix="lwa-sums-") as file:  # it has no name, and lasts as long as its mapping
        sums: NDArray[np.float64] = np.memmap(file, np.float64, "w+", shape=(N + 1, width))
    together, start, total = max(1, SUMS_AT_ONCE // (segments.length * d * d)), 0, np.zeros(width)
    for batch in segments.between(0, len(segments), together):
        terms = likelihood.differentiate_steps(reference.theta, batch, together, curvature=curvature)
        running = total + np.cumsum(terms, axis=0)
        sums[start + 1 : start + 1 + len(running)] = running
        start, total = start + len(running), running[-1]
        progress(start)
    return RunningSums(sums)
