"""Groups of unequal size as units in strata: every group once, its own rows, and little filler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.executors import Serial
from lwa.models.likelihood import map_strata
from lwa.rows.memory import as_rows
from lwa.rows.parts import find_parts
from lwa.rows.passes import count_rows, count_unit_rows, list_strata, spread_passes
from lwa.rows.slots import put_rows, split_layers
from lwa.rows.strata import FILLED, WIDEST, Strata, build_strata, choose_longest
from lwa.rows.units import Layer, Stretch, Units, build_groups
from lwa.targets.reference import compute_log_posterior, sum_all_rows

RNG = np.random.default_rng(3)
CASES = {
    "one giant": np.r_[RNG.geometric(0.3, 3000), 3000],
    "log-uniform": np.exp(RNG.uniform(0, np.log(10_000), 500)).astype(int),
    "heavy tail": np.minimum(1 + RNG.pareto(1.0, 5000).astype(int), 10_000),
    "two sizes": np.r_[np.ones(100, int), np.full(7, 40)],
}


def group(sizes, *, together=True):
    """Data of groups of these sizes, whose rows are together or apart."""
    who = np.repeat(np.arange(len(sizes)), sizes)
    y = np.random.default_rng(1).normal(size=len(who))
    order = np.arange(len(who)) if together else np.random.default_rng(2).permutation(len(who))
    return {"who": who[order], "y": y[order]}


def strata_of(sizes, *, together=True):
    rows = as_rows(group(sizes, together=together))
    found = build_strata(rows, find_parts(rows, "who"))
    assert isinstance(found, Strata)
    return found


@pytest.mark.parametrize("case", CASES)
def test_few_strata_with_little_filler(case):
    sizes = CASES[case]
    longest = np.array(choose_longest(sizes))
    assert (np.diff(longest) > 0).all()
    assert longest[-1] == sizes.max()
    assert len(longest) <= np.log2(sizes.max()) + 2
    stratum = np.searchsorted(longest, sizes)
    for number, most in enumerate(longest):
        own = sizes[stratum == number]
        assert own.max() == most
        assert own.sum() >= FILLED * most * len(own)
        assert most <= WIDEST * own.min()


@pytest.mark.parametrize("sizes", [np.full(50, 7), np.r_[np.full(50, 7), 1, 13], RNG.integers(5, 10, 100), [5]])
def test_similar_sizes_stay_in_one_stratum(sizes):
    """Then units are filled up to the longest, as they ever were."""
    assert choose_longest(np.asarray(sizes)) == [max(sizes)]
    layout = lay_out(lwa.Model(lambda t, rows: rows["y"] * t, lambda t: -(t**2), 0.0, groups="who"), group(sizes))
    assert isinstance(layout.full, Units)
    assert not layout.stratified
    assert type(layout.full.take(np.arange(1))) is Stretch


@pytest.mark.parametrize("together", [True, False])
def test_a_unit_is_a_group_with_its_own_rows(together):
    strata = strata_of(CASES["one giant"], together=together)
    data = group(CASES["one giant"], together=together)
    numbers = np.sort(RNG.choice(len(strata), 40, replace=False))
    batch = strata.take(numbers)
    assert [type(layer) for layer in batch] == [Layer] * len(strata.layers)
    assert count_rows(batch) == 40
    found = [layer.rows["y"][i][layer.scored[i]] for layer in batch for i in range(len(layer.scored))]
    names = list(dict.fromkeys(data["who"].tolist()))  # parts are in the order in which they first appear
    for number, y in zip(numbers, found, strict=True):
        np.testing.assert_array_equal(y, data["y"][data["who"] == names[strata.members[number]]])
        assert len(y) == strata.sizes[number]


def test_units_of_slots():
    """Two lines of slots with units of the same strata; another order is refused."""
    strata = strata_of(CASES["two sizes"])
    batch = strata.take(np.array([[0, 5, 100], [7, 99, 106]]))
    assert [layer.scored.shape for layer in batch] == [(2, 2, 1), (2, 1, 40)]
    np.testing.assert_array_equal(batch[1].rows["y"][1, 0], strata.layers[1].take(np.array([6])).rows["y"][0])
    assert [layer.scored.shape for layer in strata.take(np.empty(0, np.int64))] == [(0, 1), (0, 40)]
    with pytest.raises(IndexError, match="ascend from stratum to stratum"):
        strata.take(np.array([[0, 5, 100], [7, 100, 106]]))


def count_cells(model, size, start, blocks):
    """Where a piece begins, and the units and cells of its blocks, each filled up to `size`."""
    seen = [(len(block.scored), size * block.scored.shape[1]) for block in blocks]
    return start, *np.sum(seen, axis=0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("executor", [None, Serial()])
def test_a_pass_reads_every_group_once_and_little_filler(case, executor):
    strata = strata_of(CASES[case])
    rows = spread_passes(strata, executor)
    found = list(map_strata(lwa.Model(lambda t, y: y, lambda t: t, 0.0), rows, count_cells))
    starts, units, cells = np.array(found).T
    np.testing.assert_array_equal(starts, np.cumsum(units) - units)
    assert units.sum() == len(strata)
    # The last block of each stratum is filled up: 16,384 cells, or 16 units if these are more.
    longest = np.array([layer.length for layer in strata.layers])
    assert cells.sum() <= strata.sizes.sum() / FILLED + np.maximum(2**14, 16 * longest).sum()
    assert count_unit_rows(rows) >= 2
    assert [len(one) for one in list_strata(rows)] == [len(layer) for layer in strata.layers]


def test_sums_are_those_of_units_of_one_length():
    model = lwa.Model(
        lambda theta, rows: -0.5 * (rows["y"] - theta["a"] - theta["b"] * jnp.cumsum(rows["y"])) ** 2,
        lambda theta: -0.5 * theta["a"] ** 2, {"a": 0.1, "b": 0.2}, groups="who",
    ).of_units  # fmt: skip
    strata = strata_of(np.r_[RNG.geometric(0.3, 300), 90, 1000], together=False)
    padded, theta = build_groups(strata.rows, strata.parts), np.array([0.3, 0.1])
    with jax.enable_x64(True):
        for one, other in zip(sum_all_rows(model, strata, theta), sum_all_rows(model, padded, theta), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)
        thetas = RNG.normal(size=(5, 2))
        np.testing.assert_allclose(
            compute_log_posterior(model, strata, thetas), compute_log_posterior(model, padded, thetas), rtol=1e-12
        )
        numbers = np.array([0, 3, 200, 300, 301])
        mixed = model.log_likelihood(model.unravel(theta), strata.take(numbers))
        alone = model.log_likelihood(model.unravel(theta), padded.take(strata.members[numbers]))
    np.testing.assert_allclose(mixed, alone, rtol=1e-12)


def test_incoming_units_take_slots_of_their_stratum():
    """Slots 0-1 are of the first stratum, 2 of the second, 3-4 of the third, which holds the same for ever."""
    strata = strata_of(np.r_[np.ones(9, int), np.full(9, 10), np.full(9, 100)])

    def columns(numbers):
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), strata.take(np.array(numbers)))

    old, new = columns([0, 1, 9, 18, 19]), columns([5, 13])
    after = jax.jit(put_rows)(jnp.array([1, 2]), new, old)
    expected = columns([0, 5, 13, 18, 19])
    jax.tree.map(np.testing.assert_array_equal, after, expected)
    ignored = put_rows(jnp.array([5, 6]), new, old)  # out of range: U did not change
    jax.tree.map(np.testing.assert_array_equal, ignored, old)
    assert len(split_layers(after)) == 3
