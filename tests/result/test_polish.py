"""`fit.polish` adds to the draws that it corrects, says what it costs, and whether it helped."""

import numpy as np
import pytest

import lwa
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.result.polish import count_dropped, judge_corrections, measure_memory
from tests.support import MODEL, Y


class Listener:
    """A display that remembers what is said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    def show(self, *_):
        self.said.append("a pass")


@pytest.fixture(scope="module")
def fit():
    return lwa.sample(MODEL, Y, subset_size=50, draws=100, tune=200, seed=1, progress=False)


@pytest.mark.parametrize(
    ("memory", "passes", "dropped"),
    [(0.0, 5, 0), (0.04, 5, 0), (0.1, 5, 1), (0.4, 5, 3), (0.7, 5, 4), (1.0, 5, 4), (0.7, 20, 8), (0.5, 1, 0)],
)
def test_states_are_kept_once_a_twentieth_of_the_error_is_left(memory, passes, dropped):
    assert count_dropped(memory, passes) == dropped
    assert dropped == passes - 1 or memory ** (dropped + 1) <= 0.05


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_memory_of_autoregressions(rho):
    """AR(1) of a normal: its squares remember ρ²."""
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(2000, 3))]
    for _ in range(5):
        states.append(rho * states[-1] + np.sqrt(1 - rho**2) * rng.normal(size=(2000, 3)))
    assert measure_memory(np.stack(states)) == pytest.approx(rho, abs=0.03)


def test_far_draws_that_stay_are_remembered():
    """Nine in ten draws are new at each pass, but those far out are not."""
    rng = np.random.default_rng(1)
    states = rng.normal(size=(6, 1000, 1))
    states[:, :30] = 10.0
    assert measure_memory(states) > 0.8


def test_it_says_beforehand_what_it_costs_and_afterwards_whether_it_helped(fit):
    theta, display = fit.posterior["theta"][:, ::10, None], Listener()
    done = fit.origin.polish(theta, 2, 0, display)
    cost, seconds, *passes, verdict = display.said
    assert "Correcting 40 draws by all 200 rows, 2 times, and scoring them first: 24,000 row evaluations." in cost
    assert "so 2 corrections take about" in seconds
    assert passes == ["a pass"] * 2
    assert done.rate > 0.99  # a Gaussian, for which the calibrated target is exact
    assert "were right within their Monte Carlo error. To make that smaller, draw more." in verdict
    assert judge_corrections(0.7, 0.3, 1000).endswith(
        "30.0% of the error that there was is left. Polish again for less."
    )
    assert judge_corrections(0.7, 0.03, 1000).endswith("about 3.0% of the error that there was is left.")


def test_there_are_no_fewer_draws_than_came_in(fit):
    polished = fit.polish(5, progress=False)
    assert polished.draws == 5 * fit.draws
    before, after = (effective_draws(run.posterior["theta"][..., None])[0] for run in (fit, polished))
    assert after > 2 * before
    assert polished.posterior["theta"].std() == pytest.approx(len(Y) ** -0.5, rel=0.1)


def test_states_of_a_draw_follow_each_other(fit):
    """More passes add states to each draw, and do not change those before."""
    few, more = (fit.polish(passes, progress=False).posterior["theta"] for passes in (2, 4))
    np.testing.assert_array_equal(few.reshape(4, 100, 2), more.reshape(4, 100, 4)[..., :2])
