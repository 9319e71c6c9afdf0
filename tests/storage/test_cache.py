"""Compiled programs that one command leaves to the next."""

import os
import subprocess
import sys

import pytest

from lwa.storage import cache
from lwa.storage.cache import LEAST_SECONDS, USER_SETTINGS, remove_oldest

COMPILES = """
from lwa.storage.cache import keep_programs
with keep_programs() as folder:
    import jax
    from jax import monitoring
    found = []
    monitoring.register_event_listener(lambda name, **_: found.append(name.rpartition("/")[2]))
    jax.jit(lambda x: x @ x + 1.0)(jax.numpy.ones((3, 3)))
print(folder, found.count("cache_hits"), found.count("cache_misses"))
"""


def in_a_process(code, cache, **given):
    """What it prints, word by word, and on standard error."""
    kept = {name: value for name, value in os.environ.items() if name not in (*USER_SETTINGS, LEAST_SECONDS)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, "LWA_CACHE": cache, **given},
    )
    return done.stdout.split(), done.stderr


@pytest.mark.slow
def test_the_next_process_compiles_nothing(tmp_path):
    (folder, hits, misses), _ = in_a_process(COMPILES, str(tmp_path))
    assert folder.startswith(str(tmp_path / "programs"))
    assert int(hits) == 0
    assert int(misses) > 0
    assert os.stat(folder).st_mode & 0o077 == 0  # nobody else may put programs there
    (_, hits, again), errors = in_a_process(COMPILES, str(tmp_path))
    assert (hits, again, errors) == (misses, "0", "")

    for name in os.listdir(folder):
        os.truncate(os.path.join(folder, name), 20)
    (_, hits, _), errors = in_a_process(COMPILES, str(tmp_path))
    assert (hits, errors) == ("0", "")
    assert not os.path.exists(folder)  # so that what could not be read is written again
    assert in_a_process(COMPILES, str(tmp_path))[0][2] == misses


@pytest.mark.parametrize("name", USER_SETTINGS)
def test_who_has_decided_otherwise_is_left_alone(tmp_path, name):
    code = (
        "import os\nfrom lwa.storage.cache import *\n"
        "with keep_programs() as folder: print(folder, os.environ.get(LEAST_SECONDS))"
    )
    told, _ = in_a_process(code, str(tmp_path), **{name: ""})
    assert told == ["None", "None"]
    assert os.listdir(tmp_path) == []


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "file").touch()
    (folder, hits, misses), errors = in_a_process(COMPILES, str(tmp_path / "file"))
    assert (folder, hits, misses, errors) == ("None", "0", "0", "")


def test_commands_keep_programs_and_the_library_does_not(tmp_path):
    in_a_process("import lwa, jax\njax.jit(lambda x: x + 1)(1.0)\nlwa.sample", str(tmp_path))
    assert os.listdir(tmp_path) == []
    in_a_process("import sys\nfrom lwa.cli.app import main\nsys.argv = ['lwa', '--help']\nmain()", str(tmp_path))
    assert os.listdir(tmp_path) == ["programs"]


def test_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MOST_PROGRAM_BYTES", 100)
    for age, name in enumerate("dcba"):
        (tmp_path / name).write_bytes(bytes(25))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    remove_oldest(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c", "d"]
    (tmp_path / "e").write_bytes(bytes(25))
    remove_oldest(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["d", "e"]
