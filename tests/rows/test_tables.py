"""pandas, polars and Arrow tables give the same batches, without a copy."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lwa.errors import DataError
from lwa.rows import as_rows, survey
from lwa.rows.memory import Chunked

TABLES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
COLUMN_KINDS = st.sampled_from([np.bool_, np.int8, np.uint16, np.int64, np.float32, np.float64])


@pytest.fixture(params=list(TABLES))
def make_table(request):
    """The constructor of one library's table."""
    return TABLES[request.param]


@pytest.fixture
def columns():
    """Seven rows of three kinds of numbers."""
    return {"x": np.linspace(0, 1, 7), "n": np.arange(7), "f": np.arange(7, dtype=np.float32)}


@st.composite
def chunkings(draw):
    """An array and the pieces it is cut into, some of them empty."""
    array = np.arange(draw(st.integers(1, 40)) * 2.0).reshape(-1, 2)
    cuts = sorted(draw(st.lists(st.integers(0, len(array)), max_size=6)))
    return array, Chunked(tuple(np.split(array, cuts)))


@given(chunkings(), st.data())
def test_a_chunked_column_is_the_joined_column(chunking, data):
    array, column = chunking
    indices = np.array(data.draw(st.lists(st.integers(-len(array), len(array) - 1))), dtype=np.int64)
    start = data.draw(st.integers(0, len(array) - 1))
    stop = data.draw(st.integers(start + 1, len(array)))
    assert len(column) == len(array)
    np.testing.assert_array_equal(column.take(indices), array[indices])
    np.testing.assert_array_equal(column.view(start, stop), array[start:stop])


@pytest.mark.parametrize("bad", [4, -5])
@pytest.mark.parametrize("cuts", [[], [1, 2]])
def test_an_index_outside_the_rows_raises(bad, cuts):
    with pytest.raises(IndexError):
        Chunked(tuple(np.split(np.arange(4), cuts))).take(np.array([0, bad]))


@given(st.lists(COLUMN_KINDS, min_size=1, max_size=4), st.integers(1, 20), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_every_library_gives_the_same_batches(kinds, length, size, seed):
    rng = np.random.default_rng(seed)
    data = {f"c{k}": rng.integers(0, 2, length).astype(kind) for k, kind in enumerate(kinds)}
    indices = rng.integers(0, length, 5)
    expected = as_rows(data)
    for make in TABLES.values():
        rows = as_rows(make(data))
        pairs = [(expected.take(indices), rows.take(indices))]
        pairs += zip(expected.blocks(size), rows.blocks(size), strict=True)
        for ours, theirs in pairs:
            assert list(ours) == list(theirs)
            for name in ours:
                assert ours[name].dtype == theirs[name].dtype
                np.testing.assert_array_equal(ours[name], theirs[name])
        assert survey(rows) == survey(expected)


def test_blocks_view_the_memory_of_the_table(make_table, columns):
    table = make_table(columns)
    for name in columns:
        owned = np.asarray(table[name])
        assert all(np.shares_memory(block[name], owned) for block in as_rows(table).blocks(3))


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: pl.concat([pl.DataFrame(a), pl.DataFrame(b)], rechunk=False),
        lambda a, b: pa.concat_tables([pa.table(a), pa.table(b)]),
    ],
)
def test_chunks_of_a_table_are_not_joined(join, columns):
    table = join(columns, columns)
    rows = as_rows(table)
    chunks = rows.columns["x"].chunks
    assert [len(chunk) for chunk in chunks] == [7, 7]
    first = table["x"].get_chunks()[0] if isinstance(table, pl.DataFrame) else table["x"].chunks[0]
    assert np.shares_memory(chunks[0], first.to_numpy())
    np.testing.assert_array_equal(rows.take(np.array([13, 1]))["n"], [6, 1])
    assert [block["n"].tolist() for block in rows.blocks(5)][1] == [5, 6, 0, 1, 2]


def test_nullable_and_arrow_columns_of_pandas_without_nulls():
    frame = pd.DataFrame(
        {
            "i": pd.array([1, 2], "Int64"),
            "b": pd.array([True, False], "boolean"),
            "a": pd.array([1.5, 2.5], "double[pyarrow]"),
        }
    )
    batch = as_rows(frame).take(np.array([1, 0]))
    assert {name: values.tolist() for name, values in batch.items()} == {
        "i": [2, 1],
        "b": [False, True],
        "a": [2.5, 1.5],
    }
    assert [values.dtype.name for values in batch.values()] == ["int64", "bool", "float64"]


@pytest.mark.parametrize(
    "series", [pd.Series([1.0, 2.0]), pl.Series([1.0, 2.0]), pa.array([1.0, 2.0]), pa.chunked_array([[1.0], [2.0]])]
)
def test_a_column_alone_or_in_a_dict(series):
    np.testing.assert_array_equal(as_rows(series).take(np.array([1])), [2.0])
    np.testing.assert_array_equal(as_rows({"x": series, "y": np.arange(2)}).take(np.array([1]))["x"], [2.0])


def test_a_record_batch_is_a_table():
    assert len(as_rows(pa.record_batch({"x": [1.0, 2.0]}))) == 2


def test_nulls_are_counted_by_column():
    values = {"a": [1, None, None], "b": [1, 2, 3], "c": [1.5, 2.5, None]}
    for table in (
        pl.DataFrame(values),
        pa.table(values),
        pd.DataFrame(values, dtype="Float64"),
        pd.DataFrame(values, dtype="double[pyarrow]"),
    ):
        with pytest.raises(
            DataError, match=r"'a' has 2, the first in row 1; column 'c' has 1, the first in row 2.*Drop"
        ):
            as_rows(table)


def test_the_nan_of_a_pandas_float_column_is_left_to_the_survey():
    with pytest.raises(DataError, match=r"column 'a' has 1, the first in row 1.*dropna"):
        survey(as_rows(pd.DataFrame({"a": [1.0, None]})))


def test_columns_that_are_not_numbers_are_all_named(make_table, columns):
    times = np.array(["2020-01-01"] * 7, "M8[us]")
    with pytest.raises(DataError, match=r"column 't' \(.*\), column 's' \(.*\)\. Numeric .*\.cat\.codes.*drop"):
        as_rows(make_table({**columns, "t": times, "s": list("abcdefg")}))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"s": pd.Categorical([1, 2])}), r"'s' \(category\).*\.cat\.codes"),
        (pd.DataFrame({"s": np.array([1, None], object)}), r"'s' \(object\)"),
        (pl.DataFrame({"s": pl.Series(["a"], dtype=pl.Categorical)}), r"'s' \(Categorical.*to_physical"),
        (pa.table({"s": pa.array(["a"]).dictionary_encode()}), r"'s' \(dictionary"),
        (pl.DataFrame({"s": pl.Series([1], dtype=pl.Int128)}), r"'s'.*expected"),
        (pl.DataFrame({"x": [1]}).lazy(), r"LazyFrame.*data\.collect\(\)"),
        (pd.DataFrame(np.zeros((2, 2))), r"names \[0, 1\] are not strings.*data\.columns ="),
        (pd.DataFrame(np.zeros((2, 2)), columns=["x", "x"]), r"\['x'\] occur more than once"),
    ],
)
def test_tables_that_do_not_fit(table, message):
    with pytest.raises(DataError, match=message):
        as_rows(table)


def test_tables_without_rows_or_columns(make_table):
    with pytest.raises(DataError, match=r"no columns"):
        as_rows(make_table({}))
    with pytest.raises(DataError, match=r"column 'x' is empty"):
        as_rows(make_table({"x": np.zeros(0)}))
