"""Rows that workers read are the rows that a conversion here would give; this process opens no Parquet data."""

import datetime as dt
import json
import os
import shutil

import cloudpickle
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.engine import remote_cohort
from lwa.errors import DataError, InputError
from lwa.executors import Dask, Processes, Serial
from lwa.rows import StoreRows, as_rows, convert, passes
from lwa.rows.store.formats import Parquet
from lwa.rows.workers import file_ranges, on_workers
from lwa.rows.workers.on_workers import FileRangeRows, RowsOnWorkers, read_on_workers

rng = np.random.default_rng(3)
N = 60
COLUMNS = {
    "x": rng.normal(size=N),
    "f": rng.normal(size=N).astype(np.float32),
    "n": rng.integers(-(2**60), 2**60, N),
    "flag": rng.random(N) < 0.3,
    "color": np.array(["red", "blue"] * 10 + ["green"] * 20 + ["Äpfel", "red", "a"] * 6 + ["zz"] * 2),
    "day": np.array([dt.date(2000, 1, 1) + dt.timedelta(int(k)) for k in rng.integers(0, 9000, N)]),
}
TABLE = pa.table(COLUMNS)


class Counting:
    """An executor in this process: sends all that it is given through bytes, and counts tasks."""

    workers = 3

    def __init__(self):
        self.tasks = []

    def map(self, work, pieces, near=None):
        assert near is None or (sorted(near) == list(near) and all(0 <= at < 1 for at in near))
        for piece in pieces:
            self.tasks.append(work.function)
            self.last = piece
            sent = cloudpickle.loads(cloudpickle.dumps((work, piece)))
            yield sent[0](sent[1])

    def counted(self, function):
        return self.tasks.count(function)


