"""What can happen to a run that is kept: signals, kills, full disks, damaged and shortened files. No draw is lost."""

import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.rows.memory import ArrayRows
from lwa.run.checkpoints import keeper
from lwa.run.loop import BlockRunner
from lwa.storage import generations, stream
from tests.run.checkpoints.test_resume import COMMON, HOST, PLAIN, Ended, Y, begun, ending, in_python, same  # noqa: F401
from tests.support import SHORT_RUN

OPTIONS = COMMON | {"subset_size": 50}
ROOT = Path(__file__).parents[3]
SLOW = pytest.mark.slow


def whole(**options):
    return lwa.sample(PLAIN, Y, **OPTIONS | options)


def resumed(folder, model=PLAIN, data=Y, **options):
    return lwa.resume(folder, model, data, progress=False, **options)


def beginning(fit, other):
    """The draws of one run are the first of another."""
    for group in ("posterior", "sample_stats"):
        for name, values in getattr(fit, group).items():
            np.testing.assert_array_equal(getattr(other, group)[name][:, : fit.draws], values)


# Damaged files


@pytest.mark.parametrize("damage", ["cut off", "a bit flipped", pytest.param("gone", marks=SLOW)])
def test_a_damaged_state_costs_one_generation_and_is_said(damage, ending, tmp_path):  # noqa: F811
    folder = begun(tmp_path / "run", ending, blocks=6)
    last = sorted(folder.glob("state-*.lwa"))[-1]
    content = last.read_bytes()
    if damage == "gone":
        last.unlink()
        same(whole(draws=1000), resumed(folder, draws=1000))
        return
    last.write_bytes(content[:100] if damage == "cut off" else content[:999] + b"\0" + content[1000:])
    said = "is damaged .* resumed from the state before it"
    with pytest.warns(lwa.LwaWarning, match=said):
        fit = resumed(folder, draws=1000)
    assert any("resumed from the state before" in remark for remark in lwa.load(folder).attributes["warnings"])
    same(whole(draws=1000), fit)


def test_draws_that_were_cut_off_cost_one_generation(ending, tmp_path):  # noqa: F811
    folder = begun(tmp_path / "run", ending, blocks=8)
    counts = [one.head["stream"]["draws"] for one, _ in generations.read_generations(folder)]
    assert counts[0] > counts[1]
    draws = folder / stream.STREAM_FILE
    os.truncate(draws, draws.stat().st_size - 1)
    with pytest.warns(lwa.LwaWarning, match="does not hold the draws"):
        fit = resumed(folder, draws=2000)
    same(whole(draws=2000), fit)


def test_where_no_state_is_whole_it_says_so(ending, tmp_path):  # noqa: F811
    folder = begun(tmp_path / "run", ending, blocks=4)
    for state in folder.glob("state-*.lwa"):
        state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(lwa.RunFolderError, match=r"no checkpoint to go on from: .*cut off\); .*cut off\)\. Begin"):
        resumed(folder)
    with pytest.raises(lwa.RunFolderError, match=r"is damaged: .*cut off"):
        lwa.load(folder)
    with pytest.raises(lwa.RunFolderError, match="no checkpoint to go on from: there is none"):
        resumed(tmp_path)


# Disks


