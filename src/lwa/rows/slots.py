"""The rows of a subset as the device holds them: slots on the last axis.

So laid out, one column is one contiguous run of memory: at n = 1000, d = 10 a move costs 4.0 µs a chain, 4.8 with rows
first and 8.7 with all columns in one matrix (two cores; benchmarks/choices.py).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

type Columns = Any
"""A pytree of rows, each leaf `(*shape, n)`."""


def to_columns(batch: Any, dtype: Any, axis: int = 0) -> Columns:
    """A batch with its row axis moved last; floats in the working precision, other types as they are."""

    def turn(leaf: Any) -> np.ndarray:
        floating = np.issubdtype(leaf.dtype, np.floating)
        return np.moveaxis(leaf.astype(dtype, copy=False) if floating else leaf, axis, -1)

    return jax.tree.map(turn, batch)


def double(leaf: Any) -> Any:
    """Floats in float64, other types as they are."""
    return leaf.astype(np.float64) if np.issubdtype(leaf.dtype, np.floating) else leaf


def repeat_to(batch: Any, size: int) -> Any:
    """A batch of at most `size` rows, repeated until there are so many: one program then serves every block."""

    def repeated(leaf: np.ndarray) -> np.ndarray:
        return leaf if len(leaf) == size else np.resize(leaf, (size, *leaf.shape[1:]))

    return jax.tree.map(repeated, batch)


def fill_up(batch: Any, size: int, dtype: Any) -> tuple[Columns, np.ndarray]:
    """A batch repeated to `size` rows, as columns, and which of these rows are its own."""
    own = np.arange(size) < len(jax.tree.leaves(batch)[0])
    return to_columns(repeat_to(batch, size), dtype), own


def to_rows(columns: Columns) -> Any:
    """The batch `(n, *shape)` that a log-likelihood expects."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), columns)


def put(slots: Array, new: Array, old: Array) -> Array:
    """`old` with `new` in the given slots of its last axis; slots out of range change nothing."""
    if slots.shape[-1] == old.shape[-1]:  # a whole new subset: slots are in order, so no scatter is needed
        return jnp.where(slots < old.shape[-1], new, old)
    return old.at[..., slots].set(new, mode="drop", unique_indices=True)
