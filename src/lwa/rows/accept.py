"""Turn whatever a user has into rows."""

import os
from collections.abc import Mapping
from numbers import Number
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from lwa.errors import DataError
from lwa.executors import Executor
from lwa.rows.memory import ArrayRows, is_series, is_table
from lwa.rows.protocol import Rows
from lwa.rows.store.cache import open_path
from lwa.rows.tables import view_series, view_table
from lwa.user.progress import Display


@runtime_checkable
class _ArrayLike(Protocol):
    """Arrays of NumPy, JAX and similar libraries."""

    def __array__(self) -> NDArray[Any]: ...


def as_rows(data: object, *, progress: bool | Display = False, executor: Executor | None = None) -> Rows:
    """Return the rows of anything that holds them; an object with the three methods of `Rows` is returned unchanged.

    Parameters
    ----------
    data
        An array (NumPy, memory-mapped, JAX) or a list of numbers, a dict of these, a pandas or polars DataFrame, an
        Arrow table, the path of a ``.npy`` file or of a folder that `convert` wrote, or a `Rows` object. Nothing is
        copied that NumPy can view. Or the path of a Parquet, Arrow or CSV file, a folder of them, a pattern or a URL:
        it is converted once, into ``~/.cache/lwa`` (or ``$LWA_CACHE``), and again if its files change.
    progress
        Whether to show the progress of a conversion, or the display to show it in.
    executor
        Whose workers read Parquet files, so that all of their rows never come to this process. If None, it reads them.

    Examples
    --------
    >>> import numpy as np
    >>> len(as_rows({"x": np.zeros((4, 2)), "y": np.ones(4)}))
    4
    """
    if is_table(data):
        return ArrayRows(view_table(data))
    if isinstance(data, type):
        raise DataError(f"data is the class {data.__name__}; an object is expected. Pass {data.__name__}(...).")
    if isinstance(data, Rows):
        return data
    if isinstance(data, str | os.PathLike):
        return open_path(data, progress, executor=executor)
    if is_series(data):
        return ArrayRows(view_series({None: data})[None])
    if isinstance(data, Mapping):
        series = {name: values for name, values in data.items() if is_series(values)}
        return ArrayRows({**data, **view_series(series)} if series else data)
    if isinstance(data, list | tuple | _ArrayLike | Number):
        return ArrayRows(data)
    raise DataError(
        f"data is of type {type(data).__name__}. Pass an array or a list of numbers, a dict of arrays, a pandas or "
        "polars DataFrame, a pyarrow Table, the path of a '.npy' file or of a table (Parquet, Arrow or CSV: a file, a "
        "folder, a pattern or a URL), or an object with the methods __len__, take(indices) and blocks(size) "
        "(lwa.rows.Rows)."
    )
