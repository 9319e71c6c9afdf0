"""Files made to do harm: runs, checkpoints and stores of rows are read, never executed, and refused in a sentence."""

import copy
import json
import os
import zlib
from pathlib import Path

import numpy as np
import pytest

import lwa
from lwa.rows import convert, open_store
from lwa.run.checkpoints.watch import read_facts
from lwa.storage import generations, stream
from tests.run.checkpoints.test_resume import PLAIN, Y
from tests.storage.test_generations import Evil, npy, npy_of


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A run that was kept, and is over."""
    folder = tmp_path_factory.mktemp("origin") / "run"
    lwa.sample(PLAIN, Y, subset_size=50, draws=30, tune=50, seed=1, progress=False, checkpoint=folder)
    return folder


@pytest.fixture
def run(origin, tmp_path):
    """A copy to spoil."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in origin.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def pickled(path):
    """An array of one object, which makes a file where it is unpickled."""
    array = np.empty(1, object)
    array[0] = Evil(path)
    return npy(array, allow_pickle=True)


def rewritten(folder, change):
    """The same states with another head or other arrays, and checksums that fit."""
    for generation, _ in list(generations.read_generations(folder)):
        head, arrays = copy.deepcopy(generation.head), dict(generation.arrays)
        change(head, arrays)
        generations.write_generation(folder, generation.number, head, arrays)


def asked(name, value):
    return lambda head, _: head["description"]["asked"]["arguments"].__setitem__(name, value)


def put(*path, value):
    def change(head, _):
        for step in path[:-1]:
            head = head[step]
        head[path[-1]] = value

    return change


def without(*path):
    def change(head, _):
        for step in path[:-1]:
            head = head[step]
        del head[path[-1]]

    return change


def array(name, value):
    return lambda _, arrays: arrays.__setitem__(name, value) if name in arrays else pytest.fail(name)


def beyond(_, arrays):
    """Rows that are not there, in the place of U's."""
    names = [name for name, values in arrays.items() if values.dtype == np.int64 and values.shape == (2, 50)]
    assert names
    for name in names:
        arrays[name] = arrays[name] + 10**9


STATES = {
    "a class of another module": asked("kernel", {"lwa": "os.system", "fields": {"command": "touch ran"}}),
    "a function of lwa": asked("summary", {"lwa": "summaries.as_summary", "fields": {"summary": "auto"}}),
    "a module": asked("kernel", {"lwa": "parameters.__loader__", "fields": {}}),
    "fields that it has not": asked("kernel", {"lwa": "parameters.RandomWalk", "fields": {"run": "touch ran"}}),
    "fields that are none": asked("kernel", {"lwa": "parameters.RandomWalk", "fields": 3}),
    "an argument too many": asked("ordered", True),
    "an argument too few": without("description", "asked", "arguments", "tune"),
    "an argument of another kind": asked("tune", {"lwa": "RowReads", "fields": {"count": 3}}),
    "no arguments": put("description", "asked", value=7),
    "no description": without("description"),
    "starts in words": put("description", "starts", value=["touch ran"]),
    "no identity": put("description", "identity", value=[]),
    "draws elsewhere": put("stream", "file", value="../../etc/passwd"),
    "draws that are objects": put("stream", "record", value=[["posterior/theta", "|O"]]),
    "more draws than there are": put("stream", "draws", value=10**18),
    "draws of another record": put("stream", "record", value=[["posterior/theta", "<f4"]]),
    "no cohorts": put("cohorts", value=[]),
    "another shape": array("cohort0.0", np.zeros((3, 10**3))),
    "another type": array("cohort0.0", np.zeros((2, 1), "<U9")),
    "rows that are not there": beyond,
    "an array less": lambda _, arrays: arrays.pop("cohort0.0"),
}


