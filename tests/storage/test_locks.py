"""Locks: one process at a time writes to a folder, and a lock ends with its process."""

import signal
import subprocess
import sys

import pytest

from lwa.errors import RunFolderError
from lwa.storage.locks import LOCK_FILE, is_running, lock_conversion, lock_run, require_idle
from lwa.user.progress import Display

HOLDS = """
import sys
from pathlib import Path
from lwa.storage.locks import lock_conversion, lock_run
from lwa.user.progress import Display
folder = Path(sys.argv[2])
with lock_run(folder) if sys.argv[1] == "run" else lock_conversion(folder, Display(False)):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder():
    """Start processes that hold a lock until they are told to go on."""
    started = []

    def start(kind, folder):
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDS, kind, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(child)
        assert child.stdout.readline() == "held\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


class Heard(Display):
    """A display that lets a holder go as soon as it is waited for."""

    def __init__(self, child):
        super().__init__(False)
        self.child, self.heard = child, []

    def say(self, text):
        self.heard.append(text)
        self.child.stdin.write("\n")
        self.child.stdin.flush()


def test_a_run_folder_is_refused_while_another_process_writes_to_it(tmp_path, holder):
    child = holder("run", tmp_path)
    assert is_running(tmp_path)
    with pytest.raises(RunFolderError, match="Another process keeps its run in"), lock_run(tmp_path):
        pass
    child.communicate("\n")
    assert not is_running(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_ends_with_its_process(tmp_path, holder):
    child = holder("run", tmp_path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert (tmp_path / LOCK_FILE).exists()
    assert not is_running(tmp_path)
    with lock_run(tmp_path):
        pass


def test_a_look_leaves_no_trace(tmp_path):
    require_idle(tmp_path)
    assert list(tmp_path.iterdir()) == []
    require_idle(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_cannot_be_taken_stops_no_run(tmp_path):
    """A file system without locks, or, as here, a lock file that is a folder."""
    (tmp_path / LOCK_FILE).mkdir()
    with lock_run(tmp_path):
        pass
    assert (tmp_path / LOCK_FILE).is_dir()


def test_a_conversion_waits_for_another(tmp_path, holder):
    folder = tmp_path / "store"
    display = Heard(holder("conversion", folder))
    with lock_conversion(folder, display):  # the folder was removed meanwhile: the other made it and left it empty
        assert (folder / LOCK_FILE).exists()
    assert display.heard == [f"Waiting for another conversion into {folder}"]


def test_a_conversion_leaves_no_empty_folder_of_its_own(tmp_path):
    with lock_conversion(tmp_path / "new", Display(False)):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    with lock_conversion(tmp_path / "old", Display(False)):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["old"]
