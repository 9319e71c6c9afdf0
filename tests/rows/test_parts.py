"""Rows that belong together: groups and series, as they lie or apart."""

import numpy as np
import pandas as pd
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.rows import as_rows
from lwa.rows import parts as module
from lwa.rows.parts import Parts, find_parts
from lwa.rows.units import build_groups, build_stretches, build_windows


def members(parts, labels):
    order = np.arange(len(labels)) if parts.order is None else np.asarray(parts.order)
    return [order[parts.offsets[g] : parts.offsets[g + 1]].tolist() for g in range(len(parts))]


@pytest.mark.parametrize("block", [3, 4, 1000])
@pytest.mark.parametrize(
    "labels",
    [[5, 5, 5, 2, 2, 9], [1, 2, 1, 2, 2, 1, 3], [0] * 7, list(range(6)), [4, 4, 7, 7, 4]],
    ids=["together", "apart", "one", "alone", "back again"],
)
def test_parts_are_the_rows_of_each_label_in_the_order_of_the_data(monkeypatch, labels, block):
    monkeypatch.setattr(module, "LABEL_BLOCK_ROWS", block)
    labels = np.array(labels)
    parts = find_parts(as_rows({"g": labels}), "g")
    names = labels[np.sort(np.unique(labels, return_index=True)[1])]
    assert members(parts, labels) == [np.flatnonzero(labels == name).tolist() for name in names]
    together = (np.diff(np.flatnonzero(np.diff(labels)), prepend=0) >= 0).all() and len(names) == 1 + np.count_nonzero(
        np.diff(labels)
    )
    assert (parts.order is None) == together


def test_groups_hold_their_rows_and_are_filled_up():
    labels, values = np.array([7, 3, 7, 7, 3]), np.arange(5.0)
    rows = as_rows({"g": labels, "y": values})
    units = build_groups(rows, find_parts(rows, "g"))
    found = units.take(np.array([1, 0]))
    assert len(units) == 2
    assert found.scored.tolist() == [[True, True, False], [True, True, True]]
    assert found.rows["y"][0][:2].tolist() == [1.0, 4.0]
    assert found.rows["y"][1].tolist() == [0.0, 2.0, 3.0]


@pytest.mark.parametrize("order", [None, np.random.default_rng(0).permutation(20)])
@pytest.mark.parametrize("lead_in", [0, 2, 30])
def test_every_window_lies_in_one_series_behind_its_lead_in(order, lead_in):
    values, parts = np.arange(20.0), Parts(np.array([0, 7, 20]), order)
    rows = as_rows(values)
    units, n = build_windows(rows, parts, 4, lead_in), 4
    series = values if order is None else values[order]
    begins = [*range(4), *range(7, 17)]
    assert len(units) == len(begins)
    found = units.take(np.arange(len(units)))
    for rows_of, scored, begin in zip(found.rows, found.scored, begins, strict=True):
        first = max(begin - lead_in, 0 if begin < 7 else 7)
        assert rows_of[scored].tolist() == series[begin : begin + n].tolist()
        assert rows_of[: begin + n - first].tolist() == series[first : begin + n].tolist()
        assert scored.sum() == n


@pytest.mark.parametrize("lead_in", [1, 3, 50])
def test_segments_score_every_step_once(lead_in):
    values, parts = np.arange(20.0), Parts(np.array([0, 1, 7, 20]))
    units = build_stretches(as_rows(values), parts, 4, lead_in)
    found = [batch.rows[batch.scored] for batch in units.blocks(2)]
    assert np.concatenate(found).tolist() == values.tolist()
    for batch in units.blocks(100):
        assert batch.scored.shape == (len(units), units.length)
        for rows_of, scored in zip(batch.rows, batch.scored, strict=True):
            first, begin = rows_of[0], rows_of[scored][0]
            start = [offset for offset in parts.offsets if offset <= begin][-1]
            assert first == max(begin - lead_in, start)


def sequence(**options):
    return lwa.Model(lambda t, rows: rows["y"] * t, lambda t: -(t**2), init=0.0, **options)


def test_several_series_may_be_a_list_or_told_apart_by_a_column():
    first, second = np.arange(5.0), np.arange(8.0)
    model = lwa.Model(lambda t, y: y * t, lambda t: -(t**2), init=0.0, ordered=True)
    listed = lay_out(model, [first, second])
    assert listed.series.offsets.tolist() == [0, 5, 13]
    assert listed.rows.take(np.array([4, 5, 12])).tolist() == [4.0, 0.0, 7.0]
    frames = lay_out(sequence(ordered=True), [pd.DataFrame({"y": first}), pd.DataFrame({"y": second})])
    assert frames.series.offsets.tolist() == [0, 5, 13]
    mixed = np.array([0, 1, 0, 1, 1])
    told = lay_out(sequence(ordered="t", groups="s"), {"y": np.arange(5.0), "s": mixed, "t": [1, 1, 2, 5, 9]})
    assert told.series.sizes.tolist() == [2, 3]
    assert told.series.order.tolist() == [0, 2, 1, 3, 4]


