"""Exact moves change nothing of exact draws, whatever their law, and show what is wrong with others."""

from dataclasses import replace
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.diagnostics.certificate import Finding
from lwa.diagnostics.shapes import TAIL
from lwa.diagnostics.transitions import MOST_PROPOSALS, draw_proposals, measure_transition, score_moves
from tests.diagnostics.test_certificate import CHAINS, DRAWS, QUIET, SEEDS, WRONG, between_modes, judged

GRID = (np.arange(2000) + 0.5) / 2000
"""Probabilities at whose quantiles a law stands for itself: means over them are integrals."""
NORMAL = NormalDist()
SIZE = (CHAINS, DRAWS)


def quantiles(inverse):
    return np.array([inverse(p) for p in GRID])[:, None]


def tried(starts, log_density):
    """What moves do to draws of one parameter, given in units of their own mean and sd, with as many ends."""
    ends = quantiles(NORMAL.inv_cdf)
    found = score_moves(starts, ends, log_density(starts[:, 0]), log_density(ends[:, 0]))
    return found, measure_transition(found, starts.reshape(2, -1, 1), np.ones((1, 1)))


# By integration


def test_all_moves_are_accepted_where_the_gaussian_is_the_posterior():
    rng = np.random.default_rng(1)
    starts, ends, draws = rng.normal(size=(300, 3)), draw_proposals(300, 3), rng.normal(size=(4, 1000, 3))
    found = score_moves(starts, ends, 7.0 - 0.5 * (starts**2).sum(1), 7.0 - 0.5 * (ends**2).sum(1))
    np.testing.assert_allclose(found.accepted, 1.0, rtol=1e-13)
    change = measure_transition(found, draws, np.diag([1.0, 10.0, 100.0]))
    draws -= draws.mean((0, 1))  # as certificates have them
    change = measure_transition(found, draws / draws.std((0, 1)), np.diag([1.0, 10.0, 100.0]))
    np.testing.assert_allclose(change.change[:, 0], 0.0, atol=1e-10)
    assert change.rejected < 1e-12
    # What is left is the error of the draws' own mean and variance.
    np.testing.assert_allclose(change.error[:, 0], 1 / np.sqrt(4000), rtol=0.25)
    np.testing.assert_allclose(change.error[:, 3:], np.sqrt(TAIL * (1 - TAIL) / 4000), rtol=0.25)


def test_exact_moves_leave_an_exponential_law_as_it_is():
    """Draws of π = exp(-x - 1), x > -1: 45 % of the moves are refused, many of them to where π is zero."""
    starts = quantiles(lambda p: -np.log1p(-p) - 1.0)
    found, change = tried(starts, lambda x: np.where(x > -1.0, -x, -np.inf))
    assert abs(change.change[0, 0]) < 2e-3
    assert abs(change.change[0, 1]) < 2e-2
    assert np.all(found.accepted[:, found.ends[:, 0] <= -1.0] == 0.0)
    # Refusals are TV(π⊗G, G⊗π), by another integral, and that is at least TV(π, G).
    x, width = np.linspace(-8.0, 12.0, 4001, retstep=True)
    pi, gaussian = np.where(x > -1.0, np.exp(-x - 1.0), 0.0), np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
    pairs = np.abs(np.outer(pi, gaussian) - np.outer(gaussian, pi)).sum() * width**2 / 2
    assert change.rejected == pytest.approx(pairs, abs=5e-3)
    assert change.rejected > np.abs(pi - gaussian).sum() * width / 2


@pytest.mark.parametrize("shift", [0.05, 0.2, 1.0, -1.0])
def test_shifted_draws_move_back(shift):
    """π = N(-Δ, 1) and draws of N(0, 1): α = min(1, exp(-Δ(z' - z))), of which all means are known."""
    size = abs(shift)
    upward = np.exp(size**2) * NORMAL.cdf(-np.sqrt(2) * size)  # E[α; moves away from π]
    _, change = tried(quantiles(NORMAL.inv_cdf), lambda z: -0.5 * (z + shift) ** 2)
    assert change.rejected == pytest.approx(0.5 - upward, abs=2e-3)
    assert change.change[0, 0] == pytest.approx(-2 * shift * upward / (0.5 + upward), abs=5e-3)
    assert abs(change.change[0, 1]) < 0.01


