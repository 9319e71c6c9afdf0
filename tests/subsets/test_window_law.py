"""R of windows: on tiny data its law is measured from the code's own proposals, and ν is reversible for it."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.rows.parts import Parts
from lwa.rows.units import number_windows
from lwa.subsets import Epanechnikov, Gaussian, Laplace, Window
from lwa.subsets.windows.law import (
    WindowDraws,
    build_window_law,
    draw_window_page,
    find_neighbour,
    find_neighbours,
    log_window_ratio,
    normaliser,
    propose_window,
    window_probability,
)
from lwa.subsets.windows.walk import find_first_row, walk_page
from lwa.summaries import WindowStatistic
from lwa.summaries.window_kernels import write_moments

N, n = 12, 4
M = N - n + 1
Y = np.random.default_rng(5).normal(size=N).round(2)
WINDOWS = number_windows(Parts(np.array([0, N])), n)
MEAN = WindowStatistic(write_moments, np.array([Y.mean()]), compiled=False)
RATES, LOCALS = [0.05, 0.1, 0.5, 2.0], [0.0, 0.3, 0.9, 1.0]
EPSILON = 0.41
"""Two of the nine windows lie outside the support of the Epanechnikov weight."""
BY_HAND = {
    Gaussian(): lambda x: np.exp(-0.5 * x**2),
    Laplace(): lambda x: np.exp(-x),
    Epanechnikov(): lambda x: np.maximum(0.0, 1.0 - x**2),
}


def local_law_by_hand(rate, M=M):
    x = np.arange(M)
    weights = np.exp(-rate * abs(x[:, None] - x))
    return weights / weights.sum(1, keepdims=True)


def law_by_hand(rate, local, M=M):
    near = local_law_by_hand(rate, M)
    return local * near + (1 - local) * near.mean(0)


@cache
def measured_local_law(rate):
    """The measure of the u that lead from x to x', by bisection: u passes x, then x-1, …, 0, then x+1, …, M-1."""
    matrix = np.zeros((M, M))
    for x in range(M):
        arrived = [*range(x, -1, -1), *range(x + 1, M)]
        place = {window: i for i, window in enumerate(arrived)}
        ends = [0.0]
        for i in range(1, M):
            low, high = 0.0, 1.0
            while high - low > 1e-14:
                middle = 0.5 * (low + high)
                low, high = (middle, high) if place[find_neighbour(x, middle, M, rate)] < i else (low, middle)
            ends.append(high)
        matrix[x, arrived] = np.diff([*ends, 1.0])
    return matrix


def measured_law(rate, local):
    """R: remote windows are local to a uniform n'."""
    near = measured_local_law(rate)
    return local * near + (1 - local) * near.mean(0)


def enumerated(law, ratio=log_window_ratio, log_phi=None):
    """P(x, x') from a law of proposals and the ratio that decides."""
    log_phi = np.zeros(M) if log_phi is None else log_phi
    R = measured_law(law.rate, law.local)
    P = np.zeros((M, M))
    for x in range(M):
        for new in range(M):
            if new != x and R[x, new] > 0:
                P[x, new] = R[x, new] * math.exp(min(0.0, log_phi[new] - log_phi[x] + ratio(law, x, new)))
    return P + np.diag(1 - P.sum(1))


def distances():
    means = np.array([Y[x : x + n].mean() for x in range(M)])
    return abs(means - Y.mean())


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("local", LOCALS)
def test_the_ratio_is_of_the_law_that_is_drawn_from(rate, local):
    law = build_window_law(M, Window(local, rate))
    R = np.array([[window_probability(law, x, new) for new in range(M)] for x in range(M)])
    np.testing.assert_allclose(R.sum(1), 1.0, atol=1e-12)
    np.testing.assert_allclose(R, law_by_hand(rate, local), atol=1e-12)
    np.testing.assert_allclose(measured_law(rate, local), R, atol=1e-12)


def test_kind_decides_between_local_and_remote():
    law = build_window_law(M, Window())
    for u in (0.0, 0.3, 0.9, 1 - 2**-53):
        assert propose_window(law, 2, True, u, 7) == find_neighbour(2, u, M, law.rate)
        assert propose_window(law, 2, False, u, 7) == 7


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("weight", [Gaussian(), Laplace(), Epanechnikov(), None], ids=str)
def test_detailed_balance(rate, local, weight):
    law = build_window_law(M, Window(local, rate))
    if weight is None:
        nu, log_phi = np.full(M, 1 / M), np.zeros(M)
    else:
        nu = BY_HAND[weight](distances() / EPSILON)
        nu /= nu.sum()
        log_phi = np.array([weight.log_of_number(d / EPSILON) for d in distances()])
    P = enumerated(law, log_phi=log_phi)
    flow = nu[:, None] * P
    np.testing.assert_allclose(flow, flow.T, atol=1e-10)
    np.testing.assert_allclose(nu @ P, nu, atol=1e-10)


