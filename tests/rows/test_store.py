"""A store: any row at once, the same as in the source; a source that changed and damage are noticed."""

import errno
import json
import os
import shutil

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lwa
from lwa.data.data import lay_out
from lwa.errors import DataError, InputError
from lwa.rows import Rows, StoreRows, as_rows, convert, open_store
from lwa.rows.store import conversion, formats
from lwa.rows.store.places import find_rows_cache
from lwa.user.progress import Display

COLUMNS = {
    "x": np.sin(np.arange(40.0)),
    "k": np.arange(40),
    "word": np.array(["c", "a", "b", "a"] * 10),
    "y": np.cos(np.arange(40.0)),
}
CODES = np.array([2, 0, 1, 0] * 10, np.int32)
EXPECTED = {**COLUMNS, "word": CODES}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """To wait for the disk is of use against power cuts, which tests do not have."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A Parquet file; shards of six rows."""
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(conversion, "SHARD_BYTES", 6 * 28)
    path = tmp_path / "data" / "t.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table(COLUMNS), path)
    return path


@pytest.fixture
def store(source, tmp_path):
    """Its rows, in seven shards."""
    return convert(source, tmp_path / "store", progress=False)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store for many reads, in shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion, "SHARD_BYTES", 6 * 28)
        return convert(pa.table(COLUMNS), tmp_path_factory.mktemp("kept") / "store", progress=False)


@given(st.lists(st.integers(0, 39)))
def test_take_is_indexing(kept, indices):
    indices = np.array(indices, np.int64)
    taken = kept.take(indices)
    assert list(taken) == list(COLUMNS)
    for name, values in EXPECTED.items():
        np.testing.assert_array_equal(taken[name], values[indices])


@given(st.integers(1, 50))
def test_blocks_joined_are_the_data(kept, size):
    blocks = list(kept.blocks(size))
    assert {len(block["x"]) for block in blocks[:-1]} <= {size}
    for name, values in EXPECTED.items():
        np.testing.assert_array_equal(np.concatenate([block[name] for block in blocks]), values)


def test_a_block_has_at_least_one_row(kept):
    with pytest.raises(InputError, match=r"size=0 .* size >= 1"):
        next(kept.blocks(0))


def test_a_row_is_one_run_of_bytes_in_its_file(store):
    """The two float64 columns of a row lie side by side, and blocks within a shard are views of the file."""
    assert isinstance(store, Rows)
    shard = np.load(store.path / "rows-00001-float64.npy", mmap_mode="r")
    assert shard.shape == (6, 2)
    assert shard.flags.c_contiguous
    np.testing.assert_array_equal(shard[0], [COLUMNS["x"][6], COLUMNS["y"][6]])
    assert np.shares_memory(next(store.blocks(6))["x"], store.groups["float64"].chunks[0])


def test_a_model_is_laid_out_on_a_path(source):
    model = lwa.Model(lambda theta, rows: rows["x"] * theta, lambda theta: -(theta**2), init=0.0)
    layout = lay_out(model, str(source))
    assert len(layout) == 40
    grouped = lay_out(lwa.Model(lambda t, rows: rows["x"] * t, lambda t: -(t**2), init=0.0, groups="word"), source)
    assert grouped.series.sizes.tolist() == [10, 20, 10]


# Changes and damage


def rewrite(path):
    os.utime(path, (1, 1))


def lengthen(path):
    pq.write_table(pa.table({name: np.tile(values, 2) for name, values in COLUMNS.items()}), path)


@pytest.mark.parametrize(
    ("change", "message"), [(rewrite, r"t.parquet' was written again"), (lengthen, r"has \d+ bytes, \d+ then")]
)
def test_a_source_that_changed_is_noticed(store, source, change, message):
    change(source)
    with pytest.raises(DataError, match=message + r".* Convert it again with lwa.rows.convert\(.*overwrite=True\)"):
        open_store(store.path)
    with pytest.raises(DataError, match=r"has changed since it was converted"):
        as_rows(store.path)
    np.testing.assert_array_equal(open_store(store.path, check=False).take(np.array([3]))["k"], [3])
    again = convert(source, store.path, overwrite=True, progress=False)
    assert len(again) == (40 if change is rewrite else 80)
    assert len(open_store(store.path)) == len(again)


def test_files_that_come_and_go_are_noticed(source, tmp_path):
    convert(source.parent, tmp_path / "store", progress=False)
    shutil.copy(source, source.parent / "u.parquet")
    with pytest.raises(DataError, match=r"u.parquet' is new"):
        open_store(tmp_path / "store")
    source.unlink()
    with pytest.raises(DataError, match=r"u.parquet' is new; '.*t.parquet' is gone"):
        open_store(tmp_path / "store")


