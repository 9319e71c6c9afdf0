"""The rows of a subset as the device holds them: slots on the last axis.

In this layout, one column is one contiguous run of memory: at n = 1000, d = 10 a move costs 4.0 µs per chain, 4.8 with
rows first and 8.7 with all columns in one matrix (two cores; benchmarks/choices.py).
"""

from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree
from numpy.typing import DTypeLike, NDArray

type Columns = PyTree
"""Rows, each leaf `(*shape, n)`."""
type Numbers = NDArray[np.number | np.bool_]
"""One leaf of a batch."""


def split_layers(batch: PyTree) -> tuple[PyTree, ...]:
    """Return the layers of units of several strata, or any other batch as the only one."""
    return batch if type(batch) is tuple else (batch,)


def map_arrays(function: Callable[..., NDArray[Any]], *batches: PyTree) -> PyTree:
    """Apply a function to every array. `jax.tree.map` would sort columns by name, which changes what summaries see."""
    first = batches[0]
    if isinstance(first, dict):
        return {name: map_arrays(function, *(batch[name] for batch in batches)) for name in first}
    if isinstance(first, tuple):
        parts = [map_arrays(function, *parts) for parts in zip(*batches, strict=True)]
        return tuple(parts) if type(first) is tuple else type(first)(*parts)
    return function(*batches)


def arrange(batch: PyTree, shape: tuple[int, ...]) -> PyTree:
    """Return a batch of rows with their axis as several axes."""
    return map_arrays(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), batch)


def to_columns(batch: PyTree, dtype: DTypeLike, axis: int = 0) -> Columns:
    """Return a batch with its row axis last; floats in the working precision, other types as they are."""

    def turn(leaf: Numbers) -> Numbers:
        floating = np.issubdtype(leaf.dtype, np.floating)
        return np.moveaxis(leaf.astype(dtype, copy=False) if floating else leaf, axis, -1)

    return jax.tree.map(turn, batch)


def to_float64[Leaf: (Array, NDArray[np.number | np.bool_])](leaf: Leaf) -> Leaf:
    """Return floats in float64, other types as they are."""
    return leaf.astype(np.float64) if np.issubdtype(leaf.dtype, np.floating) else leaf


def repeat_to(batch: PyTree, size: int) -> PyTree:
    """Repeat a batch of at most `size` rows until it has `size`, so that one program serves every block."""

    def repeat(leaf: Numbers) -> Numbers:
        return leaf if len(leaf) == size else np.resize(leaf, (size, *leaf.shape[1:]))

    return jax.tree.map(repeat, batch)


def fill_up(batch: PyTree, size: int, dtype: DTypeLike) -> tuple[Columns, NDArray[np.bool_]]:
    """Return a batch repeated to `size` rows, as columns, and which of these rows are its own."""
    own = np.arange(size) < len(jax.tree.leaves(batch)[0])
    return to_columns(repeat_to(batch, size), dtype), own


def to_rows(columns: Columns) -> PyTree:
    """Return the batch `(n, *shape)` that a log-likelihood expects."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), columns)


def put(slots: Array, new: Array, old: Array) -> Array:
    """Return `old` with `new` in the given slots of its last axis; slots out of range change nothing."""
    if slots.shape[-1] == old.shape[-1]:  # a whole new subset: slots are in order, so no scatter is needed
        return jnp.where(slots < old.shape[-1], new, old)
    return old.at[..., slots].set(new, mode="drop", unique_indices=True)


def put_rows(slots: Array, new: Columns, old: Columns) -> Columns:
    """Return the rows `old` with `new` in the given slots; units in strata in the slots of their stratum."""
    parts = [
        jax.tree.map(partial(put, own), come, stay) if own.shape[-1] else stay
        for own, come, stay in zip(split_slots(slots, new, old), split_layers(new), split_layers(old), strict=True)
    ]
    return tuple(parts) if len(parts) > 1 else parts[0]


def split_slots[Slots: (Array, NDArray[np.int32])](slots: Slots, new: Columns, old: Columns) -> list[Slots]:
    """Return the slots of the incoming units of each stratum, counted within it; slots out of range stay so."""
    if len(split_layers(old)) == 1:
        return [slots]
    came, held = count_slots(new), count_slots(old)
    return [slots[..., low:high] - first for (low, high), first in zip(pairwise(came), held, strict=False)]


def count_slots(layers: Columns) -> list[int]:
    """Return running sums of the slots that the units of each stratum take, from 0."""
    return [0, *accumulate(int(jax.tree.leaves(layer)[0].shape[-1]) for layer in layers)]
