"""Rows of mapped files: read forwards, asked for ahead where the disk is slow, and let go behind a pass."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from lwa.backend.random import Purpose
from lwa.rows import as_rows, memory, write_store
from lwa.rows.memory import Chunked
from lwa.run.settings import Swap
from lwa.subsets.chain import SubsetChain
from lwa.subsets.weights import Gaussian
from lwa.summaries.summary import NO_STATISTIC

NUMBERS = np.random.default_rng(0).normal(size=(30_000, 3)).astype(np.float32)


@pytest.fixture
def rows(tmp_path):
    """Rows of a store in several shards."""
    return store(tmp_path / "store")


def store(folder, shard_bytes=100_000):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lwa.rows.store.conversion.SHARD_BYTES", shard_bytes)
        parts = np.array_split(NUMBERS, 7)
        return write_store(({name: part[:, i] for i, name in enumerate("abc")} for part in parts), folder)


@pytest.fixture
def reads(monkeypatch):
    """Positions within a file of every gather."""
    found = []
    plain = memory.gather

    def recorded(array, indices):
        found.append((array.__array_interface__["data"][0], indices.copy()))
        return plain(array, indices)

    monkeypatch.setattr(memory, "gather", recorded)
    return found


def test_a_gather_reads_forwards_and_each_file_once(rows, reads):
    indices = np.random.default_rng(1).integers(-len(rows), len(rows), size=500)
    taken = rows.take(indices)
    np.testing.assert_array_equal(np.stack([taken[name] for name in "abc"], 1), NUMBERS[indices])
    assert len(rows.groups["float32"].chunks) == 4
    assert len(reads) == len({file for file, _ in reads}) == 4
    assert all((np.diff(positions) >= 0).all() for _, positions in reads)
    files = [chunk.__array_interface__["data"][0] for chunk in rows.groups["float32"].chunks]
    assert [file for file, _ in reads] == files


def test_a_page_of_candidates_is_one_sorted_read(rows, reads):
    taken = []

    class Counted:
        def __len__(self):
            return len(rows)

        def take(self, indices):
            taken.append(indices)
            return rows.take(indices)

    chain = SubsetChain(Counted(), NO_STATISTIC, Swap(2), Gaussian(), 1.0, 50, 1, 64)
    candidates, batch = chain.candidates([0, 1, 2], 0, Purpose.SUBSET)
    assert [len(indices) for indices in taken] == [64 * 3 * 2]
    assert all((np.diff(positions) >= 0).all() for _, positions in reads)
    np.testing.assert_array_equal(batch["b"], NUMBERS[np.asarray(candidates.incoming), 1])


def test_arrays_in_memory_are_read_as_asked(reads, monkeypatch):
    monkeypatch.setattr(np, "argsort", None)
    order = np.array([5, 2, 9])
    np.testing.assert_array_equal(as_rows(NUMBERS).take(order), NUMBERS[order])


class Watched:
    """A mapping that notes down what is advised."""

    def __init__(self, mapping):
        self.mapping, self.advised = mapping, []

    def madvise(self, *advice):
        self.advised.append(advice)
        self.mapping.madvise(*advice)


def watched(tmp_path, monkeypatch, waits):
    """Rows of one file, and what the system is advised about it, where so many gathers have waited."""
    np.save(tmp_path / "rows.npy", NUMBERS)
    column = Chunked((np.load(tmp_path / "rows.npy", mmap_mode="r"),))
    file = column.files[0]
    file.mapping = Watched(file.mapping)
    told = iter(waits)
    monkeypatch.setattr(memory, "count_waits", lambda: next(told))
    return column, file.mapping.advised


def test_rows_are_asked_for_ahead_once_a_gather_had_to_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "WATCHED", 2)
    column, advised = watched(tmp_path, monkeypatch, [0, 0, 0, 5, 5, 5])
    indices = np.array([29_999, 0, 1, 20_000])
    for asked in (0, 0, 3, 6, 6):  # never; after the wait twice, a page for rows 0 and 1; then it is left to find out
        np.testing.assert_array_equal(column.take(indices), NUMBERS[indices])
        assert len(advised) == asked
    page = mmap.PAGESIZE
    offsets = [128 + 12 * row for row in (0, 20_000, 29_999)]
    spans = [(at // page * page, ((at + 11) // page - at // page + 1) * page) for at in offsets]
    assert advised[:3] == [(mmap.MADV_WILLNEED, *span) for span in spans]


def test_waits_are_those_for_the_disk(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, NUMBERS)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = memory.count_waits()
    column = Chunked((np.load(path, mmap_mode="r"),))
    np.testing.assert_array_equal(column.take(np.array([20_000])), NUMBERS[[20_000]])
    if memory.count_waits() == before:
        pytest.skip("this disk is memory")
    assert column.files[0].asking == memory.WATCHED


def mapped_kib():
    return int(Path("/proc/self/status").read_text().split("RssFile:")[1].split()[0])


def test_a_pass_lets_go_of_what_is_behind_it(tmp_path, monkeypatch):
    monkeypatch.setattr("lwa.rows.memory.HELD_BYTES", 2**20)
    np.save(tmp_path / "rows.npy", np.arange(2**23, dtype=np.float32))  # 32 MiB
    before, most, rows = mapped_kib(), 0, as_rows(tmp_path / "rows.npy")
    held = []
    for batch in rows.blocks(2**16):
        held.append(batch)
        batch.sum()
        most = max(most, mapped_kib() - before)
    assert most < 8 * 1024
    assert mapped_kib() - before < 2 * 1024
    np.testing.assert_array_equal(np.concatenate(held), np.arange(2**23))  # whoever still holds a block reads it again


def test_what_was_written_to_a_private_mapping_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("lwa.rows.memory.HELD_BYTES", 1)
    np.save(tmp_path / "rows.npy", np.zeros(2**16))
    mine = np.load(tmp_path / "rows.npy", mmap_mode="c")
    mine += 1.0
    for _ in range(2):
        assert all((batch == 1.0).all() for batch in as_rows(mine).blocks(100))