def test_wide_draws_are_drawn_in():
    starts = quantiles(NORMAL.inv_cdf)
    _, wide = tried(starts, lambda z: -0.5 * (1.2 * z) ** 2)
    _, narrow = tried(starts, lambda z: -0.5 * (0.8 * z) ** 2)
    assert -(1 - 1 / 1.2**2) * 1.1 < wide.change[0, 1] < -0.2
    assert 0.2 < narrow.change[0, 1] < 1 / 0.8**2 - 1
    np.testing.assert_allclose([wide.change[0, 0], narrow.change[0, 0]], 0.0, atol=1e-10)


# The parts


def test_proposals_are_standard_normal_and_always_the_same():
    ends = draw_proposals(400, 5)
    np.testing.assert_array_equal(ends, draw_proposals(400, 5))
    levels = np.vectorize(NORMAL.cdf)(ends)
    np.testing.assert_array_equal(np.sort((400 * levels).astype(int), axis=0), np.tile(np.arange(400), (5, 1)).T)
    assert np.abs(np.corrcoef(ends, rowvar=False) - np.eye(5)).max() < 0.15
    assert len(draw_proposals(10**5, 1)) == MOST_PROPOSALS


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_standard_errors_are_those_of_repetitions(scale):
    """Other draws and other proposals each time; π is standard normal, the draws are right or twice too wide."""
    rng, found = np.random.default_rng(1), []
    for _ in range(200):
        theta = scale * rng.normal(size=(4, 500, 2))
        mean, sd = theta.mean((0, 1)), theta.std((0, 1))
        draws, ends = (theta - mean) / sd, rng.normal(size=(300, 2))
        starts = draws.reshape(-1, 2)[:2000:7]
        density = (-0.5 * ((mean + sd * z) ** 2).sum(1) for z in (starts, ends))
        found.append(measure_transition(score_moves(starts, ends, *density), draws, np.eye(2)))
    values, errors = (np.array([getattr(one, name) for one in found]) for name in ("change", "error"))
    assert np.all(np.abs(values.std(0) / errors.mean(0) - 0.9) < 0.2), (values.std(0), errors.mean(0))


def test_more_starts_than_ends_give_the_same():
    rng = np.random.default_rng(1)
    starts, ends = quantiles(NORMAL.inv_cdf), rng.normal(size=(200, 1))
    few, many = (
        measure_transition(
            score_moves(starts, part, -np.abs(starts[:, 0]), -np.abs(part[:, 0])), starts[None], np.ones((1, 1))
        )
        for part in (ends, np.tile(ends, (10, 1)))
    )
    for name in ("change", "rejected"):
        np.testing.assert_allclose(getattr(few, name), getattr(many, name), rtol=1e-9)


def test_moves_to_where_the_posterior_is_not_a_number_are_refused():
    starts, ends = np.zeros((20, 1)), draw_proposals(20, 1)
    found = score_moves(starts, ends, np.zeros(20), np.where(ends[:, 0] > 0, np.nan, -0.5 * ends[:, 0] ** 2))
    assert np.all(found.accepted[:, ends[:, 0] > 0] == 0.0)
    assert np.all(found.accepted[:, ends[:, 0] < 0] > 0.99)


def test_nothing_is_claimed_where_no_move_is_accepted():
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(2, 100, 1))
    starts = draws.reshape(-1, 1)
    found = score_moves(starts, draw_proposals(200, 1), np.zeros(200), np.full(200, -np.inf))
    change = measure_transition(found, draws, np.ones((1, 1)))
    assert change.rejected == 1.0
    assert np.all(np.abs(change.change) < 3 * change.error)


def test_a_vague_second_opinion_says_nothing_and_a_clear_one_condemns():
    assert Finding("", "", 0.1, 5.0, 0.1).unclear
    assert not Finding("", "", 0.1, 5.0, 0.1, second_opinion=True).unclear
    assert Finding("", "", 0.3, 0.25, 0.1, second_opinion=True).unclear  # out of tolerance, and not by chance
    assert Finding("", "", 0.4, 0.25, 0.1, second_opinion=True).condemned


# In certificates


def without_gradients(found):
    """The certificate as if the gradients had seen nothing, and all but exactly."""
    nothing, exactly = np.zeros_like(found.shift), np.full_like(found.shift, 1e-3)
    return replace(
        found, shift=nothing, shift_error=exactly, log_ratio=nothing, log_ratio_error=exactly, skewness=nothing,
        skewness_error=exactly, outside=0 * found.outside + TAIL, outside_error=0 * found.outside + 1e-3,
        overall_shift=0.0, overall_shift_error=1e-3, log_widths=nothing, log_widths_error=exactly,
    )  # fmt: skip