@pytest.mark.filterwarnings("ignore::lwa.LwaWarning")
@pytest.mark.parametrize("case", STATES)
def test_a_state_that_lwa_did_not_write(case, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {file.name for file in run.iterdir()}
    rewritten(run, STATES[case])
    with pytest.raises((lwa.RunFolderError, lwa.InputError)) as caught:
        lwa.resume(run, PLAIN, Y, draws=40, progress=False)
    assert str(caught.value).endswith((".", ").", "for example."))
    assert {file.name for file in run.iterdir()} == before
    assert {file.name for file in tmp_path.iterdir()} == {"run"}
    assert lwa.load(run).draws == 30  # by its manifest, which says the same as before


@pytest.mark.parametrize("case", ["a class of another module", "no description", "draws that are objects"])
def test_looking_at_one(case, run, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    rewritten(run, STATES[case])
    (run / "manifest.json").unlink()
    for command in (["watch", run], ["summary", run], ["resume", run]):
        code, _, err = call(*command)
        assert "Traceback" not in err
        assert code == 0 or (code == 2 and err.count("\n") == 1)
    assert {file.name for file in tmp_path.iterdir()} == {"run"}


SOURCE = {"what": "y ~ x", "data": "t.csv"}


@pytest.mark.parametrize(
    "told",
    [
        {"source": {"what": "y ~ x", "data": "t.csv", "numpyro": "evil:model"}, "command": []},
        {"source": {"what": "y ~ __import__('os').system('touch ran')", "data": "t.csv"}, "command": []},
        {"source": SOURCE | {"prior": ["x = open('ran', 'w')"]}, "command": []},
        {"source": SOURCE | {"run": "touch ran"}, "command": []},
        {"source": SOURCE | {"what": ["y ~ x"]}, "command": []},
        {"source": SOURCE | {"trials": 3}, "command": []},
        {"source": SOURCE, "command": 3},
        {"source": [], "command": []},
        3,
    ],
    ids=str,
)
def test_what_a_fit_was_told(told, run, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "cache"))
    Path("evil.py").write_text("__import__('pathlib').Path('ran').touch()")
    Path("t.csv").write_text("x,y\n1,2\n2,1\n3,4\n")
    rewritten(run, put("description", "told", value=told))
    code, out, err = call("resume", run)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert err[err.index("lwa: ") :].count("\n") == 1
    assert not Path("ran").exists()


def test_a_run_whose_draws_are_a_pickle(run, tmp_path):
    content = pickled(tmp_path / "ran")
    (run / "draws-00000.npy").write_bytes(content)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["segments"] = [{"file": "draws-00000.npy", "draws": 1, "crc32": zlib.crc32(content)}]
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(lwa.RunFolderError, match="is damaged: Object arrays cannot be loaded"):
        lwa.load(run)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "segment",
    [
        {"file": "../outside.rows"},
        {"file": "/etc/passwd"},
        {"record": [["posterior/theta", "|O"]]},
        {"record": [["posterior/theta", "<f8", [10**9, 10**9, 10**9]]]},
        {"record": "touch ran"},
        {"draws": 10**30},
        {"draws": -3},
        {"chains": "four"},
    ],
    ids=str,
)
def test_a_manifest_that_lwa_did_not_write(segment, run):
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["segments"][0] |= segment
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(lwa.RunFolderError):
        lwa.load(run)


def test_a_segment_that_promises_more_than_there_is(run):
    content = npy_of((2, 10**14), [("posterior/theta", "<f8")])
    (run / "draws-00000.npy").write_bytes(content)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["segments"] = [{"file": "draws-00000.npy", "draws": 1, "crc32": zlib.crc32(content)}]
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(lwa.RunFolderError, match="is damaged"):
        lwa.load(run)


@pytest.mark.parametrize(
    "name",
    ["draws.rows", "state-9.lwa.0123.partial", "manifest.json.0123.partial", "state-00000009.lwa", ".lock"],
)
def test_a_link_is_not_written_through(name, run, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "mine.txt")
    with pytest.raises(lwa.RunFolderError, match="is a link to somewhere else"):
        lwa.resume(run, PLAIN, Y, draws=40, progress=False)
    with pytest.raises(lwa.RunFolderError, match="is a link to somewhere else"):
        lwa.sample(PLAIN, Y, subset_size=50, draws=30, tune=50, seed=1, progress=False).save(run)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_no_report_is_written_through_a_link(run, tmp_path):
    """What lwa calls the file while it writes it cannot be guessed, and a link of that name would be an error."""
    (tmp_path / "mine.txt").write_text("mine")
    for name in ("report.html.partial", "report.html"):
        (run / name).symlink_to(tmp_path / "mine.txt")
    with pytest.raises(lwa.InputError, match="is a link to somewhere else"):
        lwa.load(run).report(run / "report.html")
    (run / "report.html").unlink()
    assert lwa.load(run).report(run / "report.html").exists()
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("name", ["manifest.json", "draws.rows", "report.html"])
def test_a_pipe_is_not_waited_for(name, run):
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    with pytest.raises(lwa.LwaError, match=r"is not a regular file|it was cut off"):
        lwa.load(run).report(run / "report.html")


