"""q over groups in strata of size: its law, its slots and what they read."""

import numpy as np
import pytest

from lwa.errors import InputError
from lwa.rows.memory import as_rows
from lwa.rows.parts import find_parts
from lwa.rows.strata import FILLED, build_strata
from lwa.subsets.strata import allocate, is_sure, stratify

RNG = np.random.default_rng(8)
SIZES = np.r_[RNG.integers(1, 4, 60), RNG.integers(20, 60, 12), 900, 1000, 1000]
ROWS = as_rows({"who": np.repeat(np.arange(len(SIZES)), SIZES)})
GROUPS = build_strata(ROWS, find_parts(ROWS, "who"))
WEIGHT = RNG.gamma(0.5, size=len(SIZES)) + 0.2
WEIGHT[[3, 65]] = 30.0


class Evenly:
    """Uniform numbers that are spread evenly, the same for every slot."""

    def __init__(self, number, count):
        self.value = (number + 0.5) / count

    def random(self, size):
        return np.full(size, self.value)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("n", [3, 10, 30, 70, len(SIZES)])
def test_every_group_counts_the_same_on_average(weight, n):
    """Σ over slots of P(slot holds k) c_k = n/N for every group k: the law of each slot by its own integral."""
    q, points, N = stratify(GROUPS, weight).cut(n), 4000, len(SIZES)
    often = np.zeros(N, int)
    stratum = np.repeat(np.arange(len(q.slots)), q.slots)
    for number in range(points):
        drawn = q.draw(Evenly(number, points), np.arange(n))
        assert (np.searchsorted(q.first, drawn, side="right") - 1 == stratum).all()  # each slot holds its own stratum
        often += np.bincount(drawn, minlength=N)
    often, counts = often / points, q.counts(np.arange(N))
    assert (np.abs(often * counts - n / N) <= 2 * counts / points + 1e-12).all()  # a point too many at either end
    assert (often[q.sure] == 1.0).all()
    assert q.reads == pytest.approx(often @ q.sizes, abs=0.5 + 2 * q.sizes.sum() / points)
    if n == N:
        assert not q.free.any()


@pytest.mark.parametrize("n", [3, 10, 30, 70])
def test_subsets_read_little_filler(n):
    q = stratify(GROUPS).cut(n)
    longest = np.array([layer.length for layer in GROUPS.layers])
    assert q.slots @ longest <= q.reads / FILLED + 1
    assert q.n == q.slots.sum() == n


def test_proposals_exchange_free_slots_stratum_by_stratum():
    q = stratify(GROUPS, WEIGHT).cut(30)
    rng, ends = np.random.default_rng(1), np.cumsum(q.slots)
    for k in (1, 5, 30):
        each = q.count_exchanged(k)
        slots = q.propose(rng, 500, k)
        assert slots.shape == (500, each.sum())
        assert (each[q.free > 0] >= 1).all()
        assert (np.diff(slots, axis=1) > 0).all()
        of = np.searchsorted(ends, slots, side="right")
        assert (of == np.repeat(np.arange(len(each)), each)).all()
        assert set(slots.ravel()) == set(np.flatnonzero(~np.isin(q.draw(rng, np.arange(30)), q.sure)))
    assert q.propose(rng, 5, 0).shape == (5, 0)
    assert (q.count_exchanged(30) == q.free).all()


def test_slots_are_in_proportion_to_shares():
    most = np.array([1000, 1000, 3, 1000])
    np.testing.assert_array_equal(allocate(np.array([1.0, 2.0, 50.0, 1e-6]), most, 304), [100, 200, 3, 1])
    for n in (4, 57, 2000, 3003):
        found = allocate(np.array([0.3, 0.21, 0.1, 0.5]), most, n)
        assert found.sum() == n
        assert ((found >= 1) & (found <= most)).all()


def test_who_is_sure():
    np.testing.assert_array_equal(is_sure(np.array([9.0, 4.0, 1.0, 1.0, 1.0]), 3), [True, True, False, False, False])
    assert is_sure(np.ones(5), 5).all()
    assert not is_sure(np.ones(5), 4).any()


def test_fewer_groups_than_strata_are_refused():
    with pytest.raises(InputError, match=r"drawn from 3 strata of size. Pass subset_size >= 3") as caught:
        stratify(GROUPS).cut(2)
    assert caught.value.advice == {"subset_size": 3}