@pytest.fixture(autouse=True)
def _apart(monkeypatch, tmp_path):
    """A cache of its own, parts of at most 15 rows, and no waiting for the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_ranges, "RANGE_ROWS", 15)
    on_workers._OPEN.clear()
    (tmp_path / "data").mkdir()


def one_file(folder, table=TABLE):
    pq.write_table(table, folder / "t.parquet", row_group_size=4)
    return folder / "t.parquet"


def several(folder, table=TABLE):
    """Files of other lengths, one without rows, one whose columns come in another order."""
    for name, start, stop in (("a", 0, 20), ("b", 20, 20), ("c", 20, 29), ("d", 29, 60)):
        part = table.slice(start, stop - start)
        pq.write_table(part.select(part.column_names[::-1]) if name == "c" else part, folder / f"{name}.parquet")
    return folder


def nested(folder, table=TABLE):
    """Folders that are named by keys, one of which only some files tell."""
    for key, start, stop in (("1", 0, 20), ("2", 20, 25), ("10", 25, 60)):
        (folder / f"year={key}" / f"where=x{key}").mkdir(parents=True)
        pq.write_table(table.slice(start, stop - start), folder / f"year={key}" / f"where=x{key}" / "t.parquet")
    return folder


def mixed_types(folder, table=TABLE):
    """Types that are kept alike: text as text and as categories, a column that is all null in a file of no effect."""
    pq.write_table(table.slice(0, 30), folder / "a.parquet")
    later = table.slice(30)
    categories = later["color"].combine_chunks().dictionary_encode()
    pq.write_table(later.set_column(4, "color", categories), folder / "b.parquet")
    return folder


def pattern(folder, table=TABLE):
    return f"{several(folder, table)}/[acd].parquet"


def remote(folder, table=TABLE):
    for start in (0, 25):
        with fsspec.open(f"memory://on-workers/{folder.parent.name}/{start}.parquet", "wb") as file:
            pq.write_table(table.slice(start, 25 if start == 0 else 35), file, row_group_size=9)
    return f"memory://on-workers/{folder.parent.name}"


SOURCES = [one_file, several, nested, mixed_types, pattern, remote]


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert found[name].tobytes() == values.tobytes()


def assert_same_rows(found, local, sizes=(1, 7, 64)):
    assert len(found) == len(local)
    assert found.levels == local.levels
    assert found.dropped == local.dropped
    for name, column in local.columns.items():
        own = found.columns[name]
        assert (own.kind, own.dtype, own.type) == (column.kind, column.dtype, column.type)
        assert (own.missing, own.minimum, own.maximum) == (column.missing, column.minimum, column.maximum)
    indices = np.random.default_rng(1).integers(-len(local), len(local), 200)
    for some in (indices, indices[:1], indices[:0]):
        assert_same(found.take(some), local.take(some))
    for size in sizes:
        for own, block in zip(found.blocks(size), local.blocks(size), strict=True):
            assert_same(own, block)
    start, stop = len(local) // 5, len(local) - 3
    for own, block in zip(found.between(start, stop, sizes[-1]), local.between(start, stop, sizes[-1]), strict=True):
        assert_same(own, block)


@pytest.mark.parametrize("make", SOURCES)
def test_the_rows_are_those_of_a_conversion_here(make, tmp_path):
    source = make(tmp_path / "data")
    local = convert(source, tmp_path / "store", progress=False)
    found = read_on_workers(source, Counting())
    assert_same_rows(found, local)
    on_a_worker = cloudpickle.loads(cloudpickle.dumps(found))
    assert isinstance(on_a_worker, FileRangeRows)
    assert_same_rows(on_a_worker, local)


def test_columns_are_chosen_and_ordered(tmp_path):
    source = several(tmp_path / "data")
    local = convert(source, tmp_path / "store", columns=["n", "color"], progress=False)
    assert_same_rows(read_on_workers(source, Counting(), columns=["n", "color"]), local)


HOLES = TABLE.set_column(0, "x", pa.array([None if k in (3, 27, 28) else float(k) for k in range(N)]))
HOLES = HOLES.set_column(4, "color", pa.array([None if k in (28, 50) else "ab"[k % 2] for k in range(N)]))
EMPTY = TABLE.set_column(0, "x", pa.array([None] * N, pa.float64()))
BEGINS_EMPTY = TABLE.set_column(0, "x", pa.array([None] * 29 + list(map(float, range(31)))))


@pytest.mark.parametrize("make", [one_file, several])
@pytest.mark.parametrize("table", [HOLES, EMPTY, BEGINS_EMPTY], ids=["holes", "empty", "begins empty"])
def test_missing_values_are_refused_or_left_out_alike(make, table, tmp_path):
    source = make(tmp_path / "data", table)
    for missing in ("error", "drop"):
        local = outcome(convert, source, tmp_path / missing, missing=missing, progress=False)
        found = outcome(read_on_workers, source, Counting(), missing=missing)
        if isinstance(local, str):
            assert found == local
        else:
            assert_same_rows(found, local)


def outcome(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except DataError as error:
        return str(error)


def test_a_column_that_is_null_in_one_file(tmp_path):
    """Whether a column is of numbers is for all files to say: then the null ones lack a value."""
    folder = tmp_path / "data"
    pq.write_table(pa.table({"x": pa.nulls(3), "y": [1, 2, 3]}), folder / "a.parquet")
    pq.write_table(pa.table({"x": ["u", "v"], "y": [4, 5]}), folder / "b.parquet")
    local = convert(folder, tmp_path / "store", missing="drop", progress=False)
    assert_same_rows(read_on_workers(folder, Counting(), missing="drop"), local)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"x": [1]}, {"x": [1.5]}, "column 'x' is int64 in .* and double in"),
        ({"x": [1]}, {"y": [1]}, "columns differ between files"),
        ({"x": pa.array([], pa.int64())}, {"x": pa.array([], pa.int64())}, "has no rows"),
        ({"x": [[1]]}, {"x": [[1]]}, "hold neither numbers nor text"),
    ],
)
def test_what_a_conversion_refuses(first, second, message, tmp_path):
    folder = tmp_path / "data"
    pq.write_table(pa.table(first), folder / "a.parquet")
    pq.write_table(pa.table(second), folder / "b.parquet")
    with pytest.raises(DataError, match=message) as here:
        convert(folder, tmp_path / "store", progress=False)
    with pytest.raises(DataError) as there:
        read_on_workers(folder, Counting())
    assert str(here.value) == str(there.value)


def test_too_many_levels_in_all(tmp_path, monkeypatch):
    monkeypatch.setattr("lwa.rows.store.encoding.MOST_STORED_LEVELS", 5)  # no part has more, all have six
    with pytest.raises(DataError, match="column 'color' has more than 5 different values"):
        read_on_workers(several(tmp_path / "data"), Counting())


def test_parts_are_runs_of_row_groups(tmp_path):
    rows = read_on_workers(one_file(tmp_path / "data"), Counting()).rows
    assert [(part.start, part.stop, part.before) for part in rows.ranges] == [
        (0, 12, 0), (12, 24, 12), (24, 36, 24), (36, 48, 36), (48, 60, 48),
    ]  # fmt: skip
    assert rows.starts.tolist() == [0, 12, 24, 36, 48, 60]


def test_a_part_is_read_from_any_row_on(tmp_path):
    """As a conversion does that was stopped on the way."""
    rows = read_on_workers(one_file(tmp_path / "data"), Counting(), columns=["n"]).rows
    part = rows.ranges[2]
    source = file_ranges.build_range_source(rows.request, part)
    for skip in range(len(part) + 1):
        read = list(source.read(skip))
        found = [value for batch, _, _ in read for value in batch.column("n").to_pylist()]
        assert found == COLUMNS["n"][part.start + skip : part.stop].tolist()
        assert [start for _, start, _ in read][:1] == ([skip] if skip < len(part) else [])


def test_a_row_group_that_is_larger_than_a_part(tmp_path):
    path = tmp_path / "data" / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=40)
    rows = read_on_workers(path, Counting()).rows
    assert [len(part) for part in rows.ranges] == [40, 20]


def test_a_take_is_one_task_for_each_part_that_has_a_row(tmp_path):
    executor = Counting()
    rows = read_on_workers(one_file(tmp_path / "data"), executor)
    assert executor.counted(file_ranges.convert_range) == 5
    executor.tasks.clear()
    rows.take(np.array([59, 1, 0, 58, 1, 30, -1]))
    assert executor.tasks == [on_workers.take_from_range] * 3
    assert executor.last[1].tolist() == [10, 11, 11]  # in the order of the file
    executor.tasks.clear()
    rows.take(np.array([], np.int64))
    assert executor.tasks == []


@pytest.mark.parametrize("indices", [[60], [-61, 3]])
def test_rows_that_are_not_there(indices, tmp_path):
    rows = read_on_workers(one_file(tmp_path / "data"), Counting())
    with pytest.raises(IndexError, match="there are 60 rows"):
        rows.take(np.array(indices))
    with pytest.raises(InputError, match="size=0"):
        rows.blocks(0)


def test_a_pass_opens_only_what_it_needs(tmp_path, monkeypatch):
    rows = read_on_workers(one_file(tmp_path / "data"), Counting()).rows
    opened, really = [], file_ranges.open_range
    monkeypatch.setattr(file_ranges, "open_range", lambda request, one: opened.append(one) or really(request, one))
    list(rows.between(13, 30, 4))
    assert opened == list(rows.ranges[1:3])


def test_a_lost_part_is_read_again(tmp_path):
    source = one_file(tmp_path / "data")
    rows = read_on_workers(source, Counting()).rows
    before = rows.take(np.arange(N))
    on_workers._OPEN.clear()
    shutil.rmtree(tmp_path / "cache")
    assert_same(rows.take(np.arange(N)), before)


def test_a_part_that_shrinks_in_use_is_read_again(tmp_path):
    rows = read_on_workers(one_file(tmp_path / "data"), Counting()).rows
    before = rows.take(np.arange(N))
    for path in (tmp_path / "cache").rglob("*.npy"):
        os.truncate(path, 100)
    assert_same(rows.take(np.arange(N)), before)


def test_what_is_converted_is_not_read_again(tmp_path, monkeypatch):
    source = several(tmp_path / "data")
    first = read_on_workers(source, Counting())
    before = first.take(np.arange(N))
    on_workers._OPEN.clear()
    monkeypatch.setattr(Parquet, "read", forbidden)
    assert_same(read_on_workers(source, Counting()).take(np.arange(N)), before)
    pq.write_table(TABLE.slice(1, 20), source / "a.parquet")
    with pytest.raises(AssertionError, match="read in this process"):
        read_on_workers(source, Counting())


def test_a_file_that_is_written_again_while_rows_are_in_use(tmp_path):
    source = one_file(tmp_path / "data")
    rows = read_on_workers(source, Counting()).rows
    on_workers._OPEN.clear()
    shutil.rmtree(tmp_path / "cache")
    pq.write_table(TABLE.slice(1), source, row_group_size=4)
    with pytest.raises(DataError, match="was written again while its rows were in use"):
        rows.take(np.array([3]))


def altered(manifest, path, value):
    *way, last = path
    entry = manifest
    for step in way:
        entry = entry[step]
    entry[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["rows"], 7),
        (["asked", "fingerprint"], "another"),
        (["columns", 0, "position"], 5),
        (["columns", 0, "dtype"], "float32"),
        (["columns", 0, "kind"], "category"),
        (["columns", 0, "minimum"], "__import__('os')"),
        (["columns", 4, "levels"], [["blue"], {"red": 1}]),
        (["columns", 4, "levels"], ["red", "blue"]),
        (["columns", 4, "ranks"], [0, 70000]),
        (["columns", 4, "ranks"], [0]),
        (["columns"], []),
        (["shards", 0, "files", 0, "file"], "../../../../etc/passwd"),
        (["shards", 0, "files", 0, "dtype"], "object"),
    ],
)
def test_a_manifest_that_a_conversion_did_not_write_is_not_believed(path, value, tmp_path):
    source = one_file(tmp_path / "data")
    rows = read_on_workers(source, Counting())
    before = rows.take(np.arange(N))
    for file in (tmp_path / "cache").rglob("manifest.json"):
        manifest = json.loads(file.read_text())
        altered(manifest, path, value)
        file.write_text(json.dumps(manifest))
    on_workers._OPEN.clear()
    again = read_on_workers(source, Counting())
    assert again.levels == rows.levels
    assert_same(again.take(np.arange(N)), before)


def forbidden(*_):
    raise AssertionError("Parquet data were read in this process")


def test_other_formats_are_refused(tmp_path):
    (tmp_path / "data" / "t.csv").write_text("x\n1\n")
    with pytest.raises(InputError, match=r"workers read only Parquet.*lwa convert"):
        read_on_workers(tmp_path / "data" / "t.csv", Counting())


def test_a_file_that_workers_cannot_reach(tmp_path):
    class Elsewhere(Counting):
        def map(self, work, pieces, near=None):
            shutil.rmtree(tmp_path / "data")
            return super().map(work, pieces, near)

    with pytest.raises(DataError, match=r"On a worker: .*does not exist.*pass a place that all of them can reach"):
        read_on_workers(several(tmp_path / "data"), Elsewhere())


def test_what_is_sent_holds_no_rows(tmp_path):
    path = tmp_path / "data" / "t.parquet"
    pq.write_table(pa.table({"x": rng.normal(size=200_000)}), path, row_group_size=100_000)
    assert len(cloudpickle.dumps(read_on_workers(path, Counting()))) < 5_000


def test_other_processes_read(tmp_path, monkeypatch):
    """In the test above all was one process; here this one could not read if it tried."""
    source = several(tmp_path / "data")
    local = convert(source, tmp_path / "store", progress=False)
    monkeypatch.setattr(Parquet, "read", forbidden)
    monkeypatch.setattr(Parquet, "look", forbidden)
    with Processes(1) as executor:
        found = read_on_workers(source, executor)
        assert_same_rows(found, local)


# Where they are used


def test_a_path_is_read_by_workers_where_there_are_any(tmp_path):
    source = several(tmp_path / "data")
    assert isinstance(as_rows(source, executor=Counting()), RowsOnWorkers)
    assert isinstance(as_rows(str(source / "*.parquet"), executor=Counting()), RowsOnWorkers)
    for executor in (None, Serial()):
        assert isinstance(as_rows(source, executor=executor), StoreRows)


def test_what_is_not_parquet_is_read_here(tmp_path):
    executor = Counting()
    np.save(tmp_path / "data" / "x.npy", COLUMNS["x"])
    pa.csv.write_csv(TABLE, tmp_path / "data" / "t.csv")
    store = convert(TABLE, tmp_path / "store", progress=False)
    for data in (
        tmp_path / "data" / "x.npy",
        tmp_path / "data" / "t.csv",
        store.path,
        COLUMNS["x"],
        TABLE.drop(["color", "day"]),
    ):
        assert not isinstance(as_rows(data, executor=executor), RowsOnWorkers)
    assert executor.tasks == []


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ordered": True}, "windows need rows that this process can read"), ({"groups": "n"}, "groups='n', and groups")],
)
def test_windows_and_groups_need_rows_here(options, message, tmp_path):
    executor = Counting()
    source = several(tmp_path / "data")
    model = lwa.Model(lambda theta, rows: -((rows["x"] - theta) ** 2), lambda theta: 0.0, 0.0, **options)
    with pytest.raises(InputError, match=rf"{message}.*lwa convert SOURCE DESTINATION"):
        lay_out(model, source, executor=executor)
    assert executor.tasks == []  # said before anything is read
    with pytest.raises(InputError, match=message):
        lay_out(model, read_on_workers(source, executor))


def regression_data(folder, N=3000):
    """Two files; a level that only one of them has."""
    x, k = rng.normal(size=N), rng.integers(0, 3, N)
    g = np.where(np.arange(N) < N // 2, rng.choice(["a", "b"], N), rng.choice(["b", "0"], N))
    y = rng.random(N) < 1 / (1 + np.exp(-0.5 * x - (g == "b")))
    for i, rows in enumerate(np.split(np.arange(N), 2)):
        table = pa.table({"x": x[rows], "k": k[rows], "g": g[rows], "y": y[rows], "unused": x[rows]})
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=400)
    return folder


GLM = lwa.glm("y ~ scale(x) + g + C(k)", "bernoulli")
OPTIONS = {"subset_size": 50, "draws": 30, "tune": 30, "chains": 2, "seed": 1, "progress": False}


def test_draws_are_the_same_wherever_rows_are(tmp_path, monkeypatch):
    source = regression_data(tmp_path / "data")
    monkeypatch.setattr(file_ranges, "RANGE_ROWS", 800)
    monkeypatch.setattr(passes, "LEAST_PIECE_ROWS", 512)
    here = lwa.sample(GLM, source, **OPTIONS)
    executor = Counting()
    monkeypatch.setattr(RowsOnWorkers, "blocks", forbidden)
    monkeypatch.setattr(RowsOnWorkers, "between", forbidden)
    away = lwa.sample(GLM, source, executor=executor, **OPTIONS)
    assert away.posterior["beta"].tobytes() == here.posterior["beta"].tobytes()
    assert executor.counted(remote_cohort.play_segment) == 0
    assert executor.counted(on_workers.read_block) == 0
    assert executor.counted(file_ranges.convert_range) == 4


@pytest.mark.slow
def test_a_cluster_of_two_workers(tmp_path, monkeypatch):
    """Spawned workers with caches of their own, one of which is lost on the way."""
    distributed = pytest.importorskip("distributed")
    source = regression_data(tmp_path / "data")
    local = convert(source, tmp_path / "store", columns=sorted(GLM.names), progress=False)
    here = lwa.sample(GLM, source, **OPTIONS)
    monkeypatch.setattr(Parquet, "read", forbidden)
    monkeypatch.setattr(Parquet, "look", forbidden)
    # Any free port: None stands for 8787, which another cluster on this machine may have.
    with (
        distributed.LocalCluster(
            n_workers=2, processes=True, threads_per_worker=1, dashboard_address=":0", local_directory=tmp_path / "dask"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = Dask(client)
        found = read_on_workers(source, executor, columns=sorted(GLM.names))
        assert_same_rows(found, local, sizes=[700])
        away = lwa.sample(GLM, source, executor=executor, **OPTIONS)
        assert away.posterior["beta"].tobytes() == here.posterior["beta"].tobytes()
        shutil.rmtree(tmp_path / "cache")
        client.restart()
        assert_same(found.take(np.arange(3000)), local.take(np.arange(3000)))
