"""keep_tune=True: the path of tune, from lwa.sample and from rivals, kept, saved and loaded."""

import numpy as np
import pytest

import lwa
from tests.support import SHORT_RUN
from tests.tiny import MODEL

Y = np.random.default_rng(0).normal(3.0, 1.0, 500)
COMMON = {"draws": 50, "tune": 120, "chains": 3, "thinning": 2, "seed": 1, "progress": False, "keep_tune": True}


def draw(method: str, **changed):
    settings = COMMON | changed
    if method == "lwa":
        return lwa.sample(MODEL, Y, subset_size=20, target="subposterior", initvals=-5.0, **settings)
    return lwa.rivals.sample(method, MODEL, Y, reference=False, initvals=-5.0, **settings)


@pytest.fixture(scope="module", params=["lwa", "metropolis"])
def both(request):
    return draw(request.param), draw(request.param, keep_tune=False)


def test_the_path_of_tune_is_kept_and_changes_no_draw(both):
    kept, plain = both
    np.testing.assert_array_equal(kept.posterior["theta"], plain.posterior["theta"])
    assert plain.warmup is None
    assert kept.warmup["theta"].shape == (3, 60)
    assert kept.warmup_stats["n_rows_read"].shape == (3, 60)
    total = kept.warmup_stats["n_rows_read"].sum() + kept.sample_stats["n_rows_read"].sum()
    assert total == kept.attributes["rows_read"]


def test_it_begins_at_the_start_and_ends_where_draws_begin(both):
    path = both[0].warmup["theta"]
    assert (path[:, 0] < 0).all()  # from -5, a walk of scale 0.1 is not at 3 after two moves
    assert (np.abs(path[:, -1] - 3.0) < 2.0).all()


def test_the_clock_of_tune_runs_before_that_of_the_draws(both):
    tune, draws = both[0].attributes["tune_clock"], both[0].attributes["clock"]
    assert tune[-1][0] == 60
    assert draws[-1][0] == 50
    seconds = [at for _, at in tune + draws]
    assert seconds == sorted(seconds)
    assert both[1].attributes["tune_clock"] == []


def test_it_is_saved_loaded_and_in_idata(both, tmp_path):
    fit = both[0]
    again = lwa.load(fit.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.warmup["theta"], fit.warmup["theta"])
    np.testing.assert_array_equal(again.warmup_stats["lp"], fit.warmup_stats["lp"])
    assert again.idata["warmup_posterior"]["theta"].shape == (3, 60)
    assert "warmup_sample_stats" in again.idata.children


@SHORT_RUN
def test_without_tune_there_is_an_empty_path():
    fit = draw("lwa", tune=0)
    assert fit.warmup["theta"].shape == (3, 0)


def test_it_must_be_yes_or_no():
    with pytest.raises(lwa.InputError, match="keep_tune='all'"):
        draw("lwa", keep_tune="all")