def test_the_ends_would_be_short_of_weight_without_the_ratio():
    """The stationary law of R itself, which is the chain without its ratio, at the paper's ω and λ."""
    windows = 300
    R = law_by_hand(0.1, 0.9, windows)
    stationary = np.linalg.matrix_power(R, 4096)[0]
    assert stationary[0] * windows == pytest.approx(0.61, abs=0.01)
    nu, law = np.full(M, 1 / M), build_window_law(M, Window())
    assert abs(nu @ enumerated(law, ratio=lambda law, x, new: 0.0) - nu).max() > 1e-3  # so the tests above would see it


def test_remote_jumps_are_accepted():
    """A ratio that keeps n' accepts hardly any: to jump back, n' would have to be near the old window."""
    windows = number_windows(Parts(np.array([0, 10**6 + 99])), 100)
    law = build_window_law(windows.number, Window())
    assert windows.number == 10**6
    rng = np.random.default_rng(1)
    draws = draw_window_page(rng, 50_000, law)
    path = walk_page(500_000, draws, windows, law)
    remote = ~draws.is_local
    assert path.accepted[remote].mean() > 0.99
    x, centre = rng.integers(law.windows, size=(2, 10_000))
    new = find_neighbours(centre, rng.random(10_000), law.windows, law.rate)
    log_ratio = -law.rate * (abs(centre - x) - abs(centre - new))
    assert np.exp(np.minimum(0.0, log_ratio)).mean() < 0.01


