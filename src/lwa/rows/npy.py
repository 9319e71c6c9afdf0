"""Rows of a `.npy` file, mapped into memory and read as they are needed."""

import math
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.rows.memory import ArrayRows, require_size
from lwa.rows.protocol import Batch


@dataclass(frozen=True, eq=False)
class NpyRows:
    """Rows of a mapped file. Raise if the file shrank: a read past its end would kill the process (SIGBUS)."""

    path: Path
    rows: ArrayRows
    mapping: mmap.mmap
    size: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return the rows at these positions, in this order."""
        self._require_size()
        return self.rows.take(indices)

    def blocks(self, size: int) -> Iterator[Batch]:
        """Yield all rows in order, `size` at a time: views of the mapped file."""
        require_size(size)
        return self.between(0, len(self), size)

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1, `size` at a time."""
        self._require_size()
        for batch in self.rows.between(start, stop, size):
            yield batch
            self._require_size()

    def __reduce__(self) -> tuple[Callable[[Path], "NpyRows"], tuple[Path]]:
        """Have another process map the file itself."""
        return open_npy, (self.path.absolute(),)

    def _require_size(self) -> None:
        # This is the size of the file that the mapping holds open: a file moved or deleted since is still whole.
        size = self.mapping.size()
        if size < self.size:
            raise DataError(
                f"'{self.path}' shrank from {self.size} to {size} bytes while it was read. "
                "Write it again with np.save and start again."
            )


def open_npy(path: str | os.PathLike[str]) -> NpyRows:
    """Map a `.npy` file. No row is read before it is needed.

    Parameters
    ----------
    path
        A file written by ``np.save``. Rows that are contiguous on disk (C order) are the fastest to gather.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise DataError(f"'{path}' is a folder; a '.npy' file is expected. Pass the path of one file.")
    if path.suffix != ".npy":
        raise DataError(
            f"'{path}' ends in {path.suffix!r}; '.npy' is accepted. Read the file yourself and pass the array or "
            "table, or write it once with np.save('rows.npy', array)."
        )
    try:
        size = _require_whole(path)
        array = np.lib.format.open_memmap(path, mode="r")
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(
            f"'{path}' does not exist (working folder: '{Path.cwd()}'). Pass the path of a file."
        ) from error
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}. Check its permissions with ls -l.") from error
    except ValueError as error:
        raise DataError(
            f"'{path}' is not a .npy file, whatever its name: {error}. Write it again with np.save(path, array)."
        ) from error
    try:
        rows = ArrayRows(array)
    except DataError as error:
        raise DataError(f"'{path}': {error}") from error
    assert isinstance(array.base, mmap.mmap)
    return NpyRows(path, rows, array.base, size)


def _require_whole(path: Path) -> int:
    """Return the number of bytes that the header promises; raise if the file has fewer."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        # Format 3 is format 2 with UTF-8 field names, which do not change the size.
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        size, promised = os.fstat(file.fileno()).st_size, file.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise DataError(
            f"'{path}' holds Python objects (dtype {dtype}); numbers are expected. "
            "Write it again with np.save(path, np.asarray(values, dtype=float))."
        )
    if size < promised:
        raise DataError(
            f"'{path}' is cut short: it has {size} bytes, and its header promises {promised}. Copy or write it again."
        )
    return promised
