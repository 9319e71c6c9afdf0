"""q over groups of unequal size: a slot holds groups of one stratum of size, and none is filled up to the longest.

A stratum whose groups add Σ b_k to the log posterior beyond second order, and have up to C rows, is given slots in
proportion to Σ b_k / √C: for as many rows per step, that leaves the least variance. If b_k is not known, slots are in
proportion to the number of groups. Groups that would come at least once in every subset are in every subset exactly
once, and count once. The others of a stratum are drawn from what is left of its q, cut into as many pieces as it has
slots left: each slot draws from its piece alone.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.rows.strata import Strata
from lwa.subsets.moves import Swap
from lwa.subsets.pieces import Pieces, allocate


@dataclass(frozen=True)
class SizeStrata:
    """q over N groups in strata of size, for subsets of n. Memory holds a few numbers per group, as it does anyway."""

    first: NDArray[np.int64]  # (strata + 1,)  the number of each stratum's first group
    sizes: NDArray[np.int64]  # (N,)  rows of each group
    weight: NDArray[np.float64]  # (N,)  N q
    share: NDArray[np.float64]  # (strata,)  slots are in proportion to it
    slots: NDArray[np.int64]  # (strata,)  n of each stratum
    sure: NDArray[np.int64]  # groups of every subset, ascending, in the first slots of their stratum
    held: NDArray[np.int64]  # (strata,)  their number
    running: NDArray[np.float64]  # (N + 1,)  running sums of N q over the other groups, from 0

    def cut(self, n: int) -> Self:
        """Return q for subsets of n groups."""
        most = np.diff(self.first)
        if n < len(most):
            raise InputError(
                f"subset_size={n} is too small for groups of {self.sizes.min()} to {self.sizes.max():,} rows, which "
                f"are drawn from {len(most)} strata of size. Pass subset_size >= {len(most)}.",
                advice={"subset_size": len(most)},
            )
        slots = allocate(self.share, most, n)
        each = zip(np.split(self.weight, self.first[1:-1]), slots.tolist(), strict=True)
        always = [is_sure(weight, own) for weight, own in each]
        sure, held = np.concatenate(always), np.array([one.sum() for one in always])
        running = np.concatenate([[0.0], np.cumsum(np.where(sure, 0.0, self.weight))])
        return replace(self, slots=slots, sure=np.flatnonzero(sure), held=held, running=running)

    @property
    def n(self) -> int:
        """The groups of a subset."""
        return int(self.slots.sum())

    @property
    def free(self) -> NDArray[np.int64]:
        """The slots of each stratum whose group is drawn."""
        return self.slots - self.held

    @property
    def uniform(self) -> bool:
        """Whether groups of one stratum come equally often."""
        return bool((self.weight == 1.0).all())

    @cached_property
    def reads(self) -> int:
        """The rows of a subset, on average."""
        often = self.n / (len(self.sizes) * self.counts(np.arange(len(self.sizes))))
        return round(float(often @ self.sizes))

    def draw(self, rng: np.random.Generator, slots: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the group of each slot that always holds the same, and draw one from its piece for each other slot."""
        flat, ends = slots.ravel(), np.cumsum(self.slots)
        of = np.searchsorted(ends, flat, side="right")
        piece = flat - (ends - self.free)[of]  # negative for a slot that always holds the same
        low, high = self.running[self.first[of]], self.running[self.first[of + 1]]
        at = low + (piece + rng.random(flat.size)) / np.maximum(1, self.free)[of] * (high - low)
        last = np.searchsorted(self.running, high) - 1  # rounding may point just past it
        drawn = np.minimum(np.searchsorted(self.running, at, side="right") - 1, last)
        if len(self.sure):
            place = np.cumsum(self.held)[of] + np.minimum(piece, -1)
            drawn = np.where(piece < 0, self.sure[place], drawn)
        return drawn.reshape(slots.shape)

    def counts(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what a group counts relative to a uniform one: one of N if it is sure, else 1/(N q'_k)."""
        one, of = self.n / len(self.weight), np.searchsorted(self.first, indices, side="right") - 1
        rest = np.diff(self.running[self.first])
        drawn = one * (rest / np.maximum(1, self.free))[of] / self.weight[indices]
        if not len(self.sure):
            return drawn
        place = np.minimum(np.searchsorted(self.sure, indices), len(self.sure) - 1)
        return np.where(self.sure[place] == indices, one, drawn)

    def vary(
        self, rows: NDArray[np.int64], weight: NDArray[np.float64], terms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the variance over subsets of a sum over groups, from terms of some that stand for `weight` each."""
        stands_for = len(self.weight) / self.n * self.counts(rows)
        return (weight * np.maximum(0.0, stands_for - 1.0) * terms**2).sum(1)

    def count_exchanged(self, k: int) -> NDArray[np.int64]:
        """Return the slots of each stratum that a proposal exchanges: k in all, but one at least if any is free."""
        exact = np.maximum(np.round(k / self.n * self.free), 1).astype(np.int64)
        return np.minimum(exact, self.free) if k else np.zeros_like(self.free)

    def propose(self, rng: np.random.Generator, size: int, k: int) -> NDArray[np.int32]:
        """Draw the slots of `size` proposals, stratum after stratum, ascending within each."""
        begin, found = np.cumsum(self.slots) - self.free, [np.empty((size, 0), np.int32)]
        for first, free, own in zip(begin.tolist(), self.free.tolist(), self.count_exchanged(k).tolist(), strict=True):
            if own == free:
                found.append(np.tile(np.arange(first, first + own, dtype=np.int32), (size, 1)))
            elif own:
                found.append(first + Swap(own).propose(rng, size, free, free)[0])
        return np.concatenate(found, axis=1)

    def share_exchanged(self, k: int) -> float:
        """Return the share of the rows of U, filler included, that a proposal exchanges."""
        longest = np.maximum.reduceat(self.sizes, self.first[:-1])
        return float(self.count_exchanged(k) @ longest / (self.slots @ longest))


type Drawing = Pieces | SizeStrata
"""q: how often each row, or group, is drawn."""


def stratify(groups: Strata, weight: NDArray[np.floating] | None = None) -> SizeStrata:
    """Return q over groups, for subsets of all of them; uniform within each stratum unless weights N q are given."""
    most, N = np.diff(groups.first), len(groups)
    known = np.ones(N) if weight is None else np.asarray(weight, np.float64)
    share = np.add.reduceat(known, groups.first[:-1])
    if weight is not None:
        share /= np.sqrt([layer.length for layer in groups.layers])
    begun = SizeStrata(
        groups.first, groups.sizes, known, share=share, slots=most, sure=np.empty(0, np.int64), held=0 * most,
        running=np.zeros(N + 1),
    )  # fmt: skip
    return begun.cut(N)


def is_sure(weight: NDArray[np.float64], n: int) -> NDArray[np.bool_]:
    """Return whether each of some groups would come at least once in every n draws, each other draw given those."""
    if n == len(weight):
        return np.ones(n, bool)
    sure, count = np.zeros(len(weight), bool), -1
    while count < sure.sum() < n:
        count = int(sure.sum())
        sure |= weight >= weight[~sure].sum() / (n - count)
    return sure
