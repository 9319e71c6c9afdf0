"""From whatever a user has to rows."""

import os
from collections.abc import Mapping
from numbers import Number
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.executors import Executor
from lwa.rows.memory import ArrayRows
from lwa.rows.protocol import Rows
from lwa.rows.store.cache import rows_at
from lwa.rows.tables import is_series, is_table, table_columns
from lwa.user.progress import Display


@runtime_checkable
class _ArrayLike(Protocol):
    """NumPy and JAX arrays and their like."""

    def __array__(self) -> NDArray[Any]: ...


def as_rows(data: object, *, progress: bool | Display = False, executor: Executor | None = None) -> Rows:
    """Rows of anything that holds them; an object with the three methods of `Rows` passes unchanged.

    Parameters
    ----------
    data
        An array (NumPy, memory-mapped, JAX) or a list of numbers, a dict of these, a pandas or polars DataFrame, an
        Arrow table, the path of a ``.npy`` file or of a folder that `convert` wrote, or a `Rows` object. Nothing is
        copied that NumPy can view. Or the path of a Parquet, Arrow or CSV file, a folder of them, a pattern or a URL:
        this is converted once, into ``~/.cache/lwa`` (or ``$LWA_CACHE``), and again when its files change.
    progress
        Whether to show how far a conversion is, or the display to show it in.
    executor
        Whose workers read Parquet files, so that their rows never come here as a whole; this process where None.

    Examples
    --------
    >>> import numpy as np
    >>> len(as_rows({"x": np.zeros((4, 2)), "y": np.ones(4)}))
    4
    """
    if is_table(data):
        return ArrayRows(table_columns(data))
    if isinstance(data, type):
        raise DataError(f"data is the class {data.__name__}; an object is expected. Pass {data.__name__}(...).")
    if isinstance(data, Rows):
        return data
    if isinstance(data, str | os.PathLike):
        return rows_at(data, progress, executor=executor)
    if is_series(data) or isinstance(data, Mapping | list | tuple | _ArrayLike | Number):
        return ArrayRows(data)
    raise DataError(
        f"data is of type {type(data).__name__}. Pass an array or a list of numbers, a dict of arrays, a pandas or "
        "polars DataFrame, a pyarrow Table, the path of a '.npy' file or of a table (Parquet, Arrow or CSV: a file, a "
        "folder, a pattern or a URL), or an object with the methods __len__, take(indices) and blocks(size) "
        "(lwa.rows.Rows)."
    )
