"""Rows without replacement from a permutation that is computed."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lwa.rivals.permutation import permute

KEYS = 40_000


@pytest.fixture(scope="module", params=[12, 50])
def permutations(request):
    """Those of many keys."""
    N = request.param
    with jax.enable_x64(True):
        every = jax.jit(jax.vmap(lambda key: permute(key, jnp.arange(N), N)))
        return np.asarray(every(jax.random.split(jax.random.key(1), KEYS)))


def test_each_is_a_permutation(permutations):
    assert (np.sort(permutations, axis=1) == np.arange(permutations.shape[1])).all()


def test_ordered_pairs_come_equally_often(permutations):
    """χ² at one in 10,000."""
    N = permutations.shape[1]
    counts = np.bincount(permutations[:, 0] * N + permutations[:, 1], minlength=N * N).reshape(N, N)
    assert stats.chisquare(counts[~np.eye(N, dtype=bool)]).pvalue > 1e-4


def test_subsets_of_three_come_equally_often(permutations):
    N = permutations.shape[1]
    first = np.sort(permutations[:, :3], axis=1) @ [N * N, N, 1]
    codes = [np.dot(three, [N * N, N, 1]) for three in combinations(range(N), 3)]
    counts = np.bincount(np.searchsorted(codes, first), minlength=len(codes))
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("N", [1, 2, 3, 4, 5, 99, 100, 101, 10_000])
def test_any_number_of_rows(N):
    with jax.enable_x64(True):
        assert sorted(np.asarray(permute(jax.random.key(3), jnp.arange(N), N)).tolist()) == list(range(N))


def test_large_numbers_of_rows():
    """Past 2³² rows nothing overflows: positions stay inside and apart."""
    N = 10**10
    with jax.enable_x64(True):
        drawn = np.asarray(permute(jax.random.key(3), jnp.arange(100_000), N))
    assert len(np.unique(drawn)) == 100_000
    assert drawn.min() >= 0
    assert drawn.max() < N
    assert abs(drawn.mean() / N - 0.5) < 4 * 12**-0.5 / 100_000**0.5
