"""A pass over all rows: cut into pieces that depend on their number alone, computed by anybody, put together in order.

So every executor gives the same bits: what is added up within a piece, and in which order pieces are, never depends on
who computes how many of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.executors import Executor, Serial, Work
from lwa.rows.protocol import Batch, Rows
from lwa.rows.units import Stretch, unit_length

ALIGNED = 2**16
"""Rows of the smallest piece. Blocks are a power of two, and smaller: none reaches over the end of a piece."""
MOST_PIECES = 256
"""Enough to keep a hundred machines busy; what comes back of a pass is so many times d² numbers at the most."""
TASKS = 2
"""Tasks for each worker: a slow one delays a pass by half of its share at the most."""


@dataclass(frozen=True, eq=False)
class SpreadRows:
    """Rows whose passes an executor computes. On its workers they are `rows` themselves."""

    rows: Rows
    executor: Executor

    @property
    def spread_over(self) -> Rows:
        """Where units are looked for."""
        return self.rows

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Rows at these positions, in this order."""
        return self.rows.take(indices)

    def blocks(self, size: int) -> Iterator[Batch]:
        """All rows in order, `size` at a time, read here."""
        return self.rows.blocks(size)

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """The same from `start` to `stop` - 1."""
        return blocks_between(self.rows, start, stop, size)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to a worker, they are rows like any other."""
        return as_they_are, (self.rows,)


def as_they_are(rows: Rows) -> Rows:
    """What a worker makes of rows that are sent to it."""
    return rows


def spread(rows: Rows, executor: Executor | None) -> Rows:
    """The rows, with passes over them computed by an executor; here, where there is none."""
    if isinstance(rows, SpreadRows):
        rows = rows.rows
    return rows if executor is None else SpreadRows(rows, executor)


def power_of_two(most: float) -> int:
    """The largest that is no more, and at least 1."""
    return 1 << (max(1, int(most)).bit_length() - 1)


def pieces_of(rows: Rows) -> list[tuple[int, int]]:
    """Where pieces begin and end: as many rows in each, whole multiples of the smallest piece."""
    N, least = len(rows), power_of_two(ALIGNED // unit_length(rows))
    size = least * max(1, -(-N // (least * MOST_PIECES)))
    return list(pairwise([*range(0, N, size), N]))


def over_pieces(
    rows: Rows,
    function: Callable[..., Any],
    size: int,
    *,
    shared: tuple[Any, ...] = (),
    own: tuple[Any, ...] = (),
    here: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Any]:
    """`function(*shared, *own, start, blocks)` of each piece of all rows, in order.

    Parameters
    ----------
    function
        Of the position where a piece starts and of its rows, block by block.
    size
        Rows of a block, a power of two.
    shared, own
        As `Work` has them.
    here
        Whether only this thread may compute, where no other process does.
    progress
        Called after every piece with the number of rows seen so far.
    """
    pieces = pieces_of(rows)
    size = min(size, power_of_two(ALIGNED // unit_length(rows)))
    if isinstance(rows, SpreadRows):
        found = computed_by(rows.executor, rows.rows, function, size, shared, own, pieces)
    elif here or not hasattr(rows, "between") or len(pieces) == 1:
        found = one_by_one(rows, function, size, (*shared, *own), pieces)
    else:
        found = computed_by(Serial(), rows, function, size, shared, own, pieces)
    for (_, stop), one in zip(pieces, found, strict=True):
        if progress is not None:
            progress(stop)
        yield one


def one_by_one(
    rows: Rows, function: Callable[..., Any], size: int, arguments: tuple[Any, ...], pieces: Sequence[tuple[int, int]]
) -> Iterator[Any]:
    """On this thread, reading all rows in order once: an object with the three methods of `Rows` is enough."""
    blocks = cut(rows.blocks(size), size)
    for start, stop in pieces:
        yield function(*arguments, start, until(blocks, stop - start))
    if next(blocks, None) is not None:
        raise DataError(f"blocks() gave more rows than len() says, {len(rows)}. Return every row exactly once.")


def until(blocks: Iterator[Batch], rows: int) -> Iterator[Batch]:
    """The next blocks, until there are so many rows."""
    while rows > 0 and (block := next(blocks, None)) is not None:
        rows -= rows_in(block)
        yield block


def cut(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """The same rows, `size` at a time, however they come."""
    held: Any = None
    for batch in batches:
        if held is not None:
            if layout_of(held) == layout_of(batch):
                batch = each(lambda *parts: np.concatenate(parts), held, batch)
            else:
                yield held  # which whoever reads it will refuse
        length = rows_in(batch)
        whole = length - length % size
        for at in range(0, whole, size):
            yield batch if whole == size == length else part_of(batch, at, at + size)
        held = part_of(batch, whole, length) if whole < length else None
    if held is not None:
        yield held


def rows_in(batch: Any) -> int:
    """How many rows, or units, a batch has."""
    return len(jax.tree.leaves(batch)[0])


def part_of(batch: Any, start: int, stop: int) -> Any:
    """Some of its rows."""
    return each(lambda leaf: leaf[start:stop], batch)


def each(function: Callable[..., Any], *batches: Any) -> Any:
    """Of every array. JAX's own would sort columns by name, and summaries see them in the order of the data."""
    first = batches[0]
    if isinstance(first, dict):
        return {name: each(function, *(batch[name] for batch in batches)) for name in first}
    if isinstance(first, Stretch):
        return Stretch(*(each(function, *parts) for parts in zip(*batches, strict=True)))
    return function(*batches)


def layout_of(batch: Any) -> Any:
    """Names, dtypes and shapes, whatever the number of rows."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, [(np.asarray(leaf).dtype, np.shape(leaf)[1:]) for leaf in leaves]


def computed_by(
    executor: Executor,
    rows: Rows,
    function: Callable[..., Any],
    size: int,
    shared: tuple[Any, ...],
    own: tuple[Any, ...],
    pieces: Sequence[tuple[int, int]],
) -> Iterator[Any]:
    """By an executor, some consecutive pieces a task: how many changes nothing but the time."""
    count = min(len(pieces), TASKS * executor.workers)
    ends = [len(pieces) * i // count for i in range(count + 1)]
    tasks = [pieces[begin:end] for begin, end in pairwise(ends)]
    work = Work(of_pieces, (rows, *shared), ((function, size, own),))
    near = [(task[0][0] + task[-1][1]) / 2 / len(rows) for task in tasks]
    for results in executor.map(work, tasks, near):
        yield from results


def of_pieces(rows: Rows, *arguments: Any) -> list[Any]:
    """What becomes of some pieces, wherever this runs."""
    *shared, (function, size, own), pieces = arguments
    return [function(*shared, *own, start, blocks_between(rows, start, stop, size)) for start, stop in pieces]


def blocks_between(rows: Rows, start: int, stop: int, size: int) -> Iterator[Batch]:
    """Rows from `start` to `stop` - 1, `size` at a time."""
    if hasattr(rows, "between"):
        yield from rows.between(start, stop, size)
        return
    for at in range(start, stop, size):
        yield rows.take(np.arange(at, min(at + size, stop)))
