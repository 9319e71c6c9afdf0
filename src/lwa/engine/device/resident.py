"""Y on the device, and pages of proposals drawn there: which slots of U change, which rows come in, θ's own noise."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.backend.random import Purpose, keys
from lwa.engine.device.random import DeviceGenerator
from lwa.kernels.kernel import Kernel
from lwa.rows import Batch, Rows

PASS_ROWS = 2**20


class Page(NamedTuple):
    """A page as it is drawn, whatever the state: leaves `(chains, transitions, ...)`, noise `(chains, moves, ...)`."""

    slots: Array  # (..., k)
    incoming: Array  # (..., k)
    rows: list[Array]  # what the incoming rows were prepared to, leaves (..., k, *shape)
    noise: Any  # what the kernel asked for


def put_rows(blocks: Iterable[Batch], dtype: Any) -> Any:
    """All rows on the device; floats in the working precision, other types as they are."""

    def cast(leaf: Any) -> Array:
        return jnp.asarray(leaf.astype(dtype, copy=False) if np.issubdtype(leaf.dtype, np.floating) else leaf)

    parts = [jax.tree.map(cast, block) for block in blocks]
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def bytes_of(rows: Rows, dtype: Any) -> int:
    """What all rows take on the device."""
    one = rows.take(np.zeros(1, np.int64))

    def size(leaf: Any) -> int:
        each = np.dtype(dtype).itemsize if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype.itemsize
        return int(leaf.size) * each

    return len(rows) * sum(size(leaf) for leaf in jax.tree.leaves(one))


@partial(jax.jit, static_argnames=("kernel", "transitions", "moves", "k", "n", "d", "dtype"))
def draw_page(
    subset_keys: Array, theta_keys: Array, number: int, rows: Any, *, kernel: Kernel, transitions: int, moves: int,
    k: int, n: int, d: int, dtype: Any
) -> Page:  # fmt: skip
    """The page of that number for each chain, from a key each for U and for θ."""
    subset_keys, theta_keys = of_page(subset_keys, number), of_page(theta_keys, number)

    def proposals(key: Array) -> tuple[Array, Array]:
        rng = DeviceGenerator(key)
        N = len(jax.tree.leaves(rows)[0])
        slots = some_slots(rng, transitions, k, n)
        return slots, rng.integers(N, (transitions, k), jnp.int32 if N < 2**31 else jnp.int64)

    slots, incoming = jax.vmap(proposals)(subset_keys)

    noise = page_noise(theta_keys, kernel, moves, d, dtype)
    return Page(slots, incoming, jax.tree.map(lambda leaf: leaf[incoming], rows), noise)


def page_noise(keys: Array, kernel: Kernel, moves: int, d: int, dtype: Any) -> Any:
    """What the kernel asks for, for a page of moves of each chain."""

    def of(key: Array) -> Any:
        rng: Any = DeviceGenerator(key)
        return kernel.noise(rng, moves, d, dtype)

    return jax.vmap(of)(keys)


def of_page(keys: Array, number: int) -> Array:
    """The keys of the chains for that page."""
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


def some_slots(rng: DeviceGenerator, size: int, k: int, n: int) -> Array:
    """k of n slots, uniformly, by Floyd's algorithm, as `Swap.propose` draws them; `(size, k)`."""

    def one_more(i: int, slots: Array) -> Array:
        last = n - k + i
        slot = jax.random.randint(jax.random.fold_in(key, i), (size,), 0, last + 1, jnp.int32)
        there = jnp.any(slots == slot[:, None], axis=1)
        return slots.at[:, i].set(jnp.where(there, last, slot).astype(jnp.int32))

    key = rng.key
    rng.key, _ = jax.random.split(key)
    return jax.lax.fori_loop(0, k, one_more, jnp.full((size, k), -1, jnp.int32))


def chain_keys(seed: int, chains: Sequence[int]) -> tuple[Array, Array]:
    """A key for U and one for θ, of each chain; pages are counted into them."""
    names = jnp.asarray(np.asarray(chains, np.int32))

    def of(purpose: Purpose) -> Array:
        return jax.vmap(partial(jax.random.fold_in, keys(seed, purpose, [0])[0]))(names)

    return of(Purpose.SUBSET), of(Purpose.THETA)
