"""Strata: groups of unequal size in classes of size, so that none is filled up to the length of the longest of all.

Units are numbered stratum after stratum, from the shortest to the longest. A batch of several strata is a tuple with
one `Layer` for each, filled up to the longest group of that stratum alone: at most half of its rows are filler.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.rows.memory import RangedRows
from lwa.rows.parts import Parts
from lwa.rows.protocol import Rows
from lwa.rows.slots import arrange
from lwa.rows.units import Span, Units

FILLED = 0.5
"""The smallest share of own rows among all rows of a stratum, filler included."""
WIDEST = 8
"""The longest group of a stratum has at most this many times the rows of the shortest: one group of 3,000 rows and one
of 10 would be half full together."""


@dataclass(frozen=True, eq=False)
class Strata(RangedRows):
    """All groups of unequal size, as units in strata."""

    rows: Rows
    parts: Parts
    members: NDArray[np.int64]  # (N,)  the part that each unit is, stratum after stratum
    first: NDArray[np.int64]  # (strata + 1,)  the number of each stratum's first unit; the last entry is N

    def __len__(self) -> int:
        """Return the number of units."""
        return len(self.members)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The rows of each unit, without filler."""
        return self.parts.sizes[self.members]

    @cached_property
    def layers(self) -> tuple[Units, ...]:
        """The units of each stratum, numbered from 0."""
        return tuple(self._build_layer(low, high) for low, high in zip(self.first[:-1], self.first[1:], strict=True))

    def _build_layer(self, low: int, high: int) -> Units:
        own = self.members[low:high]

        def spans(numbers: NDArray[np.int64]) -> Span:
            parts = own[numbers]
            begin = self.parts.offsets[parts]
            return Span(begin, begin, self.parts.offsets[parts + 1])

        longest = int(self.parts.sizes[own].max())
        return Units(self.rows, self.parts, spans, len(own), longest, layered=True)

    def take(self, indices: NDArray[np.int64]) -> Any:
        """Return units of these numbers, `(..., k)`, a layer with leaves `(..., k of the stratum, *shape)` for each.

        Along the last axis strata ascend, and are the same for all entries of the others: slots hold units of a
        stratum each.
        """
        indices = np.asarray(indices, np.int64)
        line = indices[(0,) * (indices.ndim - 1)]
        strata = np.searchsorted(self.first, line, side="right") - 1
        ends = np.searchsorted(strata, np.arange(len(self.layers) + 1))
        return tuple(
            arrange(layer.take(part.ravel()), part.shape)
            for layer, part in zip(self.layers, self._split(indices, ends), strict=True)
        )

    def _split(self, indices: NDArray[np.int64], ends: NDArray[np.intp]) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of the units of each stratum, within it."""
        for first, size, low, high in zip(self.first, np.diff(self.first), ends[:-1], ends[1:], strict=False):
            part = indices[..., low:high] - first
            if part.size and not (part.min() >= 0 and part.max() < size):
                raise IndexError("units do not ascend from stratum to stratum along the last axis.")
            yield part

    def between(self, start: int, stop: int, size: int) -> Iterator[Any]:
        """Yield units `start` to `stop` - 1, at most `size` at a time, each time of one stratum."""
        for layer, low, high in zip(self.layers, self.first[:-1].tolist(), self.first[1:].tolist(), strict=True):
            if low < stop and start < high:
                yield from layer.between(max(start - low, 0), min(stop, high) - low, size)


@dataclass(frozen=True, eq=False)
class Stratum(RangedRows):
    """One stratum of several. Workers are sent all of them once."""

    whole: Strata
    number: int

    @property
    def units(self) -> Units:
        """The units of this stratum."""
        return self.whole.layers[self.number]

    @property
    def first(self) -> int:
        """The number of its first unit among all."""
        return int(self.whole.first[self.number])

    def __len__(self) -> int:
        """Return the number of its units."""
        return len(self.units)

    def take(self, indices: NDArray[np.int64]) -> Any:
        """Return the units of these numbers within the stratum, a `Layer`."""
        return self.units.take(indices)

    def between(self, start: int, stop: int, size: int) -> Iterator[Any]:
        """Yield its units `start` to `stop` - 1, `size` at a time."""
        return self.units.between(start, stop, size)


def build_strata(rows: Rows, parts: Parts) -> Strata | None:
    """Return groups as units in strata of size; None if their sizes are so alike that one stratum would do."""
    sizes = parts.sizes
    longest = choose_longest(sizes)
    if len(longest) == 1:
        return None
    stratum = np.searchsorted(longest, sizes)
    first = np.concatenate([[0], np.cumsum(np.bincount(stratum, minlength=len(longest)))])
    return Strata(rows, parts, np.argsort(stratum, kind="stable"), first.astype(np.int64))


def choose_longest(sizes: NDArray[np.int64]) -> list[int]:
    """Return the rows of the longest group of each stratum, ascending: as few strata as are `FILLED` and not `WIDEST`.

    One stratum is `FILLED` or not, however wide.
    """
    if FILLED * int(sizes.max()) * len(sizes) <= int(sizes.sum()):
        return [int(sizes.max())]
    found, own, cells = list[int](), 0, 0
    for size, count in zip(*(part[::-1].tolist() for part in np.unique(sizes, return_counts=True)), strict=True):
        own, cells = own + count * size, cells + count * (found[-1] if found else 0)
        if not found or own < FILLED * cells or found[-1] > WIDEST * size:
            found.append(size)
            own, cells = count * size, count * size
    return found[::-1]
