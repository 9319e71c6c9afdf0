"""A run that is ended and taken up again gives the draws of one that was not, bit for bit."""

import subprocess
import sys
import textwrap
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.rivals.problems import simulate_arma
from lwa.run.checkpoints import keeper

Y = np.random.default_rng(0).normal(3.0, 1.0, 1000).astype(np.float32)
SERIES = simulate_arma(2000, 1).data.astype(np.float32)
COMMON = {"chains": 4, "seed": 3, "progress": False, "draws": 300, "tune": 500}


class Ended(BaseException):
    """As a process ends that is killed: nothing that lwa does can stop it."""


def in_python(mu, y):
    return -0.5 * (np.asarray(y) - float(mu)) ** 2


PLAIN = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2 / 100, init=0.0)
CONSTRAINED = lwa.Model(
    lambda theta, y: -0.5 * ((y - theta["mu"]) / theta["sigma"]) ** 2 - jnp.log(theta["sigma"]),
    lambda theta: -0.5 * theta["mu"] ** 2 / 100 - theta["sigma"],
    {"mu": 0.0, "sigma": 1.0},
    constraints={"sigma": "positive"},
)
HOST = lwa.Model(in_python, lambda mu: -0.5 * float(mu) ** 2 / 100, init=0.0)
CASES = {
    "calibrated": (PLAIN, Y, {"subset_size": 50}),
    "constrained, L = 3, with its path": (
        CONSTRAINED, Y, {"subset_size": 50, "target": "subposterior", "refresh_steps": 3, "keep_tune": True},
    ),
    "windows": (lwa.arma(1, 1, sigma=1.0), SERIES, {"subset_size": 100}),
    "exact": (PLAIN, Y, {"subset_size": 50, "exact": True, "draws": 20, "thinning": 5}),
    "in Python, from given starts": (
        HOST, Y[:200], {"subset_size": 20, "target": "powered", "initvals": 1.0, "draws": 100, "tune": 100},
    ),
}  # fmt: skip
LONG = ("windows", "exact", "in Python, from given starts")


@pytest.fixture
def ending(monkeypatch):
    """A checkpoint after every block, and an end after so many of them."""
    left = [10**9]
    usual = keeper.Folder.after_block

    def after_block(self, runner, state):
        self.due = 0.0
        usual(self, runner, state)
        left[0] -= 1
        if left[0] <= 0:
            raise Ended

    monkeypatch.setattr(keeper.Folder, "after_block", after_block)
    return left


def same(one, other):
    for name, values in one.posterior.items():
        np.testing.assert_array_equal(other.posterior[name], values)
    for name, values in one.sample_stats.items():
        np.testing.assert_array_equal(other.sample_stats[name], values)
    for name, values in (one.warmup or {}).items():
        np.testing.assert_array_equal(other.warmup[name], values)


@pytest.mark.filterwarnings("ignore::lwa.LwaWarning")
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if case in LONG else []) for case in CASES]
)
def test_the_same_draws_however_often_it_was_ended(case, ending, tmp_path):
    model, data, own = CASES[case]
    options, folder = COMMON | own, tmp_path / "run"
    whole = lwa.sample(model, data, **options)
    ended, blocks = 0, iter([1, 2, 1, 3, 10**9])
    ending[0] = next(blocks)
    try:
        fit = lwa.sample(model, data, checkpoint=folder, **options)
    except Ended:
        while True:
            ended, ending[0] = ended + 1, next(blocks)
            try:
                fit = lwa.resume(folder, model, data, progress=False)
                break
            except Ended:
                continue
    assert ended > 0
    same(whole, fit)
    same(whole, lwa.load(folder))
    ending[0] = 10**9
    longer = lwa.resume(folder, model, data, draws=options["draws"] + 10, progress=False)
    name = next(iter(whole.posterior))
    assert longer.draws == options["draws"] + 10
    np.testing.assert_array_equal(longer.posterior[name][:, : options["draws"]], whole.posterior[name])


def begun(folder, ending, model=PLAIN, data=Y, blocks=2, **options):
    """A run that ended after so many blocks."""
    ending[0] = blocks
    with pytest.raises(Ended):
        lwa.sample(model, data, checkpoint=folder, **(COMMON | {"subset_size": 50, "draws": 10**6} | options))
    ending[0] = 10**9
    return folder


def test_what_is_different_is_refused_by_name(ending, tmp_path, monkeypatch):
    folder = begun(tmp_path / "run", ending)
    other = lwa.Model(lambda mu, y: -0.51 * (y - mu) ** 2, lambda mu: -0.5 * mu**2 / 100, init=0.0)
    changed = Y.copy()
    changed[7] += 1
    for model, data, given, said in [
        (PLAIN, changed, {}, "fingerprint of the data"),
        (other, Y, {}, "model: "),
        (PLAIN, Y, {"subset_size": 60}, "subset_size=50"),
        (PLAIN, Y, {"seed": 4}, "seed=3"),
        (PLAIN, Y, {"epsilon": 0.5}, "epsilon='auto'"),
    ]:
        with pytest.raises(lwa.RunFolderError, match=said):
            lwa.resume(folder, model, data, progress=False, **given)
    monkeypatch.setattr("lwa.run.checkpoints.description.version", lambda name: "0.0")
    with pytest.raises(lwa.RunFolderError, match=r"jax: .* then, '0.0' now"):
        lwa.resume(folder, PLAIN, Y, progress=False)


