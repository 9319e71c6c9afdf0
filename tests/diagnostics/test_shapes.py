"""Every f has mean 0 under N(0, 1), its partner solves f = φ' - y φ, and Stein's identity holds for any law."""

import numpy as np
import pytest
from scipy import stats

from lwa.diagnostics.shapes import QUANTITIES, TAIL, evaluate_partners, evaluate_tests, find_ends, integrate
from lwa.diagnostics.stein import Evidence, find_frame, measure_effects, read_log_width

Y = np.linspace(-10.0, 10.0, 4001)
INSIDE = np.abs(Y) < 6


@pytest.mark.parametrize("bounded", [False, True])
def test_partners_solve_the_equation_and_tests_have_mean_zero(bounded):
    ends = find_ends(np.random.default_rng(1).normal(size=4001), bounded=bounded)
    tests, partners = evaluate_tests(Y, ends), evaluate_partners(Y, ends)
    slope = np.gradient(partners, Y, axis=0)
    step = np.abs(Y[:, None] - np.array([100.0] * 3 + [ends.low, ends.high])) > 0.02  # φ' jumps at the ends
    np.testing.assert_allclose(((slope - Y[:, None] * partners) * step)[INSIDE], (tests * step)[INSIDE], atol=2e-3)
    for j in range(len(QUANTITIES)):
        assert abs(integrate(tests[:, j])) < 1e-3  # of the tails, by the width of a step of the grid
    assert np.abs(partners[:, 3:]).max() < np.sqrt(2 * np.pi) / 4 + 1e-12


def test_skewness_is_read_as_skewness_and_a_width_as_a_variance():
    skewed = Y**3 - 3 * Y
    ends = find_ends(Y, bounded=True)
    assert integrate(evaluate_tests(Y, ends)[:, 2] * (1 + 0.3 * skewed / 6)) == pytest.approx(0.3, rel=1e-6)
    assert integrate(evaluate_tests(Y, ends)[:, 1] * (1 + 0.1 * (Y**2 - 1) / 2)) == pytest.approx(0.1, rel=1e-6)


LAWS = {
    "gamma": (stats.gamma(4.0), lambda x: 3 / x - 1),
    "t": (stats.t(5), lambda x: -6 * x / (5 + x**2)),
    "logistic": (stats.logistic(), lambda x: -np.tanh(x / 2)),
}


def by_quantiles(law, count=200_000):
    """Draws that integrate over a law, in random order."""
    x = law.ppf((np.arange(count) + 0.5) / count)
    return np.random.default_rng(1).permutation(x)


@pytest.mark.parametrize("name", LAWS)
def test_exact_draws_show_no_effect_whatever_their_law(name):
    law, slope = LAWS[name]
    x = by_quantiles(law)
    mean, sd = x.mean(), x.std()
    draws, gradients = ((x - mean) / sd).reshape(2, -1, 1), (slope(x) * sd)[:, None]
    evidence = Evidence(draws, draws.reshape(-1, 1), gradients)
    found = measure_effects(evidence, np.ones((1, 1)), find_frame(evidence))
    assert np.all(np.abs(found.size[0]) < [1e-2, 2e-2, 2e-2, 2e-3, 2e-3])


@pytest.mark.parametrize(
    ("wrong", "shift", "ratio", "skewness"),
    [
        (lambda z: z + 0.3, 0.3, 1.0, 0.0),
        (lambda z: 0.8 * z, 0.0, 0.8, 0.0),
        (lambda z: (np.log(stats.gamma(60).ppf(stats.norm.cdf(z))) - 4.0860) / 0.1296, 0.0, 1.0, -0.13),
    ],
)
def test_of_a_gaussian_posterior_every_error_is_read_as_it_is(wrong, shift, ratio, skewness):
    """Whatever the draws: the gradients of a Gaussian leave no residual, and f is compared with its known mean."""
    q = wrong(by_quantiles(stats.norm()))
    mean, sd = q.mean(), q.std()
    points = (q[:1000] - mean) / sd
    evidence = Evidence(((q - mean) / sd).reshape(2, -1, 1), points[:, None], -(mean + sd * points)[:, None] * sd)
    found = measure_effects(evidence, np.ones((1, 1)), find_frame(evidence))
    assert found.size[0, 0] == pytest.approx(shift, abs=2e-3)
    assert np.exp(read_log_width(found, 3.0)[0][0]) == pytest.approx(ratio, abs=2e-3)
    ends = np.quantile(q, [TAIL, 1 - TAIL])
    outside = TAIL - found.size[0, 3:]
    np.testing.assert_allclose(outside, [stats.norm.cdf(ends[0]), stats.norm.sf(ends[1])], atol=1e-3)
    if not shift and ratio == 1.0:
        assert found.size[0, 2] == pytest.approx(skewness, abs=0.01)


def test_between_two_modes_the_draws_stand_for_themselves():
    """A regression explains nothing there: its slope is noise, and its inverse would be a mean and sd of nothing."""
    rng = np.random.default_rng(1)
    x = np.where(rng.random((4, 1000, 1)) < 0.5, -15.0, 15.0) + rng.normal(size=(4, 1000, 1))
    sd = x.std()
    points = x.reshape(-1, 1)[::13]
    gradients = -(points - 15 * np.sign(points)) * sd
    evidence = Evidence((x - x.mean()) / sd, (points - x.mean()) / sd, gradients)
    frame = find_frame(evidence)
    assert frame.explained < 0.2
    assert frame.precision.tolist() == [[1.0]]
    found = measure_effects(evidence, np.ones((1, 1)), frame)
    assert np.all(np.abs(found.size) < 3.5 * found.error)


def test_few_draws_know_shares_no_better_than_their_mean():
    """Effective draws of an indicator are more than those of the mean, and with few of them an illusion."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(4, 300, 1))
    for t in range(1, 300):
        z[:, t] = 0.98 * z[:, t - 1] + np.sqrt(1 - 0.98**2) * z[:, t]
    z = (z - z.mean()) / z.std()
    evidence = Evidence(z, z.reshape(-1, 1)[::4], -z.reshape(-1, 1)[::4])
    found = measure_effects(evidence, np.ones((1, 1)), find_frame(evidence))
    assert np.all(3.4 * found.of_draws[0, 3:] > 0.1)
