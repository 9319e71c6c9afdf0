"""Where the seconds went."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.user.progress import Display, Stopwatch, format_stages, start_stopwatch


def ticking():
    """A clock that is one second later whenever it is read."""
    ticks = iter(range(1000))
    return lambda: float(next(ticks))


def test_stages_add_up_to_the_time_that_went_by():
    stages = Stopwatch(ticking())  # 0
    with stages("planning"), stages("mode"):  # from 1 to 4, and from 2 to 3
        pass
    with stages("mode"):  # 5 to 6
        pass
    assert stages.seconds == {"planning": 2.0, "mode": 2.0}
    stages.add("imports", 0.5)
    assert stages.record == {"planning": 2.0, "mode": 2.0, "imports": 0.5}


def test_a_stage_that_fails_is_counted_and_left():
    stages = Stopwatch(ticking())
    with pytest.raises(ValueError, match="no"), stages("mode"):
        raise ValueError("no")
    with stages("draws"):
        pass
    assert stages.seconds == {"mode": 1.0, "draws": 1.0}


def test_in_words():
    assert format_stages({"imports": 0.94, "saving": 0.01, "draws": 11.25}) == "12.2 s: imports 0.9, draws 11.2"
    assert format_stages({}) == "0.0 s"


def test_the_first_seconds_are_those_of_the_process():
    code = (
        "import time; time.sleep(0.3); from lwa.user.progress import start_stopwatch; "
        "print(start_stopwatch().seconds['imports'])"
    )
    told = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 0.3 <= told < 60
    assert start_stopwatch().seconds["imports"] > 0


def test_a_run_says_where_its_seconds_went():
    y = np.random.default_rng(0).normal(3.0, 1.0, 1000)
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * (mu / 10) ** 2, init=jnp.zeros(()))
    fit = lwa.sample(model, y, subset_size=50, draws=50, tune=50, chains=2, seed=1, progress=False)
    stages = fit.attributes["stages"]
    assert {"layout", "planning", "survey", "mode", "compiling", "tune", "draws"} <= set(stages)
    assert all(seconds >= 0 for seconds in stages.values())
    assert sum(stages.values()) <= fit.attributes["seconds"] + 0.01  # each second once


def test_a_display_keeps_the_stopwatch_that_it_is_given():
    stages = Stopwatch()
    assert Display(False, stages).stages is stages
    assert Display(False).stages is not Display(False).stages
