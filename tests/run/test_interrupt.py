"""A run that is broken off keeps what it has: Ctrl-C from outside, or data that fail on the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import lwa
from lwa.rows.memory import ArrayRows
from lwa.user.progress import catch_interrupts
from tests.support import MODEL, Y, run, sample

ROOT = Path(__file__).parents[2]
OPTIONS = {"epsilon": 0.05, "thinning": 100, "precision": "float32"}
ENDLESS = 10**9


class Watched:
    """Rows that call `after` once they have been taken so many times."""

    def __init__(self, takes, after):
        self.rows, self.takes, self.after = ArrayRows(Y), takes, after
        self.lock = threading.Lock()

    def __len__(self):
        return len(self.rows)

    def blocks(self, size):
        return self.rows.blocks(size)

    def take(self, indices):
        with self.lock:
            self.takes -= 1
            due = self.takes == 0
        if due:
            self.after()
        return self.rows.take(indices)


def assert_beginning(fit, whole):
    for group in ("posterior", "sample_stats"):
        for name, values in getattr(fit, group).items():
            np.testing.assert_array_equal(values, getattr(whole, group)[name][:, : fit.draws])


CHILD = """
import sys, warnings
import lwa
from tests.support import MODEL
from tests.run.test_interrupt import ENDLESS, OPTIONS, Watched, sample

if __name__ == "__main__":
    rows = Watched(40, lambda: print("under way", flush=True))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit = sample(MODEL, rows, draws=ENDLESS, **OPTIONS)
    fit.save(sys.argv[1])
    print([str(warning.message) for warning in told if issubclass(warning.category, lwa.LwaWarning)])
"""


@pytest.mark.slow
def test_ctrl_c_returns_the_draws_so_far(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, tmp_path / "run"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "under way\n", child.stderr.read()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0, err
    assert "Stopped early: interrupted after" in out
    fit = lwa.load(tmp_path / "run")
    assert fit.draws > 0
    assert fit.attributes["stopped"] == f"interrupted after {fit.draws} of {ENDLESS} draws"
    assert_beginning(fit, run(draws=fit.draws, **OPTIONS))


def test_ctrl_c_in_the_same_process():
    handler = signal.getsignal(signal.SIGINT)
    rows = Watched(40, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.warns(lwa.LwaWarning, match=f"Stopped early: interrupted after .* of {ENDLESS} draws"):
        fit = sample(MODEL, rows, draws=ENDLESS, **OPTIONS)
    assert fit.draws > 0
    assert signal.getsignal(signal.SIGINT) is handler
    assert_beginning(fit, run(draws=fit.draws, **OPTIONS))


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)  # lets Python run the handler


def test_a_second_ctrl_c_interrupts_at_once():
    with catch_interrupts() as interruption:
        press_ctrl_c()
        assert interruption.asked
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()


def test_elsewhere_than_in_the_main_thread_signals_are_left_alone():
    handler, found = signal.getsignal(signal.SIGINT), []

    def elsewhere():
        with catch_interrupts() as interruption:
            found.append((signal.getsignal(signal.SIGINT), interruption.asked))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [(handler, "")]


def test_a_run_in_another_thread():
    fits = []
    thread = threading.Thread(target=lambda: fits.append(run(**OPTIONS)))
    thread.start()
    thread.join()
    assert_beginning(fits[0], run(**OPTIONS))


def fail():
    raise lwa.DataError("'rows.npy' shrank while it was read. Write it again.")


def test_data_that_fail_on_the_way_leave_the_draws_so_far():
    with pytest.warns(lwa.LwaWarning, match=r"Stopped early: DataError after \d+ of .* draws: 'rows.npy' shrank"):
        fit = sample(MODEL, Watched(40, fail), draws=ENDLESS, **OPTIONS)
    assert fit.draws > 0
    assert fit.attributes["stopped"].startswith(f"DataError after {fit.draws} of {ENDLESS} draws")
    assert_beginning(fit, run(draws=fit.draws, **OPTIONS))


def test_data_that_fail_before_the_first_draw_raise():
    with pytest.raises(lwa.DataError, match="shrank while it was read"):
        sample(MODEL, Watched(3, fail), draws=ENDLESS, **OPTIONS)