def test_a_model_in_python_is_known_by_its_log_densities(ending, tmp_path):
    options = {"subset_size": 20, "target": "powered", "tune": 10}
    folder = begun(tmp_path / "run", ending, model=HOST, data=Y[:200], **options)
    other = lwa.Model(lambda mu, y: 1.1 * in_python(mu, y), lambda mu: -0.5 * float(mu) ** 2 / 100, init=0.0)
    with pytest.raises(lwa.RunFolderError, match="log density"):
        lwa.resume(folder, other, Y[:200], progress=False)


def test_what_no_file_can_hold_is_asked_for(ending, tmp_path):
    summary = lwa.summaries.PerRow(lambda y: y)
    options = {"summary": summary, "target": "subposterior"}
    folder = begun(tmp_path / "run", ending, **options)
    with pytest.raises(lwa.RunFolderError, match=r"summary=\.\.\., which a file cannot hold"):
        lwa.resume(folder, PLAIN, Y, progress=False)
    with pytest.raises(lwa.InputError, match="no argument 'sumary'"):
        lwa.resume(folder, PLAIN, Y, progress=False, sumary=summary)
    ending[0] = 1
    with pytest.raises(Ended):
        lwa.resume(folder, PLAIN, Y, progress=False, summary=summary)


def test_objects_are_rebuilt(ending, tmp_path):
    own = {
        "kernel": lwa.kernels.RandomWalk(target_accept=0.4),
        "subset_move": lwa.subsets.Swap(2),
        "target": "powered",
        "budget": lwa.RowReads(10**9),
    }
    folder = begun(tmp_path / "run", ending, **own)
    ending[0] = 1
    with pytest.raises(Ended):
        lwa.resume(folder, PLAIN, Y, progress=False)
    kept = lwa.load(folder)
    assert kept.attributes["settings"]["kernel"] == "RandomWalk(target_accept=0.4, scale=0.1)"
    assert "goes on" in kept.attributes["stopped"]


def test_a_folder_in_use_is_refused(ending, tmp_path):
    folder = begun(tmp_path / "run", ending)
    with pytest.raises(lwa.RunFolderError, match=r"lwa\.resume"):
        lwa.sample(PLAIN, Y, checkpoint=folder, **COMMON)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    with pytest.raises(lwa.RunFolderError, match="not a saved run"):
        lwa.sample(PLAIN, Y, checkpoint=tmp_path / "other", **COMMON)
    with pytest.raises(lwa.InputError, match="checkpoint=3"):
        lwa.sample(PLAIN, Y, checkpoint=3, **COMMON)
    with pytest.raises(lwa.InputError, match="draws already"):
        lwa.resume(begun(tmp_path / "more", ending, blocks=8), PLAIN, Y, progress=False, draws=1)


def test_a_running_run_can_be_read(ending, tmp_path):
    folder = begun(tmp_path / "run", ending, blocks=8)
    fit = lwa.load(folder)
    assert fit.draws > 0
    assert fit.summary().shape[0] == 1


def test_what_is_on_disk_is_not_in_memory(ending, tmp_path, monkeypatch):
    held = []
    usual = keeper.Folder.write_state

    def keep(self, runner, state):
        usual(self, runner, state)
        if state.recorder is not None:
            held.append(int(state.recorder.counts.max()) - state.recorder.taken)

    monkeypatch.setattr(keeper.Folder, "write_state", keep)
    folder = begun(tmp_path / "run", ending, blocks=12)
    assert lwa.load(folder).draws > 500
    assert max(held) <= 1  # one chain may be a draw ahead of another
    assert isinstance(lwa.load(folder).posterior["theta"].base, np.memmap)


MANY = """
    import re, sys
    from pathlib import Path
    import jax.numpy as jnp, numpy as np, lwa
    from lwa.run.checkpoints import keeper

    def anonymous():
        return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

    keeper.STATE_SECONDS, keeper.STATE_SHARE = 0.1, 1.0
    usual, seen = keeper.Folder.write_state, []

    def keep(self, runner, state):
        usual(self, runner, state)
        seen.append((self.stream.draws, anonymous()))

    keeper.Folder.write_state = keep
    model = lwa.Model(
        lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2, init=0.0,
        derived=lambda mu: {"curve": mu * jnp.arange(200.0)},
    )
    fit = lwa.sample(
        model, np.zeros(1000), subset_size=50, draws=60_000, thinning=5, seed=1, checkpoint=sys.argv[1], progress=False
    )
    later = [held for draws, held in seen if draws > 10_000]
    print(fit.posterior["curve"].nbytes, later[-1] - later[0], anonymous() - later[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells what memory a process has on Linux alone")
def test_memory_does_not_grow_with_draws(tmp_path):
    """Of 50,000 draws, 305 MiB, next to nothing stays in memory."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MANY), tmp_path / "run"], capture_output=True, text=True, check=True
    )
    size, grown, in_the_end = map(int, done.stdout.split())
    assert size > 350 * 2**20
    assert max(grown, in_the_end) < 60 * 2**20
