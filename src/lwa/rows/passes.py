"""A pass over all rows: cut into pieces by their number alone, computed by any executor, combined in order.

So every executor gives the same bits: what is added up within a piece, and the order of pieces, never depend on which
process computes how many of them. `survey` is the pass that checks that all values are finite, and which data they are.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Protocol, Self

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.executors import Executor, Serial, Work
from lwa.rows.memory import name_column, require_numeric
from lwa.rows.protocol import Batch, Rows
from lwa.rows.slots import map_arrays, split_layers
from lwa.rows.strata import Strata, Stratum
from lwa.rows.units import AnyBatch, Stretch, Units

LEAST_PIECE_ROWS = 2**16
"""Rows of the smallest piece. Blocks are a power of two, and smaller: none crosses the end of a piece."""
MOST_PIECES = 256
"""Enough to keep a hundred machines busy; the results of a pass are at most this many times d² numbers."""
TASKS_PER_WORKER = 2
"""Tasks per worker: a slow worker delays a pass by at most half of its share."""
SURVEY_BLOCK_BYTES = 8 * 2**20
"""Large enough that Python's share of a pass vanishes, small enough for the last-level cache."""

type Progress = Callable[[int], None] | None
"""Called with the number of rows read so far."""


@dataclass(frozen=True, eq=False)
class SpreadRows:
    """Rows whose passes an executor computes. On its workers they are `rows` themselves."""

    rows: Rows
    executor: Executor

    @property
    def spread_over(self) -> Rows:
        """The rows without the executor."""
        return self.rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order."""
        return self.rows.take(indices)

    def blocks(self, size: int) -> Iterator[Batch]:
        """Yield all rows in order, `size` at a time, read in this process."""
        return self.rows.blocks(size)

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time."""
        return read_blocks(self.rows, start, stop, size)

    def __reduce__(self) -> tuple[Callable[[Rows], Rows], tuple[Rows]]:
        """Send a worker the rows without the executor."""
        return unwrap_rows, (self.rows,)


def unwrap_rows(rows: Rows) -> Rows:
    """Return the rows that a worker has unpickled."""
    return rows


def spread_passes(rows: Rows, executor: Executor | None) -> Rows:
    """Return the rows, with passes over them computed by an executor; by this process if it is None."""
    if isinstance(rows, SpreadRows):
        rows = rows.rows
    return rows if executor is None else SpreadRows(rows, executor)


def find_strata(rows: Rows) -> Strata | None:
    """Return the rows if they are units of unequal size in strata, else None."""
    held = rows.rows if isinstance(rows, SpreadRows) else rows
    return held if isinstance(held, Strata) else None


def list_strata(rows: Rows) -> list[Rows]:
    """Return the strata of units of unequal size, each with passes as those of all rows; else the rows alone."""
    if (held := find_strata(rows)) is None:
        return [rows]
    strata = [Stratum(held, number) for number in range(len(held.layers))]
    return [SpreadRows(one, rows.executor) if isinstance(rows, SpreadRows) else one for one in strata]


