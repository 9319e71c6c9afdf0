"""What every rival's run has in common: seeds, blocks, budgets, faults, models of any kind, and what is counted."""

import os
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.rivals import Metropolis
from lwa.rivals.engine import Record, Steps
from lwa.rivals.problems import simulate_arma
from lwa.rivals.rival import Info
from lwa.run import loop
from tests.rivals import conjugate

Y = np.random.default_rng(0).normal(3.0, 1.0, 400)
MODEL = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * (mu / 10.0) ** 2, init=0.0)
COMMON = dict(draws=50, tune=64, chains=2, seed=1, progress=False)
PLAIN = ["metropolis", "delayed_acceptance", "austerity", "confidence"]
pytestmark = pytest.mark.filterwarnings("ignore::lwa.LwaWarning")


def run(name, model=MODEL, data=Y, **options):
    return lwa.rivals.sample(name, model, data, **(COMMON | options))


@pytest.mark.parametrize("name", [*PLAIN, "sgld"])
def test_the_same_result_as_that_of_sample(name, tmp_path):
    fit = run(name)
    assert fit.posterior["theta"].shape == (2, 50)
    assert {"lp", "acceptance_rate", "accepted", "n_rows_read"} <= set(fit.sample_stats)
    again = lwa.load(fit.save(tmp_path / "run"))
    assert np.array_equal(again.posterior["theta"], fit.posterior["theta"])
    assert again.attributes["method"] == name
    assert fit.idata["posterior"]["theta"].shape == (2, 50)
    told = fit.attributes
    assert told["moves"] == 114
    assert told["tune_moves"] == 64
    assert told["clock"][-1][0] == 50
    assert "theta" in fit.summary().index[0]
    with pytest.raises(lwa.InputError, match=r"Only draws of lwa\.sample can be polished"):
        fit.polish()


@pytest.mark.parametrize(
    "name", ["metropolis", *(pytest.param(name, marks=pytest.mark.slow) for name in [*PLAIN[1:], "sgld"])]
)
def test_block_length_changes_no_bit_and_nothing_is_traced_again(monkeypatch, name):
    traced = []

    def counted(mu, y):
        traced.append(1)
        return -0.5 * (y - mu) ** 2

    model = lwa.Model(counted, lambda mu: -0.5 * (mu / 10.0) ** 2, init=0.0)
    fits = []
    for length in (1000, 7):
        monkeypatch.setattr(
            loop.BlockLength, "after", lambda self, took, moves, length=length: loop.BlockLength(length)
        )
        fits.append(run(name, model))
    assert np.array_equal(fits[0].posterior["theta"], fits[1].posterior["theta"])
    assert np.array_equal(fits[0].sample_stats["n_rows_read"], fits[1].sample_stats["n_rows_read"])
    once = len(traced)
    looks = 8  # at the model, for its shapes and whether it can be differentiated
    run(name, model, seed=2)
    assert len(traced) - once <= looks


def test_another_seed_gives_other_draws_and_chains_differ():
    one, other = run("metropolis"), run("metropolis", seed=2)
    assert not np.array_equal(one.posterior["theta"], other.posterior["theta"])
    assert not np.array_equal(*one.posterior["theta"])


@pytest.mark.parametrize("name", ["metropolis", *(pytest.param(name, marks=pytest.mark.slow) for name in PLAIN[1:])])
def test_a_model_in_python_gives_the_draws_of_its_twin(name):
    """The same keys, the same steps: only rounding is between them. Neither has derivatives, so both learn."""
    python = lwa.Model(
        lambda mu, y: -0.5 * (np.asarray(y) - float(mu)) ** 2, lambda mu: -0.5 * (float(mu) / 10.0) ** 2, init=0.0
    )
    short = dict(draws=20, tune=12, chains=2, initvals=3.0)
    fits = [run(name, python, **short), run(name, lwa.Model(without_derivatives, MODEL.log_prior, 0.0), **short)]
    np.testing.assert_allclose(fits[0].posterior["theta"], fits[1].posterior["theta"], rtol=0, atol=1e-9)
    assert np.array_equal(fits[0].sample_stats["n_rows_read"], fits[1].sample_stats["n_rows_read"])


