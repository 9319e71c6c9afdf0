"""One pass: complete counts of what is not finite, every row visited once, a fingerprint free of the block size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lwa.errors import DataError
from lwa.rows import Survey, as_rows, survey
from lwa.rows.passes import LEAST_PIECE_ROWS, visit_rows

FINITE = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=1, max_dims=2, max_side=20), elements=st.floats(-9, 9, width=32)
)


@given(FINITE, st.integers(1, 25))
def test_the_survey_does_not_depend_on_the_block(array, block):
    assert survey(as_rows({"x": array}), block=block) == survey(as_rows({"x": array}))


class Seen:
    """All blocks."""

    def __init__(self):
        self.blocks = []

    def visit(self, block):
        self.blocks.append(block)

    def join(self, later):
        self.blocks += later.blocks


@given(FINITE, st.integers(1, 25))
def test_every_row_is_visited_once_in_order(array, block):
    seen = visit_rows(as_rows(array), Seen, block)[1].blocks
    np.testing.assert_array_equal(np.concatenate(seen), array)
    assert max(map(len, seen)) <= block


@pytest.mark.parametrize("custom", [False, True])
def test_pieces_are_put_together_in_order(custom):
    array, done = np.arange(3 * LEAST_PIECE_ROWS + 5, dtype=np.float32), []
    rows = Custom(len(array), array[:1], np.array_split(array, 7)) if custom else as_rows(array)
    found, seen = visit_rows(rows, Seen, 4096, progress=done.append)
    np.testing.assert_array_equal(np.concatenate(seen.blocks), array)
    assert done == [LEAST_PIECE_ROWS, 2 * LEAST_PIECE_ROWS, 3 * LEAST_PIECE_ROWS, len(array)]
    assert found == survey(as_rows(array))


def test_the_fingerprint_sees_names_dtypes_shapes_bytes_and_order():
    x = np.arange(6.0)
    versions = [
        x,
        x[::-1],
        x.reshape(3, 2),
        x.reshape(2, 3),
        x.astype(np.float32),
        np.nextafter(x, 9),
        {"x": x},
        {"y": x},
        {"x": x, "y": x},
        x.view(np.int64),
        {"None": x},
    ]
    assert len({survey(as_rows(version)).fingerprint for version in versions}) == len(versions)


def test_the_fingerprint_does_not_see_layout_byte_order_or_column_order():
    x = np.arange(6.0).reshape(3, 2)
    first = survey(as_rows({"x": x, "n": np.arange(3)}), block=2)
    assert isinstance(first, Survey)
    assert first.length == 3
    assert first == survey(as_rows({"n": np.arange(3), "x": np.asfortranarray(x, dtype=">f8")}))


@given(st.sets(st.integers(0, 29), min_size=1), st.integers(1, 40), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_what_is_not_finite_is_counted_over_all_rows(positions, block, value):
    x, clean, seen = np.zeros((30, 2)), np.zeros(30, np.float32), Seen()
    x[list(positions), 1] = value
    expected = f"column 'x' has {len(positions)}, the first in row {min(positions)}. Finite numbers are expected. Drop"
    with pytest.raises(DataError) as error:
        visit_rows(as_rows({"clean": clean, "x": x}), lambda: seen, block)
    assert expected in str(error.value)
    assert "'clean'" not in str(error.value)
    assert all(np.isfinite(batch["x"]).all() for batch in seen.blocks)


def test_opposite_infinities_and_sums_that_overflow():
    with pytest.raises(DataError, match=r"data has 2, the first in row 0"):
        survey(as_rows(np.array([np.inf, -np.inf, 1.0])))
    assert survey(as_rows(np.full(4, np.finfo(float).max))).length == 4


class Custom:
    """A user's rows, given as the answers of its three methods."""

    def __init__(self, length, taken, blocks):
        self.length, self.taken, self.given = length, taken, blocks

    def __len__(self):
        return self.length

    def take(self, indices):
        return self.taken

    def blocks(self, size):
        yield from self.given


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Custom(0, None, []), "no rows .*length is 0.*at least one row"),
        (Custom(3, np.zeros(1), [np.zeros(2)]), "gave 2 rows, len.. says 3.*exactly once"),
        (Custom(2, np.zeros(1), [np.zeros(1), np.zeros((1, 2))]), "from row 1 on.*same names, dtypes and shapes"),
        (Custom(2, np.zeros(1), [{"x": np.zeros(2)}]), "'x'.*same names, dtypes and shapes"),
        (Custom(2, np.array(["a"]), [np.array(["a", "b"])]), "dtype <U1.*Encode"),
    ],
)
def test_rows_that_break_their_promise(rows, message):
    with pytest.raises(DataError, match=message):
        survey(as_rows(rows))


def test_custom_rows_are_surveyed_like_the_same_array():
    x = np.arange(5.0)
    assert survey(Custom(5, x[:1], [x[:2], x[2:]])) == survey(as_rows(x))
