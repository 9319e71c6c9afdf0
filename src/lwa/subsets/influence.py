"""q by influence: rows drawn by what they add beyond second order within the posterior's reach, T_k(δ).

A row far from the others may add nothing at θ̂ and all that matters two sds away: a count of zero where the model will
soon expect thousands, an outlier, a censored time. With q_k = α/N + (1-α) b_k / Σb, b_k the root mean square of T_k(δ)
over some δ, such rows come as often as they matter. Those that would come at least once in every subset are in every
subset exactly once, and count once: they add no variance. The others are drawn from what is left of q, cut into as many
pieces as there are slots left: slot i draws from piece i alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lwa.models.likelihood import find_likelihood, map_strata
from lwa.models.model import Model
from lwa.rows import Batch, Rows
from lwa.subsets.leverage import CELL, LEVERAGE_PASS_ROWS, UNIFORM_SHARE, find_in_cells, make_mapped_zeros
from lwa.targets.reference import Points, Reference, draw_reach

DECISIVE = 50.0
"""Nats by which a row may count at most: one that excludes a θ would leave nothing of q for the others."""


@dataclass(frozen=True)
class Influence:
    """q over N rows, for subsets of n. Numbers per row are kept in a temporary file; memory holds sums over cells."""

    size: NDArray[np.float32]  # N q_k, mapped
    ends: NDArray[np.float64]  # running sums of N q over cells of rows
    n: int
    sure: NDArray[np.int64]  # (s,)  rows of every subset, in slots 0 to s - 1, ascending
    before: NDArray[np.float64]  # (s,)  N q of the other rows before each
    skipped: NDArray[np.float64]  # (s + 1,)  running sums of the sure rows' own N q, from 0

    def cut(self, n: int) -> Self:
        """Return q for subsets of n rows: those that would come at least once are sure."""
        total, least = float(self.ends[-1]), np.inf
        rows, sizes = np.empty(0, np.int64), np.empty(0)
        while (total - sizes.sum()) / (n - len(rows)) < least:
            least = (total - sizes.sum()) / (n - len(rows))
            rows, sizes = self._find_above(least)
        cell = rows // CELL
        ahead = np.arange(CELL) < (rows - cell * CELL)[:, None]
        places = np.minimum(cell[:, None] * CELL + np.arange(CELL), len(self.size) - 1)
        within = np.where(ahead, self.size[places], 0.0).sum(1, dtype=np.float64)
        skipped = np.concatenate([[0.0], np.cumsum(sizes)])
        before = np.where(cell > 0, self.ends[cell - 1], 0.0) + within - skipped[:-1]
        return replace(self, n=n, sure=rows, before=before, skipped=skipped)

    def _find_above(self, least: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the rows with N q of at least so much, and N q."""
        found = [at + np.flatnonzero(part >= least) for at, part in self._parts()]
        rows = np.concatenate(found).astype(np.int64)
        return rows, self.size[rows].astype(np.float64)

    def _parts(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield N q of some rows at a time, and where they begin."""
        for at in range(0, len(self.size), LEVERAGE_PASS_ROWS):
            yield at, self.size[at : at + LEVERAGE_PASS_ROWS]

    @property
    def rest(self) -> float:
        """N q of all rows that are not sure."""
        return float(self.ends[-1] - self.skipped[-1])

    def draw(self, rng: np.random.Generator, slots: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the row of each slot that holds a sure one, and draw one from its piece for each other slot."""
        flat, count = slots.ravel(), len(self.sure)
        at = np.maximum(0.0, (flat - count + rng.random(flat.size)) / (self.n - count) * self.rest)
        skipped = self.skipped[np.searchsorted(self.before, at, side="right")]
        drawn = find_in_cells(at + skipped, self.ends, self.size, None)
        if count:
            drawn = np.where(flat < count, self.sure[np.minimum(flat, count - 1)], drawn)
        return drawn.reshape(slots.shape)

    def counts(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what a row counts relative to a uniform one: one of N if it is sure, else 1/(N q'_k)."""
        N, left = len(self.size), self.n - len(self.sure)
        size = np.asarray(self.size[indices], np.float64)
        drawn = self.n / N * self.rest / (left * size)
        if not len(self.sure):
            return drawn
        place = np.minimum(np.searchsorted(self.sure, indices), len(self.sure) - 1)
        return np.where(self.sure[place] == indices, self.n / N, drawn)


def find_influence(model: Model, rows: Rows, reference: Reference, seed: int) -> Influence:
    """Compute q in one pass over all rows."""
    N, start, size = len(rows), 0, make_mapped_zeros(np.float32, len(rows))
    for found in map_strata(model, rows, measure_piece, draw_reach(reference, seed)):
        size[start : start + len(found)] = found
        start += len(found)
    mean = float(size.sum(dtype=np.float64)) / N
    for at in range(0, N, LEVERAGE_PASS_ROWS):
        part = slice(at, min(at + LEVERAGE_PASS_ROWS, N))
        size[part] = UNIFORM_SHARE + (1 - UNIFORM_SHARE) * size[part] / mean if mean > 0 else 1.0
    return lay_out_influence(size)


def lay_out_influence(size: NDArray[np.float32]) -> Influence:
    """Return q with running sums over cells."""
    parts = [size[at : at + LEVERAGE_PASS_ROWS] for at in range(0, len(size), LEVERAGE_PASS_ROWS)]
    sums = [np.add.reduceat(part, np.arange(0, len(part), CELL), dtype=np.float64) for part in parts]
    ends, none = np.cumsum(np.concatenate(sums)), np.zeros(0)
    return Influence(size, ends, n=1, sure=none.astype(np.int64), before=none, skipped=np.zeros(1))


def measure_piece(
    model: Model, points: Points, together: int, start: int, blocks: Iterable[Batch]
) -> NDArray[np.float32]:
    """Return b_k of the rows of a piece."""
    likelihood, found = find_likelihood(model), []
    for batch in blocks:
        terms = np.abs(likelihood.expand_rows(*points, batch, together))
        decisive = np.where(terms < DECISIVE, terms, DECISIVE)  # NaN too
        found.append(np.sqrt((decisive**2).mean(0)).astype(np.float32))
    return np.concatenate(found)
