"""Random numbers: every stream is determined by a seed, a purpose, a chain and a page of moves, never by a block.

So block lengths, budgets and interruptions change no draw, and any page can be drawn again on its own.
"""

import secrets
from collections.abc import Sequence
from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.user.validate import require_whole


class Purpose(IntEnum):
    """Independent streams of one seed. Runs are repeatable only if these numbers never change: never reuse one."""

    FIRST_SUBSET = 0
    SUBSET_PILOT = 1
    SUBSET_BURN_IN = 2
    SUBSET = 3
    START = 4
    THETA = 5
    PRECISION = 6
    REFERENCE = 7
    EXACT = 8
    EXACT_THETA = 9
    EXACT_SUBSET = 10
    SUBSET_FEASIBLE = 11
    PREDICTION = 12
    POLISH = 13
    POLISH_THETA = 14
    POLISH_SUBSET = 15
    WARM_UP = 16
    RIVAL = 17
    RIVAL_START = 18
    RIVAL_PREPARATION = 19
    RIVAL_ORDER = 20
    CERTIFICATE = 21


def as_seed(seed: object) -> int:
    """Return the seed, a whole number ≥ 0; a fresh one if None."""
    if seed is None:
        return secrets.randbits(63)
    return require_whole("seed", seed, least=0, example=1, also=", or None for a fresh one")


def generator(seed: int, purpose: Purpose, chain: int, page: int = 0) -> np.random.Generator:
    """Return the NumPy generator of one page of one chain."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(purpose, chain, page))))


def keys(seed: int, purpose: Purpose, chains: Sequence[int], page: int = 0) -> Array:
    """Return one JAX key per chain for one page."""
    sequences = [np.random.SeedSequence(seed, spawn_key=(purpose, chain, page)) for chain in chains]
    words = np.stack([sequence.generate_state(2, np.uint32) for sequence in sequences])
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
