"""Mapped .npy files: the same rows, and a clear error instead of a wrong row or a dead process."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from lwa.errors import DataError
from lwa.rows import as_rows, survey


@pytest.fixture
def saved(tmp_path):
    """A function that saves an array and gives back its path."""

    def save(array):
        path = tmp_path / "rows.npy"
        np.save(path, array)
        return path

    return save


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("as_path", [str, Path])
def test_rows_of_a_file_are_those_saved(saved, order, as_path):
    array = np.arange(24.0).reshape(8, 3).copy(order)
    rows = as_rows(as_path(saved(array)))
    assert len(rows) == 8
    np.testing.assert_array_equal(rows.take(np.array([7, 0])), array[[7, 0]])
    np.testing.assert_array_equal(np.concatenate(list(rows.blocks(3))), array)


@pytest.mark.parametrize("name", ["x", "naïve", "η"])
def test_structured_files_have_named_columns(saved, name):
    table = np.array([(1, 2.5), (3, 4.5)], dtype=[("flag", "i1"), (name, "f8")])
    with warnings.catch_warnings(action="ignore"):  # NumPy warns that old versions cannot read Greek names
        path = saved(table)
    np.testing.assert_array_equal(as_rows(path).take(np.array([1]))[name], [4.5])


def test_a_deleted_file_stays_readable(saved):
    path = saved(np.arange(5.0))
    rows = as_rows(path)
    path.unlink()
    np.testing.assert_array_equal(rows.take(np.array([4])), [4.0])


def test_a_file_that_shrinks_raises_instead_of_killing_the_process(saved):
    path = saved(np.zeros(100_000))
    rows = as_rows(path)
    blocks = rows.blocks(10)
    next(blocks)
    os.truncate(path, 4096)
    for read in (lambda: rows.take(np.array([99_999])), lambda: next(blocks), lambda: survey(rows)):
        with pytest.raises(DataError, match=r"shrank from 800128 to 4096 bytes.*np.save"):
            read()


@pytest.mark.parametrize(
    ("array", "came", "remedy"),
    [
        (np.array([1, None]), "Python objects", "dtype=float"),
        (np.array(1.0), "rows.npy': data is the single number", "one entry per row"),
        (np.zeros((0, 2)), "rows.npy': data is empty", "at least one row"),
        (np.array(["a"]), "rows.npy': data has dtype <U1", "Encode"),
    ],
)
def test_arrays_that_are_not_rows_of_numbers(saved, array, came, remedy):
    with pytest.raises(DataError) as error:
        as_rows(saved(array))
    assert came in str(error.value)
    assert remedy in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.npy", None, "absent.npy' does not exist .*Pass the path"),
        ("rows.xlsx", b"1,2", "ends in '.xlsx', which is no table .*'.npy'.*np.save"),
        ("rows.npy", b"1,2,3,4,5,6,7,8", "is not a .npy file.*np.save"),
        ("rows.npy", b"", "is not a .npy file.*np.save"),
        ("rows.npy", b"\x93NUMPY\x01\x00\x08\x00{'a': 1}", "is not a .npy file.*np.save"),
    ],
)
def test_files_that_are_not_npy(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        as_rows(path)


def test_a_folder_called_npy(tmp_path):
    (tmp_path / "rows.npy").mkdir()
    with pytest.raises(DataError, match=r"is a folder; a '\.npy' file is expected"):
        as_rows(tmp_path / "rows.npy")


@pytest.mark.parametrize("kept", [100, 128, 500, 927])
def test_a_file_cut_short(saved, kept):
    path = saved(np.zeros(100))
    os.truncate(path, kept)
    with pytest.raises(DataError, match=r"cut short: .* promises 928|is not a \.npy file"):
        as_rows(path)


def test_a_file_that_may_not_be_read(saved, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    path = saved(np.zeros(3))
    monkeypatch.setattr(Path, "open", refuse)  # chmod does not stop root
    with pytest.raises(DataError, match=r"cannot be read: Permission denied. Check its permissions"):
        as_rows(path)