def without_derivatives(mu, y):
    """JAX can trace it, and not differentiate it."""
    return -0.5 * jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(y.shape, y.dtype), (y - mu) ** 2)


def test_what_a_users_function_raises_surfaces_with_the_draws():
    calls = []

    def failing(mu, y):
        calls.append(1)
        if len(calls) > 200:
            raise RuntimeError("disk on fire")
        return -0.5 * (np.asarray(y) - float(mu)) ** 2

    model = lwa.Model(failing, lambda mu: -0.5 * (float(mu) / 10.0) ** 2, init=0.0)
    with pytest.raises(RuntimeError, match="disk on fire") as caught:
        run("metropolis", model, initvals=3.0, tune=0, draws=10_000, chains=1)
    assert caught.value.lwa_result.draws > 10


@pytest.mark.slow
def test_groups_are_units():
    """Ten rows a group, of which each step reads all: a random effect integrated out would look like this."""
    rng = np.random.default_rng(3)
    data = {"y": rng.normal(2.0, 1.0, 300), "who": np.repeat(np.arange(30), 10)}

    def log_likelihood(mu, rows):
        return -0.5 * (rows["y"] - mu) ** 2

    model = lwa.Model(log_likelihood, lambda mu: 0.0 * mu, init=0.0, groups="who")
    fit = run("metropolis", model, data, draws=4000, chains=4)
    assert set(np.unique(fit.sample_stats["n_rows_read"])) == {300}
    assert fit.certify(progress=False).passed


@pytest.mark.slow
def test_a_sequence_by_all_its_rows():
    fit = run("metropolis", lwa.arma(1, 1), simulate_arma(2000, 1).data, draws=1500, chains=4)
    assert fit.posterior["ar"].shape == (4, 1500, 1)
    assert fit.certify(progress=False).outcome != "fail"
    with pytest.raises(lwa.InputError, match=r"austerity does not apply: it .*ordered"):
        run("austerity", lwa.arma(1, 1), simulate_arma(2000, 1).data)


def test_budgets():
    rows = run("metropolis", draws=10_000, budget=lwa.RowReads(400 * 2 * 100))
    assert 400 * 2 * 100 <= rows.attributes["rows_read"] <= 400 * 2 * 101
    assert rows.attributes["stopped"].startswith("the budget was spent")
    seconds = run("metropolis", draws="auto", budget="0.5 s")
    assert seconds.attributes["stopped"] == ""
    assert seconds.draws > 0
    assert seconds.attributes["sampling_seconds"] < 30


def test_ctrl_c_keeps_what_is_there():
    timer = threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    fit = run("metropolis", draws=10**7)
    timer.cancel()
    assert fit.draws > 0
    assert fit.attributes["stopped"].startswith("interrupted")


def test_proposals_without_a_density_are_rejected_and_counted():
    def half(mu, y):
        return jnp.where(mu > 3.0, jnp.nan, -0.5 * (y - mu) ** 2)

    model = lwa.Model(half, lambda mu: -0.5 * (mu / 10.0) ** 2, init=2.9)
    fit = run("metropolis", model, reference=2.9, initvals=2.9, draws=300)
    assert fit.posterior["theta"].max() <= 3.0
    assert fit.attributes["nonfinite_proposals"] > 0
    assert "NaN" in fit.attributes["warnings"][-1]


def test_delayed_acceptance_reads_blocks():
    fit = conjugate.fit("delayed_acceptance", draws=300, chains=2, shares=(0.25, 0.25, 0.5))
    assert set(np.unique(fit.sample_stats["n_rows_read"])) == {500, 1000, 2000}
    accepted = fit.sample_stats["accepted"]
    assert (fit.sample_stats["n_rows_read"][accepted] == 2000).all()


