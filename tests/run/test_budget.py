"""Budgets: how they are written, what they allow, and what a run that was stopped keeps."""

import time

import numpy as np
import pytest

import lwa
from lwa.run.budget import Budget, as_budget
from lwa.run.loop import Meter
from tests.support import SHORT_RUN, run

A_MOVE = 2 * 20
"""Rows that the tiny run reads when both chains move once."""


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (None, Budget()),
        (60, Budget(seconds=60.0)),
        (0.5, Budget(seconds=0.5)),
        (np.int64(60), Budget(seconds=60.0)),
        (np.float32(0.5), Budget(seconds=0.5)),
        ("60", Budget(seconds=60.0)),
        ("90 s", Budget(seconds=90.0)),
        ("90sec", Budget(seconds=90.0)),
        (" 10 min ", Budget(seconds=600.0)),
        ("1.5 Minutes", Budget(seconds=90.0)),
        (".5 h", Budget(seconds=1800.0)),
        ("2 hours", Budget(seconds=7200.0)),
        (lwa.RowReads(10**9), Budget(rows=10**9)),
        (Budget(seconds=1.0, rows=2), Budget(seconds=1.0, rows=2)),
    ],
)
def test_budgets_as_they_are_written(budget, expected):
    assert as_budget(budget) == expected


def test_a_meter_counts_rows_and_time():
    meter = Meter(Budget(seconds=1000.0, rows=100))
    meter.rows = 25
    assert 0.25 <= meter.share() < 0.5
    assert meter.rows_left() == 75
    assert meter.rows_left(0.5) == 25
    assert 0 < meter.seconds_left(0.5) <= 500


def test_without_a_budget_nothing_is_spent():
    assert Meter(Budget()).share() == 0.0


@pytest.mark.parametrize("moves", [1, 100, 500, 1030])
@pytest.mark.parametrize("odd", [0, A_MOVE - 1])
def test_no_more_rows_are_read_than_were_allowed(moves, odd):
    allowed = moves * A_MOVE + odd
    with pytest.warns(lwa.LwaWarning, match=r"Stopped early: the budget was spent after \d+ of 1000 draws"):
        fit = run(draws=1000, thinning=7, budget=lwa.RowReads(allowed))
    assert fit.attributes["rows_read"] <= allowed
    assert fit.attributes["moves"] == moves
    assert fit.draws == (moves - fit.attributes["tune_moves"]) // 7
    assert "the budget was spent" in fit.attributes["stopped"]
    assert fit.attributes["warnings"][0].startswith("Stopped early")


def test_a_budget_that_suffices_is_not_mentioned():
    fit = run(thinning=1, budget=lwa.RowReads((64 + 20) * A_MOVE * 2))
    assert fit.draws == 20
    assert fit.attributes["stopped"] == ""
    assert fit.attributes["warnings"] == []
    assert fit.attributes["rows_read"] == (64 + 20) * A_MOVE


@SHORT_RUN
@pytest.mark.parametrize("moves", [50, 63, 100])
def test_tune_uses_half_of_it_at_the_most(moves):
    with pytest.warns(lwa.LwaWarning, match="Stopped early"):
        fit = run(draws=1000, thinning=1, budget=lwa.RowReads(moves * A_MOVE))
    assert fit.attributes["tune_moves"] == moves // 2
    assert fit.draws == moves - moves // 2


def test_a_tune_that_was_cut_short_is_mentioned():
    with pytest.warns(lwa.LwaWarning, match="tune ended after 50 of 64 moves with its share of the budget"):
        fit = run(thinning=1, budget=lwa.RowReads(100 * A_MOVE))
    assert fit.draws == 20


@pytest.mark.parametrize("thinning", [1, 3])
def test_a_run_that_was_stopped_is_the_beginning_of_the_whole_one(thinning):
    whole = run(draws=400, thinning=thinning)
    with pytest.warns(lwa.LwaWarning, match="Stopped early"):
        part = run(draws=400, thinning=thinning, budget=lwa.RowReads(301 * A_MOVE))
    assert part.draws == (301 - 64) // thinning
    for group in ("posterior", "sample_stats"):
        for name, values in getattr(part, group).items():
            np.testing.assert_array_equal(values, getattr(whole, group)[name][:, : part.draws])


def test_seconds():
    run(thinning=1)  # compiles
    began = time.monotonic()
    with pytest.warns(lwa.LwaWarning, match="Stopped early: the budget was spent"):
        fit = run(draws=10**9, thinning=1, budget="1 s")
    assert fit.draws > 0
    assert 0.9 < fit.attributes["sampling_seconds"] < 20
    assert time.monotonic() - began < 60


def test_seconds_leave_half_for_the_draws():
    with pytest.warns(lwa.LwaWarning, match="Stopped early: the budget was spent"):
        fit = run(draws=10**9, tune=10**9, thinning=1, budget=1.0)
    assert fit.attributes["tune_moves"] > 0
    assert fit.draws > 0


def test_no_time_at_all_buys_a_draw():
    """Before anything is known of the speed of moves."""
    with pytest.warns(lwa.LwaWarning, match="budget"):
        assert run(draws="auto", budget=1e-9).draws == 1


@pytest.mark.filterwarnings("ignore:Only .* of the moves were accepted:lwa.LwaWarning")  # so short a tune adapts little
@pytest.mark.parametrize("tune", [0, 32])
def test_as_many_draws_as_the_budget_allows_without_a_known_speed(tune):
    """No tune, or one of a single block, which is not timed: draws are kept all the same, and the run ends."""
    fit = run(draws="auto", tune=tune, thinning=1, budget=0.5)
    assert fit.draws > 0
    assert fit.attributes["thinning"] < fit.attributes["moves"]
    assert fit.attributes["sampling_seconds"] < 20
