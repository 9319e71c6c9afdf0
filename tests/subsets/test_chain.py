"""The chain on U: incremental equals recomputed, subsets stay subsets, order and pages change nothing."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lwa
from lwa.backend.random import Purpose
from lwa.rows import as_rows
from lwa.rows.passes import visit_rows
from lwa.subsets import Free, Gaussian, Laplace, Swap
from lwa.subsets.bandwidth import REFRESH_RATE, find_epsilon
from lwa.subsets.chain import SubsetChain
from tests.tiny import subset_chain

DATA = np.random.default_rng(5).normal(size=(500, 3))
ONE = Swap(1)
SUMMARY = lwa.summaries.PerRow(lambda rows: np.column_stack([rows, rows[:, 0] ** 2]), scaled=True)


def chain_on(data, move=ONE, epsilon=0.1, page=1000, block=None, n=20):
    rows = as_rows(data)
    gathering = visit_rows(rows, SUMMARY.gather, block)[1]
    return SubsetChain(rows, gathering.finish(), move, Gaussian(), epsilon, n, 7, page)


@pytest.mark.parametrize("move", [Swap(1), Swap(4)], ids=str)
def test_incremental_statistics_equal_recomputed_ones_after_many_refreshes(move):
    """After 10⁵ refreshes, counted, for each of two chains."""
    with jax.enable_x64(True):
        chain = chain_on(DATA, move, epsilon=0.5, page=20_000)
        U, refreshes, page = chain.start([0, 1]), np.zeros(2), 0
        while refreshes.min() < 1e5:
            U, done = chain.advance(U, [0, 1], page)
            refreshes, page = refreshes + done.accepted.sum(0), page + 1
            indices = np.asarray(U.indices)
            assert all(len(set(row)) == chain.n for row in indices.tolist())
            assert indices.min() >= 0
            assert indices.max() < len(DATA)
        again = chain.assess(np.asarray(U.indices))
        for name in ("statistics", "total", "distance"):
            np.testing.assert_allclose(getattr(U, name), getattr(again, name), atol=1e-10)
        by_hand = SUMMARY.function(DATA[np.asarray(U.indices)[0]]).mean(0)
        everything = SUMMARY.function(DATA)
        expected = np.linalg.norm((by_hand - everything.mean(0)) / everything.std(0))
        assert abs(float(U.distance[0]) - expected) < 1e-10


@settings(max_examples=25, deadline=None)
@given(
    order=st.permutations(range(60)),
    block=st.integers(1, 80),
    indices=st.sets(st.integers(0, 59), min_size=20, max_size=20),
)
def test_row_order_and_block_size_change_nothing(order, block, indices):
    """s_N, spread and distances are those of the rows, however they are ordered or streamed."""
    data, chosen, order = DATA[:60], sorted(indices), np.array(order)
    with jax.enable_x64(True):
        plain, shuffled = chain_on(data), chain_on(data[order], block=block)
        np.testing.assert_allclose(shuffled.statistic.full, plain.statistic.full, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(shuffled.statistic.scale, plain.statistic.scale, rtol=1e-12)
        position = np.argsort(order)  # where each row went
        here = plain.assess(np.array([chosen]))
        there = shuffled.assess(position[np.array([chosen])])
        np.testing.assert_allclose(there.distance, here.distance, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**40), k=st.integers(1, 3))
def test_replaying_the_candidates_by_hand_gives_the_same_subsets(seed, k):
    """A plain Python M-H over the same candidates, recomputing every statistic from scratch, makes the same moves."""
    with jax.enable_x64(True):
        chain = subset_chain(Swap(k), Laplace(), 0.4, page=32, seed=seed, data=DATA[:12, 0].copy(), size=4)
        data = DATA[:12, 0]
        U = chain.start([0])
        mine = np.asarray(U.indices)[0].tolist()
        candidates, _ = chain.candidates([0], 0, Purpose.SUBSET)
        _, done = chain.advance(U, [0], 0)
        slots, incoming, log_u = (
            np.asarray(leaf)[:, 0] for leaf in (candidates.slots, candidates.incoming, candidates.log_u)
        )
        for t in range(32):
            new = list(mine)
            for slot, row in zip(slots[t], incoming[t], strict=True):
                new[slot] = int(row)
            fresh = len(set(incoming[t].tolist())) == k and not set(incoming[t].tolist()) & set(mine)
            before, after = (abs(data[rows].mean() - data.mean()) / 0.4 for rows in (mine, new))
            accept = fresh and log_u[t] < before - after
            assert accept == done.accepted[t, 0]
            if accept:
                mine = new
            assert abs(done.distance[t, 0] - abs(data[mine].mean() - data.mean())) < 1e-12


def test_pages_of_candidates_do_not_depend_on_the_company():
    """A chain makes the same moves alone as among others."""
    with jax.enable_x64(True):
        chain = chain_on(DATA, page=100)
        _, alone = chain.advance(chain.start([3]), [3], 0)
        _, among = chain.advance(chain.start([1, 3, 5]), [1, 3, 5], 0)
        assert np.array_equal(alone.accepted[:, 0], among.accepted[:, 1])
        assert np.array_equal(alone.rows[:, 0], among.rows[:, 1])


def test_burn_in_brings_the_distance_down_to_its_law():
    """The distance right after burn-in is that of the chain much later, far below a random subset's."""
    with jax.enable_x64(True):
        chain = chain_on(DATA, epsilon=0.02, page=256)
        chains = range(200)
        start = chain.start(chains)
        random = np.asarray(start.distance)
        U, _ = chain.burn_in(start, chains)
        early = np.asarray(U.distance)
        for page in range(8):
            U, _ = chain.advance(U, chains, page)
        late = np.asarray(U.distance)
    error = np.sqrt(early.var() / 200 + late.var() / 200)
    assert abs(early.mean() - late.mean()) < 4 * error
    assert late.mean() < random.mean() / 3


def test_epsilon_auto_reaches_its_refresh_rate():
    with jax.enable_x64(True):
        chain = chain_on(DATA, page=1024)
        chain = chain.with_epsilon(find_epsilon(chain))
        U, _ = chain.burn_in(chain.start([0, 1]), [0, 1])
        rates = []
        for page in range(10):
            U, done = chain.advance(U, [0, 1], page)
            rates.append(done.accepted.mean(0))
    rates = np.array(rates)
    # pages as batches: the pilot that found ε was as noisy as ten of them
    assert abs(rates.mean() - REFRESH_RATE) < 0.05


@pytest.mark.parametrize(("move", "n"), [(Free(), 20), (Swap(1), 500)], ids=str)
def test_epsilon_auto_is_infinite_where_it_does_not_matter(move, n):
    with jax.enable_x64(True):
        assert find_epsilon(chain_on(DATA, move, n=n)) == np.inf


def test_indices_beyond_32_bits():
    """N may exceed 2³¹: rows are numbered in int64 throughout."""

    class Endless:
        def __len__(self):
            return 2**33

        def take(self, indices):
            return (indices % 97).astype(float)

        def blocks(self, size):
            yield np.arange(97.0)

    with jax.enable_x64(True):
        statistic = lwa.summaries.Statistic(lambda rows: rows[:, None], np.array([48.0]), np.ones(1))
        chain = SubsetChain(Endless(), statistic, Swap(1), Gaussian(), 1.0, 10, 1, 64)
        U, _ = chain.advance(chain.start([0]), [0], 0)
        assert np.asarray(U.indices).max() > 2**31
        np.testing.assert_allclose(U.total, chain.assess(np.asarray(U.indices)).total, atol=1e-9)