def test_a_source_that_is_gone_is_not_missed(store, source):
    shutil.rmtree(source.parent)
    assert len(open_store(store.path)) == 40


def cut(path):
    os.truncate(path, path.stat().st_size - 8)


def swap(path):
    np.save(path, np.zeros((3, 2)))


@pytest.mark.parametrize("hurt", [cut, swap, os.remove])
def test_a_damaged_shard_is_noticed(store, hurt):
    hurt(store.path / "rows-00002-float64.npy")
    with pytest.raises(DataError, match=r"is damaged: .*rows-00002-float64.npy.*lwa.rows.convert\(.*overwrite=True\)"):
        open_store(store.path)


def test_more_files_than_a_process_may_open(store, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(np.lib.format, "open_memmap", refuse)
    with pytest.raises(DataError, match=r"has 21 files, more than this process may open\. Allow more with ulimit -n"):
        open_store(store.path)


def test_a_shard_that_shrinks_raises_instead_of_killing_the_process(store):
    blocks = store.blocks(6)
    next(blocks)
    os.truncate(store.path / "rows-00002-float64.npy", 100)
    for read in (lambda: store.take(np.array([13])), lambda: next(blocks)):
        with pytest.raises(DataError, match=r"is damaged: 'rows-00002-float64.npy' shrank from 224 to 100 bytes"):
            read()


def test_a_flipped_bit_is_found_by_reading_everything(store):
    store.verify()
    path = store.path / "rows-00003-int32.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"the checksum of 'rows-00003-int32.npy' is not the manifest's"):
        open_store(store.path).verify()


def edit(store, change):
    path = store.path / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=99), r"is of version 99; version 1 is expected. Convert the source again"),
        (lambda m: m.update(format="else"), r"holds no converted rows. Make them with lwa.rows.convert"),
        (lambda m: m.update(rows=7), r"is damaged: it holds \[40\] rows, its manifest says 7"),
        (lambda m: m.pop("columns"), r"is damaged: its manifest is not lwa's own"),
        (lambda m: m["shards"][0]["files"][0].update(file="../x.npy"), r"names a file outside of it"),
    ],
)
def test_a_manifest_that_is_not_right(store, change, message):
    edit(store, change)
    with pytest.raises(DataError, match=message):
        open_store(store.path)


def test_a_folder_without_rows(tmp_path):
    with pytest.raises(DataError, match=r"holds no converted rows"):
        open_store(tmp_path)
    with pytest.raises(DataError, match=r"There is no table in the folder"):
        as_rows(tmp_path)


# The cache


def said_by(monkeypatch):
    said = []
    monkeypatch.setattr(Display, "say", lambda self, text: said.append(text))
    return said


def test_a_path_is_converted_once(source, tmp_path, monkeypatch):
    said = said_by(monkeypatch)
    rows = as_rows(source)
    assert isinstance(rows, StoreRows)
    assert rows.path.parent == tmp_path / "cache" / "rows" == find_rows_cache()
    assert len(said) == 1
    assert said[0].startswith(f"Converting {source} to rows that can be read at random, once, in {find_rows_cache()}")
    monkeypatch.setattr(formats.Parquet, "look", None)  # whoever reads the source again fails
    monkeypatch.chdir(source.parent)
    again = as_rows("t.parquet", progress=Display(False))
    assert again.path == rows.path
    assert "converted before" in said[1]
    np.testing.assert_array_equal(again.take(np.array([7]))["x"], COLUMNS["x"][7:8])


def test_a_path_is_converted_again_when_it_changes(source):
    first = as_rows(source)
    lengthen(source)
    second = as_rows(source)
    assert (len(first), len(second)) == (40, 80)
    assert second.path == first.path
    np.testing.assert_array_equal(first.take(np.array([39]))["k"], [39])  # what is open stays readable


def test_damaged_rows_are_made_anew(source):
    rows = as_rows(source)
    cut(rows.path / "rows-00002-float64.npy")
    assert len(as_rows(source)) == 40


def test_sources_of_every_kind_have_their_own_place(source):
    with fsspec.open("memory://cached/t.parquet", "wb") as file:
        file.write(source.read_bytes())
    found = {
        as_rows(where).path for where in (source, source.parent, f"{source.parent}/*", "memory://cached/*.parquet")
    }
    assert len(found) == 4
    with fsspec.open("memory://cached/t.parquet", "wb") as file:
        pq.write_table(pa.table({"x": [1.0, 2.0]}), file)
    assert len(as_rows("memory://cached/*.parquet")) == 2


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert find_rows_cache() == tmp_path / "own" / "rows"
    monkeypatch.delenv("LWA_CACHE")
    assert find_rows_cache() == tmp_path / "xdg" / "lwa" / "rows"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert find_rows_cache() == tmp_path / "home" / ".cache" / "lwa" / "rows"