HOURS = pd.date_range("2024-01-01", periods=4, freq="h")
WRONG_DATA = {
    "a step back": (
        sequence(ordered="t"),
        {"y": np.zeros(4), "t": [1, 2, 4, 3]},
        r"column 't' has a step back in time: 3.* after 4.*, at row 3. .* sort the data by time",
    ),
    "twice": (
        sequence(ordered="t"),
        {"y": np.zeros(4), "t": [1, 2, 2, 3]},
        r"the same time twice: 2.* after 2.*, at row 2. .* drop or average duplicates",
    ),
    "across blocks": (
        sequence(ordered="t"),
        {"y": np.zeros(2**20 + 2), "t": np.r_[np.arange(2**20), 5, 6]},
        r"a step back in time: 5.* after 1048575.*, at row 1048576",
    ),
    "no such time": (sequence(ordered="when"), {"y": np.zeros(4)}, r"ordered='when': no such column. Valid: 'y'"),
    "an index": (
        sequence(ordered=True),
        pd.DataFrame({"y": np.zeros(4)}, index=HOURS[[0, 2, 1, 3]]),
        r"the index of the data has a step back",
    ),
    "an index twice": (
        sequence(ordered=True),
        pd.DataFrame({"y": np.zeros(4)}, index=HOURS[[0, 1, 1, 3]]),
        r"the index of the data has the same time twice",
    ),
    "a shuffled frame": (
        sequence(ordered=True),
        pd.DataFrame({"y": np.zeros(4)}).iloc[[2, 0, 1, 3]],
        r"the index of the data has a step back",
    ),
    "missing groups": (
        sequence(groups="g"),
        {"y": np.zeros(4), "g": [1.0, np.nan, np.nan, 2.0]},
        r"column 'g' defines groups and has 2 missing values \(NaN\).*the first in row 1. Drop those rows",
    ),
    "missing groups of a table": (
        sequence(groups="g"),
        pd.DataFrame({"y": np.zeros(3), "g": pd.array([1, None, 2], dtype="Int64")}),
        r"missing values: column 'g' has 1, the first in row 1",
    ),
    "codes of missing groups": (
        sequence(groups="g"),
        {"y": np.zeros(4), "g": [-1, 0, 1, 0]},
        r"column 'g' has groups -1, 0, 1, …: in codes of categories -1 stands for a missing value",
    ),
    "no such group": (sequence(groups="h"), {"y": np.zeros(4)}, r"groups='h': no such column. Valid: 'y'"),
    "unlike series": (
        sequence(ordered=True),
        [{"y": np.zeros(4)}, {"x": np.zeros(4)}],
        r"Series 1 has columns .*'x'.*the first has .*'y'",
    ),
    "groups of a list": (
        sequence(ordered=True, groups="g"),
        [{"y": np.zeros(4)}, {"y": np.zeros(4)}],
        r"data is a list of series, which are the groups: leave out groups='g'",
    ),
}


@pytest.mark.parametrize(("model", "data", "message"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_data_that_cannot_be_meant(model, data, message):
    with pytest.raises(lwa.InputError, match=message):
        lwa.sample(model, data, subset_size=2, progress=False)


def test_an_index_that_ascends_is_fine():
    ascending = pd.DataFrame({"y": np.zeros(4)}, index=HOURS)
    assert lay_out(sequence(ordered=True), ascending).series.sizes.tolist() == [4]
    counted = pd.DataFrame({"y": np.zeros(4)})
    assert lay_out(sequence(ordered=True), counted).series.sizes.tolist() == [4]


def test_a_window_longer_than_a_series():
    model = lwa.Model(lambda t, y: y * t, lambda t: -(t**2), init=0.0, ordered=True)
    with pytest.raises(lwa.InputError, match=r"a window of 9 steps is longer than the data, which has 8. Pass .* <= 8"):
        lwa.sample(model, np.zeros(8), subset_size=9, progress=False)
    with pytest.raises(lwa.InputError, match=r"longer than the shortest series \(number 1\), which has 4"):
        lwa.sample(model, [np.zeros(8), np.zeros(4)], subset_size=5, progress=False)
    with pytest.raises(lwa.InputError, match=r"subset_size=3 exceeds the 2 groups of the data"):
        lwa.sample(sequence(groups="g"), {"y": np.zeros(4), "g": [1, 1, 2, 2]}, subset_size=3, progress=False)
