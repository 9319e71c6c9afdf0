"""Rows without replacement: a fresh permutation of all N that is computed, never stored, at a cost per row drawn.

A Feistel network on pairs (l, r), l < A, r < B, with A B the first product of near-square factors that holds N: each
round adds a hash of one half to the other, modulo its size. A round can be undone, so the whole is a permutation of A B
numbers whatever the hash. Numbers outside of N, one in √N at most, are permuted again until they are inside.
(Black and Rogaway, 2002, Ciphers with arbitrary finite domains.)
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Int, Int64, UInt32, UInt64

from lwa.rivals.problem import always_compiled

FEISTEL_ROUNDS = 10
"""From 8 rounds on, pairs and triples of rows come as often as they should (tests/rivals/test_permutation.py)."""


@always_compiled
def permute(key: Array, positions: Int[Array, " m"], N: int) -> Int64[Array, " m"]:
    """Return where positions of 0…N-1 are under the permutation that belongs to the key."""
    keys = jax.random.bits(key, (FEISTEL_ROUNDS,), jnp.uint32)
    count = jnp.asarray(N, jnp.uint64)
    wide = jnp.ceil(jnp.sqrt(count.astype(jnp.float64))).astype(jnp.uint64)  # A
    high = (count + wide - 1) // wide  # B

    def once(x: Array) -> Array:
        left, right = x // high, x % high
        for i in range(FEISTEL_ROUNDS):
            if i % 2 == 0:
                left = add_modulo(left, hash_half(right, keys[i]), wide)
            else:
                right = add_modulo(right, hash_half(left, keys[i]), high)
        return left * high + right

    first = once(positions.astype(jnp.uint64))
    inside = lax.while_loop(lambda x: jnp.any(x >= count), lambda x: jnp.where(x >= count, once(x), x), first)
    return inside.astype(jnp.int64)


def add_modulo(half: UInt64[Array, " m"], bits: UInt32[Array, " m"], size: UInt64[Array, ""]) -> UInt64[Array, " m"]:
    """Return half + x modulo `size`, where x < `size` is the number that 32 random bits stand for."""
    total = half + ((bits.astype(jnp.uint64) * size) >> jnp.uint64(32))
    return jnp.where(total >= size, total - size, total)


def hash_half(half: UInt64[Array, " m"], key: UInt32[Array, ""]) -> UInt32[Array, " m"]:
    """Return 32 bits that depend on every bit of both (MurmurHash3's last step)."""
    bits = half.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) + key
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> jnp.uint32(shift))) * jnp.uint32(factor)
    return bits ^ (bits >> jnp.uint32(16))
