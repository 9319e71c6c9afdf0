"""q: rows drawn by their share of the curvature, for data in which a few rows carry a direction by themselves.

A dummy that is true in 200 of 10⁶ rows is absent from most uniform subsets, which then hold no information on its
coefficient. With q_k = α/N + (1-α) h_k / Σh, h_k the trace of a row's whitened curvature at θ̂, rows come as often as
they matter, and count 1/(N q_k) of a uniform row, which is at most 1/α.

Rows are laid out by the direction in which each bends most, one stratum per direction, and q is cut into n pieces, none
of which reaches over the end of a stratum: slot i draws from piece i alone. So every subset holds each direction in
proportion to its share, and all rows of a stratum that has no more rows than pieces.

Slots are then independent draws before Φ: ν(U) ∝ Φ(‖S̄_w(Y_U) - s_N‖/ε) Π q_i(u_i), rows may repeat, and an incoming
row drawn from its slot's piece cancels from the acceptance ratio.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lwa.models.likelihood import find_likelihood, map_strata
from lwa.models.model import Model
from lwa.rows import Batch, Rows
from lwa.rows.passes import count_unit_rows, floor_power_of_two
from lwa.targets.reference import Reference

UNIFORM_SHARE = 0.2
"""α: no row counts more than five times a uniform one, and n = 1000 rows still hold 13 of each of 60 rare levels."""
CELL = 32
"""Rows whose weights are summed together: sums take N/4 bytes of memory, and few weights are read to find a row."""
LEVERAGE_PASS_ROWS = 16_384
"""Rows that a pass reads at once."""


@dataclass(frozen=True)
class Leverage:
    """q over N rows, in n pieces. Numbers per row are kept in temporary files; memory holds sums over cells."""

    size: NDArray[np.float32]  # N q_k, mapped
    stratum: NDArray[np.uint16]  # of each row, mapped
    order: NDArray[np.int64]  # rows, stratum after stratum, mapped
    ends: NDArray[np.float64]  # running sums of N q over cells of rows in that order
    borders: NDArray[np.float64]  # running sums over strata, from 0
    pieces: NDArray[np.int64]  # of each stratum; one stratum of all rows if n is smaller than their number

    def cut(self, n: int) -> Self:
        """Return q in n pieces: one per stratum that has rows, and the others by its share."""
        share = np.diff(self.borders)
        if n < (share > 0).sum():
            return replace(self, pieces=np.array([n]))
        exact = (n - (share > 0).sum()) * share / share.sum()
        pieces = (share > 0).astype(np.int64) + np.floor(exact).astype(np.int64)
        short = np.argsort(np.floor(exact) - exact, kind="stable")[: n - pieces.sum()]
        pieces[short] += 1
        return replace(self, pieces=pieces)

    @property
    def _edges(self) -> NDArray[np.float64]:
        """Where strata begin and end; those of all rows together if there are fewer pieces than strata."""
        return self.borders if len(self.pieces) == len(self.borders) - 1 else self.borders[[0, -1]]

    def draw(self, rng: np.random.Generator, slots: NDArray[np.integer]) -> NDArray[np.int64]:
        """Draw a row for each slot from its piece: the cell by bisection, the row within it by its running sum."""
        edges, last = self._edges, np.cumsum(self.pieces)
        of = np.searchsorted(last, slots.ravel(), side="right")
        piece = slots.ravel() - (last - self.pieces)[of]
        low, width = edges[of], np.diff(edges)[of]
        at = low + (piece + rng.random(slots.size)) / self.pieces[of] * width
        return find_in_cells(at, self.ends, self.size, self.order).reshape(slots.shape)

    def counts(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return 1/(N q'_k), what a row counts relative to a uniform one: q' is what the pieces make of q."""
        size = np.asarray(self.size[indices], np.float64)
        share = np.diff(self._edges)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = self.pieces.sum() * share / (share.sum() * self.pieces)
        return (factor[0] if len(factor) == 1 else factor[self.stratum[indices]]) / size


