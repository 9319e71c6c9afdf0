"""One column of the data, by name or position."""

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.rows.memory import ArrayRows, Chunked
from lwa.rows.npy import NpyRows
from lwa.rows.protocol import Batch, Rows

type ColumnName = str | int | None
"""A name if the data are a dict or a table, a position if they are a matrix, None if they are one column."""


def select_column(batch: Batch, column: ColumnName, asked: str) -> NDArray[Any]:
    """Return one number per row; raise if there is no such column. Errors call the option and its value `asked`."""
    if isinstance(batch, dict):
        if column is None and len(batch) == 1:
            column = next(iter(batch))
        if column not in batch:
            raise InputError(f"{asked}: no such column. Valid: {', '.join(map(repr, batch))}.")
        values = batch[str(column)]
    elif column is None:
        values = batch[:, 0] if batch.ndim == 2 and batch.shape[1] == 1 else batch
    elif isinstance(column, int) and batch.ndim == 2 and -batch.shape[1] <= column < batch.shape[1]:
        values = batch[:, column]
    else:
        raise InputError(
            f"{asked} does not fit rows of shape {batch.shape[1:]}. Pass the position of the column in a matrix, its "
            "name in a dict or table, or None if the data are one column."
        )
    if values.ndim != 1:
        raise InputError(f"{asked} needs one value per row, but the column has rows of shape {values.shape[1:]}.")
    return values


def load_column(rows: Rows, column: ColumnName, asked: str, order: NDArray[np.int64] | None = None) -> NDArray[Any]:
    """Return all rows of a column as one array: the user's own if it is one chunk, else a copy in a temporary file."""
    held = rows.rows if isinstance(rows, NpyRows) else rows
    if isinstance(held, ArrayRows) and order is None:
        pieces = held.columns.values() if isinstance(held.columns, dict) else [held.columns]
        if all(isinstance(piece, Chunked) and len(piece.chunks) == 1 for piece in pieces):
            whole = next(held.blocks(len(held)))
            return select_column(whole, column, asked)
    first = select_column(rows.take(np.zeros(1, np.int64)), column, asked)
    with tempfile.TemporaryFile(prefix="lwa-column-") as file:  # it has no name and lasts as long as its mapping
        copy: NDArray[Any] = np.memmap(file, first.dtype, "w+", shape=(len(rows),))
    start, size = 0, 2**18
    batches = (
        rows.blocks(size) if order is None else (rows.take(order[at : at + size]) for at in range(0, len(rows), size))
    )
    for batch in batches:
        values = select_column(batch, column, asked)
        copy[start : start + len(values)] = values
        start += len(values)
    return copy
