"""States on disk: whole or not at all, two of them, and nothing in them is ever executed."""

import json
import pickle
import zipfile
import zlib
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lwa.errors import RunFolderError
from lwa.storage import generations
from lwa.storage.generations import HEADER, MAGIC, pack_generation, unpack_generation
from lwa.storage.stream import Stream, build_record, load_stream

HEAD = {"position": 12, "clock": [[1, 0.5]], "text": "θ"}
ARRAYS = {"a/b.0": np.arange(6.0).reshape(2, 3), "flags": np.array([True, False]), "empty": np.empty((0, 3))}


def test_there_and_back():
    head, arrays = unpack_generation(pack_generation(HEAD, ARRAYS))
    assert head == HEAD
    assert list(arrays) == list(ARRAYS)
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], values)
        assert arrays[name].dtype == values.dtype


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_damage_is_overlooked(data):
    content = pack_generation(HEAD, ARRAYS)
    if data.draw(st.booleans(), label="cut off"):
        spoilt = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
        spoilt = content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]
    with pytest.raises(ValueError, match=r"cut off|checksum|no checkpoint"):
        unpack_generation(spoilt)


def test_the_last_two_are_kept_and_the_last_that_is_whole_counts(tmp_path):
    for number in range(1, 5):
        generations.write_generation(tmp_path, number, HEAD | {"position": number}, ARRAYS)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["state-00000003.lwa", "state-00000004.lwa"]
    last = tmp_path / "state-00000004.lwa"
    last.write_bytes(last.read_bytes()[:-10])
    found = list(generations.read_generations(tmp_path))
    assert found[0][0] is None
    assert "cut off" in found[0][1]
    assert found[1][0].head["position"] == 3


class Evil:
    """Writes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def wrapped(**files):
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    content = buffer.getvalue()
    return HEADER.pack(MAGIC, len(content), zlib.crc32(content)) + content


def npy(array, **options):
    buffer = BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def test_a_pickle_is_refused_and_not_run(tmp_path):
    evil = np.empty(1, object)
    evil[0] = Evil(tmp_path / "ran")
    head = npy(np.frombuffer(json.dumps(HEAD).encode(), np.uint8))
    with pytest.raises(ValueError, match="does not hold the numbers"):
        unpack_generation(wrapped(**{"head.npy": head, "a.npy": npy(evil, allow_pickle=True)}))
    with pytest.raises(ValueError, match="cannot be read"):
        unpack_generation(wrapped(**{"head.npy": pickle.dumps(evil[0])}))
    with pytest.raises(ValueError, match="cannot be read"):
        unpack_generation(wrapped(**{"a.npy": npy(np.zeros(2))}))
    with pytest.raises(ValueError, match="no description"):
        unpack_generation(wrapped(**{"head.npy": npy(np.frombuffer(b"[1]", np.uint8))}))
    assert not (tmp_path / "ran").exists()


def npy_of(shape, descr="<f8"):
    """A file that promises more than it holds."""
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("../outside.npy", npy(np.zeros(2)), "nothing that lwa writes"),
        ("/tmp/outside.npy", npy(np.zeros(2)), "nothing that lwa writes"),
        ("a.npy", npy_of((10**15,)), "numbers that it promises"),
        ("a.npy", npy_of((2**62, 8)), "numbers that it promises"),
        ("a.npy", npy_of((-1,)), "numbers that it promises"),
        ("a.npy", b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, "cannot be read"),
        ("a.npy", b"\x93NUMPY\x09\x00", "cannot be read"),
        ("a.npy", b"", "cannot be read"),
        ("head.npy", npy(np.frombuffer(b"[" * 10**6, np.uint8)), "cannot be read"),
    ],
)
def test_what_lwa_would_not_write_is_refused(name, content, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    head = npy(np.frombuffer(b"{}", np.uint8))
    with pytest.raises(ValueError, match=said):
        unpack_generation(wrapped(**{"head.npy": head} | {name: content}))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_decompressed():
    """A few kilobytes could become all the memory there is."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("head.npy", npy(np.zeros(10**6)))
    content = buffer.getvalue()
    with pytest.raises(ValueError, match="nothing that lwa writes"):
        unpack_generation(HEADER.pack(MAGIC, len(content), zlib.crc32(content)) + content)


@pytest.mark.parametrize(
    "told",
    [
        {"record": [["a", "|O"]]},
        {"record": []},
        {"file": "../draws.rows"},
        {"file": "/etc/passwd"},
        {"chains": 0},
        {"draws": -1},
    ],
    ids=str,
)
def test_a_stream_of_objects_or_of_other_files_is_refused(told, tmp_path):
    usual = {"file": "draws.rows", "draws": 1, "chains": 1, "crc32": 0, "record": [["a", "<f8"]]}
    assert load_stream(tmp_path, usual).draws == 1
    with pytest.raises(RunFolderError, match="not lwa's own"):
        load_stream(tmp_path, usual | told)


def test_a_stream_that_promises_more_than_its_file_holds_is_cut_off(tmp_path):
    (tmp_path / "draws.rows").write_bytes(bytes(80))
    told = {"file": "draws.rows", "draws": 10**15, "chains": 10**3, "crc32": 0, "record": [["a", "<f8"]]}
    assert load_stream(tmp_path, told).verify() == "it was cut off"


def some(draws, seed):
    rng = np.random.default_rng(seed)
    return {"posterior/β": rng.normal(size=(2, draws, 3)), "sample_stats/accepted": rng.random((2, draws)) < 0.5}


def test_draws_are_appended_and_read_where_they_lie(tmp_path):
    parts = [some(4, 1), some(1, 2), some(7, 3)]
    stream = Stream(tmp_path / "draws.rows", build_record(parts[0]), 2)
    for part in parts:
        stream.append(part)
    again = load_stream(tmp_path, json.loads(json.dumps(stream.describe())))
    assert again.verify() == ""
    for name in parts[0]:
        np.testing.assert_array_equal(again.variables()[name], np.concatenate([part[name] for part in parts], axis=1))


def test_what_was_written_after_the_last_checkpoint_is_written_over(tmp_path):
    stream = Stream(tmp_path / "draws.rows", build_record(some(1, 0)), 2)
    stream.append(some(3, 1))
    kept = load_stream(tmp_path, stream.describe())
    stream.append(some(5, 2))
    assert kept.verify() == ""
    kept.append(some(2, 4))
    assert kept.verify() == ""
    assert kept.path.stat().st_size == 8 * kept.draw_bytes  # others may have mapped it
    np.testing.assert_array_equal(
        kept.variables()["posterior/β"], np.concatenate([some(3, 1)["posterior/β"], some(2, 4)["posterior/β"]], axis=1)
    )


def test_a_damaged_stream_says_so(tmp_path):
    stream = Stream(tmp_path / "draws.rows", build_record(some(1, 0)), 2)
    stream.append(some(30, 1))
    content = stream.path.read_bytes()
    stream.path.write_bytes(content[:-1])
    assert stream.verify() == "it was cut off"
    stream.path.write_bytes(content[:9] + bytes([content[9] ^ 4]) + content[10:])
    assert "checksum" in stream.verify()
    stream.path.unlink()
    assert stream.verify() == "No such file or directory"
