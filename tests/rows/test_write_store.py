"""Rows that come in batches, straight into a store."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lwa.errors import DataError
from lwa.rows import open_store, write_store


def batches(count=3):
    for start in range(count):
        yield {"x": np.arange(4, dtype=np.float32) + 4 * start, "word": np.array(["b", "a", "b", "c"])}


def test_rows_of_all_batches(tmp_path):
    rows = write_store(batches(), tmp_path / "store")
    assert len(rows) == 12
    taken = open_store(tmp_path / "store").take(np.arange(12))
    np.testing.assert_array_equal(taken["x"], np.arange(12, dtype=np.float32))
    assert taken["x"].dtype == np.float32
    assert rows.levels["word"] == ("a", "b", "c")
    np.testing.assert_array_equal(taken["word"], [1, 0, 1, 2] * 3)
    rows.verify()


@pytest.mark.parametrize("table", [pd.DataFrame, pa.table])
def test_tables_are_batches(tmp_path, table):
    rows = write_store((table({"x": np.arange(3.0) + 3 * i}) for i in range(2)), tmp_path / "store")
    np.testing.assert_array_equal(rows.take(np.arange(6))["x"], np.arange(6.0))


def test_one_batch_is_held_at_a_time(tmp_path):
    alive = []

    def coming():
        for start in range(50):
            alive.append(start)
            yield {"x": np.full(10, float(start))}

    made = coming()
    rows = write_store(made, tmp_path / "store")
    assert alive == list(range(50))
    assert len(rows) == 500


def test_it_replaces_only_where_that_is_asked(tmp_path):
    write_store(batches(1), tmp_path / "store")
    with pytest.raises(DataError, match="already holds other rows"):
        write_store(batches(2), tmp_path / "store")
    assert len(open_store(tmp_path / "store")) == 4
    assert len(write_store(batches(2), tmp_path / "store", overwrite=True)) == 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "batches has nothing in it"),
        ([np.zeros(3)], "batch 0 is of type ndarray; a dict of columns or a table is expected"),
        ([{"x": np.zeros((3, 2))}], r"not of one number per row: 'x' \(3, 2\)"),
        ([{"x": np.zeros(3), "y": np.zeros(2)}], r"different lengths: \[2, 3\]"),
        ([{"x": np.zeros(3)}, {"y": np.zeros(3)}], r"batch 1 has columns y \(double\); the first one has x \(double\)"),
        ([{"x": np.array([1.0, np.nan])}], "'x' has 1, the first in row 1"),
        ([{"x": np.zeros(0)}], "has no rows"),
    ],
)
def test_what_cannot_be_written(tmp_path, given, said):
    with pytest.raises(DataError, match=said):
        write_store(given, tmp_path / "store")
    assert not (tmp_path / "store").exists()
