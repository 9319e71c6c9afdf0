"""What is kept of the draws, and that a summary of them says what they would have said."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.diagnostics.running import SKETCH_CELLS, SKETCH_REACH
from lwa.run import budget
from lwa.run.budget import Retention, decide_retention
from tests.support import MODEL, SEVERAL, SHORT_RUN, Y, sample

CHAINS, DRAWS = 70, 40
LONG = {"target": "calibrated", "chains": CHAINS, "draws": DRAWS}


@pytest.fixture
def small(monkeypatch):
    """Room for a handful of draws beside a summary."""
    monkeypatch.setattr(budget, "LAST_BYTES", 20_000)


def same_summary(fit, whole):
    """The summary of one run is that of another's draws."""
    table, n = fit.summary(), 0
    for values in whole.posterior.values():
        flat = values.reshape(-1, int(np.prod(values.shape[2:])))
        own = slice(n, n + flat.shape[1])
        n += flat.shape[1]
        sd = flat.std(0, ddof=1)
        np.testing.assert_allclose(table["mean"][own], flat.mean(0), rtol=1e-12)
        np.testing.assert_allclose(table["sd"][own], sd, rtol=1e-10)
        for column, share in (("eti89_lb", 0.055), ("median", 0.5), ("eti89_ub", 0.945)):
            expected = np.quantile(flat, share, axis=0, method="lower")
            cell = 2 * SKETCH_REACH / SKETCH_CELLS * fit.running.sketch.scale[own]
            assert (np.abs(table[column][own] - expected) <= 1.001 * cell).all()
            assert (cell < 0.01 * sd).all()
    ours, theirs = fit.nested_rhat(), whole.nested_rhat()
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-9)
        assert ours[name].shape == whole.posterior[name].shape[2:]


@pytest.mark.filterwarnings("ignore:tune=0 is less")
@pytest.mark.parametrize("tune", [64, 0])
def test_a_summary_is_that_of_all_draws_and_the_last_are_kept(small, tune):
    whole = sample(**LONG, tune=tune, keep="all")
    fit = sample(**LONG, tune=tune, keep="summary")
    assert whole.attributes["keep"] == "all"
    assert whole.running is None
    assert fit.attributes["keep"] == "summary"
    assert fit.attributes["draws_summarised"] == DRAWS
    assert 1 <= fit.draws < DRAWS
    assert fit.draws == fit.attributes["draws_kept"]
    for name, values in whole.sample_stats.items():
        np.testing.assert_array_equal(fit.sample_stats[name], values[:, -fit.draws :])
    np.testing.assert_array_equal(fit.posterior["theta"], whole.posterior["theta"][:, -fit.draws :])
    same_summary(fit, whole)
    assert f"summarised: {DRAWS} draws per chain" in repr(fit)
    assert f"{CHAINS} chains x {DRAWS} draws, summarised while they were made" in str(fit.summary())


@SHORT_RUN
def test_constrained_derived_and_lagging_chains(small):
    """Summaries are of the parameters as they are shown; with L = 3 chains are not at the same draw."""
    model = lwa.Model(
        lambda theta, y: -0.5 * ((y - theta["mu"]) / theta["sigma"]) ** 2 - jnp.log(theta["sigma"]),
        lambda theta: -0.5 * (theta["mu"] / 10.0) ** 2 - theta["sigma"],
        {"mu": jnp.zeros(2)[0], "sigma": 1.0},
        constraints={"sigma": "positive"},
        derived=lambda theta: {"both": jnp.stack([theta["mu"], theta["sigma"] ** 2])},
    )
    options = {"target": "powered", "refresh_steps": 3, "chains": 5, "draws": 300, "tune": 300}
    whole, fit = sample(model, **options, keep="all"), sample(model, **options, keep="summary")
    assert fit.draws < 300
    assert fit.summary().names == ["mu", "sigma", "both[0]", "both[1]"]
    same_summary(fit, whole)
    np.testing.assert_array_equal(fit.unconstrained["sigma"], whole.unconstrained["sigma"][:, -fit.draws :])


@pytest.mark.slow
def test_exact_draws_are_summarised_too(small):
    options = {"exact": True, "chains": 20, "draws": 30}
    same_summary(sample(**options, target="calibrated", keep="summary"), sample(**options, target="calibrated"))


def test_saved_and_loaded(small, tmp_path):
    fit = sample(SEVERAL, chains=5, draws=200, keep="summary")
    again = lwa.load(fit.save(tmp_path / "run"))
    assert str(again.summary()) == str(fit.summary())
    jax.tree.map(np.testing.assert_array_equal, again.running, fit.running)
    assert again.draws == fit.draws
    assert repr(again) == repr(fit)


