"""Arrays and dicts of arrays: the same rows, no copy, and errors that say what to type."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lwa.errors import DataError, InputError
from lwa.rows import Rows, as_rows
from lwa.rows.memory import Chunked

DTYPES = st.sampled_from([np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64, np.dtype(">f8")])
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=9)
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))


@given(ARRAYS, st.integers(1, 12))
def test_blocks_joined_are_the_data(array, size):
    blocks = list(as_rows(array).blocks(size))
    assert {len(block) for block in blocks[:-1]} <= {size}
    np.testing.assert_array_equal(np.concatenate(blocks), array)


@given(ARRAYS, st.data())
def test_take_is_indexing(array, data):
    indices = np.array(data.draw(st.lists(st.integers(0, len(array) - 1))), dtype=np.int64)
    taken = as_rows(array).take(indices)
    np.testing.assert_array_equal(taken, array[indices])
    assert taken.dtype.isnative


@pytest.mark.parametrize("layout", [lambda a: a, np.asfortranarray, lambda a: a[:, ::2], lambda a: a[::-1]])
def test_every_memory_layout_is_viewed(layout):
    array = layout(np.arange(60.0).reshape(15, 4))
    rows = as_rows(array)
    assert all(np.shares_memory(block, array) for block in rows.blocks(4))
    np.testing.assert_array_equal(rows.take(np.array([14, 0, 3])), array[[14, 0, 3]])


@pytest.mark.parametrize("layout", [lambda a: a, np.asfortranarray, lambda a: a[:, ::2]])
def test_take_needs_no_memory_that_grows_with_n(layout):
    array = layout(np.zeros((200_000, 4)))
    tracemalloc.start()
    as_rows(array).take(np.array([1, 2]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000


def test_unaligned_big_endian_fields_become_named_native_columns():
    table = np.array([(1, 2.5), (3, 4.5)], dtype=[("flag", "i1"), ("x", ">f8")])
    batch = as_rows(table).take(np.array([1, 0]))
    assert list(batch) == ["flag", "x"]
    np.testing.assert_array_equal(batch["x"], [4.5, 2.5])
    assert batch["x"].dtype == np.float64


@pytest.mark.parametrize("order", ["<", ">"])
def test_runs_are_rows_in_a_row(order, tmp_path):
    """In memory, of either byte order, in several chunks, from a file, and by name."""
    array = np.random.default_rng(1).normal(size=(40, 3)).astype(f"{order}f8")
    np.save(tmp_path / "rows.npy", array)
    first = np.array([31, 0, 7, 7])
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for chunks in ((array,), (array[:10], array[10:]), (mapped,), (array[:, ::2],)):
        found, whole = Chunked(chunks).take_runs(first, 9), np.concatenate(chunks)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, [whole[at : at + 9] for at in first])
    by_name = as_rows({"x": array, "y": array[:, 0]}).take_runs(first, 9)
    np.testing.assert_array_equal(by_name["y"], by_name["x"][..., 0])


@pytest.mark.parametrize("values", [[1, 2, 3], (1, 2, 3), jnp.array([1, 2, 3]), np.ma.array([1, 2, 3])])
def test_whatever_is_like_an_array_is_read(values):
    assert type(as_rows(values).take(np.array([2]))) is np.ndarray
    np.testing.assert_array_equal(as_rows({"x": values}).take(np.array([2, 0]))["x"], [3, 1])


class ThreeMethods:
    """The least a user has to write."""

    def __len__(self):
        return 3

    def take(self, indices):
        return 10.0 * indices

    def blocks(self, size):
        for start in range(0, 3, size):
            yield 10.0 * np.arange(start, min(start + size, 3))


class TwoMethods:
    """Lacks blocks."""

    def __len__(self):
        return 3

    def take(self, indices):
        return 10.0 * indices


def test_an_object_with_three_methods_passes_unchanged():
    rows = ThreeMethods()
    assert isinstance(rows, Rows)
    assert as_rows(rows) is rows


@pytest.mark.parametrize(
    ("data", "came", "remedy"),
    [
        (None, "NoneType", "a dict of arrays"),
        ({1, 2}, "set", "pandas or polars DataFrame"),
        (TwoMethods(), "TwoMethods", "blocks(size)"),
        (b"x.npy", "bytes", "'.npy' file"),
        (ThreeMethods, "the class ThreeMethods", "Pass ThreeMethods(...)"),
        ({}, "empty dict", "{'x': x"),
        ([], "shape (0,)", "at least one row"),
        (np.zeros((0, 3)), "shape (0, 3)", "at least one row"),
        (np.zeros((3, 0)), "shape (3, 0)", "at least one number"),
        ({"x": [], "y": []}, "column 'x' is empty", "at least one row"),
        ({"x": [1, 2], "y": [1, 2, 3]}, "'x': 2, 'y': 3", "share their first axis"),
        (np.array(["a", "b"]), "data has dtype <U1", "np.unique"),
        ({"x": ["a", "b"]}, "column 'x' has dtype <U1", "np.unique"),
        (np.array([1, None]), "dtype object", "dtype=float"),
        ({"x": np.array([1, None])}, "column 'x' has dtype object", "dtype=float"),
        ({"x": None}, "column 'x' has dtype object", "dtype=float"),
        (np.array([1j]), "dtype complex128", ".real and .imag"),
        (np.array(["2020-01-01"], "M8[D]"), "dtype datetime64[D]", "np.timedelta64"),
        (np.array([1], "m8[s]"), "dtype timedelta64[s]", "np.timedelta64"),
        (np.zeros(2, np.longdouble), "dtype float128", "astype(np.float64)"),
        (jnp.zeros(2, jnp.bfloat16), "dtype bfloat16", "astype(np.float32)"),
        (3.0, "single number 3.0", "one entry per row"),
        (np.array(3.0), "single number array(3.)", "one entry per row"),
        ({"x": 3}, "column 'x' is the single number 3", "one entry per row"),
        ({1: [1, 2]}, "column name 1 is of type int", "str(name)"),
        ({"a": {"b": [1]}}, "column 'a' is itself a dict", "Flatten"),
        ([[1, 2], [3]], "data (list)", "equal length"),
        (np.ma.array([[1, 2], [3, 4]], mask=[[0, 0], [0, 1]]), "1 masked entries, the first in row 1", "filled"),
    ],
)
def test_errors_say_what_came_and_what_to_type(data, came, remedy):
    with pytest.raises(DataError) as error:
        as_rows(data)
    assert came in str(error.value)
    assert remedy in str(error.value)


def test_a_block_has_at_least_one_row():
    with pytest.raises(InputError, match=r"size=0 .* size >= 1"):
        list(as_rows([1, 2]).blocks(0))
