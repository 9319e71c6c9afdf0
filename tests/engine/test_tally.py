"""What is counted of a block is the same wherever its moves are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lwa.engine.cohort import Moves
from lwa.engine.tally import Tally, add_tallies, count_block, square_distances
from lwa.targets.reference import Reference

MOVES, CHAINS, D = 7, 5, 3
rng = np.random.default_rng(1)
ROOT = np.tril(rng.normal(size=(D, D))) + 3 * np.eye(D)
REFERENCE = Reference(rng.normal(size=D), np.zeros(D), ROOT @ ROOT.T, np.eye(D), 1)


def moves_of(seed):
    """Some that never happened."""
    rng = np.random.default_rng(seed)
    shape = (MOVES, CHAINS)
    density = np.where(rng.random(shape) < 0.2, -np.inf, rng.normal(size=shape))
    flags = [rng.random(shape) < 0.5 for _ in range(4)]
    return Moves(
        rng.normal(size=(*shape, D)), density, rng.random(shape), *flags, np.zeros(shape),
        rng.integers(1, 9, shape).astype(np.int32), {},
    )  # fmt: skip


def by_hand(moves, chains):
    away = (moves.theta - REFERENCE.theta) @ np.linalg.cholesky(REFERENCE.precision)
    own = moves.evaluations[:, :chains].sum()
    standing, furthest = np.isinf(moves.log_density).sum(), np.linalg.norm(away, axis=-1).max()
    counts = (moves.invalid.sum(), moves.refreshed.sum(), moves.ends.sum(), standing)
    return Tally(MOVES * CHAINS, own, *counts, moves.acceptance.sum(), furthest)


@pytest.mark.parametrize("chains", [CHAINS, 2])
def test_on_the_host_and_on_a_device(chains):
    moves = moves_of(2)
    expected = by_hand(moves, chains)
    with jax.enable_x64(True):
        np.testing.assert_allclose(count_block(moves, chains, REFERENCE), expected, rtol=1e-12)
        there = jax.tree.map(jnp.asarray, moves)
        np.testing.assert_allclose(count_block(there, chains, REFERENCE), expected, rtol=1e-12)
        assert count_block(there, chains, None).furthest == 0.0


def test_of_all_cohorts():
    first, second = (by_hand(moves_of(seed), CHAINS) for seed in (3, 4))
    both = add_tallies([first, second])
    assert both[:-2] == tuple(int(a + b) for a, b in zip(first[:-2], second[:-2], strict=True))
    assert both.acceptance == pytest.approx(first.acceptance + second.acceptance)
    assert both.furthest == max(first.furthest, second.furthest)


@pytest.mark.parametrize("d", [2, 20])
def test_distances_written_out_and_by_a_product(d):
    """Past sixteen parameters a library multiplies."""
    rng = np.random.default_rng(d)
    theta, centre, whitening = rng.normal(size=(4, 3, d)), rng.normal(size=d), np.triu(rng.normal(size=(d, d)))
    with jax.enable_x64(True):
        found = square_distances(jnp.asarray(theta), jnp.asarray(centre), jnp.asarray(whitening))
    np.testing.assert_allclose(found, (((theta - centre) @ whitening.T) ** 2).sum(-1), rtol=1e-10)