def count_unit_rows(of: Rows | AnyBatch | Units) -> int:
    """Return the number of rows in one unit, of rows or of a batch; on average if strata differ."""
    of = getattr(of, "spread_over", of)
    if isinstance(of, Strata):
        return max(2, -(-of.parts.rows // len(of)))
    if isinstance(of, Stratum):
        of = of.units
    if isinstance(of, Units):
        return of.length
    return int(of.scored.shape[-1]) if isinstance(of, Stretch) else 1


def find_first(rows: Rows) -> int:
    """Return the number of the first row: a stratum's units are numbered after those of the strata before it."""
    held = rows.rows if isinstance(rows, SpreadRows) else rows
    return held.first if isinstance(held, Stratum) else 0


def floor_power_of_two(most: float) -> int:
    """Return the largest power of two that is no more than `most`, and at least 1."""
    return 1 << (max(1, int(most)).bit_length() - 1)


def cut_pieces(rows: Rows) -> list[tuple[int, int]]:
    """Return where pieces begin and end: equally many rows in each, whole multiples of the smallest piece."""
    N, least = len(rows), floor_power_of_two(LEAST_PIECE_ROWS // count_unit_rows(rows))
    size = least * max(1, -(-N // (least * MOST_PIECES)))
    return list(pairwise([*range(0, N, size), N]))


def map_pieces[Out](
    rows: Rows, function: Callable[..., Out], size: int, *,
    shared: tuple[Any, ...] = (), own: tuple[Any, ...] = (), here: bool = False, progress: Progress = None,
) -> Iterator[Out]:  # fmt: skip
    """Yield `function(*shared, *own, start, blocks)` for each piece of all rows, in order; `shared, own` as in `Work`.

    A piece begins at row `start`, counted over all strata if `rows` is one of them, and a block has `size` rows, a
    power of two. If `here`, only this thread computes, unless other processes do.
    """
    first = find_first(rows)
    pieces = [(first + start, first + stop) for start, stop in cut_pieces(rows)]
    size = min(size, floor_power_of_two(LEAST_PIECE_ROWS // count_unit_rows(rows)))
    if not isinstance(rows, SpreadRows) and (here or not hasattr(rows, "between") or len(pieces) == 1):
        found = map_pieces_here(rows, function, size, (*shared, *own), pieces)
    else:
        executor, held = (rows.executor, rows.rows) if isinstance(rows, SpreadRows) else (Serial(), rows)
        held = held.whole if isinstance(held, Stratum) else held
        found = map_pieces_by(executor, Work(compute_pieces, (held, *shared), ((function, size, own),)), pieces)
    for (_, stop), one in zip(pieces, found, strict=True):
        if progress is not None:
            progress(stop)
        yield one


def map_pieces_here[Out](
    rows: Rows, function: Callable[..., Out], size: int, arguments: tuple[Any, ...], pieces: Sequence[tuple[int, int]]
) -> Iterator[Out]:
    """Compute pieces on this thread, reading all rows in order once: the three methods of `Rows` are enough."""
    blocks = rebatch(rows.blocks(size), size)
    for start, stop in pieces:
        yield function(*arguments, start, take_blocks(blocks, stop - start))
    if next(blocks, None) is not None:
        raise DataError(f"blocks() gave more rows than len() says, {len(rows)}. Return every row exactly once.")


def take_blocks(blocks: Iterator[Batch], rows: int) -> Iterator[Batch]:
    """Yield the next blocks until they have this many rows."""
    while rows > 0 and (block := next(blocks, None)) is not None:
        rows -= count_rows(block)
        yield block


def rebatch(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """Yield the rows of batches of any size, `size` at a time."""
    held: Batch | None = None
    for batch in batches:
        if held is not None:
            if describe_layout(held) == describe_layout(batch):
                batch = map_arrays(lambda *parts: np.concatenate(parts), held, batch)
            else:
                yield held  # which the reader will refuse
        length = count_rows(batch)
        whole = length - length % size
        for at in range(0, whole, size):
            yield batch if whole == size == length else slice_batch(batch, at, at + size)
        held = slice_batch(batch, whole, length) if whole < length else None
    if held is not None:
        yield held


def count_rows(batch: AnyBatch) -> int:
    """Return the number of rows, or units, in a batch."""
    return sum(len(jax.tree.leaves(layer)[0]) for layer in split_layers(batch))


def slice_batch[B: AnyBatch](batch: B, start: int, stop: int) -> B:
    """Return rows `start` to `stop` - 1 of a batch."""
    return map_arrays(lambda leaf: leaf[start:stop], batch)


def describe_layout(batch: AnyBatch) -> tuple[object, list[tuple[np.dtype[Any], tuple[int, ...]]]]:
    """Return names, dtypes and shapes of a batch, whatever its number of rows."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, [(np.asarray(leaf).dtype, np.shape(leaf)[1:]) for leaf in leaves]


def map_pieces_by(executor: Executor, work: Work, pieces: Sequence[tuple[int, int]]) -> Iterator[Any]:
    """Yield the results of pieces, some consecutive ones per task: how many changes nothing but the time."""
    count = min(len(pieces), TASKS_PER_WORKER * executor.workers)
    ends = [len(pieces) * i // count for i in range(count + 1)]
    tasks = [pieces[begin:end] for begin, end in pairwise(ends)]
    near = [(task[0][0] + task[-1][1]) / 2 / pieces[-1][1] for task in tasks]
    for results in executor.map(work, tasks, near):
        yield from results


def compute_pieces(rows: Rows, *arguments: Any) -> list[Any]:
    """Return the results of some pieces, in any process."""
    *shared, (function, size, own), pieces = arguments
    return [function(*shared, *own, start, read_blocks(rows, start, stop, size)) for start, stop in pieces]


def read_blocks(rows: Rows, start: int, stop: int, size: int) -> Iterator[Batch]:
    """Yield rows `start` to `stop` - 1, `size` at a time."""
    if hasattr(rows, "between"):
        yield from rows.between(start, stop, size)
        return
    for at in range(start, stop, size):
        yield rows.take(np.arange(at, min(at + size, stop)))


# The survey


@dataclass(frozen=True)
class Survey:
    """What one pass found: N, and a fingerprint of names, dtypes, shapes and bytes (not of the block size)."""

    length: int
    fingerprint: str


@dataclass
class ColumnTally:
    """What a pass has seen of one column so far."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    crc: int = 0
    bad_values: int = 0
    first_bad_row: int = -1
    crcs: tuple[int, ...] = ()  # of the pieces joined so far

    def add(self, array: NDArray[Any], start: int) -> bool:
        """Add the rows from `start` on; return whether all of them are finite."""
        # A checksum runs on over the bytes of consecutive blocks, so where they are cut leaves no trace.
        self.crc = zlib.crc32(np.ascontiguousarray(array), self.crc)
        # The mask costs less than the checksum: 20 GB/s against 4 GB/s, and a sum in its place is no faster.
        if array.dtype.kind != "f" or (finite := np.isfinite(array)).all():
            return True
        if not self.bad_values:
            self.first_bad_row = start + int(np.argwhere(~finite)[0, 0])
        self.bad_values += int(finite.size - finite.sum())
        return False

    def join(self, later: "ColumnTally") -> None:
        """Add the tally of the next piece."""
        self.crcs = (*self.crcs, later.crc)
        if not self.bad_values:
            self.first_bad_row = later.first_bad_row
        self.bad_values += later.bad_values


type Tallies = dict[str | None, ColumnTally]


class Visitor(Protocol):
    """What sees every row once: piece by piece, each with a visitor of its own."""

    def visit(self, block: Batch) -> None:
        """See the next block of a piece, all of it finite."""

    def join(self, later: Self) -> None:
        """Add what the visitor of the next piece has seen."""


class NoVisitor:
    """A visitor that looks at nothing."""

    def visit(self, block: Batch) -> None:
        """Ignore the next block."""

    def join(self, later: "NoVisitor") -> None:
        """Ignore the visitor of the next piece."""


def survey(rows: Rows, block: int | None = None, progress: Progress = None) -> Survey:
    """Read all rows once and raise unless every value is finite.

    Parameters
    ----------
    rows
        The data.
    block
        Rows per block; about 8 MiB of them if not given.
    progress
        Called with the number of rows read so far.

    Examples
    --------
    >>> from lwa.rows import as_rows
    >>> survey(as_rows([1.0, 2.0, 3.0])).length
    3
    """
    return visit_rows(rows, NoVisitor, block, progress=progress)[0]


def visit_rows[V: Visitor](
    rows: Rows, begin: Callable[..., V], block: int | None = None, *,
    shared: tuple[Any, ...] = (), own: tuple[Any, ...] = (), here: bool = False, progress: Progress = None,
) -> tuple[Survey, V]:  # fmt: skip
    """Return the survey and a visitor that has seen all rows; `begin(*shared, *own)` makes the one of each piece."""
    if len(rows) == 0:
        raise DataError("data has no rows (its length is 0). Pass at least one row.")
    first = name_arrays(rows.take(np.zeros(1, np.int64)))
    for name, array in first.items():
        require_numeric(name, array.dtype)
    blank = {name: ColumnTally(array.dtype, array.shape[1:]) for name, array in first.items()}
    tallies = {name: replace(tally) for name, tally in blank.items()}
    size = SURVEY_BLOCK_BYTES / max(1, sum(array.nbytes for array in first.values())) if block is None else block
    length, everybody = 0, None
    pieces = map_pieces(
        rows, _survey_piece, floor_power_of_two(size), shared=shared, own=(begin, own, blank), here=here,
        progress=progress,
    )  # fmt: skip
    for count, seen, visitor in pieces:
        length += count
        for name, tally in tallies.items():
            tally.join(seen[name])
        if everybody is None:
            everybody = visitor
        else:
            everybody.join(visitor)
    _require_finite(tallies)
    if length != len(rows):
        raise DataError(f"blocks() gave {length} rows, len() says {len(rows)}. Return every row exactly once.")
    assert everybody is not None
    return Survey(length, _digest(tallies, length)), everybody


def _survey_piece(*arguments: Any) -> tuple[int, Tallies, Any]:
    """Return the number of rows of one piece, the tally of each column, and its visitor."""
    *shared, begin, own, blank, start, blocks = arguments
    tallies = {name: replace(tally) for name, tally in blank.items()}
    visitor, length = begin(*shared, *own), 0
    for batch in blocks:
        arrays = name_arrays(batch)
        _require_layout(arrays, tallies, start + length)
        if all([tallies[name].add(array, start + length) for name, array in arrays.items()]):
            visitor.visit(batch)
        length += len(next(iter(arrays.values())))
    return length, tallies, visitor


def name_arrays(batch: Batch) -> dict[str | None, NDArray[Any]]:
    """Return the arrays of a batch by name; a bare array has the name None."""
    if isinstance(batch, dict):
        return {name: np.asarray(array) for name, array in batch.items()}
    return {None: np.asarray(batch)}


def _require_layout(arrays: dict[str | None, NDArray[Any]], tallies: Tallies, start: int) -> None:
    came = {name: (str(array.dtype), array.shape[1:]) for name, array in arrays.items()}
    expected = {name: (str(tally.dtype), tally.shape) for name, tally in tallies.items()}
    if came != expected:
        raise DataError(
            f"blocks() gave {came} from row {start} on, take() gave {expected}. "
            "Return the same names, dtypes and shapes from both."
        )


def _require_finite(tallies: Tallies) -> None:
    found = [
        f"{name_column(name)} has {tally.bad_values}, the first in row {tally.first_bad_row}"
        for name, tally in tallies.items() if tally.bad_values
    ]  # fmt: skip
    if found:
        raise DataError(
            f"NaN or infinite values: {'; '.join(found)}. Finite numbers are expected. Drop those rows "
            "(e.g. data[np.isfinite(data)], df.dropna()) or fill the values."
        )


def _digest(tallies: Tallies, length: int) -> str:
    parts = [repr((name, tally.dtype.str, (length, *tally.shape), tally.crcs)) for name, tally in tallies.items()]
    return blake2b("\n".join(sorted(parts)).encode(), digest_size=8).hexdigest()
