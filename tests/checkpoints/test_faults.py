"""What can happen to a run that is kept: signals, full disks, damaged and shortened files. No draw is lost."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import lwa
from lwa.checkpoints import keeping
from lwa.run_folder import generations, stream
from tests.checkpoints.test_resume import COMMON, PLAIN, Y, begun, ending, same  # noqa: F401

OPTIONS = COMMON | {"subset_size": 50}
ROOT = Path(__file__).parents[2]


def whole():
    return lwa.sample(PLAIN, Y, **OPTIONS)


@pytest.mark.parametrize("damage", ["cut off", "a bit flipped", "gone"])
def test_a_damaged_state_costs_one_generation_and_is_said(damage, ending, tmp_path):  # noqa: F811
    folder = begun(tmp_path / "run", ending, blocks=6, draws=300)
    last = sorted(folder.glob("state-*.lwa"))[-1]
    content = last.read_bytes()
    if damage == "gone":
        last.unlink()
    else:
        last.write_bytes(content[:100] if damage == "cut off" else content[:999] + b"\0" + content[1000:])
    if damage == "gone":
        fit = lwa.resume(folder, PLAIN, Y, progress=False)
    else:
        with pytest.warns(lwa.LwaWarning, match=r"is damaged .* goes on from the state before it"):
            fit = lwa.resume(folder, PLAIN, Y, progress=False)
    same(whole(), fit)


def test_draws_that_were_cut_off_cost_one_generation(ending, tmp_path):  # noqa: F811
    folder = begun(tmp_path / "run", ending, blocks=8, draws=300)
    counts = [one.head["stream"]["draws"] for one, _ in generations.generations(folder)]
    assert counts[0] > counts[1]
    draws = folder / stream.FILE
    os.truncate(draws, draws.stat().st_size - 1)
    with pytest.warns(lwa.LwaWarning, match="does not hold the draws"):
        fit = lwa.resume(folder, PLAIN, Y, progress=False)
    same(whole(), fit)


def test_where_no_state_is_whole_it_says_so(ending, tmp_path):  # noqa: F811
    folder = begun(tmp_path / "run", ending, blocks=4)
    for state in folder.glob("state-*.lwa"):
        state.write_bytes(b"junk")
    with pytest.raises(lwa.RunFolderError, match="no checkpoint to go on from"):
        lwa.resume(folder, PLAIN, Y)
    with pytest.raises(lwa.RunFolderError, match="no checkpoint to go on from: there is none"):
        lwa.resume(tmp_path, PLAIN, Y)


@pytest.mark.parametrize("where", ["draws", "state"])
def test_a_full_disk_ends_the_run_with_all_its_draws(where, tmp_path, monkeypatch):
    """The write fails after some states: what was drawn by then comes back, and the run goes on once there is room."""
    count = [0]
    usual = os.fsync

    def full(descriptor):
        count[0] += 1
        if count[0] > 6 and count[0] % 2 == (where == "state"):
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(descriptor)

    monkeypatch.setattr(keeping.Folder, "every", 0.0)
    monkeypatch.setattr(keeping, "EVERY", 0.0)
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.warns(lwa.LwaWarning, match="No space left on device"):
            fit = lwa.sample(PLAIN, Y, checkpoint=folder, **OPTIONS | {"draws": 10**5})
    assert fit.draws > 0
    assert "No space left" in fit.attributes["stopped"]
    again = lwa.resume(folder, PLAIN, Y, draws=fit.draws + 5, progress=False)
    np.testing.assert_array_equal(again.posterior["theta"][:, : fit.draws], fit.posterior["theta"])


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(lwa.RunFolderError, match="Cannot keep a run in"):
        lwa.sample(PLAIN, Y, checkpoint=tmp_path / "file" / "run", **OPTIONS)


def test_no_memory_ends_the_run_with_its_draws(tmp_path, monkeypatch):
    left = [3]
    usual = keeping.Folder.after_block

    def after_block(self, player, sofar):
        usual(self, player, sofar)
        left[0] -= sofar.draws > 0
        if left[0] <= 0:
            raise MemoryError("cannot allocate")

    monkeypatch.setattr(keeping.Folder, "after_block", after_block)
    with pytest.warns(lwa.LwaWarning, match="MemoryError"):
        fit = lwa.sample(PLAIN, Y, checkpoint=tmp_path / "run", **OPTIONS | {"draws": 10**6})
    assert fit.draws > 0
    assert lwa.load(tmp_path / "run").draws == fit.draws


SCRIPT = """
    import sys
    import numpy as np, lwa
    from lwa.checkpoints import keeping
    keeping.EVERY = keeping.Folder.every = 0.2
    rows = sys.argv[2] if len(sys.argv) > 2 else np.arange(1000.0) % 7
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2 / 100, init=0.0)
    fit = lwa.sample(model, rows, subset_size=50, draws=10**7, seed=1, checkpoint=sys.argv[1], progress=False)
    print(fit.draws, fit.attributes["stopped"])
"""


def started(*arguments):
    """A run in a process of its own, once it has kept some draws."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    folder, until = Path(arguments[0]), time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if any(one is not None and one.head["stream"]["draws"] for one, _ in generations.generations(folder)):
            return process
        time.sleep(0.1)
    process.kill()
    pytest.fail(process.communicate()[1])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "said"), [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")])
def test_a_signal_keeps_everything_drawn(number, said, tmp_path):
    process = started(tmp_path / "run")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    draws, stopped = out.split(" ", 1)
    assert said in stopped
    assert lwa.load(tmp_path / "run").draws == int(draws)


@pytest.mark.slow
def test_a_file_that_shrinks_under_a_run_is_noticed_and_the_run_goes_on_once_it_is_whole(tmp_path):
    rows = np.random.default_rng(0).normal(size=200_000)
    np.save(tmp_path / "y.npy", rows)
    process = started(tmp_path / "run", tmp_path / "y.npy")
    os.truncate(tmp_path / "y.npy", 1000)
    process.communicate(timeout=60)  # noticed, or killed by the system: either way what was drawn is there
    kept = lwa.load(tmp_path / "run")
    assert kept.draws > 0
    np.save(tmp_path / "y.npy", rows)
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2 / 100, init=0.0)
    fit = lwa.resume(tmp_path / "run", model, tmp_path / "y.npy", draws=kept.draws + 100, progress=False)
    np.testing.assert_array_equal(fit.posterior["theta"][:, : kept.draws], kept.posterior["theta"])


@pytest.mark.slow
def test_ten_kills_change_no_bit():
    done = subprocess.run(
        [sys.executable, "scripts/soak.py", "--kills", "10", "--seconds", "12"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_many_densities_that_are_nan_end_the_run_with_the_theta_that_caused_them(tmp_path):
    import jax.numpy as jnp

    model = lwa.Model(
        lambda mu, y: jnp.where(jnp.abs(mu) > 0.5, jnp.nan, 0.0) * jnp.ones_like(y), lambda mu: jnp.zeros(()), init=0.0
    )
    with pytest.raises(lwa.ModelError, match=r"NaN or \+inf over the last .* for example at theta = "):
        lwa.sample(
            model, Y, subset_size=50, target="subposterior", subset_move=lwa.subsets.Fixed(), seed=1, progress=False,
            kernel=lwa.parameters.RandomWalk(scale=1e6), tune=0, draws=100, thinning=100,
        )  # fmt: skip
