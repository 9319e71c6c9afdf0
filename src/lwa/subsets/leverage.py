"""q: rows drawn by their share of the curvature, for data in which a few rows carry a direction by themselves.

A dummy true in 200 of 10⁶ rows is absent from most uniform subsets, which then know nothing of its coefficient. With
q_k = α/N + (1-α) h_k / Σh, h_k the trace of a row's whitened curvature at θ̂, such rows come as often as they matter,
and count 1/(N q_k) of a uniform row, which is at most 1/α.

Slots are then independent draws of q before Φ: ν(U) ∝ Φ(‖S̄_w(Y_U) - s_N‖/ε) Π q(u_i), rows may repeat, and an incoming
row drawn from q cancels from the acceptance ratio.
"""

import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.models.model import Model
from lwa.reference import Reference
from lwa.rows import Rows
from lwa.rows.units import unit_length
from lwa.summaries.curvature import row_sizes

UNIFORM_SHARE = 0.2
"""α: no row counts more than five times a uniform one, and n = 1000 rows still hold 13 of each of 60 rare levels."""
CELL = 32
"""Rows whose weights are summed together: sums take N/4 bytes of memory, and few weights are read to find a row."""
PASS_ROWS = 16_384


@dataclass(frozen=True)
class Leverage:
    """q over N rows. Weights lie in a temporary file, not in memory; only the sums of cells do."""

    size: NDArray[np.float32]  # N q_k, mapped, filled up to whole cells
    ends: NDArray[np.float64]  # running sums of cells
    N: int

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Rows, each drawn from q: the cell by bisection, the row within it by its running sum."""
        count = int(np.prod(shape))
        at = rng.random(count) * self.ends[-1]
        cell = np.minimum(np.searchsorted(self.ends, at, side="right"), len(self.ends) - 1)
        rest = at - np.where(cell > 0, self.ends[cell - 1], 0.0)
        within = np.cumsum(self.size.reshape(-1, CELL)[cell], axis=1, dtype=np.float64)
        row = (within <= rest[:, None]).sum(1)
        last = np.minimum(CELL, self.N - cell * CELL) - 1  # rounding may point just past the last row
        return (cell * CELL + np.minimum(row, last)).reshape(shape)

    def counts(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """1/(N q_k): what a row counts of a uniform one."""
        return 1.0 / np.asarray(self.size[indices], np.float64)


def find_leverage(model: Model, rows: Rows, reference: Reference) -> Leverage:
    """q from one pass over all rows."""
    N, start = len(rows), 0
    cells = -(-N // CELL)
    with tempfile.TemporaryFile(prefix="lwa-leverage-") as file:  # it has no name, and lasts as long as its mapping
        size: NDArray[Any] = np.memmap(file, np.float32, "w+", shape=(cells * CELL,))
    together = max(1, PASS_ROWS // unit_length(rows))
    for batch in rows.blocks(together):
        found = row_sizes(model, reference, batch, together)
        size[start : start + len(found)] = found
        start += len(found)
    mean = float(size.sum(dtype=np.float64)) / N
    for at in range(0, N, PASS_ROWS):
        part = slice(at, min(at + PASS_ROWS, N))
        size[part] = UNIFORM_SHARE + (1 - UNIFORM_SHARE) * size[part] / mean if mean > 0 else 1.0
    ends = np.cumsum(size.reshape(cells, CELL).sum(1, dtype=np.float64))
    return Leverage(size, ends, N)
