"""One pass over all rows: are they finite, which data are they, and whatever else wants to see each row once."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.memory import check_numeric
from lwa.rows.passes import over_pieces, power_of_two
from lwa.rows.protocol import Batch, Rows, label, named

# Large enough that Python's share of a pass vanishes, small enough for the last-level cache.
_BLOCK_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Survey:
    """What one pass found: N, and a fingerprint of names, dtypes, shapes and bytes (not of the block size)."""

    length: int
    fingerprint: str


@dataclass
class _Tally:
    """The running state of one column."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    crc: int = 0
    bad_values: int = 0
    first_bad_row: int = -1
    crcs: tuple[int, ...] = ()  # of the pieces joined so far

    def add(self, array: NDArray[Any], start: int) -> bool:
        """Take in the rows from `start` on; whether all of them are finite."""
        # A checksum runs on over the bytes of consecutive blocks, so where they are cut leaves no trace.
        self.crc = zlib.crc32(np.ascontiguousarray(array), self.crc)
        # The mask costs less than the checksum: 20 GB/s against 4 GB/s, and a sum in its place is no faster.
        if array.dtype.kind != "f" or (finite := np.isfinite(array)).all():
            return True
        if not self.bad_values:
            self.first_bad_row = start + int(np.argwhere(~finite)[0, 0])
        self.bad_values += int(finite.size - finite.sum())
        return False

    def join(self, later: "_Tally") -> None:
        """Take in a whole piece."""
        self.crcs = (*self.crcs, later.crc)
        if not self.bad_values:
            self.first_bad_row = later.first_bad_row
        self.bad_values += later.bad_values


class Visitor(Protocol):
    """What wants to see every row once: piece by piece, each with a visitor of its own."""

    def visit(self, block: Batch) -> None:
        """Take in the next block of a piece, all of it finite."""

    def join(self, later: Self) -> None:
        """Take over what the visitor of the next piece has seen."""


class Nobody:
    """No visitor."""

    def visit(self, block: Batch) -> None:
        """See nothing."""

    def join(self, later: "Nobody") -> None:
        """Know nothing."""


def survey(rows: Rows, block: int | None = None, progress: Callable[[int], None] | None = None) -> Survey:
    """Read all rows once and raise unless every value is finite.

    Parameters
    ----------
    rows
        The data.
    block
        Rows per block; about 8 MiB of them when not given.
    progress
        Called with the number of rows read so far.

    Examples
    --------
    >>> from lwa.rows import as_rows
    >>> survey(as_rows([1.0, 2.0, 3.0])).length
    3
    """
    return visited(rows, Nobody, block, progress=progress)[0]


def visited[V: Visitor](
    rows: Rows,
    begin: Callable[..., V],
    block: int | None = None,
    *,
    shared: tuple[Any, ...] = (),
    own: tuple[Any, ...] = (),
    here: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[Survey, V]:
    """`survey`, and what a visitor has seen of all rows; `begin(*shared, *own)` makes the one of each piece."""
    if len(rows) == 0:
        raise DataError("data has no rows (its length is 0). Pass at least one row.")
    first = named(rows.take(np.zeros(1, np.int64)))
    for name, array in first.items():
        check_numeric(name, array.dtype)
    blank = {name: _Tally(array.dtype, array.shape[1:]) for name, array in first.items()}
    tallies = {name: replace(tally) for name, tally in blank.items()}
    size = _BLOCK_BYTES / max(1, sum(array.nbytes for array in first.values())) if block is None else block
    length, everybody = 0, None
    looking = over_pieces(
        rows, _look, power_of_two(size), shared=shared, own=(begin, own, blank), here=here, progress=progress
    )
    for count, seen, visitor in looking:
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
    return Survey(length, _fingerprint(tallies, length)), everybody


def _look(*arguments: Any) -> tuple[int, dict[str | None, _Tally], Any]:
    """One piece: its rows, what is to be said of each column, and its visitor."""
    *shared, begin, own, blank, start, blocks = arguments
    tallies = {name: replace(tally) for name, tally in blank.items()}
    visitor, length = begin(*shared, *own), 0
    for batch in blocks:
        arrays = named(batch)
        _require_layout(arrays, tallies, start + length)
        if all([tallies[name].add(array, start + length) for name, array in arrays.items()]):
            visitor.visit(batch)
        length += len(next(iter(arrays.values())))
    return length, tallies, visitor


def _require_layout(arrays: dict[str | None, NDArray[Any]], tallies: dict[str | None, _Tally], start: int) -> None:
    came = {name: (str(array.dtype), array.shape[1:]) for name, array in arrays.items()}
    expected = {name: (str(tally.dtype), tally.shape) for name, tally in tallies.items()}
    if came != expected:
        raise DataError(
            f"blocks() gave {came} from row {start} on, take() gave {expected}. "
            "Return the same names, dtypes and shapes from both."
        )


def _require_finite(tallies: dict[str | None, _Tally]) -> None:
    found = [
        f"{label(name)} has {tally.bad_values}, the first in row {tally.first_bad_row}"
        for name, tally in tallies.items()
        if tally.bad_values
    ]
    if found:
        raise DataError(
            f"NaN or infinite values: {'; '.join(found)}. Finite numbers are expected. Drop those rows "
            "(e.g. data[np.isfinite(data)], df.dropna()) or fill the values."
        )


def _fingerprint(tallies: dict[str | None, _Tally], length: int) -> str:
    parts = [repr((name, tally.dtype.str, (length, *tally.shape), tally.crcs)) for name, tally in tallies.items()]
    return blake2b("\n".join(sorted(parts)).encode(), digest_size=8).hexdigest()