def find_in_cells(
    at: NDArray[np.float64], ends: NDArray[np.float64], size: NDArray[np.float32], order: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Return the rows at some places of the running sum of sizes: the cell by bisection, the row by its own sum."""
    cell = np.minimum(np.searchsorted(ends, at, side="right"), len(ends) - 1)
    rest = at - np.where(cell > 0, ends[cell - 1], 0.0)
    N = len(size)
    places = cell[:, None] * CELL + np.arange(CELL)
    rows = np.minimum(places, N - 1) if order is None else np.asarray(order[np.minimum(places, N - 1)])
    within = np.cumsum(np.where(places < N, size[rows], 0.0), axis=1, dtype=np.float64)
    row = np.minimum((within <= rest[:, None]).sum(1), (places < N).sum(1) - 1)  # rounding may point just past it
    return rows[np.arange(len(rows)), row]


def make_mapped_zeros[T: np.generic](dtype: type[T], size: int) -> NDArray[T]:
    """Return zeros in an unnamed file that lasts as long as they do."""
    with tempfile.TemporaryFile(prefix="lwa-leverage-") as file:
        return np.memmap(file, dtype, "w+", shape=(size,))


def find_leverage(model: Model, rows: Rows, reference: Reference) -> Leverage:
    """Compute q in one pass over all rows, as one piece."""
    N, start = len(rows), 0
    size, stratum = make_mapped_zeros(np.float32, N), make_mapped_zeros(np.uint16, N)

    def choose(stratum: Rows) -> int:
        return floor_power_of_two(LEVERAGE_PASS_ROWS // count_unit_rows(stratum))

    for found, most in map_strata(model, rows, find_sizes_in_piece, reference, choose=choose):
        size[start : start + len(found)], stratum[start : start + len(found)] = found, most
        start += len(found)
    mean = float(size.sum(dtype=np.float64)) / N
    for at in range(0, N, LEVERAGE_PASS_ROWS):
        part = slice(at, min(at + LEVERAGE_PASS_ROWS, N))
        size[part] = UNIFORM_SHARE + (1 - UNIFORM_SHARE) * size[part] / mean if mean > 0 else 1.0
    return lay_out_strata(size, stratum, len(reference.theta))


def find_sizes_in_piece(
    model: Model, reference: Reference, together: int, start: int, blocks: Iterable[Batch]
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return h_k and stratum of the rows of a piece."""
    measure = find_likelihood(model).measure_rows
    found = [measure(reference.theta, batch, reference.factor, together) for batch in blocks]
    sizes, strata = zip(*found, strict=True)
    return np.concatenate(sizes).astype(np.float32), np.concatenate(strata).astype(np.uint16)


def lay_out_strata(size: NDArray[np.float32], stratum: NDArray[np.uint16], strata: int) -> Leverage:
    """Sort rows by stratum, in the order of the data within each, and sum over cells of them."""
    N = len(size)
    order, sums = make_mapped_zeros(np.int64, N), np.zeros(-(-N // CELL))
    parts = [slice(at, min(at + LEVERAGE_PASS_ROWS, N)) for at in range(0, N, LEVERAGE_PASS_ROWS)]
    counts = np.sum([np.bincount(stratum[part], minlength=strata) for part in parts], axis=0)
    free = np.cumsum(counts) - counts  # where the next row of each stratum goes
    for part in parts:
        own = stratum[part]
        sort = np.argsort(own, kind="stable")
        many = np.bincount(own, minlength=strata)
        within = np.arange(len(own)) - np.repeat(np.cumsum(many) - many, many)
        order[np.repeat(free, many) + within] = part.start + sort
        free += many
    for at in range(0, len(sums), LEVERAGE_PASS_ROWS):
        cells = slice(at, min(at + LEVERAGE_PASS_ROWS, len(sums)))
        weights = np.zeros((cells.stop - cells.start) * CELL)
        some = size[order[cells.start * CELL : cells.stop * CELL]]
        weights[: len(some)] = some
        sums[cells] = weights.reshape(-1, CELL).sum(1)
    shares = np.sum([np.bincount(stratum[part], size[part], strata) for part in parts], axis=0)
    borders = np.concatenate([[0.0], np.cumsum(shares)])
    return Leverage(size, stratum, order, ends=np.cumsum(sums), borders=borders, pieces=np.array([1]))