@pytest.mark.parametrize(("what", "words"), [("shifted 1", "an exact move shifts"), ("wide 2", "changes the variance")])
@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_large_errors_are_condemned_by_moves_alone(name, what, words):
    found = without_gradients(judged(name, what, seed=1)[0])
    assert found.outcome == "fail"
    assert words in found.verdict


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_moves_say_nothing_against_exact_draws(name):
    found = without_gradients(judged(name, "exact", seed=1)[0])
    assert found.passed
    assert found.total_variation < 0.06
    assert np.all(found.moved_error < [0.1, 0.15, 0.25, 0.02, 0.02])


def test_a_small_shift_is_seen_and_read():
    """One parameter, 0.2 sd: back by 0.179 in one move, as in the integral."""
    y = np.random.default_rng(1).normal(size=1000)
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: 0.0 * mu, init=0.0)
    draws = y.mean() + (0.2 + np.random.default_rng(2).normal(size=(CHAINS, DRAWS))) / np.sqrt(1000)
    found = lwa.certify(model, y, {"theta": draws}, **QUIET)
    assert abs(found.moved[0, 0]) > found.moved_error[0, 0]
    assert abs(found.moved[0, 0] + 0.179) < found.moved_error[0, 0]
    assert abs(found.total_variation - 0.096) < found.total_variation_error
    assert without_gradients(found).outcome != "pass"


def test_draws_up_to_a_boundary():
    """Half of a normal law: gradients do not add up to zero there, but moves are as exact as anywhere."""
    model = lwa.Model(lambda x, y: 0.0 * x * y, lambda x: jnp.where(x > 0, -0.5 * x**2, -jnp.inf), init=1.0)
    draws = np.abs(np.random.default_rng(1).normal(size=(CHAINS, DRAWS)))
    found = lwa.certify(model, np.zeros(5), {"theta": draws}, **QUIET)
    assert abs(found.moved[0, 0]) < found.moved_error[0, 0]
    assert abs(found.moved[0, 1]) < found.moved_error[0, 1]
    assert found.total_variation > 0.1
    assert without_gradients(found).passed


# Exact draws of laws that are not Gaussian, as priors that the data say nothing about


def prior_only(log_prior, init=0.0):
    return lwa.Model(lambda theta, y: 0.0 * y * jnp.sum(theta), log_prior, init)


def bent(theta):
    return -0.5 * theta[0] ** 2 - 0.5 * (theta[1] - theta[0] ** 2) ** 2


def bent_draws(rng):
    z = rng.normal(size=(CHAINS, DRAWS, 2))
    return np.stack([z[..., 0], z[..., 1] + z[..., 0] ** 2], axis=-1)


LAWS = {
    "log of a Gamma(14)": (prior_only(lambda x: 14 * x - jnp.exp(x)), lambda rng: np.log(rng.gamma(14.0, size=SIZE))),
    "log of a Gamma(1)": (prior_only(lambda x: x - jnp.exp(x)), lambda rng: np.log(rng.gamma(1.0, size=SIZE))),
    "Student's t, 5": (prior_only(lambda x: -3 * jnp.log1p(x**2 / 5)), lambda rng: rng.standard_t(5, size=SIZE)),
    "two modes": (prior_only(between_modes), lambda rng: rng.choice([-3.0, 3.0], SIZE) + rng.normal(size=SIZE)),
    "bent": (prior_only(bent, jnp.zeros(2)), bent_draws),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_rates_of_other_laws(law):
    """Over a hundred seeds: moves find no fault with exact draws, and zero lies inside their bars."""
    model, make = LAWS[law]
    found = [
        lwa.certify(model, np.zeros(5), {"theta": make(np.random.default_rng(seed))}, **QUIET) for seed in range(SEEDS)
    ]
    clean = np.mean([without_gradients(one).passed for one in found])
    inside = np.mean([np.all(np.abs(one.moved) <= one.moved_error) for one in found])
    refused = np.mean([one.total_variation for one in found])
    print(f"{law}: {clean:.0%} clean, {inside:.0%} inside the bars, {refused:.0%} of moves refused")
    assert clean >= 0.95
    assert inside >= 0.95
    assert all(without_gradients(one).outcome != "fail" for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_rates_of_moves_alone(name, what):
    """Over a hundred seeds: no planted error passes unseen, though not every one is condemned without the gradients."""
    outcomes = [without_gradients(judged(name, what, seed)[0]).outcome for seed in range(SEEDS)]
    seen, condemned = np.mean([one != "pass" for one in outcomes]), np.mean([one == "fail" for one in outcomes])
    print(f"{name}, {what}: {seen:.0%} seen and {condemned:.0%} condemned by moves alone")
    assert seen >= 0.95