@pytest.mark.parametrize("rate", [1e-3, 0.05, 2.0, 40.0, 1000.0])
@pytest.mark.parametrize("windows", [1, 2, 9, 1500])
def test_tables_of_the_ends(rate, windows):
    law, near = build_window_law(windows, Window(rate=rate)), local_law_by_hand(rate, windows)
    x = np.arange(windows)
    for at in {0, 1, windows // 2, windows - 2, windows - 1} & set(range(windows)):
        assert window_probability(law._replace(local=0.0), 0, at) == pytest.approx(near.mean(0)[at], rel=1e-12)
        assert normaliser(at, windows, rate) == pytest.approx(np.exp(-rate * abs(x - at)).sum(), rel=1e-12)


def test_a_billion_windows():
    law = build_window_law(10**9, Window(rate=0.1))
    assert len(law.arrivals) == 450
    assert law.arrivals[-1] * 10**9 == pytest.approx(1.0, rel=1e-12)
    assert log_window_ratio(law, 10**8, 7 * 10**8) == 0.0
    assert log_window_ratio(law, 0, 10**9 - 1) == 0.0
    with pytest.raises(lwa.InputError, match=r"Window\(rate=1e-07\) is too small for 1000000000 windows"):
        build_window_law(10**9, Window(rate=1e-7))


@pytest.mark.parametrize("rate", [1e-4, 0.1, 2.0, 650.0, 800.0])
def test_the_last_uniforms_stay_inside(rate):
    for windows in (1, 2, 9, 10**9):
        for x in {0, windows // 2, windows - 1}:
            for u in (0.0, 0.5, 1 - 2**-52, 1 - 2**-53):
                assert 0 <= find_neighbour(x, u, windows, rate) < windows


def test_the_page_has_the_law_it_says():
    law = build_window_law(M, Window(local=0.7, rate=0.5))
    draws = draw_window_page(np.random.default_rng(2), 100_000, law)
    assert abs(draws.is_local.mean() - 0.7) < 4 * math.sqrt(0.7 * 0.3 / 100_000)
    seen = np.bincount(draws.remote, minlength=M)
    assert stats.chisquare(seen, 100_000 * local_law_by_hand(0.5).mean(0)).pvalue > 1e-4
    assert stats.kstest(draws.local_u, "uniform").pvalue > 1e-4
    assert stats.kstest(-draws.log_u, "expon").pvalue > 1e-4


@pytest.mark.parametrize("weight", [Gaussian(), Laplace(), Epanechnikov()], ids=str)
def test_weights_of_numbers_are_those_of_arrays(weight):
    x = np.concatenate([np.linspace(0, 3, 301), [1 - 1e-15, 1.0, 1e3]])
    with jax.enable_x64(True):
        expected = np.asarray(weight.log(jnp.asarray(x)))
    np.testing.assert_allclose([weight.log_of_number(value) for value in x.tolist()], expected, rtol=1e-14)


def one_proposal(new, log_u):
    return WindowDraws(np.array([False]), np.array([0.0]), np.array([new]), np.array([log_u]))


@pytest.mark.parametrize("weight", [Gaussian(), Laplace(), Epanechnikov()], ids=str)
def test_acceptance_turns_at_the_ratio(weight):
    law, d = build_window_law(M, Window()), distances()
    for x, new in ((0, 3), (8, 2), (4, 0), (2, 8)):
        ratio = (
            weight.log_of_number(d[new] / EPSILON)
            - weight.log_of_number(d[x] / EPSILON)
            + log_window_ratio(law, x, new)
        )
        for shift, expected in ((-1e-9, True), (1e-9, False)):
            path = walk_page(
                x,
                one_proposal(new, ratio + shift),
                WINDOWS,
                law,
                column=Y,
                statistic=MEAN,
                weight=weight,
                epsilon=EPSILON,
            )
            assert path.accepted.tolist() == [expected]
            assert path.x.tolist() == [new if expected else x]
            assert path.distance[0] == pytest.approx(d[new if expected else x], rel=1e-12)


def test_nan_rejects():
    law = build_window_law(M, Window())
    path = walk_page(3, one_proposal(6, math.nan), WINDOWS, law)
    assert path.x.tolist() == [3]
    assert not path.accepted.any()


@pytest.mark.parametrize("epsilon", [EPSILON, math.inf])
def test_simulated_frequencies(epsilon):
    """Each chain's last window is one independent draw of uniform · P^transitions."""
    chains, transitions, law = 4000, 5, build_window_law(M, Window(local=0.6, rate=0.5))
    statistic = lwa.summaries.Moments(1).prepare(Y, np.array([N]))
    rng = np.random.default_rng(4)
    draws, start = draw_window_page(rng, chains * transitions, law), rng.integers(M, size=chains)
    last = []
    for chain, x in enumerate(start.tolist()):
        page = WindowDraws(*(leaf[chain * transitions : (chain + 1) * transitions] for leaf in draws))
        path = walk_page(x, page, WINDOWS, law, column=Y, statistic=statistic, weight=Gaussian(), epsilon=epsilon)
        last.append(path.x[-1])
    P = enumerated(law, log_phi=-0.5 * (distances() / epsilon) ** 2)
    expected = np.full(M, 1 / M) @ np.linalg.matrix_power(P, transitions)
    assert stats.chisquare(np.bincount(last, minlength=M), chains * expected).pvalue > 1e-4


def test_windows_never_straddle_two_series():
    windows = number_windows(Parts(np.array([0, 7, 16])), 4)
    assert windows.number == 4 + 6
    rows = [find_first_row(windows, x) for x in range(windows.number)]
    assert rows == [0, 1, 2, 3, 7, 8, 9, 10, 11, 12]
    law = build_window_law(windows.number, Window())
    path = walk_page(0, draw_window_page(np.random.default_rng(3), 200_000, law), windows, law)
    seen = np.bincount(path.x[::40], minlength=10)  # ε = ∞: uniform; a remote jump every tenth transition forgets
    assert stats.chisquare(seen).pvalue > 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"local": 1.2}, r"Window\(local=1.2\) must be a probability"),
        ({"local": math.nan}, r"Window\(local=nan\) must be a probability"),
        ({"rate": 0.0}, r"Window\(rate=0.0\) must be a positive number"),
        ({"rate": math.inf}, r"Window\(rate=inf\) must be a positive number"),
        ({"rate": "fast"}, r"Window\(rate='fast'\) must be a positive number"),
        ({"lead_in": -1}, r"Window\(lead_in=-1\) must be 'auto' or a whole number"),
        ({"lead_in": 2.5}, r"Window\(lead_in=2.5\) must be 'auto' or a whole number"),
        ({"every": 0}, r"Window\(every=0\) must be a whole number >= 1"),
    ],
)
def test_a_window_that_is_none(options, message):
    with pytest.raises(lwa.InputError, match=message):
        Window(**options)


def test_rows_without_order_have_no_windows():
    with pytest.raises(lwa.InputError, match="these rows have no order"):
        Window().propose(np.random.default_rng(0), 1, n, N)
