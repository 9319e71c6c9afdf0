"""S: what summaries compute, whatever the blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lwa
from lwa.rows import as_rows
from lwa.rows.passes import visit_rows
from lwa.summaries import as_summary
from lwa.summaries.summary import NO_STATISTIC

RNG = np.random.default_rng(2)
DATA = {"x": RNG.normal(5.0, 3.0, size=(300, 2)), "label": RNG.integers(0, 4, size=300)}


def gathered(summary, block=None):
    return visit_rows(as_rows(DATA), summary.gather, block)[1].finish()


@given(block=st.integers(1, 400))
def test_moments_do_not_depend_on_blocks(block):
    statistic = gathered(lwa.summaries.PerRow(lambda rows: rows["x"], scaled=True), block)
    np.testing.assert_allclose(statistic.full, DATA["x"].mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistic.scale, DATA["x"].std(0), rtol=1e-12)


@given(block=st.integers(1, 400))
def test_counts_do_not_depend_on_blocks(block):
    statistic = gathered(lwa.summaries.Counts("label"), block)
    np.testing.assert_allclose(statistic.full, np.bincount(DATA["label"]) / 300, rtol=1e-12)


def test_counts_are_shares_of_classes():
    statistic = gathered(lwa.summaries.Counts("label", scaled=True))
    batch = {"x": DATA["x"][:3], "label": np.array([2, 0, 3])}
    shares = np.bincount(DATA["label"]) / 300
    expected = (np.eye(4)[[2, 0, 3]] - shares) / np.sqrt(shares * (1 - shares))
    np.testing.assert_allclose(statistic.centred(batch), expected, rtol=1e-12)


def test_spread_makes_units_irrelevant():
    plain = gathered(lwa.summaries.PerRow(lambda rows: rows["x"], scaled=True))
    metres = gathered(lwa.summaries.PerRow(lambda rows: rows["x"] * 1000.0, scaled=True))
    np.testing.assert_allclose(plain.centred(DATA), metres.centred(DATA), rtol=1e-10)


def test_a_column_that_never_varies_is_harmless():
    statistic = gathered(lwa.summaries.PerRow(lambda rows: np.ones(len(rows["x"])), scaled=True))
    assert not statistic.centred(DATA).any()


def test_auto_is_every_column_in_units_of_its_spread():
    statistic = gathered(as_summary("auto", weighted=True))
    values = np.column_stack([DATA["x"], DATA["label"]])
    np.testing.assert_allclose(
        statistic.centred(DATA), (values - values.mean(0)) / values.std(0), rtol=1e-9, atol=1e-12
    )
    assert as_summary("auto", weighted=False) is None
    assert NO_STATISTIC.centred(DATA).shape == (300, NO_STATISTIC.dimension) == (300, 0)


@pytest.mark.parametrize("column", [1, -1])
def test_counts_by_position_in_a_matrix(column):
    matrix = np.column_stack([DATA["x"][:, 0], DATA["label"]])
    gathering = visit_rows(as_rows(matrix), lwa.summaries.Counts(column).gather)[1]
    assert gathering.finish().dimension == 4