def test_metropolis_is_metropolis():
    """Key for key: a plain loop over the log posterior written out."""
    fit = run("metropolis", tune=0, draws=30, chains=1, initvals=3.0)
    kept = fit.posterior["theta"][0]
    lp = -0.5 * ((Y[None] - kept[:, None]) ** 2).sum(1) - 0.5 * (kept / 10) ** 2
    np.testing.assert_allclose(fit.sample_stats["lp"][0], lp, rtol=1e-6)
    moved = np.diff(kept, prepend=3.0) != 0
    assert np.array_equal(moved, fit.sample_stats["accepted"][0])


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("metropolitan", {}, r"name='metropolitan' is not known\. Valid: 'metropolis'"),
        ("austerity", {"epsilon": 2.0}, r"epsilon=2\.0 must lie in \(0, 1\)"),
        ("austerity", {"batch": 0.5}, r"batch=0\.5 must be a whole number"),
        ("austerity", {"delta": 0.1}, r"delta=0\.1 is no option of 'austerity'\. Valid: epsilon, batch"),
        ("confidence", {"growth": 1.0}, r"growth - 1=0\.0 must be positive"),
        ("delayed_acceptance", {"shares": (0.5, 0.6)}, r"shares=\(0\.5, 0\.6\) must be positive and sum to 1"),
        ("sgld", {"step_size": -1}, r"step_size=-1 must be positive"),
        ("metropolis", {"draws": "many"}, r"draws='many' must be a whole number"),
        ("metropolis", {"draws": "auto"}, r"draws='auto' needs a budget"),
        ("metropolis", {"kernel": "nuts"}, r"kernel='nuts' is not known\. Valid: 'walk', 'gaussian'"),
        (Metropolis(), {"scale": 1}, r"has its own hyperparameters"),
    ],
)
def test_bad_input(name, options, words):
    with pytest.raises(lwa.InputError, match=words):
        run(name, **options)


def test_no_model():
    with pytest.raises(lwa.InputError, match="model is of type int"):
        lwa.rivals.sample("metropolis", 3, Y)


def steps(first, count):
    values = np.arange(first, first + count)
    info = Info(np.ones(count), values > 0, values < 0, rows=values, lp=values * 1.0, extra={"n": values})
    return Steps(values[:, None].astype(float), info)


def test_a_record_that_is_full_keeps_every_second_step():
    record = Record(1, 8)
    for first in range(0, 40, 5):
        record.add(steps(first, 5))
    kept = record.join()
    assert record.thinning == 8
    assert kept.theta[:, 0].tolist() == [7.0, 15.0, 23.0, 31.0, 39.0]
    assert np.diff(kept.info.rows, prepend=0).tolist() == [sum(range(8 * i, 8 * i + 8)) for i in range(5)]
    assert kept.info.acceptance.tolist() == [8.0, 16.0, 24.0, 32.0, 40.0]


@pytest.mark.slow
def test_a_walk_that_comes_from_afar_shrinks_to_its_target_as_soon_as_lwas_does():
    """It has learnt from a path of length 20, and then needs steps of 0.003; a third of them is to be accepted."""
    y = np.random.default_rng(1).normal([1.0, -1.0], 1.0, (100_000, 2))
    model = lwa.Model(
        lambda theta, y: -0.5 * ((y[:, 0] - theta["a"]) ** 2 + (y[:, 1] - theta["b"]) ** 2),
        lambda theta: -0.5 * (theta["a"] ** 2 + theta["b"] ** 2) / 100,
        init={"a": 20.0, "b": -20.0},
    )
    kernel = lwa.kernels.Blockwise([["a"], ["b"]], target_accept=0.3)
    fit = run("metropolis", model, y, kernel=kernel, reference=False, tune=500, draws=500, chains=4)
    assert 0.2 < fit.sample_stats["accepted"].mean() < 0.4
