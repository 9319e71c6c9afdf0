"""Tables of every kind become the same rows; what cannot is refused in a sentence, and nothing half-made stays."""

import datetime as dt
import decimal
import errno
import gzip
import io
import json
import os
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from lwa.errors import DataError, InputError
from lwa.rows import as_rows, convert, open_store, survey
from lwa.rows.store import conversion, encoding, files, formats
from lwa.rows.store import table_source as sources
from lwa.user.progress import Display

COLUMNS = {
    "x": np.linspace(-1, 1, 50),
    "n": np.arange(50) * 2**40,
    "color": np.array(["red", "blue", "green", "Äpfel", "blue"] * 10),
    "flag": np.arange(50) % 3 == 0,
    "y": np.cos(np.arange(50.0)),
}
CODES = np.array([2, 0, 1, 3, 0] * 10)
LEVELS = ("blue", "green", "red", "Äpfel")
TABLE = pa.table(COLUMNS)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """To wait for the disk is of use against power cuts, which tests do not have: one asks whether it is done."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def small(monkeypatch):
    """Shards of seven rows, so that fifty rows are eight of them; batches of five."""
    row = 8 + 8 + 4 + 1 + 8
    monkeypatch.setattr(conversion, "SHARD_BYTES", 7 * row)
    monkeypatch.setattr(formats, "READ_ROWS", 5)
    monkeypatch.setattr(sources, "READ_ROWS", 5)
    monkeypatch.setattr(formats, "CSV_BLOCK_BYTES", 300)


def as_ipc(table, path, writer):
    with pa.OSFile(str(path), "wb") as sink, writer(sink, table.schema) as out:
        out.write_table(table, max_chunksize=11)


def to_csv(table, path, **options):
    pa.csv.write_csv(table, path, pa.csv.WriteOptions(**options))


def parquet(folder):
    path = folder / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=9)
    return path


def parquet_folder(folder):
    for start in range(0, 50, 20):
        pq.write_table(TABLE.slice(start, 20), folder / f"part-{start:02d}.parquet", row_group_size=9)
    (folder / "_metadata.parquet").write_bytes(b"not for reading")
    return folder


def arrow_file(folder):
    as_ipc(TABLE, folder / "t.arrow", pa.ipc.new_file)
    return folder / "t.arrow"


def arrow_stream(folder):
    as_ipc(TABLE, folder / "t.arrows", pa.ipc.new_stream)
    return folder / "t.arrows"


def feather(folder):
    pa.feather.write_feather(TABLE, str(folder / "t.feather"))
    return folder / "t.feather"


def csv(folder):
    to_csv(TABLE, folder / "t.csv")
    return folder / "t.csv"


def csv_packed(folder):
    text = io.BytesIO()
    to_csv(TABLE, text)
    (folder / "t.csv.gz").write_bytes(gzip.compress(text.getvalue()))
    return folder / "t.csv.gz"


def tsv_parts(folder):
    to_csv(TABLE.slice(0, 13), folder / "a.tsv", delimiter="\t")
    to_csv(TABLE.slice(13), folder / "b.tsv", delimiter="\t")
    return str(folder / "*.tsv")


def remote_parquet(folder):
    with fsspec.open("memory://bucket/t.parquet", "wb") as file:
        pq.write_table(TABLE, file, row_group_size=9)
    return "memory://bucket/t.parquet"


def remote_csv(folder):
    for start, name in ((0, "a"), (20, "b")):
        with fsspec.open(f"memory://parts/{name}.csv", "wb") as file:
            to_csv(TABLE.slice(start, 20 if start == 0 else 30), file)
    return "memory://parts/*.csv"


def remote_folder(folder):
    for start in (0, 20):
        with (
            fsspec.open(f"memory://many/part={start}/t.arrow", "wb") as file,
            pa.ipc.new_file(file, TABLE.schema) as out,
        ):
            out.write_table(TABLE.slice(start, 20 if start == 0 else 30))
    return "memory://many"


def categorical(folder):
    return TABLE.to_pandas().astype({"color": "category"})


SOURCES = {
    "parquet": parquet,
    "a folder": parquet_folder,
    "a pattern": lambda folder: str(parquet_folder(folder) / "part-*.parquet"),
    "file://": lambda folder: f"file://{parquet(folder)}",
    "arrow": arrow_file,
    "stream": arrow_stream,
    "feather": feather,
    "csv": csv,
    "csv.gz": csv_packed,
    "tsv": tsv_parts,
    "remote": remote_parquet,
    "remote csv": remote_csv,
    "pandas": lambda folder: TABLE.to_pandas(),
    "categorical": categorical,
    "polars": lambda folder: pl.from_arrow(TABLE),
    "polars categories": lambda folder: pl.from_arrow(TABLE).with_columns(pl.col("color").cast(pl.Categorical)),
    "arrow table": lambda folder: TABLE,
    "record batch": lambda folder: TABLE.to_batches()[0],
}


def whole(rows):
    blocks = list(rows.blocks(6))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


@pytest.fixture(params=list(SOURCES))
def source(request, tmp_path):
    """The same table, wherever it may be."""
    (tmp_path / "data").mkdir()
    return SOURCES[request.param](tmp_path / "data")


@pytest.mark.usefixtures("small")
def test_every_source_gives_the_same_rows(source, tmp_path):
    rows = convert(source, tmp_path / "store", progress=False)
    assert len(rows) == 50
    assert rows.levels == {"color": LEVELS, "flag": (False, True)}
    found = whole(rows)
    assert list(found) == list(COLUMNS)
    for name, values in {**COLUMNS, "color": CODES}.items():
        np.testing.assert_array_equal(found[name], values)
    assert {name: str(values.dtype) for name, values in found.items()} == {
        "x": "float64", "n": "int64", "color": "int32", "flag": "bool", "y": "float64",
    }  # fmt: skip
    assert len(rows.manifest["shards"]) == 8
    x = rows.columns["x"]
    assert (x.minimum, x.maximum, x.missing, rows.dropped) == (-1.0, 1.0, 0, 0)
    rows.verify()


@pytest.mark.usefixtures("small")
def test_a_store_is_the_table_in_memory(tmp_path):
    """Which shards rows lie in leaves no trace: not in what is taken, not in the fingerprint of the data."""
    numbers = TABLE.drop_columns(["color"])
    rows = convert(numbers, tmp_path / "store", progress=False)
    assert survey(rows) == survey(as_rows(numbers))
    indices = np.random.default_rng(0).integers(0, 50, 200)
    taken = rows.take(indices)
    assert all((taken[name] == COLUMNS[name][indices]).all() for name in numbers.column_names)


def test_columns_are_chosen_and_ordered(tmp_path):
    rows = convert(parquet(tmp_path), tmp_path / "store", columns=["y", "color"], progress=False)
    assert list(rows.take(np.array([3]))) == ["y", "color"]


def test_types(tmp_path):
    """Decimals are float64, times are days, categories that no row has are no levels."""
    at = dt.datetime(2024, 5, 6, 12, 0, 0, 250_000)
    table = pa.table(
        {
            "price": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3.50")]),
            "day": pa.array([dt.date(1970, 1, 3), dt.date(2024, 5, 6)]),
            "ns": pa.array([at, at], pa.timestamp("ns")),
            "zoned": pa.array([at, at], pa.timestamp("ms", "Europe/Paris")),
            "time": pa.array([dt.time(6), dt.time(18)], pa.time32("s")),
            "took": pa.array([dt.timedelta(hours=36), dt.timedelta(days=-1)]),
            "half": pa.array(np.array([1.5, 2.5], np.float16)),
            "big": pa.array([2**64 - 1, 0], pa.uint64()),
            "rank": pa.array([30, 7]).dictionary_encode(),
            "level": pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int8()), ["b", "unused", "a"]),
            "share": pa.array([0.5, 0.25]).dictionary_encode(),
            "word": pa.array(["z", "y"], pa.large_string()),
            "view": pa.array(["z", "z"], pa.string_view()),
        }
    )
    pq.write_table(table.drop_columns(["view"]), tmp_path / "t.parquet")
    for source in (table, tmp_path / "t.parquet"):
        rows = convert(source, tmp_path / "store", overwrite=True, progress=False)
        found = {name: values.tolist() for name, values in rows.take(np.arange(2)).items()}
        days = (at - dt.datetime(1970, 1, 1)) / dt.timedelta(days=1)
        assert found == {
            "price": [1.25, -3.5],
            "day": [2.0, (dt.date(2024, 5, 6) - dt.date(1970, 1, 1)).days],
            "ns": pytest.approx([days, days], abs=1e-11),
            "zoned": pytest.approx([days, days], abs=1e-11),
            "time": [0.25, 0.75],
            "took": [1.5, -1.0],
            "half": [1.5, 2.5],
            "big": [2**64 - 1, 0],
            "rank": [1, 0] if source is table else [30, 7],  # Parquet keeps no categories of numbers
            "level": [0, 1],
            "share": [0.5, 0.25],
            "word": [1, 0],
        } | ({"view": [0, 0]} if source is table else {})
        assert rows.levels.get("rank", (7, 30)) == (7, 30)
        assert rows.levels["level"] == ("a", "b")
        assert {column.kind for column in rows.columns.values()} == {"number", "category", "days"}


def test_folders_named_by_keys_are_columns(tmp_path):
    for year, sex, count in (("2019", "m", 2), ("2020", "f", 3)):
        folder = tmp_path / "data" / f"year={year}" / f"sex={sex}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": np.full(count, float(year))}), folder / "part.parquet")
    rows = convert(tmp_path / "data", tmp_path / "store", progress=False)
    found = whole(rows)
    assert found["year"].tolist() == found["x"].tolist() == [2019, 2019, 2020, 2020, 2020]
    assert [rows.levels["sex"][code] for code in found["sex"]] == ["m", "m", "f", "f", "f"]
    alone = convert(tmp_path / "data", tmp_path / "one", columns=["sex", "x"], progress=False)
    assert list(alone.columns) == ["sex", "x"]
    keys = convert(tmp_path / "data", tmp_path / "keys", columns=["year"], progress=False)
    assert whole(keys)["year"].tolist() == found["year"].tolist()


def test_a_remote_folder(tmp_path):
    rows = convert(remote_folder(tmp_path), tmp_path / "store", progress=False)
    found = whole(rows)
    assert found["part"].tolist() == [0] * 20 + [20] * 30
    np.testing.assert_array_equal(found["x"], COLUMNS["x"])
    assert len(open_store(tmp_path / "store")) == 50


# CSV has no types of its own


@pytest.mark.usefixtures("small")
def test_a_csv_column_that_turns_out_wider(tmp_path):
    """Types come from the first block: whole numbers may become fractions later, empty cells anything."""
    lines = [f"{i},{i},,," for i in range(60)] + ["60,0.5,7,1.5,word"]
    (tmp_path / "t.csv").write_text("\n".join(["i,x,late,frac,text", *lines]) + "\n")
    rows = convert(tmp_path / "t.csv", tmp_path / "store", missing="drop", progress=False)
    assert rows.dropped == 60
    batch = rows.take(np.array([0]))
    assert {name: values[0].item() for name, values in batch.items()} == {
        "i": 60, "x": 0.5, "late": 7, "frac": 1.5, "text": 0,
    }  # fmt: skip
    assert rows.levels == {"text": ("word",)}
    narrow = convert(tmp_path / "t.csv", tmp_path / "x", columns=["x", "i"], progress=False)
    assert narrow.take(np.array([60, 5]))["x"].tolist() == [0.5, 5.0]
    assert narrow.columns["i"].dtype == "int64"


def test_csv_files_that_begin_differently(tmp_path):
    for name, text in {"a": "x,y\n1,\n", "b": "x,y\n1.5,3\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    rows = convert(str(tmp_path / "*.csv"), tmp_path / "store", columns=["x"], progress=False)
    assert whole(rows)["x"].tolist() == [1.0, 1.5]


def test_letters_in_quotes_are_no_missing_value(tmp_path):
    (tmp_path / "t.csv").write_text('country\n"NA"\nDE\n')
    assert convert(tmp_path / "t.csv", tmp_path / "store", progress=False).levels == {"country": ("DE", "NA")}


# Missing values


def with_holes():
    x = np.arange(50.0)
    x[[4, 20]] = np.nan
    y = [None if i in (20, 33, 34) else i for i in range(50)]
    return pa.table({"x": x, "y": pa.array(y), "s": pa.array(["only here" if i == 33 else "a" for i in range(50)])})


@pytest.mark.usefixtures("small")
def test_missing_values_are_counted_and_nothing_is_left(tmp_path):
    pq.write_table(with_holes(), tmp_path / "t.parquet")
    with pytest.raises(DataError) as error:
        convert(tmp_path / "t.parquet", tmp_path / "store", progress=False)
    assert "column 'x' has 2, the first in row 4; column 'y' has 3, the first in row 20." in str(error.value)
    assert "missing='drop'" in str(error.value)
    assert "columns=['s']" in str(error.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.usefixtures("small")
def test_rows_with_missing_values_are_dropped_knowingly(tmp_path):
    rows = convert(with_holes(), tmp_path / "store", missing="drop", progress=False)
    kept = [i for i in range(50) if i not in (4, 20, 33, 34)]
    found = whole(rows)
    assert found["x"].tolist() == found["y"].tolist() == kept
    assert (len(rows), rows.dropped) == (46, 4)
    assert {name: column.missing for name, column in rows.columns.items()} == {"x": 2, "y": 3, "s": 0}
    assert rows.levels == {"s": ("a",)}  # what only dropped rows have is no level
    assert rows.columns["y"].dtype == "int64"


def empty_text(folder):
    (folder / "t.csv").write_text("n,s\n1,a\n2,\n3,b\n4,NA\n")
    return folder / "t.csv"


def null_in_a_dictionary(_):
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1], pa.int8()), pa.array(["a", None, "b"]))
    return pa.table({"n": [1, 2, 3, 4], "s": codes})


@pytest.mark.parametrize("source", [empty_text, null_in_a_dictionary])
def test_a_missing_text_is_no_level(tmp_path, source):
    table = source(tmp_path)
    with pytest.raises(DataError, match=r"missing values: column 's' has 2, the first in row 1\."):
        convert(table, tmp_path / "store", progress=False)
    rows = convert(table, tmp_path / "store", missing="drop", progress=False)
    assert rows.levels == {"s": ("a", "b")}
    assert rows.dropped == 2


def test_no_row_is_complete(tmp_path):
    table = pa.table({"x": pa.array([1.0, 2.0]), "y": pa.nulls(2)})
    with pytest.raises(DataError, match=r"each of the 2 rows lacks a value \(column 'y' lacks 2\)\. Pass columns"):
        convert(table, tmp_path / "store", missing="drop", progress=False)
    assert not (tmp_path / "store").exists()


# Stopping and going on


class Killed(BaseException):
    """Stands for a process that ends between two writes."""


def stop_after(monkeypatch, writes, error):
    """The next write after so many raises, half-way through."""
    done = []
    write = files.write_rows

    def failing(file, rows):
        done.append(rows)
        if len(done) > writes:
            file.write(rows.data[: len(rows) // 2])
            raise error
        write(file, rows)

    monkeypatch.setattr(files, "write_rows", failing)
    return done


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["parquet", "a folder", "arrow", "stream", "csv", "tsv", "remote csv"])
@pytest.mark.parametrize("writes", [1, 9, 40])
def test_a_stopped_conversion_goes_on_where_it_stopped(tmp_path, monkeypatch, kind, writes):
    (tmp_path / "data").mkdir()
    source = SOURCES[kind](tmp_path / "data")
    with monkeypatch.context() as patch:
        all_writes = stop_after(patch, 10**9, Killed())
        fresh = convert(source, tmp_path / "fresh", progress=False)
    with monkeypatch.context() as patch:
        stop_after(patch, writes, Killed())
        with pytest.raises(Killed):
            convert(source, tmp_path / "store", progress=False)
    with monkeypatch.context() as patch:
        later_writes = stop_after(patch, 10**9, Killed())
        rows = convert(source, tmp_path / "store", progress=False)
    assert len(later_writes) < len(all_writes) or writes < 8  # four files a shard, two batches or three
    assert rows.manifest == fresh.manifest
    np.testing.assert_equal(whole(rows), whole(fresh))
    assert sorted(file.name for file in rows.path.iterdir()) == sorted(file.name for file in fresh.path.iterdir())


@pytest.mark.usefixtures("small")
def test_what_is_left_of_a_killed_conversion_is_no_store(tmp_path, monkeypatch):
    path = parquet(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files.ShardWriter, "discard", lambda self: [file.close() for file in self.files.values()])
        stop_after(patch, 30, Killed())
        with pytest.raises(Killed):
            convert(path, tmp_path / "store", progress=False)
    left = [file.name for file in (tmp_path / "store").iterdir()]
    assert any(name.endswith(".partial") for name in left)
    assert "manifest.json" not in left
    for read in (open_store, as_rows):
        with pytest.raises(DataError, match=r"is not finished. Go on with lwa.rows.convert"):
            read(tmp_path / "store")
    rows = convert(path, tmp_path / "store", progress=False)
    np.testing.assert_array_equal(whole(rows)["x"], COLUMNS["x"])
    assert not [file for file in (tmp_path / "store").iterdir() if file.name.endswith(".partial")]


def test_files_are_on_the_disk_before_they_get_their_names(tmp_path, monkeypatch):
    events, replace = [], Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(("sync", os.fstat(handle).st_ino)))

    def rename(self, target):
        events.append(("name", self.stat().st_ino))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", rename)
    convert(TABLE, tmp_path / "store", progress=False)
    named = [(i, inode) for i, (what, inode) in enumerate(events) if what == "name"]
    assert len(named) == 4 + 3  # a file a dtype; which conversion, the record of the shard and the manifest
    folder = (tmp_path / "store").stat().st_ino
    for i, inode in named:
        assert ("sync", inode) in events[:i]
        assert ("sync", folder) in events[i:]


@pytest.mark.usefixtures("small")
def test_what_was_learnt_of_types_is_not_forgotten(tmp_path, monkeypatch):
    """A column of whole numbers that has fractions later: who goes on does not find out again."""
    path = tmp_path / "t.csv"
    path.write_text("x\n" + "".join(f"{i}\n" for i in range(300)) + "0.5\n")
    with monkeypatch.context() as patch:
        patch.setattr(formats, "CSV_BLOCK_BYTES", 100)
        patch.setattr(conversion, "SHARD_BYTES", 8 * 40)
        with monkeypatch.context() as inner:
            finish = conversion.Conversion._finish

            def stop(self, writer, source_rows):
                finish(self, writer, source_rows)
                if self.groups == {"float64": ["x"]} and len(self.records) == 3:
                    raise Killed

            inner.setattr(conversion.Conversion, "_finish", stop)
            with pytest.raises(Killed):
                convert(path, tmp_path / "store", progress=False)
        later_writes = stop_after(patch, 10**9, Killed())
        rows = convert(path, tmp_path / "store", progress=False)
    assert sum(map(len, later_writes)) == 301 - 3 * 40
    assert whole(rows)["x"].tolist() == [*range(300), 0.5]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("change", ["source", "columns", "a shard"])
def test_shards_of_another_conversion_are_not_gone_on_with(tmp_path, monkeypatch, change):
    path = parquet(tmp_path)
    with monkeypatch.context() as patch:
        stop_after(patch, 30, Killed())
        with pytest.raises(Killed):
            convert(path, tmp_path / "store", progress=False)
    columns = list(COLUMNS)
    if change == "source":
        pq.write_table(TABLE.set_column(0, "x", pa.array(-COLUMNS["x"])), path, row_group_size=9)
    elif change == "columns":
        columns = columns[:4]
    else:
        shard = sorted((tmp_path / "store").glob("rows-00001-*.npy"))[0]
        os.truncate(shard, 100)
    rows = convert(path, tmp_path / "store", columns=columns, progress=False)
    expected = -COLUMNS["x"] if change == "source" else COLUMNS["x"]
    np.testing.assert_array_equal(whole(rows)["x"], expected)
    assert list(rows.columns) == columns
    rows.verify()


@pytest.mark.usefixtures("small")
def test_a_process_that_is_killed(tmp_path):
    """Not an exception but SIGKILL, in the middle of a write."""
    path = parquet(tmp_path)
    code = textwrap.dedent(
        f"""
        import os, signal
        from lwa.rows import convert
        from lwa.rows.store import conversion, files
        conversion.SHARD_BYTES = {conversion.SHARD_BYTES}
        write, count = files.write_rows, []
        def dying(file, rows):
            count.append(0)
            if len(count) == 33:
                file.write(rows.data[:1]); file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            write(file, rows)
        files.write_rows = dying
        convert({str(path)!r}, {str(tmp_path / "store")!r}, progress=False)
        """
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == -9
    finished = len(list((tmp_path / "store").glob("rows-?????.json")))
    assert finished > 0
    rows = convert(path, tmp_path / "store", progress=False)
    np.testing.assert_array_equal(whole(rows)["color"], CODES)
    rows.verify()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("writes", [0, 30])
def test_a_full_disk(tmp_path, monkeypatch, writes):
    with monkeypatch.context() as patch:
        stop_after(patch, writes, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(DataError, match=r"the disk is full: No space left .* Free some space and convert again"):
            convert(parquet(tmp_path), tmp_path / "store", progress=False)
    store = tmp_path / "store"
    assert not list(tmp_path.glob("store/*.partial"))
    assert store.exists() == (writes > 0)
    for record in store.glob("rows-?????.json"):
        for entry in json.loads(record.read_text())["files"]:
            assert (store / entry["file"]).stat().st_size == entry["bytes"]
    np.testing.assert_array_equal(whole(convert(parquet(tmp_path), store, progress=False))["x"], COLUMNS["x"])


@pytest.mark.usefixtures("small")
def test_two_conversions_into_one_folder_take_turns(tmp_path):
    path, found = parquet(tmp_path), []
    threads = [
        threading.Thread(target=lambda: found.append(convert(path, tmp_path / "store", progress=False)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(found) == 3
    for rows in found:
        np.testing.assert_array_equal(whole(rows)["x"], COLUMNS["x"])


def test_finished_rows_that_cannot_be_opened_stay(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "open_memmap", refuse)
        with pytest.raises(DataError, match="ulimit -n"):
            convert(TABLE, tmp_path / "store", progress=False)
    assert len(open_store(tmp_path / "store")) == 50


def test_nothing_is_read_twice(tmp_path, monkeypatch):
    path = parquet(tmp_path)
    convert(path, tmp_path / "store", progress=False)
    monkeypatch.setattr(formats.Parquet, "read", None)
    assert len(convert(path, tmp_path / "store", progress=False)) == 50


@pytest.mark.parametrize("kind", ["parquet", "one group", "arrow"])
def test_memory_does_not_grow_with_the_table(tmp_path, monkeypatch, kind):
    """A batch or two and what Python needs, not the 16 MB of the table."""
    monkeypatch.setattr(formats, "READ_ROWS", 10_000)
    table = pa.table({"x": np.random.default_rng(0).random(2_000_000)})
    path = tmp_path / ("t.arrow" if kind == "arrow" else "t.parquet")
    if kind != "arrow":
        pq.write_table(table, path, row_group_size=50_000 if kind == "parquet" else 2_000_000)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table, max_chunksize=50_000)
    convert(table.slice(0, 1), tmp_path / "warm", progress=False)
    del table
    tracemalloc.start()
    held = pa.total_allocated_bytes()
    most = []
    display = Display(False)
    display.show = lambda *_: most.append(pa.total_allocated_bytes() - held + tracemalloc.get_traced_memory()[0])
    convert(path, tmp_path / "store", progress=display)
    tracemalloc.stop()
    assert len(most) > 100
    assert max(most) < 5e6


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["parquet", "csv", "stream"])
def test_progress_is_in_rows_with_an_estimate(tmp_path, kind):
    shown = []
    display = Display(False)
    display.show = lambda phase, done, total, note="": shown.append((phase, done, total))
    convert(SOURCES[kind](tmp_path), tmp_path / "store", progress=display)
    assert shown[-1] == ("converting", 50, 50)
    done = [entry[1] for entry in shown]
    assert done == sorted(done)
    assert all(entry[2] >= entry[1] for entry in shown)
    if kind == "parquet":
        assert {entry[2] for entry in shown} == {50}


# What is refused


def write(folder, name, table, **options):
    pq.write_table(table, folder / name, **options)
    return folder / name


def truncated(folder):
    path = parquet(folder)
    os.truncate(path, path.stat().st_size - 20)
    return path


def hollow(folder):
    """The footer is whole, the rows are not."""
    path = parquet(folder)
    content = bytearray(path.read_bytes())
    content[4:600] = bytes(596)
    path.write_bytes(content)
    return path


def drift(folder):
    write(folder, "a.parquet", pa.table({"x": [1, 2], "y": [1, 2]}))
    write(folder, "b.parquet", pa.table({"x": [1, 2], "y": ["1", "2"]}))
    return folder


def lacking(folder):
    write(folder, "a.parquet", pa.table({"x": [1], "y": [1]}))
    write(folder, "b.parquet", pa.table({"x": [1]}))
    return folder


def more(folder):
    write(folder, "a.parquet", pa.table({"x": [1]}))
    write(folder, "b.parquet", pa.table({"x": [1], "y": [1]}))
    return folder


def mixed_csv(folder):
    lines = ["x,y", *(f"{i},1" for i in range(200)), "oops,2"]
    (folder / "t.csv").write_text("\n".join(lines))
    return folder / "t.csv"


def text(name, content):
    def make(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return make


def two_formats(folder):
    parquet(folder)
    csv(folder)
    return folder


def keyed(folder):
    (folder / "year=2020").mkdir()
    write(folder / "year=2020", "a.parquet", pa.table({"x": [1]}))
    return write(folder, "b.parquet", pa.table({"x": [1]})).parent


def short_arrow(folder):
    path = arrow_file(folder)
    os.truncate(path, 900)
    return path


def short_stream(folder):
    path = arrow_stream(folder)
    os.truncate(path, path.stat().st_size // 2)
    return path


def remote_text(folder):
    with fsspec.open("memory://notes/t.txt", "wb") as file:
        file.write(b"x")
    return "memory://notes/t.txt"


REFUSED = {
    "truncated": (truncated, r"t.parquet' is no Parquet file, or it is damaged or cut short: .*Write or copy it again"),
    "hollow": (hollow, r"t.parquet' is no Parquet file, or it is damaged or cut short"),
    "not parquet": (text("t.parquet", b"a,b\n1,2\n"), r"is no Parquet file, or it is damaged"),
    "no bytes": (text("t.parquet", b""), r"is no Parquet file, or it is damaged"),
    "short arrow": (short_arrow, r"t.arrow' is no Arrow file, or it is damaged"),
    "short stream": (short_stream, r"t.arrows' is no Arrow file, or it is damaged"),
    "ragged csv": (text("t.csv", b"a,b\n1,2\n3\n"), r"t.csv' is no CSV file, .*Expected 2 columns, got 1"),
    "empty csv": (text("t.csv", b""), r"t.csv' is no CSV file, .*Empty CSV"),
    "names only": (text("t.csv", b"a,b\n"), r"t.csv' has no rows. Pass at least one row"),
    "latin": (text("t.csv", b"a\n\xe4\xf6\n"), r"t.csv' "),
    "repeated": (text("t.csv", b"a,a\n1,2\n"), r"has columns \['a'\] more than once. Rename"),
    "drift": (drift, r"column 'y' is int64 in '.*a.parquet' and string in '.*b.parquet'. One type .*columns="),
    "lacking": (lacking, r"b.parquet' lacks \['y'\], compared with '.*a.parquet'. Pass columns="),
    "more": (more, r"b.parquet' has \['y'\] besides, compared with '.*a.parquet'. Pass columns="),
    "mixed csv": (mixed_csv, r"column 'x' of '.*t.csv' has mixed types: .*int64, a later one is 'oops'. Correct"),
    "mixed pandas": (
        lambda _: pd.DataFrame({"ok": [1, 2], "x": pd.Series([1, "a"], dtype=object)}),
        r"mixed types: .*column x.* Convert it, e\.g\. .*columns=",
    ),
    "empty folder": (lambda folder: folder, r"There is no table in the folder '.*'. Files that end in \.parquet"),
    "no match": (lambda folder: str(folder / "*.parquet"), r"No file that holds a table matches '.*\*\.parquet'"),
    "absent": (lambda folder: folder / "nowhere.parquet", r"nowhere.parquet' does not exist \(working folder: .*Pass"),
    "no table": (text("t.xlsx", b"x"), r"ends in '\.xlsx', which is no table that lwa reads.*pass the DataFrame"),
    "two formats": (two_formats, r"files of several formats: .*\(csv\).*\(parquet\)|several formats: .*\(parquet\)"),
    "keys differ": (keyed, r"folders are named by .*year.* for .*The same keys are expected"),
    "lists": (
        lambda _: pa.table({"x": [1], "l": [[1, 2]], "b": [b"z"]}),
        r"'l' \(list<.*>\), 'b' \(binary\)\. Leave them out: columns=\['x'\]",
    ),
    "lazy": (lambda _: pl.LazyFrame({"x": [1]}), r"LazyFrame, which holds no rows yet\. Pass source\.collect\(\)"),
    "no columns": (lambda _: pd.DataFrame(index=[1, 2]), r"no columns|no rows"),
    "no rows": (lambda _: pd.DataFrame({"x": []}), r"the table has no rows\. Pass at least one row"),
    "an array": (lambda _: np.zeros(3), r"source is of type ndarray. Pass the path"),
    "remote, no table": (remote_text, r"'memory://notes/t.txt' ends in '\.txt', which is no table that lwa reads"),
    "remote absent": (lambda _: "memory://nowhere/t.parquet", r"'memory://nowhere/t.parquet' does not exist"),
    "no such scheme": (lambda _: "gopher://host/t.csv", r"gopher://host/t.csv' cannot be opened.*lwa\[remote\]"),
    "no library": (lambda _: "s3://bucket/t.csv", r"needs one more library for 's3://' .*s3fs.*lwa\[remote\]"),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_converted_is_refused_in_a_sentence(tmp_path, case):
    make, message = REFUSED[case]
    (tmp_path / "data").mkdir()
    source = make(tmp_path / "data")
    with pytest.raises(DataError, match=message):
        convert(source, tmp_path / "store", progress=False)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("source", [parquet, csv, lambda _: TABLE, lambda _: TABLE.to_pandas()])
def test_a_column_that_is_not_there(tmp_path, source):
    with pytest.raises(DataError, match=r"no column 'z' in .*It has 'x', 'n', 'color', 'flag', 'y'\. Name columns"):
        convert(source(tmp_path), tmp_path / "store", columns=["x", "z"], progress=False)


def test_options_that_are_not_known(tmp_path):
    with pytest.raises(InputError, match=r"missing='fill' is not known. Valid: 'error', 'drop'"):
        convert(TABLE, tmp_path / "store", missing="fill")
    with pytest.raises(DataError, match=r"columns='x' is one text; .* Pass columns=\['x'\]"):
        convert(TABLE, tmp_path / "store", columns="x")


def test_too_many_levels(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "MOST_STORED_LEVELS", 3)
    with pytest.raises(DataError, match=r"column 'color' has more than 3 different values: .*columns="):
        convert(TABLE, tmp_path / "store", progress=False)
    assert not (tmp_path / "store").exists()


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    path = parquet(tmp_path)
    monkeypatch.setattr("pathlib.Path.open", refuse)  # chmod does not stop root
    with pytest.raises(DataError, match=r"t.parquet' cannot be read: Permission denied. Check its permissions"):
        convert(path, tmp_path / "store", progress=False)


def test_a_folder_that_may_not_be_written_to(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(DataError, match=r"cannot write rows to '.*store': Permission denied. Pass a folder"):
        convert(TABLE, tmp_path / "store", progress=False)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("error", [ConnectionResetError("reset by peer"), RuntimeError("token expired")])
def test_a_server_that_fails_half_way_is_gone_on_with(tmp_path, monkeypatch, error):
    """Shards that are finished are kept: the same files may be within reach another time."""
    url, read = remote_csv(tmp_path), formats.Csv._reader

    def failing(self, file, opened, types=None):
        if types and file.path.endswith("b.csv"):
            raise error
        return read(self, file, opened, types)

    with monkeypatch.context() as patch:
        patch.setattr(formats.Csv, "_reader", failing)
        with pytest.raises(DataError, match=rf"'memory:.*b.csv' cannot be read: {error}\. Check"):
            convert(url, tmp_path / "store", progress=False)
    assert len(list((tmp_path / "store").glob("rows-?????.json"))) == 2
    np.testing.assert_array_equal(whole(convert(url, tmp_path / "store", progress=False))["x"], COLUMNS["x"])


def test_a_library_that_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DataError, match=r"fsspec, .* is not installed. Type pip install 'lwa\[remote\]'"):
        convert("https://host/t.parquet", tmp_path / "store", progress=False)


def test_other_files_are_never_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"holds other files \(notes.txt\). Pass a new or an empty folder"):
        convert(TABLE, tmp_path, progress=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text('{"format": "lwa-run"}')
    with pytest.raises(DataError, match=r"holds other files \(manifest.json\)"):
        convert(TABLE, tmp_path / "run", overwrite=True, progress=False)
    assert (tmp_path / "run" / "manifest.json").exists()


def test_rows_that_are_there_are_replaced_only_when_asked(tmp_path):
    convert(TABLE, tmp_path / "store", progress=False)
    with pytest.raises(DataError, match=r"already holds other rows .*, of a table in memory: .* overwrite=True"):
        convert(TABLE.slice(3), tmp_path / "store", progress=False)
    assert len(open_store(tmp_path / "store")) == 50
    assert len(convert(TABLE.slice(3), tmp_path / "store", overwrite=True, progress=False)) == 47