def test_kept_while_it_goes_on_and_resumed(small, tmp_path):
    straight = sample(**LONG, keep="summary")
    folder = tmp_path / "run"
    first = sample(**LONG | {"draws": 25}, keep="summary", checkpoint=folder)
    assert not (folder / "draws.rows").exists()  # a summary is no stream of draws
    assert lwa.load(folder).attributes["draws_summarised"] == 25
    first.save(folder)  # as `lwa fit` does once more is known of it: its states stay
    lwa.load(folder).save(folder)
    fit = lwa.resume(folder, MODEL, Y, draws=DRAWS, progress=False)
    assert fit.attributes["draws_summarised"] == DRAWS
    for one in (fit, lwa.load(folder)):
        np.testing.assert_array_equal(one.posterior["theta"], straight.posterior["theta"])
        np.testing.assert_array_equal(one.running.sketch.cells, straight.running.sketch.cells)
        np.testing.assert_allclose(one.running.moments.squares, straight.running.moments.squares, rtol=1e-9)
    with pytest.raises(lwa.InputError, match="has 40 draws already"):
        lwa.resume(folder, MODEL, Y, draws=30, progress=False)


def test_with_a_checkpoint_all_draws_are_kept_unless_a_summary_is_asked_for(small, monkeypatch, tmp_path):
    monkeypatch.setattr(budget, "DRAWS_SHARE", 0.0)
    fit = sample(checkpoint=tmp_path / "run")
    assert fit.draws == 20
    assert fit.attributes["keep"] == "all"


def test_auto_is_a_summary_where_memory_is_short(small, monkeypatch, capsys):
    monkeypatch.setattr(budget, "DRAWS_SHARE", 1e-12)
    fit = sample(**LONG, progress=True)
    assert fit.attributes["keep"] == "summary"
    told = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert f"{CHAINS} chains x {DRAWS} draws would be" in told
    assert "they are summarised while they are made, and the last" in told


def test_auto_with_a_budget_counts_the_draws_that_it_allows():
    """10⁹ draws are a way to say as many as there is time for."""
    with pytest.warns(lwa.LwaWarning, match="budget was spent"):
        fit = sample(draws=10**9, budget=lwa.RowReads(20_000))
    assert fit.attributes["keep"] == "all"


def test_auto_with_a_budget_that_allows_too_many(small, monkeypatch, capsys):
    monkeypatch.setattr(budget, "LAST_BYTES", 1000)
    monkeypatch.setattr(budget, "DRAWS_SHARE", 1e-12)
    with pytest.warns(lwa.LwaWarning, match="budget was spent"):
        fit = sample(draws=10**9, budget=lwa.RowReads(20_000), progress=True)
    assert fit.attributes["keep"] == "summary"
    assert fit.attributes["draws_summarised"] >= fit.draws
    told = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert "they are summarised while they are made" in told
    assert "x 1,000,000,000 draws" not in told  # that the budget would never allow


def test_certificate_and_predictions_have_the_last_draws(small, monkeypatch):
    monkeypatch.setattr(budget, "LAST_BYTES", 60_000)
    fit = sample(**LONG, keep="summary")
    assert 8 <= fit.draws < DRAWS
    assert fit.certify(progress=False).outcome in ("pass", "warn")
    polished = fit.polish(1, progress=False)
    assert polished.running is None  # these are other draws


@pytest.mark.parametrize("keep", ["some", None, True, 5])
def test_what_is_no_way_to_keep_is_refused(keep):
    with pytest.raises(lwa.InputError, match=r"keep=.*'auto', 'all', 'summary'"):
        sample(keep=keep)


# The plan


def decide(free, **options):
    """What 2,000 draws of 128 bytes leave behind, with so much free memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "read_free_memory", lambda: free)
        return decide_retention(2000, 128, **{"chains": 4096, "keep": "auto", "on_disk": False} | options)


def test_the_plan():
    much, little = 16 * 2**30, 2 * 2**30
    found, told = decide(much)
    assert found == Retention(room=2000)  # 1000 MiB of 4 GiB, set aside at once
    assert told == "4,096 chains x 2,000 draws are 1e+03 MiB, kept in memory."
    found, told = decide(little)
    assert found == Retention(summarised=True, last=128, room=256)
    assert told == (
        "4,096 chains x 2,000 draws would be 1e+03 MiB, and 512 MiB, a quarter of what is free, may be used: they are "
        "summarised while they are made, and the last 128 of each chain are kept, 64 MiB."
    )
    assert decide(little, keep="all")[0] == Retention()
    assert decide(much, keep="summary")[0].summarised
    assert decide(0.0, on_disk=True)[0] == Retention()
    assert decide(much, chains=2**20, keep="summary")[0].last == 1  # at the least
    assert decide(0.0, chains=4) == (Retention(room=2000), "")  # so few are always kept
