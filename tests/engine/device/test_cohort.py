"""`lwa.sample` where everything is on a device: the same law, the same numbers whatever blocks there are."""

import jax
import numpy as np
import pytest

import lwa
from lwa.engine.device.subsets import SubsetsOnDevice
from lwa.errors import LwaWarning
from lwa.rivals.problems import simulate_logistic
from lwa.rows import as_rows
from lwa.targets.reference import find_reference

N, D = 4000, 3
MODEL, DATA, *_ = simulate_logistic(N, seed=1, parameters=D)
OPTIONS = {"subset_size": 40, "tune": 64, "seed": 3, "progress": False}


def sample(**options):
    return lwa.sample(MODEL, DATA, **(OPTIONS | options))


@pytest.fixture(scope="module")
def posterior():
    """Mean and sd of the Gaussian at the mode, of which the posterior of so many rows is a few hundredths off."""
    with jax.enable_x64(True):
        found = find_reference(MODEL, as_rows(DATA), np.zeros(D), 1)
    return found.theta, np.sqrt(np.diag(found.factor @ found.factor.T))


@pytest.mark.slow
def test_the_posterior(device, posterior):
    fit = sample(chains=32, draws=300)
    assert fit.attributes["transport"] == "second_order"
    assert fit.attributes["cohort_chains"] == 32
    mean, sd = posterior
    draws = fit.posterior["beta"].astype(float)
    error = draws.mean(1).std(0, ddof=1) / np.sqrt(32)
    assert (np.abs(draws.mean((0, 1)) - mean) < 5 * error + 0.05 * sd).all()
    assert (np.abs(draws.std((0, 1)) / sd - 1) < 0.1).all()
    assert 0.2 < fit.sample_stats["subset_accepted"].mean() <= 0.25  # every fourth move, unless a row is there already
    assert fit.certify(progress=False).verdict.startswith("pass")


@pytest.mark.slow
def test_a_summary_is_that_of_the_draws(device):
    whole, summary = sample(chains=8, draws=40, thinning=3), sample(chains=8, draws=40, thinning=3, keep="summary")
    moments = summary.running.moments
    assert int(moments.count) == 40
    np.testing.assert_allclose(moments.mean, whole.posterior["beta"].mean(1), rtol=1e-12)
    np.testing.assert_allclose(moments.squares, whole.posterior["beta"].var(1) * 40, rtol=1e-9)
    assert summary.running.sketch.cells.sum() == 8 * 40 * D
    kept = summary.posterior["beta"]
    np.testing.assert_array_equal(kept, whole.posterior["beta"][:, -kept.shape[1] :])
    np.testing.assert_allclose(summary.sample_stats["lp"], whole.sample_stats["lp"][:, -kept.shape[1] :])
    np.testing.assert_array_equal(summary.sample_stats["n_rows_read"], 3 * 40)


@pytest.mark.slow
def test_blocks_and_budgets_change_no_draw(device):
    whole = sample(chains=4, draws=120)
    with pytest.warns(LwaWarning, match="budget"):
        cut = sample(chains=4, draws=120, budget=lwa.RowReads(40 * 4 * (64 + 85)))  # ends in the midst of a page
    kept = cut.posterior["beta"]
    assert 0 < kept.shape[1] < 120
    np.testing.assert_array_equal(kept, whole.posterior["beta"][:, : kept.shape[1]])


@pytest.mark.slow
def test_a_run_is_taken_up_to_the_same_bits(device, tmp_path):
    whole = sample(chains=4, draws=120)
    with pytest.warns(LwaWarning, match="budget"):
        cut = sample(chains=4, draws=120, checkpoint=tmp_path / "run", budget=lwa.RowReads(40 * 4 * (64 + 71)))
    assert 0 < cut.draws < 120
    again = lwa.resume(tmp_path / "run", MODEL, DATA, budget=lwa.RowReads(10**9), progress=False)
    np.testing.assert_array_equal(again.posterior["beta"], whole.posterior["beta"])


@pytest.mark.slow
def test_a_model_that_registers_do_not_hold(device):
    """Subsets of 4,000 rows: an ordinary program plays them."""
    model, data, *_ = simulate_logistic(20_000, seed=1, parameters=D)
    fit = lwa.sample(model, data, **(OPTIONS | {"subset_size": 4000, "chains": 2, "draws": 10}))
    assert fit.posterior["beta"].shape == (2, 10, D)
    assert np.isfinite(fit.sample_stats["lp"]).all()


def test_what_is_played_elsewhere(device, monkeypatch):
    """U that is weighed, or brings something along, is moved on the host; so is what does not fit into memory."""
    played = []

    def begun(self, theta):
        played.append(type(self))
        raise KeyboardInterrupt  # enough has been seen

    monkeypatch.setattr(SubsetsOnDevice, "begin", begun)
    with pytest.raises(KeyboardInterrupt):
        sample(chains=2, draws=5)
    assert played == [SubsetsOnDevice]
    monkeypatch.setattr("lwa.engine.device.subsets.device_memory", lambda: 1000.0)
    fit = sample(chains=2, draws=5)
    assert fit.attributes["transport"] == "second_order"
    assert len(played) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [lwa.kernels.HMC(), lwa.kernels.RandomWalk()])
def test_other_kernels_are_played_too(device, kernel):
    """On the device where their noise can be drawn there, else on the host."""
    fit = sample(chains=2, draws=10, kernel=kernel, keep="summary")
    assert int(fit.running.moments.count) == 10
    assert fit.sample_stats["acceptance_rate"].mean() > 0


def test_pages_are_as_long_as_there_is_room(device, monkeypatch):
    seen = []

    def looked(problem, chains):
        pages = [SubsetsOnDevice.choose_page(problem, chains) for chains in (4, 10**6)]
        seen.append((*pages, SubsetsOnDevice.suits(problem, chains)))
        raise KeyboardInterrupt

    monkeypatch.setattr("lwa.engine.device.choice.choose_cohort_kind", looked)
    with pytest.raises(KeyboardInterrupt):
        sample(chains=2, draws=5)
    assert seen == [(256, 8, True)]  # proposals, each followed by four moves: 1024 and 32
