"""Chains that are too short are said to be; those that are long enough are left alone."""

import re

import numpy as np
import pytest

import lwa
from lwa.diagnostics.running import assign_superchains, collect_moments
from lwa.diagnostics.short_chains import describe_remembered_starts, describe_slow_chains, round_up
from tests.support import sample

CHAINS, DRAWS, K, SUPERCHAINS = 256, 20, 5, 16
NAMES = [f"beta[{i}]" for i in range(K)]


def independent(seed):
    return np.random.default_rng(seed).normal(size=(CHAINS, DRAWS, K))


def autoregression(rho, draws, seed=0, start=0.0):
    """Chains of variance 1; the first value is `start` plus noise of what has been forgotten of it."""
    rng = np.random.default_rng(seed)
    values = np.empty((CHAINS, draws, 1))
    at = start + rng.normal(size=CHAINS) * (0.0 if np.any(start) else 1.0)
    for t in range(draws):
        at = rho * at + np.sqrt(1 - rho**2) * rng.normal(size=CHAINS)
        values[:, t, 0] = at
    return values


def moments(values):
    return collect_moments({"x": values})


def test_settled_chains_are_left_alone():
    """One in a hundred may be suspected: none of 100 here, whatever their length."""
    assert not [
        seed for seed in range(50) if describe_remembered_starts(moments(independent(seed)), SUPERCHAINS, NAMES, 100)
    ]
    single = [moments(independent(seed)[:, :1]) for seed in range(50)]
    assert not [one for one in single if describe_remembered_starts(one, SUPERCHAINS, NAMES, 100)]


@pytest.mark.parametrize("draws", [1, DRAWS])
def test_a_start_that_is_remembered_is_seen(draws):
    """A quarter of an sd of each superchain's start, in one of five parameters: no chain shows it by itself."""
    values = independent(1)[:, :draws]
    starts = 2 * np.random.default_rng(2).normal(size=SUPERCHAINS)
    values[:, :, 3] += 0.25 * starts[assign_superchains(CHAINS, SUPERCHAINS)][:, None]
    told = describe_remembered_starts(moments(values), SUPERCHAINS, NAMES, 300)
    assert "Chains still remember where they began: nested R-hat of beta[3] is 1." in str(told)
    assert str(told).endswith("Pass tune=600.")
    assert told.advice == {"tune": 600}


def test_without_shared_starts_nothing_is_said_of_them():
    assert describe_remembered_starts(moments(100 * independent(1)), None, NAMES, 1) is None
    assert describe_remembered_starts(moments(independent(1)[:16]), 16, NAMES, 1) is None


def test_draws_that_span_too_little():
    told = describe_slow_chains(moments(autoregression(0.95, 30)), ["x"], 2, 1000)
    assert str(told).startswith("Each chain has 30 draws, and the autocorrelation time of x is about ")
    assert f"draws: too few to have moved through the posterior. Pass draws={told.advice['draws']}, or" in str(told)
    assert describe_slow_chains(moments(autoregression(0.5, 30)), ["x"], 2, 1000) is None


def test_a_tune_that_spans_too_little():
    state = moments(autoregression(0.9, 400))
    told = describe_slow_chains(state, ["x"], 10, 300)
    assert str(told).startswith("tune=300 is less than 3 autocorrelation times of x, each about 1")
    assert str(told).endswith(f"Pass tune={told.advice['tune']}.")
    assert describe_slow_chains(state, ["x"], 10, 3000) is None
    assert describe_slow_chains(moments(autoregression(0.5, 400)), ["x"], 1, 0) is None  # of 400 draws it spoils a few


@pytest.mark.parametrize(("moves", "expected"), [(3, 10), (87, 87), (123, 130), (1999, 2000), (4321, 4400)])
def test_numbers_that_are_asked_for_are_round(moves, expected):
    assert round_up(moves) == expected


@pytest.mark.filterwarnings("ignore::lwa.LwaWarning")
def test_a_run_says_so():
    """A walk of tiny steps goes nowhere; all that is wrong with that is said, with what to pass."""
    walk = {"kernel": lwa.kernels.RandomWalk(scale=0.005), "thinning": 1, "target": "calibrated"}
    first, second = sample(**walk, chains=128, draws=8, tune=0).attributes["warnings"]
    assert first.startswith("Chains still remember where they began: nested R-hat of theta is ")
    assert "too few to have moved through the posterior. Pass draws=" in second
    few = sample(**walk, chains=4, draws=8, tune=0)
    assert few.attributes["warnings"] == []  # as it was: R-hat tells


@pytest.mark.filterwarnings("ignore::lwa.LwaWarning")
def test_a_tune_in_which_U_did_not_renew_its_rows():
    told = " ".join(sample(chains=70, tune=10, draws=5).attributes["warnings"])
    assert re.search(r"tune=10 is less than the \d+ moves in which a subset replaces all its rows", told)
    assert sample(target="calibrated", chains=70, tune=64, draws=20).attributes["warnings"] == []
