"""q over rows, cut into pieces: slot i of a subset draws from piece i alone.

Rows are laid out by stratum, and no piece reaches over the end of one: every subset holds each stratum in proportion to
its share of q. Rows that would come at least once in every subset are in every subset exactly once, and count once:
they add no variance. The others are drawn from what is left of q, and count 1/(N q'_k) of a uniform row, q' being what
the pieces make of q.

Slots are then independent draws before Φ: ν(U) ∝ Φ(‖S̄_w(Y_U) - s_N‖/ε) Π q_i(u_i), rows may repeat, and an incoming
row drawn from its slot's piece cancels from the acceptance ratio.
"""

import tempfile
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

UNIFORM_SHARE = 0.2
"""α: no row counts more than five times a uniform one, and n = 1000 rows still hold 13 of each of 60 rare levels."""
CELL = 32
"""Rows whose weights are summed together: sums take N/4 bytes of memory, and few weights are read to find a row."""
PART = 16_384
"""Rows that a pass looks at together."""
ROUNDING = 1e-9
"""Of sums of sizes, relative."""
HALVINGS = 100
"""Of the interval in which the slots per share are sought."""


@dataclass(frozen=True)
class Pieces:
    """q over N rows, for subsets of n. Numbers per row are kept in temporary files; memory holds sums over cells."""

    size: NDArray[np.float32]  # N q_k, mapped
    stratum: NDArray[np.uint16]  # of each row, mapped
    order: NDArray[np.int64]  # rows, stratum after stratum, mapped
    ends: NDArray[np.float64]  # running sums of N q over cells of rows in that order
    share: NDArray[np.float64]  # (strata,)  N q of each
    rows: NDArray[np.int64]  # (strata,)  rows of each
    n: int
    sure: NDArray[np.int64]  # (s,)  rows of every subset, ascending, in slots 0 to s - 1
    before: NDArray[np.float64]  # (s,)  N q of the other rows laid out before each
    skipped: NDArray[np.float64]  # (s + 1,)  running sums of the sure rows' N q as laid out, from 0
    rest: NDArray[np.float64]  # (strata,)  N q of the others; of all strata together if n is small
    pieces: NDArray[np.int64]  # (strata,)  slots for them

    def cut(self, n: int) -> Self:
        """Return q for subsets of n rows."""
        least = np.full(len(self.share), self._find_least(n))
        sure, sizes, of = self._find_above(least)
        rest, held = self.share - np.bincount(of, sizes, len(self.share)), np.bincount(of, minlength=len(self.share))
        left, rows = n - len(sure), self.rows - held
        if not 0 < np.count_nonzero(rows) <= left:
            return self._hold(n, sure, np.array([rest.sum()]), np.array([left]))
        slots = np.zeros_like(rows)
        slots[rows > 0] = allocate(rest[rows > 0], rows[rows > 0], left)
        while True:  # few slots may make more rows of their stratum sure
            free = slots + held - np.bincount(of, minlength=len(self.share))
            rest = self.share - np.bincount(of, sizes, len(self.share))
            rest = np.where((rest > ROUNDING * self.share) & (free > 0), rest, 0.0)
            lower = np.minimum(least, rest / np.maximum(free, 1) * (1 - ROUNDING))
            least = np.where(rest > 0, lower, least)
            more, sizes, of = self._find_above(least)
            if len(more) == len(sure):
                return self._hold(n, sure, rest, free)
            sure = more

    def _find_least(self, n: int) -> float:
        """Return N q from which on rows would come at least once in n draws, each other draw given those."""
        total, held, count, least = float(self.ends[-1]), 0.0, 0, np.inf
        while (total - held) / max(1, n - count) < least:
            least = (total - held) / max(1, n - count)
            _, sizes, _ = self._find_above(np.full(len(self.share), least))
            held, count = float(sizes.sum()), len(sizes)
        return least

    def _find_above(self, least: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[Any]]:
        """Return the rows with N q of at least so much by stratum, ascending, and their N q and strata."""
        found = [np.empty(0, np.int64)]
        for at in range(0, len(self.size), PART):
            part = slice(at, at + PART)
            found.append(at + np.flatnonzero(self.size[part] >= least[self.stratum[part]]))
        rows = np.concatenate(found)
        return rows, self.size[rows].astype(np.float64), self.stratum[rows].astype(np.int64)

    def _find_places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where ascending rows are laid out, ascending."""
        of, ends = self.stratum[rows], np.cumsum(self.rows)
        each = [
            low + np.searchsorted(self.order[low:high], rows[of == stratum])
            for stratum, (low, high) in enumerate(zip(ends - self.rows, ends, strict=True))
        ]
        return np.concatenate(each)

    def _hold(
        self,
        n: int,
        sure: NDArray[np.int64],
        rest: NDArray[np.float64],
        pieces: NDArray[np.int64],
    ) -> Self:
        """Return q with these rows in every subset."""
        places = self._find_places(sure)
        cell = places // CELL
        ahead = np.arange(CELL) < (places - cell * CELL)[:, None]
        near = np.minimum(cell[:, None] * CELL + np.arange(CELL), len(self.order) - 1)
        within = np.where(ahead, self.size[self.order[near]], 0.0).sum(1, dtype=np.float64)
        skipped = np.concatenate([[0.0], np.cumsum(self.size[self.order[places]], dtype=np.float64)])
        before = np.where(cell > 0, self.ends[cell - 1], 0.0) + within - skipped[:-1]
        return replace(self, n=n, sure=sure, before=before, skipped=skipped, rest=rest, pieces=pieces)

    def draw(self, rng: np.random.Generator, slots: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the row of each slot that holds a sure one, and draw one from its piece for each other slot."""
        flat, count, last = slots.ravel(), len(self.sure), np.cumsum(self.pieces)
        free = np.maximum(0, flat - count)
        of = np.minimum(np.searchsorted(last, free, side="right"), len(last) - 1)
        piece, low = free - (last - self.pieces)[of], (np.cumsum(self.rest) - self.rest)[of]
        at = low + (piece + rng.random(flat.size)) / np.maximum(1, self.pieces[of]) * self.rest[of]
        at += self.skipped[np.searchsorted(self.before, at, side="right")]
        drawn = find_in_cells(at, self.ends, self.size, self.order)
        if count:
            drawn = np.where(flat < count, self.sure[np.minimum(flat, count - 1)], drawn)
        return drawn.reshape(slots.shape)

    def counts(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what a row counts relative to a uniform one: one of N if it is sure, else 1/(N q'_k)."""
        one, width = self.n / len(self.size), self.rest / np.maximum(1, self.pieces)
        drawn = one * width[self._find_stratum(indices)] / np.asarray(self.size[indices], np.float64)
        return np.where(self._is_sure(indices), one, drawn)

    def vary(
        self, rows: NDArray[np.int64], weight: NDArray[np.float64], terms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the variance over subsets of a sum over rows, from the terms of some that stand for `weight` each.

        Of the others than sure ones a stratum has variance Σ c_k T_k² - (Σ T_k)² / pieces, c_k being the rows that k
        stands for in a subset.
        """
        stands_for, of = len(self.size) / self.n * self.counts(rows), self._find_stratum(rows)
        weight = np.where(self._is_sure(rows), 0.0, weight)
        belongs = (of[:, None] == np.unique(of)).astype(float)
        total = (weight * terms) @ belongs / np.sqrt(np.maximum(1, self.pieces[np.unique(of)]))
        return np.maximum(0.0, (weight * stands_for * terms**2) @ belongs - total**2).sum(1)

    def _find_stratum(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the stratum of each row, 0 if they are one."""
        return np.zeros(np.shape(rows), np.int64) if len(self.rest) == 1 else self.stratum[rows].astype(np.int64)

    def _is_sure(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether rows are in every subset."""
        if not len(self.sure):
            return np.zeros(np.shape(rows), bool)
        return self.sure[np.minimum(np.searchsorted(self.sure, rows), len(self.sure) - 1)] == rows


def allocate(share: NDArray[np.float64], most: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return whole numbers that add up to n, in proportion to shares, from 1 to `most` each."""
    low, high = 0.0, float((most / share).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(middle * share, 1, most).sum() < n else (low, middle)
    exact = np.clip(high * share, 1, most)
    found = np.floor(exact).astype(np.int64)
    for stratum in np.argsort(found - exact, kind="stable")[: n - found.sum()]:
        found[stratum] += 1
    return found


def find_in_cells(
    at: NDArray[np.float64], ends: NDArray[np.float64], size: NDArray[np.float32], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rows at some places of the running sum of sizes: the cell by bisection, the row by its own sum."""
    cell = np.minimum(np.searchsorted(ends, at, side="right"), len(ends) - 1)
    rest = at - np.where(cell > 0, ends[cell - 1], 0.0)
    N = len(size)
    places = cell[:, None] * CELL + np.arange(CELL)
    rows = np.asarray(order[np.minimum(places, N - 1)])
    within = np.cumsum(np.where(places < N, size[rows], 0.0), axis=1, dtype=np.float64)
    row = np.minimum((within <= rest[:, None]).sum(1), (places < N).sum(1) - 1)  # rounding may point just past it
    return rows[np.arange(len(rows)), row]


def make_mapped_zeros[T: np.generic](dtype: type[T], size: int) -> NDArray[T]:
    """Return zeros in an unnamed file that lasts as long as they do."""
    with tempfile.TemporaryFile(prefix="lwa-leverage-") as file:
        return np.memmap(file, dtype, "w+", shape=(size,))


def scale_sizes(*measures: NDArray[np.float32]) -> None:
    """Turn what rows weigh, by one or more measures that count the same, into N q, in place of the first.

    A share of q is uniform.
    """
    N, size = len(measures[0]), measures[0]
    means = [float(measure.sum(dtype=np.float64)) / N for measure in measures]
    known = [(measure, mean) for measure, mean in zip(measures, means, strict=True) if mean > 0]
    for at in range(0, N, PART):
        part = slice(at, min(at + PART, N))
        weight = [measure[part] / mean for measure, mean in known]
        size[part] = UNIFORM_SHARE + (1 - UNIFORM_SHARE) * np.mean(weight, axis=0) if weight else 1.0


def lay_out_pieces(size: NDArray[np.float32], stratum: NDArray[np.uint16], strata: int) -> Pieces:
    """Sort rows by stratum, in the order of the data within each, and sum over cells of them."""
    N = len(size)
    order, sums = make_mapped_zeros(np.int64, N), np.zeros(-(-N // CELL))
    parts = [slice(at, min(at + PART, N)) for at in range(0, N, PART)]
    counts = np.sum([np.bincount(stratum[part], minlength=strata) for part in parts], axis=0)
    free = np.cumsum(counts) - counts  # where the next row of each stratum goes
    for part in parts:
        own = stratum[part]
        sort = np.argsort(own, kind="stable")
        many = np.bincount(own, minlength=strata)
        within = np.arange(len(own)) - np.repeat(np.cumsum(many) - many, many)
        order[np.repeat(free, many) + within] = part.start + sort
        free += many
    for at in range(0, len(sums), PART):
        cells = slice(at, min(at + PART, len(sums)))
        weights = np.zeros((cells.stop - cells.start) * CELL)
        some = size[order[cells.start * CELL : cells.stop * CELL]]
        weights[: len(some)] = some
        sums[cells] = weights.reshape(-1, CELL).sum(1)
    share = np.sum([np.bincount(stratum[part], size[part], strata) for part in parts], axis=0)
    ends, none = np.cumsum(sums), np.empty(0)
    return Pieces(
        size, stratum, order, ends=ends, share=share, rows=counts, n=1, sure=none.astype(np.int64), before=none,
        skipped=np.zeros(1), rest=ends[-1:], pieces=np.array([1]),
    )  # fmt: skip
