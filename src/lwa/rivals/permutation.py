"""Rows without replacement, at a cost of the rows drawn: a fresh permutation of all N that is computed, never stored.

A Feistel network on pairs (l, r), l < A, r < B, with A B the first product of near-square factors that holds N: each
round adds a hash of one half to the other, modulo its size, which can be undone, so that the whole is a permutation of
A B numbers whatever the hash. Those outside of N, one in √N at the most, are permuted again until they are inside.
(Black and Rogaway, 2002, Ciphers with arbitrary finite domains.)
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from lwa.rivals.eager import always_compiled

ROUNDS = 10
"""Pairs and triples of rows come as often as they should from 8 on (`tests/rivals/test_drawing.py`); two to spare."""


@always_compiled
def permuted(key: Array, positions: Array, N: Any) -> Array:
    """Where so many positions of 0…N-1 are under the permutation that belongs to the key."""
    keys = jax.random.bits(key, (ROUNDS,), jnp.uint32)
    N = jnp.asarray(N, jnp.uint64)
    wide = jnp.ceil(jnp.sqrt(N.astype(jnp.float64))).astype(jnp.uint64)  # A
    high = (N + wide - 1) // wide  # B

    def once(x: Array) -> Array:
        left, right = x // high, x % high
        for i in range(ROUNDS):
            if i % 2 == 0:
                left = added(left, hashed(right, keys[i]), wide)
            else:
                right = added(right, hashed(left, keys[i]), high)
        return left * high + right

    first = once(positions.astype(jnp.uint64))
    inside = lax.while_loop(lambda x: jnp.any(x >= N), lambda x: jnp.where(x >= N, once(x), x), first)
    return inside.astype(jnp.int64)


def added(half: Array, more: Array, size: Array) -> Array:
    """half + a number below `size` that 32 random bits stand for, modulo `size`."""
    total = half + ((more.astype(jnp.uint64) * size) >> jnp.uint64(32))
    return jnp.where(total >= size, total - size, total)


def hashed(half: Array, key: Array) -> Array:
    """32 bits that depend on every bit of both (MurmurHash3's last step)."""
    bits = half.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) + key
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> jnp.uint32(shift))) * jnp.uint32(factor)
    return bits ^ (bits >> jnp.uint32(16))
