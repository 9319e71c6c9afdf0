"""The one column that a summary reads."""

from typing import Any

from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.rows import Batch

type ColumnName = str | int | None
"""A name where the data are a dict or a table, a position where they are a matrix, None where they are one column."""


def select_column(batch: Batch, column: ColumnName, summary: str) -> NDArray[Any]:
    """One number a row; refuses a column that is not there. `summary` is what errors call who asks."""
    if isinstance(batch, dict):
        if column not in batch:
            raise InputError(f"{summary}(column={column!r}): no such column. Valid: {', '.join(map(repr, batch))}.")
        values = batch[str(column)]
    elif column is None:
        values = batch
    elif isinstance(column, int) and batch.ndim == 2 and -batch.shape[1] <= column < batch.shape[1]:
        values = batch[:, column]
    else:
        raise InputError(
            f"{summary}(column={column!r}) does not fit rows of shape {batch.shape[1:]}. Pass the position of the "
            "column in a matrix, or None where the data are one column."
        )
    if values.ndim != 1:
        raise InputError(f"{summary} needs one value a row, but the column has shape {values.shape} for a batch.")
    return values
