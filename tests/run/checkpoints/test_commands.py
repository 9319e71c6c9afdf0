"""`lwa fit`, `lwa resume` and `lwa watch` of a run that is kept while it goes on."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import lwa
from lwa.run.checkpoints import keeper, watch
from lwa.run.checkpoints.watch import read_facts
from lwa.run.loop import BlockRunner
from tests.cli.test_fit import MODELS, SMALL, flights, place  # noqa: F401
from tests.run.checkpoints.test_resume import PLAIN, Y, same

QUICK = ["--no-certify", "--no-report"]
FIT = ["fit", "delay ~ distance + origin", "flights.csv", *SMALL[:2], "--tune", "300", "--seed", "1", *QUICK]
RUN = Path("runs/fit")


@pytest.fixture
def at_block(monkeypatch):
    """Do something after so many blocks."""
    left, action = [0], [None]
    usual = keeper.Folder.after_block

    def after_block(self, runner, state):
        self.due = 0.0
        usual(self, runner, state)
        left[0] -= 1
        if left[0] == 0:
            action[0]()

    monkeypatch.setattr(keeper.Folder, "after_block", after_block)

    def plan(blocks, what):
        left[0], action[0] = blocks, what

    return plan


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def refused(call, *arguments):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    complaint = err[err.index("lwa: ") :]
    assert complaint.count("\n") == 1
    return complaint


@pytest.mark.slow
def test_a_fit_that_is_terminated_goes_on_to_the_same_draws(call, place, at_block):  # noqa: F811
    assert call(*FIT, "--draws", "3000", "--out", "runs/whole")[0] == 0
    seen = {}

    def look_and_terminate():
        seen.update(read_facts(RUN))
        terminate()

    at_block(8, look_and_terminate)
    code, out, err = call(*FIT, "--draws", "3000")
    assert (code, out) == (143, "")
    told = re.search(
        r"lwa: Terminated with (\d+) draws per chain, saved in runs/fit\. Continue with: lwa resume runs/fit\n", err
    )
    assert told
    assert "Traceback" not in err
    assert re.fullmatch(r"running, kept \d+ s ago", seen["state"])
    assert re.fullmatch(r"[\d,]+ of 3,000", seen["draws per chain"])
    assert re.fullmatch(r"about [\d,]+, of the worst parameter", seen["effective draws"])
    assert {"R-hat", "subset changes", "seconds", "time left"} <= set(seen)
    assert lwa.load(RUN).draws == int(told[1]) > 0

    code, out, _ = call("watch", RUN, "--once")
    assert code == 0
    assert re.search(r"terminated after \d+ of 3000 draws; lwa resume runs/fit goes on", out)

    code, out, err = call("resume", RUN, *QUICK)
    assert code == 0
    assert "beta[distance]" in out
    same(lwa.load("runs/whole"), lwa.load(RUN))
    code, out, _ = call("watch", RUN)
    assert code == 0
    assert re.search(r"state +│ over ", out)
    assert re.search(r"draws per chain +│ 3,000 of 3,000", out)
    assert call("resume", RUN, "--draws", "3100", *QUICK)[0] == 0
    assert lwa.load(RUN).draws == 3100


@pytest.mark.slow
def test_a_longer_run_is_the_run_that_was_longer_from_the_start(call, place):  # noqa: F811
    assert call(*FIT, "--draws", "100")[0] == 0
    code, out, _ = call("resume", RUN, "--draws", "3000", "--json")
    assert code == 0
    assert json.loads(out)["draws"] == 3000
    assert lwa.load(RUN).certificate is not None
    assert (RUN / "report.html").exists()
    assert call(*FIT, "--draws", "3000", "--out", "runs/longer")[0] == 0
    same(lwa.load("runs/longer"), lwa.load(RUN))


@pytest.mark.slow
def test_terminated_during_tune(call, place, at_block):  # noqa: F811
    at_block(2, terminate)
    code, out, err = call(*FIT, "--draws", "50")
    assert (code, out) == (143, "")
    assert "Terminated with 0 draws per chain" in err
    assert re.search(r"tune +│ 232 of 300 steps", call("watch", RUN)[1])
    assert call("resume", RUN, *QUICK)[0] == 0
    assert call(*FIT, "--draws", "50", "--out", "runs/whole")[0] == 0
    same(lwa.load("runs/whole"), lwa.load(RUN))


@pytest.mark.slow
def test_ctrl_c_then_resume(call, place, at_block):  # noqa: F811
    at_block(8, lambda: os.kill(os.getpid(), signal.SIGINT))
    code, out, _ = call(*FIT, "--draws", "3000")
    assert code == 0
    assert "Warning: Stopped early: interrupted after" in out
    assert call("resume", RUN, *QUICK)[0] == 0
    assert lwa.load(RUN).draws == 3000
    assert not lwa.load(RUN).attributes["stopped"]


@pytest.mark.slow
def test_a_larger_budget_buys_more_draws(call, place):  # noqa: F811
    assert call(*FIT, "--draws", "auto", "--budget", "0.5s")[0] == 0
    before = lwa.load(RUN)
    code, _, _ = call("resume", RUN, *QUICK)
    assert code == 0
    assert lwa.load(RUN).draws == before.draws
    assert call("resume", RUN, "--budget", "1s", *QUICK)[0] == 0
    after = lwa.load(RUN)
    assert after.draws > before.draws
    np.testing.assert_array_equal(after.posterior["beta"][:, : before.draws], before.posterior["beta"])
    assert "lwa: " in refused(call, "resume", RUN, "--budget", "soon")


@pytest.mark.slow
def test_data_that_changed_are_refused_by_name(call, place, at_block):  # noqa: F811
    at_block(8, terminate)
    assert call(*FIT, "--draws", "3000")[0] == 143
    table = flights()
    table.loc[7, "distance"] += 1
    table.to_csv("flights.csv", index=False)
    complaint = refused(call, "resume", RUN)
    assert "runs/fit was begun differently, so its draws cannot be continued: fingerprint of the data: " in complaint
    table.loc[:2000].to_csv("flights.csv", index=False)
    assert "rows: 3000 then, 2001 now" in refused(call, "resume", RUN)
    flights().to_csv("flights.csv", index=False)
    assert call("resume", RUN, *QUICK)[0] == 0


def test_watching_ends_with_the_run(tmp_path, monkeypatch, capsys):
    lwa.sample(PLAIN, Y, subset_size=50, draws=20, tune=20, seed=1, progress=False, checkpoint=tmp_path / "run")
    looks = iter([True, True, True, True])
    monkeypatch.setattr(watch, "is_running", lambda _: next(looks, False))
    monkeypatch.setattr(watch, "SECONDS", 0.0)
    monkeypatch.setattr(watch, "Console", lambda: Console(force_terminal=True, width=100))
    watch.follow(tmp_path / "run", once=False)
    shown = capsys.readouterr().out
    assert shown.index("running, kept") < shown.rindex("over")
    assert next(looks, None) is None


def test_what_cannot_be_resumed(call, place):  # noqa: F811
    assert "nothing holds no checkpoint to go on from: there is none" in refused(call, "resume", "nothing")
    Path("empty").mkdir()
    assert "empty holds no checkpoint" in refused(call, "resume", "empty")
    assert "empty holds no checkpoint of a run" in refused(call, "watch", "empty")
    lwa.sample(PLAIN, Y, subset_size=50, draws=20, tune=20, seed=1, progress=False).save("saved")
    assert "saved holds no checkpoint" in refused(call, "resume", "saved")
    lwa.sample(PLAIN, Y, subset_size=50, draws=20, tune=20, seed=1, progress=False, checkpoint="mine")
    assert "mine holds a run that was started in Python" in refused(call, "resume", "mine")
    assert "mine has 20 draws already" not in call("watch", "mine")[1]
    assert call(*FIT, "--draws", "20")[0] == 0
    assert "runs/fit has 20 draws already. Pass --draws 20 or more." in refused(call, "resume", RUN, "--draws", "3")


@pytest.mark.slow
def test_a_run_that_is_there_is_left_alone_or_replaced(call, place, at_block):  # noqa: F811
    at_block(8, terminate)
    assert call(*FIT, "--draws", "3000")[0] == 143
    assert "runs/fit holds a run already. Pass --overwrite to replace it" in refused(call, *FIT)
    (RUN / "manifest.json").unlink()  # as after a kill
    assert "holds a run already. lwa resume runs/fit goes on with it. Pass --overwrite" in refused(call, *FIT)
    at_block(8, terminate)
    other = ["fit", "delay ~ 1", "flights.csv", *SMALL[:2], "--seed", "2", "--overwrite", *QUICK]
    assert call(*other, "--draws", "3000")[0] == 143
    assert call("resume", RUN, *QUICK)[0] == 0
    assert lwa.load(RUN).posterior["beta"].shape == (4, 3000, 1)
    # A fit that is refused leaves what is there.
    assert "'distanse' in" in refused(call, "fit", "delay ~ distanse", "flights.csv", "--overwrite")
    assert lwa.load(RUN).draws == 3000


def test_a_numpyro_model_is_named_again(call, place, at_block):  # noqa: F811
    """What a folder says is never imported."""
    (place / "mine.py").write_text(MODELS)
    at_block(8, terminate)
    asked = ["fit", "--numpyro", "mine:normal", "flights.csv", *SMALL[:2], "--draws", "2000", "--seed", "1", *QUICK]
    assert call(*asked)[0] == 143
    (place / "mine.py").write_text("__import__('pathlib').Path('ran').touch()\n" + MODELS)
    sys.modules.pop("mine")
    assert "Pass the same: --numpyro mine:normal." in refused(call, "resume", RUN)
    assert "was started with --numpyro mine:normal" in refused(call, "resume", RUN, "--numpyro", "mine:other")
    assert not Path("ran").exists()
    assert call("resume", RUN, "--numpyro", "mine:normal", *QUICK)[0] == 0
    assert lwa.load(RUN).draws == 2000


@pytest.mark.slow
def test_a_damaged_state_is_said(call, place, at_block):  # noqa: F811
    at_block(9, terminate)
    assert call(*FIT, "--draws", "3000")[0] == 143
    last = sorted(RUN.glob("state-*.lwa"))[-1]
    last.write_bytes(last.read_bytes()[:-7])
    code, out, err = call("resume", RUN, *QUICK)
    assert code == 0
    assert f"Warning: {last.name} is damaged (it was cut off). The run resumed from the state before it." in out
    assert "Traceback" not in err
    for state in RUN.glob("state-*.lwa"):
        state.write_bytes(b"junk")
    assert "runs/fit holds no checkpoint to go on from: " in refused(call, "resume", RUN)
    assert lwa.load(RUN).draws == 3000  # which need no state


@pytest.mark.slow
def test_a_disk_that_is_full_in_the_middle(call, place, at_block, monkeypatch):  # noqa: F811
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        at_block(8, lambda: patched.setattr(keeper, "write_generation", full))
        complaint = refused(call, *FIT, "--draws", "3000")
    assert complaint == (
        "lwa: Cannot write a checkpoint to runs/fit: No space left on device. Make room, then lwa resume runs/fit goes "
        "on from the one before.\n"
    )
    assert lwa.load(RUN).draws > 0
    assert call("resume", RUN, *QUICK)[0] == 0
    assert lwa.load(RUN).draws == 3000


@pytest.mark.slow
def test_no_memory(call, place, at_block, monkeypatch):  # noqa: F811
    def none(*_):
        raise MemoryError("cannot allocate 9 bytes")

    with monkeypatch.context() as patched:
        patched.setattr("lwa.run.sample.prepare", none)
        assert refused(call, *FIT).startswith("lwa: Out of memory: cannot allocate 9 bytes. Pass a smaller")
    assert not RUN.exists()
    with monkeypatch.context() as patched:
        at_block(8, lambda: patched.setattr(BlockRunner, "play", none))
        code, out, err = call(*FIT, "--draws", "3000")
    assert code == 0
    assert "Warning: Stopped early: no memory was left after" in out
    assert "Traceback" not in err
    assert call("resume", RUN, *QUICK)[0] == 0
    assert lwa.load(RUN).draws == 3000


@pytest.mark.slow
def test_a_fit_that_is_killed_goes_on(call, place):  # noqa: F811
    asked = [*FIT, "--draws", "1000000000"]
    child = subprocess.Popen(
        [sys.executable, "-c", "from lwa.cli.app import main; main()", *asked], stderr=subprocess.PIPE
    )
    try:
        until = time.monotonic() + 120
        while not (RUN.exists() and any(RUN.glob("state-*.lwa")) and lwa.load(RUN).draws):
            assert child.poll() is None, child.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.1)
        assert "running, kept" in call("watch", RUN)[1]
        assert "Another process keeps its run in runs/fit" in refused(call, "resume", RUN)
    finally:
        child.kill()
        child.communicate()  # which closes its pipe
    assert "ended without notice" in call("watch", RUN)[1]
    draws = lwa.load(RUN).draws + 100
    assert call("resume", RUN, "--draws", draws, *QUICK)[0] == 0
    assert call(*FIT, "--draws", draws, "--out", "runs/whole")[0] == 0
    same(lwa.load("runs/whole"), lwa.load(RUN))