def test_a_state_of_50_gigabytes_is_not_read_and_the_one_before_is_used(run):
    last = sorted(run.glob("state-*.lwa"))[-1]
    huge = run / "state-00000099.lwa"
    huge.write_bytes(last.read_bytes())
    os.truncate(huge, 50 * 2**30)
    with pytest.warns(lwa.LwaWarning, match=r"more than lwa writes.*The run resumed from the state before it"):
        assert lwa.resume(run, PLAIN, Y, draws=40, progress=False).draws == 40
    for file in run.glob("state-*.lwa"):
        os.truncate(file, 50 * 2**30)
    with pytest.raises(lwa.RunFolderError, match="more than lwa writes"):
        lwa.resume(run, PLAIN, Y, draws=50, progress=False)


# Rows


@pytest.fixture
def store(tmp_path):
    import pandas as pd

    table = pd.DataFrame({"x": np.arange(50.0), "k": ["a", "b"] * 25})
    convert(table, tmp_path / "store", progress=False)
    return tmp_path / "store"


def manifest_of(store, change):
    manifest = json.loads((store / "manifest.json").read_text())
    change(manifest)
    (store / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("content", [pickled, lambda _: npy_of((10**14, 1)), lambda _: npy_of((-5, 1))])
def test_a_store_whose_rows_are_a_pickle_or_promise_too_much(content, store, tmp_path):
    shard = next(store.glob("rows-*-float64.npy"))
    shard.write_bytes(content(tmp_path / "ran"))
    manifest_of(
        store, lambda told: [file.update(bytes=shard.stat().st_size) for one in told["shards"] for file in one["files"]]
    )
    with pytest.raises(lwa.DataError, match=r"is damaged: .*Convert it again"):
        open_store(store)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["shards"][0]["files"][0].update(file="../rows-00000-float64.npy"),
        lambda told: told["shards"][0]["files"][0].update(file="/etc/passwd"),
        lambda told: told["columns"][0].update(position=10**9),
        lambda told: told["columns"][0].update(position="__class__"),
        lambda told: told["columns"][1].update(ranks=[10**12]),
        lambda told: told["columns"][1].update(ranks=["touch ran"]),
        lambda told: told["columns"][1].update(ranks=[0]),
        lambda told: told.update(columns=3),
        lambda told: told.update(shards=[[]]),
        lambda told: told.update(rows=10**18),
        lambda told: told.pop("source"),
        lambda told: told.update(source="touch ran"),
    ],
)
def test_a_manifest_of_rows_that_lwa_did_not_write(change, store):
    manifest_of(store, change)
    with pytest.raises(lwa.DataError):
        open_store(store)


def test_rows_of_a_file_that_are_a_pickle(tmp_path):
    (tmp_path / "y.npy").write_bytes(pickled(tmp_path / "ran"))
    with pytest.raises(lwa.DataError, match="holds Python objects"):
        lwa.sample(PLAIN, tmp_path / "y.npy", progress=False)
    (tmp_path / "y.npy").write_bytes(npy_of((10**14,)))
    with pytest.raises(lwa.DataError, match="cut short"):
        lwa.sample(PLAIN, tmp_path / "y.npy", progress=False)
    assert not (tmp_path / "ran").exists()


def test_the_copy_is_sound(run):
    """What the tests above spoil would have worked."""
    assert stream.STREAM_FILE in {file.name for file in run.iterdir()}
    rewritten(run, lambda *_: None)
    assert read_facts(run)["state"] == "over"
    assert lwa.resume(run, PLAIN, Y, draws=40, progress=False).draws == 40