@pytest.mark.parametrize(
    ("where", "error"),
    [
        pytest.param("draws", errno.ENOSPC, marks=SLOW),
        ("state", errno.ENOSPC),
        ("draws", errno.EROFS),
        pytest.param("state", errno.EROFS, marks=SLOW),
    ],
    ids=["draws, full", "state, full", "draws, read-only", "state, read-only"],
)
def test_a_disk_that_takes_no_more_ends_the_run_with_all_its_draws(where, error, tmp_path, monkeypatch):
    """What was drawn by then comes back, what was kept stays, and the run goes on once it can."""
    left = [6]

    def guarded(usual):
        def write(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(error, os.strerror(error))
            return usual(*arguments, **options)

        return write

    monkeypatch.setattr(keeper, "STATE_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "STATE_SHARE", 1.0)
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        if where == "draws":
            left[0] = 1
            patched.setattr(stream.Stream, "append", guarded(stream.Stream.append))
        else:
            patched.setattr(keeper, "write_generation", guarded(keeper.write_generation))
        with pytest.warns(lwa.LwaWarning, match=rf"Cannot write a checkpoint .*{os.strerror(error)}.* goes on from"):
            fit = lwa.sample(PLAIN, Y, checkpoint=folder, **OPTIONS | {"draws": 10**5})
    assert fit.draws > lwa.load(folder).draws > 0
    assert os.strerror(error) in fit.attributes["stopped"]
    again = resumed(folder, draws=fit.draws + 5)
    beginning(fit, again)
    same(whole(draws=fit.draws + 5), again)


def test_a_disk_that_is_full_at_once_is_said_before_any_move(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeper, "write_generation", full)
    monkeypatch.setattr(BlockRunner, "play", None)
    with pytest.raises(lwa.RunFolderError, match=r"No space left on device\. Pass another folder"):
        lwa.sample(PLAIN, Y, checkpoint=tmp_path / "run", **OPTIONS)


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(lwa.RunFolderError, match="no folder that you may write to"):
        lwa.sample(PLAIN, Y, checkpoint=tmp_path / "file" / "run", **OPTIONS)
    monkeypatch.setattr("os.access", lambda *_: False)  # chmod does not stop root
    with pytest.raises(lwa.RunFolderError, match="no folder that you may write to"):
        lwa.sample(PLAIN, Y, checkpoint=tmp_path / "run", **OPTIONS)


# What fails in the middle of a block


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("cannot allocate"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes"),
    ],
    ids=["Python's", "XLA's"],
)
def test_no_memory_ends_the_run_with_its_draws(error, tmp_path, monkeypatch):
    """The chains of one half are a block ahead when it happens: no state of that may be kept."""
    blocks = [8]
    usual = BlockRunner.play

    def play(self, moves):
        blocks[0] -= 1
        if blocks[0] <= 0:
            self.run.cohorts[0].run(self.position + moves)
            jax.tree.map(lambda leaf: leaf.delete(), self.run.cohorts[1].state)  # as a program does that fails
            raise error
        return usual(self, moves)

    with monkeypatch.context() as patched:
        patched.setattr(BlockRunner, "play", play)
        with pytest.warns(lwa.LwaWarning, match=r"no memory was left after \d+ of 1000000 draws"):
            fit = lwa.sample(PLAIN, Y, checkpoint=tmp_path / "run", **OPTIONS | {"draws": 10**6})
    assert fit.draws > 0
    same(fit, lwa.load(tmp_path / "run"))
    again = resumed(tmp_path / "run", draws=fit.draws + 300)
    beginning(fit, again)
    same(whole(draws=fit.draws + 300), again)


class Failing:
    """Rows that cannot be taken any more after so many times."""

    def __init__(self, takes):
        self.rows, self.takes, self.lock = ArrayRows(Y), takes, threading.Lock()

    def __len__(self):
        return len(self.rows)

    def blocks(self, size):
        return self.rows.blocks(size)

    def take(self, indices):
        with self.lock:
            self.takes -= 1
        if self.takes <= 0:
            raise lwa.DataError("'rows.npy' shrank while it was read. Write it again.")
        return self.rows.take(indices)


def test_data_that_fail_on_the_way_leave_draws_and_the_run_goes_on_once_they_are_whole(tmp_path):
    with pytest.warns(lwa.LwaWarning, match=r"Stopped early: DataError after \d+ of .* draws: 'rows.npy' shrank"):
        fit = lwa.sample(PLAIN, Failing(60), checkpoint=tmp_path / "run", **OPTIONS | {"draws": 10**6})
    assert fit.draws > 0
    same(fit, lwa.load(tmp_path / "run"))
    again = resumed(tmp_path / "run", draws=fit.draws + 300)
    same(whole(draws=fit.draws + 300), again)


@SHORT_RUN
@pytest.mark.slow
def test_what_a_users_function_raises_leaves_the_run_on_disk(tmp_path):
    options = COMMON | {"subset_size": 20, "target": "powered", "draws": 1000, "tune": 50, "thinning": 1}
    seen = [0]

    def failing(mu, y):
        seen[0] += 1
        if seen[0] == stop:
            raise RuntimeError("the server is gone")
        return in_python(mu, y)

    stop, model = -1, lwa.Model(failing, HOST.log_prior, init=0.0)
    complete = lwa.sample(model, Y[:200], **options)
    stop, seen[0] = seen[0] - 1000, 0
    with pytest.raises(RuntimeError, match="the server is gone") as caught:
        lwa.sample(model, Y[:200], checkpoint=tmp_path / "run", **options)
    fit = caught.value.lwa_result
    assert 0 < fit.draws < 1000
    beginning(fit, complete)
    same(fit, lwa.load(tmp_path / "run"))
    same(complete, resumed(tmp_path / "run", model, Y[:200]))


# Densities that are NaN


def test_some_densities_that_are_nan_are_refused_counted_and_said(tmp_path):
    model = lwa.Model(
        lambda mu, y: jnp.where(mu > 3.05, jnp.nan, -0.5 * (y - mu) ** 2), lambda mu: -0.5 * mu**2 / 100, init=2.9
    )
    options = OPTIONS | {"target": "powered", "subset_size": 200}
    with pytest.warns(lwa.LwaWarning, match=r"\d+ proposals \(.*%\) had a log target that was NaN or \+inf"):
        fit = lwa.sample(model, Y, checkpoint=tmp_path / "run", **options)
    assert fit.draws == 300
    assert fit.posterior["theta"].max() <= 3.05
    assert lwa.load(tmp_path / "run").attributes["nonfinite_proposals"] > 0


def test_many_densities_that_are_nan_end_the_run_with_the_theta_that_caused_them():
    model = lwa.Model(
        lambda mu, y: jnp.where(jnp.abs(mu) > 0.5, jnp.nan, 0.0) * jnp.ones_like(y), lambda mu: jnp.zeros(()), init=0.0
    )
    with pytest.raises(lwa.ModelError, match=r"NaN or \+inf over the last .* for example at theta = "):
        lwa.sample(
            model, Y, subset_size=50, target="subposterior", subset_move=lwa.subsets.Fixed(), seed=1, progress=False,
            kernel=lwa.kernels.RandomWalk(scale=1e6), tune=0, draws=100, thinning=10_000,
        )  # fmt: skip


@pytest.mark.slow
def test_many_of_them_once_there_are_draws_leave_these(tmp_path):
    """A function that ceases to work in the middle of a run: what was drawn by then is there, and where it failed."""
    seen, last = [0], 6000

    def ceasing(mu, y):
        seen[0] += 1
        return in_python(mu, y) if seen[0] < last else np.full(len(y), np.nan)

    options = COMMON | {"subset_size": 20, "target": "powered", "tune": 50, "thinning": 1, "draws": 10**6}
    model = lwa.Model(ceasing, HOST.log_prior, init=0.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit = lwa.sample(model, Y[:200], checkpoint=tmp_path / "run", **options)
    stopped, counted, *of_draws = (str(one.message) for one in told)
    assert re.match(r"Stopped early: ModelError after \d+ of .* for example at theta = ", stopped)
    assert re.match(r"\d+ proposals \(.*\) had a log target that was NaN", counted)
    assert all(re.match(r"The .* draws of theta are worth|Chains disagree", one) for one in of_draws)
    assert fit.draws > 1000
    same(fit, lwa.load(tmp_path / "run"))


# Signals, and the end without notice


@pytest.mark.parametrize(("number", "said"), [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")])
def test_a_signal_keeps_everything_drawn(number, said, tmp_path, monkeypatch):
    blocks = [8]
    usual = keeper.Folder.after_block

    def after_block(self, runner, state):
        usual(self, runner, state)
        blocks[0] -= 1
        if blocks[0] == 0:
            os.kill(os.getpid(), number)

    handler = signal.getsignal(number)
    monkeypatch.setattr(keeper.Folder, "after_block", after_block)
    with pytest.warns(lwa.LwaWarning, match=rf"Stopped early: {said} after \d+ of 1000000 draws"):
        fit = lwa.sample(PLAIN, Y, checkpoint=tmp_path / "run", **OPTIONS | {"draws": 10**6})
    assert signal.getsignal(number) is handler
    assert fit.draws > 0
    same(fit, lwa.load(tmp_path / "run"))
    blocks[0] = -1
    same(whole(draws=fit.draws + 100), resumed(tmp_path / "run", draws=fit.draws + 100))


CHILD = """
    import os, signal, sys
    from pathlib import Path
    import lwa
    from lwa.run.checkpoints import keeper
    from lwa.storage import atomic
    from tests.run.checkpoints.test_faults import OPTIONS, PLAIN, Y

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def half_of_it(descriptor):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
        die()

    def plant():
        if sys.argv[2] == "before the draws":
            keeper.Stream.append = die
        if sys.argv[2] == "between draws and state":
            keeper.write_generation = die
        if sys.argv[2] == "half of the state":
            atomic.os.fsync = half_of_it
        if sys.argv[2] == "before the state has its name":
            Path.replace = die
        if sys.argv[2] == "after it":
            atomic.sync_folder = die

    usual = keeper.Folder.write_state

    def keep(self, runner, state):
        if self.stream.draws > 0:
            if sys.argv[2] == "half of the state":
                self._write_draws(state)
            plant()
        usual(self, runner, state)

    keeper.Folder.write_state = keep
    keeper.STATE_SECONDS, keeper.STATE_SHARE = 0.0, 1.0
    lwa.sample(PLAIN, Y, checkpoint=sys.argv[1], **OPTIONS | {"draws": 10**6})
"""


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("before the draws", marks=SLOW),
        "between draws and state",
        pytest.param("half of the state", marks=SLOW),
        pytest.param("before the state has its name", marks=SLOW),
        pytest.param("after it", marks=SLOW),
    ],
)
def test_a_kill_inside_a_checkpoint_changes_no_bit(moment, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), tmp_path / "run", moment],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    names = {file.name for file in (tmp_path / "run").iterdir()}
    partial = any(name.endswith(".partial") for name in names)
    assert partial == (moment in ("half of the state", "before the state has its name"))
    kept = lwa.load(tmp_path / "run").draws
    assert kept > 0
    same(whole(draws=kept + 100), resumed(tmp_path / "run", draws=kept + 100))


RUN = """
    import sys
    import numpy as np, lwa
    from lwa.run.checkpoints import keeper
    keeper.STATE_SECONDS, keeper.STATE_SHARE = 0.2, 1.0
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2 / 100, init=0.0)
    fit = lwa.sample(model, sys.argv[2], subset_size=50, draws=10**7, seed=1, checkpoint=sys.argv[1], progress=False)
    print(fit.draws, fit.attributes["stopped"])
"""


@pytest.mark.slow
def test_a_file_that_shrinks_under_a_run_is_noticed_and_the_run_goes_on_once_it_is_whole(tmp_path):
    rows, folder = np.random.default_rng(0).normal(size=200_000), tmp_path / "run"
    np.save(tmp_path / "y.npy", rows)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUN), folder, tmp_path / "y.npy"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while not any(
            one is not None and one.head["stream"]["draws"] for one, _ in generations.read_generations(folder)
        ):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.1)
        os.truncate(tmp_path / "y.npy", 1000)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    if process.returncode == 0:  # noticed
        assert "DataError" in out
        assert "shrank" in out
    else:  # killed by the system
        assert process.returncode == -signal.SIGBUS, err
    kept = lwa.load(folder)
    assert kept.draws > 0
    np.save(tmp_path / "y.npy", rows)
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2 / 100, init=0.0)
    fit = resumed(folder, model, tmp_path / "y.npy", draws=kept.draws + 100)
    same(lwa.sample(model, tmp_path / "y.npy", subset_size=50, draws=kept.draws + 100, seed=1, progress=False), fit)


@pytest.mark.slow
def test_ten_kills_change_no_bit():
    done = subprocess.run(
        [sys.executable, "scripts/soak.py", "--kills", "10"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Two at once


def test_one_process_at_a_time(tmp_path, monkeypatch):
    """From inside a run, its folder is refused to anybody else."""
    found = []
    usual = keeper.Folder.after_block

    def after_block(self, runner, state):
        usual(self, runner, state)
        monkeypatch.setattr(keeper.Folder, "after_block", usual)
        for other in (lambda: resumed(folder), lambda: lwa.load(folder).save(folder)):
            with pytest.raises(lwa.RunFolderError, match="Another process keeps its run in"):
                other()
            found.append(other)

    folder = tmp_path / "run"
    monkeypatch.setattr(keeper.Folder, "after_block", after_block)
    lwa.sample(PLAIN, Y, checkpoint=folder, **OPTIONS)
    assert len(found) == 2
    resumed(folder, draws=310)
