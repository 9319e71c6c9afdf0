"""Units: what a subset U is a set of if not of single rows. A group, a window of a sequence, or a stretch of it.

A unit is some consecutive rows, of which some are scored. The others lead in: they come before, so that a model with
memory knows what happened earlier; or they fill the unit up to the length that all units have, and are ignored.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.rows.memory import RangedRows
from lwa.rows.parts import Parts, split_runs
from lwa.rows.protocol import Batch, Rows


class Span(NamedTuple):
    """Where units are, by positions counted part after part: rows from `first`, scored from `begin` to `stop` - 1."""

    first: NDArray[np.int64]
    begin: NDArray[np.int64]
    stop: NDArray[np.int64]


class Stretch(NamedTuple):
    """Some units: the rows of each, leaves `(m, length, *shape)`, and which of them are scored, `(m, length)`."""

    rows: Batch
    scored: NDArray[np.bool_]


class Layer(Stretch):
    """Some units of one stratum of several. Blocks of a pass are smaller, since there is a last one per stratum."""


type Layers = tuple[Layer, ...]
"""Some units of every stratum."""
type AnyBatch = Batch | Stretch | Layers
"""Some rows, or some units."""
type Spans = Callable[[NDArray[np.int64]], Span]
"""Where the units of these numbers lie."""


@dataclass(frozen=True, eq=False)
class Units(RangedRows):
    """Units in place of rows: a `Rows` whose batches are a `Stretch`."""

    rows: Rows
    parts: Parts
    spans: Spans
    count: int
    length: int  # rows per unit, filled up
    layered: bool = False  # whether they are one stratum of several

    def __len__(self) -> int:
        """Return the number of units."""
        return self.count

    def take(self, indices: NDArray[np.int64]) -> Any:
        """Return the units of these numbers, a `Stretch`."""
        span, build = self.spans(np.asarray(indices, np.int64)), Layer if self.layered else Stretch
        steps = np.arange(self.length, dtype=np.int32)
        before, end = ((edge - span.first).astype(np.int32)[:, None] for edge in (span.begin, span.stop))
        if (end == self.length).all():
            return build(self.parts.take_runs(self.rows, span.first, self.length), steps >= before)
        # The last row is repeated: nothing depends on it.
        batch = self.parts.take(self.rows, (span.first[:, None] + np.minimum(steps, end - 1)).ravel())
        return build(split_runs(batch, self.length), (steps >= before) & (steps < end))

    def between(self, start: int, stop: int, size: int) -> Iterator[Any]:
        """Yield units `start` to `stop` - 1, `size` at a time."""
        for at in range(start, stop, size):
            yield self.take(np.arange(at, min(at + size, stop)))


def build_groups(rows: Rows, parts: Parts) -> Units:
    """Return units that are whole parts."""

    def spans(numbers: NDArray[np.int64]) -> Span:
        begin = parts.offsets[numbers]
        return Span(begin, begin, parts.offsets[numbers + 1])

    return Units(rows, parts, spans, len(parts), int(parts.sizes.max()))


class Windows(NamedTuple):
    """All windows of n steps within one part, numbered part after part."""

    n: int
    first_window: NDArray[np.int64]  # (parts + 1,)  the number of each part's first window; the last entry is M
    first_row: NDArray[np.int64]  # (parts,)  the position that it starts at

    @property
    def number(self) -> int:
        """M, the number of windows."""
        return int(self.first_window[-1])


def number_windows(parts: Parts, n: int) -> Windows:
    """Number all windows of n steps. No part may be shorter than n."""
    first = np.concatenate([[0], np.cumsum(parts.sizes - n + 1)]).astype(np.int64)
    return Windows(n, first, parts.offsets[:-1])


def build_windows(rows: Rows, parts: Parts, n: int, lead_in: int) -> Units:
    """Return units that are all windows of n steps within one part, each with up to `lead_in` steps before it."""
    windows = number_windows(parts, n)

    def spans(numbers: NDArray[np.int64]) -> Span:
        part = np.searchsorted(windows.first_window, numbers, side="right") - 1
        begin = windows.first_row[part] + numbers - windows.first_window[part]
        return Span(np.maximum(begin - lead_in, parts.offsets[part]), begin, begin + n)

    return Units(rows, parts, spans, windows.number, min(n + lead_in, int(parts.sizes.max())))


def build_stretches(rows: Rows, parts: Parts, scored: int, lead_in: int) -> Units:
    """Return units that score every step once: `scored` steps each, with up to `lead_in` steps before them."""
    cuts = np.concatenate([[0], np.cumsum(-(-parts.sizes // scored))]).astype(np.int64)

    def spans(numbers: NDArray[np.int64]) -> Span:
        part = np.searchsorted(cuts, numbers, side="right") - 1
        begin = parts.offsets[part] + (numbers - cuts[part]) * scored
        stop = np.minimum(begin + scored, parts.offsets[part + 1])
        return Span(np.maximum(begin - lead_in, parts.offsets[part]), begin, stop)

    longest = int(parts.sizes.max())
    return Units(rows, parts, spans, int(cuts[-1]), min(scored + lead_in, longest))
