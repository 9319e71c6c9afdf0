"""Rows on the device, and pages of proposals drawn there: which slots change, which rows come in, θ's own noise."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Int, PyTree

from lwa.backend.random import Purpose, keys
from lwa.kernels.kernel import Kernel, Noise, Precision
from lwa.rows import Batch, Rows

UPLOAD_ROWS = 2**20
"""Rows that are put on the device at once."""


class DeviceGenerator:
    """The methods of NumPy's `Generator` that kernels use for their noise, over a JAX key, while a page is traced."""

    def __init__(self, key: Array) -> None:
        self.key = key

    def _next(self) -> Array:
        self.key, key = jax.random.split(self.key)
        return key

    def standard_normal(self, size: tuple[int, ...], dtype: DTypeLike = jnp.float64) -> Array:
        """Draw standard normal numbers."""
        return jax.random.normal(self._next(), size, dtype)

    def random(self, size: int | tuple[int, ...], dtype: DTypeLike = jnp.float64) -> Array:
        """Draw uniform numbers in [0, 1)."""
        return jax.random.uniform(self._next(), size if isinstance(size, tuple) else (size,), dtype)

    def chisquare(self, df: float, size: tuple[int, ...]) -> Array:
        """Draw from χ² with `df` degrees of freedom."""
        return 2.0 * jax.random.gamma(self._next(), df / 2.0, size, jnp.float64)

    def integers(self, high: int, size: int | tuple[int, ...], dtype: DTypeLike = jnp.int64) -> Array:
        """Draw whole numbers from 0 to high - 1."""
        return jax.random.randint(self._next(), size if isinstance(size, tuple) else (size,), 0, high, dtype)


class SubsetPage(NamedTuple):
    """A page as it is drawn, independently of the state; for noise, leaves are `(chains, moves, ...)`."""

    slots: Int[Array, "*chains transitions k"]
    incoming: Int[Array, "*chains transitions k"]
    rows: list[Array]  # what the incoming rows were prepared to, leaves (chains, transitions, k, *shape)
    noise: Noise


def upload_rows(blocks: Iterable[Batch], dtype: Precision) -> PyTree:
    """Put all rows on the device; floats in the working precision, other types as they are."""

    def put(leaf: np.ndarray) -> Array:
        return jnp.asarray(leaf.astype(dtype, copy=False) if np.issubdtype(leaf.dtype, np.floating) else leaf)

    parts = [jax.tree.map(put, block) for block in blocks]
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def count_bytes(rows: Rows, dtype: Precision) -> int:
    """Return how many bytes all rows take on the device."""
    one = rows.take(np.zeros(1, np.int64))

    def size(leaf: np.ndarray) -> int:
        each = np.dtype(dtype).itemsize if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype.itemsize
        return int(leaf.size) * each

    return len(rows) * sum(size(leaf) for leaf in jax.tree.leaves(one))


@partial(jax.jit, static_argnames=("kernel", "transitions", "moves", "k", "n", "d", "dtype"))
def draw_subset_page(
    subset_keys: Array, theta_keys: Array, number: int, rows: PyTree, *, kernel: Kernel, transitions: int, moves: int,
    k: int, n: int, d: int, dtype: Precision
) -> SubsetPage:  # fmt: skip
    """Draw the page of that number for each chain, from one key each for the subset and for θ."""
    subset_keys, theta_keys = fold_in_page(subset_keys, number), fold_in_page(theta_keys, number)

    def proposals(key: Array) -> tuple[Array, Array]:
        rng = DeviceGenerator(key)
        N = len(jax.tree.leaves(rows)[0])
        slots = draw_slots(rng, transitions, k, n)
        return slots, rng.integers(N, (transitions, k), jnp.int32 if N < 2**31 else jnp.int64)

    slots, incoming = jax.vmap(proposals)(subset_keys)
    noise = draw_page_noise(theta_keys, kernel, moves, d, dtype)
    return SubsetPage(slots, incoming, jax.tree.map(lambda leaf: leaf[incoming], rows), noise)


def draw_page_noise(keys: Array, kernel: Kernel, moves: int, d: int, dtype: Precision) -> Noise:
    """Draw the kernel's noise for a page of moves of each chain."""

    def of(key: Array) -> Noise:
        return kernel.noise(cast(np.random.Generator, DeviceGenerator(key)), moves, d, dtype)

    return jax.vmap(of)(keys)


def fold_in_page(keys: Array, number: int) -> Array:
    """Return the chains' keys for that page."""
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


def draw_slots(rng: DeviceGenerator, size: int, k: int, n: int) -> Array:
    """Draw k of n slots uniformly by Floyd's algorithm, as `Swap.propose` does; `(size, k)`."""

    def one_more(i: int, slots: Array) -> Array:
        last = n - k + i
        slot = jax.random.randint(jax.random.fold_in(key, i), (size,), 0, last + 1, jnp.int32)
        there = jnp.any(slots == slot[:, None], axis=1)
        return slots.at[:, i].set(jnp.where(there, last, slot).astype(jnp.int32))

    key = rng.key
    rng.key, _ = jax.random.split(key)
    return jax.lax.fori_loop(0, k, one_more, jnp.full((size, k), -1, jnp.int32))


def make_chain_keys(seed: int, chains: Sequence[int]) -> tuple[Array, Array]:
    """Return a key for the subset and one for θ, of each chain; pages are folded into them."""
    names = jnp.asarray(np.asarray(chains, np.int32))

    def of(purpose: Purpose) -> Array:
        return jax.vmap(partial(jax.random.fold_in, keys(seed, purpose, [0])[0]))(names)

    return of(Purpose.SUBSET), of(Purpose.THETA)
