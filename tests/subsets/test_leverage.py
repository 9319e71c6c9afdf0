"""Rows drawn by leverage: q as it should be, the law of U by enumeration, and a rare dummy that uniform rows miss."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa import algorithm
from lwa.algorithm import Candidate
from lwa.rivals.problems import simulate_logistic
from lwa.rows import as_rows
from lwa.subsets import Epanechnikov, Gaussian, Laplace, Swap
from lwa.subsets.chain import SubsetChain
from lwa.subsets.leverage import find_leverage
from lwa.subsets.pieces import CELL, UNIFORM_SHARE, lay_out_pieces
from lwa.summaries import Curvature
from lwa.summaries.summary import Statistic
from lwa.targets.calibration import calibrate
from lwa.targets.reference import find_reference

Y = np.array([-1.0, 0.2, 0.9, 3.0])
Q = np.array([0.1, 0.2, 0.3, 0.4])


def leverage_of(q, n, strata=None):
    """q over few rows, in n pieces, as `find_leverage` would store it."""
    strata = np.zeros(len(q), np.uint16) if strata is None else np.asarray(strata, np.uint16)
    return lay_out_pieces((len(q) * q).astype(np.float32), strata, int(strata.max()) + 1).cut(n)


def tiny_chain(weight, epsilon=0.8, page=64):
    statistic = Statistic(lambda rows: rows[:, None], np.array([Y.mean()]), np.ones(1))
    return SubsetChain(as_rows(Y), statistic, Swap(1), weight, epsilon, 2, 1, page, None, leverage_of(Q, 2))


PIECES = np.array([[0.2, 0.4, 0.4, 0.0], [0.0, 0.0, 0.2, 0.8]])
"""The laws of two slots: halves of q = (0.1, 0.2, 0.3, 0.4)."""


@pytest.mark.parametrize(
    "weight",
    [Gaussian(), *(pytest.param(weight, marks=pytest.mark.slow) for weight in (Laplace(), Epanechnikov()))],
    ids=str,
)
def test_detailed_balance_over_all_pairs_of_slots(weight):
    """N = 4, n = 2, repeats allowed: 16 states. ν ∝ Φ(|S̄_w - s_N|/ε) q₁(u₁) q₂(u₂), to 1e-7; simulation agrees."""
    states = np.array(list(product(range(4), repeat=2)))
    with jax.enable_x64(True):
        chain = tiny_chain(weight)
        counts = 1 / (4 * Q)
        mean = (counts * Y)[states].mean(1)
        nu = np.exp(np.asarray(weight.log(jnp.asarray(np.abs(mean - Y.mean()) / 0.8))))
        nu *= PIECES[0, states[:, 0]] * PIECES[1, states[:, 1]]
        nu /= nu.sum()
        U = chain.assess(states)
        np.testing.assert_allclose(U.distance, np.abs(mean - Y.mean()), atol=1e-7)  # weights are kept in float32
        matrix = np.zeros((16, 16))
        for slot, row in product(range(2), range(4)):
            incoming = np.full((16, 1), row)
            statistics, _ = chain._per_slot(chain.take_slots(incoming), incoming)
            slots = jnp.full((16, 1), slot)
            candidate = Candidate(slots, jnp.asarray(incoming), statistics, jnp.full(16, -jnp.inf))
            _, away = jax.vmap(algorithm.propose)(U, candidate)
            accept = jnp.exp(jnp.minimum(0.0, algorithm.log_acceptance(U.distance, away, weight, 0.8)))
            to = states.copy()
            to[:, slot] = row
            for i in range(16):
                matrix[i, to[i, 0] * 4 + to[i, 1]] += 0.5 * PIECES[slot, row] * float(accept[i])
        matrix += np.diag(1 - matrix.sum(1))
        flow = nu[:, None] * matrix
        np.testing.assert_allclose(flow, flow.T, atol=1e-7)
        chains = 4000
        end, _ = chain.advance(chain.start(range(chains)), range(chains), 0)
        seen = np.bincount(np.asarray(end.indices) @ [4, 1], minlength=16)
    first = PIECES[0, states[:, 0]] * PIECES[1, states[:, 1]]
    expected = first @ np.linalg.matrix_power(matrix, 64)
    possible = expected > 1e-12
    assert seen[~possible].sum() == 0
    assert stats.chisquare(seen[possible], chains * expected[possible] / expected[possible].sum()).pvalue > 1e-4


def test_rows_come_as_often_as_q_says():
    """Over all slots, each drawn from its own piece: sure rows once per subset, the others by what is left of q."""
    q = np.random.default_rng(1).gamma(0.3, size=1000)
    q /= q.sum()
    found = leverage_of(q, 50)
    drawn = found.draw(np.random.default_rng(2), np.tile(np.arange(50), (4000, 1))).ravel()
    seen = np.bincount(drawn, minlength=1000)
    sure = np.isin(np.arange(1000), found.sure)
    assert 0 < sure.sum() < 50
    assert (seen[sure] == 4000).all()
    often = (50 - sure.sum()) * q / q[~sure].sum()
    np.testing.assert_allclose(found.counts(np.flatnonzero(~sure)), 50 / 1000 / often[~sure], rtol=1e-5)
    common = ~sure & (4000 * often > 10)
    expected = seen[common].sum() * often[common] / often[common].sum()
    assert ((seen[common] - expected) ** 2 / expected).sum() < stats.chi2.ppf(1 - 1e-4, common.sum() - 1)


@pytest.mark.parametrize("n", [3, 7, pytest.param(40, marks=pytest.mark.slow)])
def test_each_slot_keeps_to_its_stratum(n):
    """Every stratum has its slots, whose laws add up to n q': Σ_i q_i(k) c_k = n/N whatever the row."""
    strata = np.repeat([2, 0, 4, 2], [30, 2, 20, 48])
    rng = np.random.default_rng(3)
    order = rng.permutation(100)
    strata, q = strata[order], rng.gamma(0.5, size=100) + 0.01
    found = leverage_of(q / q.sum(), n, strata)
    drawn = found.draw(np.random.default_rng(4), np.tile(np.arange(n), (20_000, 1)))
    slots = found.pieces + np.bincount(strata[found.sure], minlength=5)
    assert slots.sum() == n
    assert (slots > 0).tolist() == [True, False, True, False, True]
    owner = np.concatenate([strata[found.sure], np.repeat(np.arange(5), found.pieces)])
    assert (strata[drawn] == owner).all()
    often = np.bincount(drawn.ravel(), minlength=100) / 20_000  # Σ_i q_i(k)
    exact = n / 100 / found.counts(np.arange(100))
    np.testing.assert_allclose(exact.sum(), n, rtol=1e-5)
    assert np.abs(often - exact).max() < 5 * np.sqrt(exact.max() / 20_000)


def test_a_stratum_of_as_many_rows_as_slots_is_there_in_full():
    """Three equal rows with three slots: all of them in every subset, and each counts once."""
    strata = np.array([0] * 97 + [1] * 3)
    q = np.where(strata == 1, 0.2, 0.4 / 97)
    found = leverage_of(q, 5, strata)
    assert found.pieces.tolist() == [2, 0]
    assert found.sure.tolist() == [97, 98, 99]
    drawn = found.draw(np.random.default_rng(5), np.tile(np.arange(5), (100, 1)))
    assert (drawn[:, :3] == [97, 98, 99]).all()
    assert (drawn[:, 3:] < 97).all()
    np.testing.assert_allclose(found.counts(np.array([97, 98, 99])) * 100 / 5, 1.0, rtol=1e-6)


def test_fewer_slots_than_strata():
    found = leverage_of(np.full(10, 0.1), 2, np.arange(10))
    assert found.pieces.tolist() == [2]
    drawn = found.draw(np.random.default_rng(6), np.tile(np.arange(2), (1000, 1)))
    assert (drawn[:, 0] < 5).all()
    assert (drawn[:, 1] >= 5).all()
    np.testing.assert_allclose(found.counts(np.arange(10)), 1.0, rtol=1e-6)


def test_the_layout_is_that_of_a_sort():
    """Blocks of rows, cells and strata that do not divide each other."""
    rng = np.random.default_rng(7)
    size, strata = rng.random(40_001).astype(np.float32), rng.integers(0, 300, 40_001).astype(np.uint16)
    found = lay_out_pieces(size, strata, 300)
    order = np.argsort(strata, kind="stable")
    np.testing.assert_array_equal(found.order, order)
    sums = np.cumsum(size[order].astype(np.float64))
    np.testing.assert_allclose(found.ends, sums[np.minimum(np.arange(CELL, 40_001 + CELL, CELL), 40_001) - 1])
    borders = np.concatenate([[0.0], sums[np.cumsum(np.bincount(strata, minlength=300)) - 1]])
    np.testing.assert_allclose(found.share, np.diff(borders), rtol=1e-9)


def test_q_is_the_share_of_curvature():
    """h_k of a logistic row is p(1-p) ‖Fᵀx‖²; q mixes it with the uniform."""
    model, data, *_ = simulate_logistic(3000, seed=6, parameters=3)
    with jax.enable_x64(True):
        reference = find_reference(model, as_rows(data), np.zeros(3), 1)
        found = find_leverage(model, as_rows(data), reference)
    x = data["x"].astype(float)
    p = 1 / (1 + np.exp(-x @ reference.theta))
    h = p * (1 - p) * ((x @ reference.factor) ** 2).sum(1)
    expected = UNIFORM_SHARE + (1 - UNIFORM_SHARE) * h / h.mean()
    np.testing.assert_allclose(found.size[:3000], expected, rtol=1e-5)
    np.testing.assert_allclose(found.counts(np.arange(3000)), 1 / expected, rtol=1e-5)
    np.testing.assert_array_equal(found.stratum, ((x @ reference.factor) ** 2).argmax(1))


def test_weighted_statistics_are_unbiased():
    """E_q[c_k S(Y_k)] = s_N and E_q[c_k ∇ℓ_k] = g_N / N, summed over all rows."""
    model, data, *_ = simulate_logistic(2000, seed=7, parameters=3)
    with jax.enable_x64(True):
        rows = as_rows(data)
        reference = find_reference(model, rows, np.zeros(3), 1)
        leverage = find_leverage(model, rows, reference)
        chain = SubsetChain(
            rows, Curvature().at(model, reference, 2000), Swap(1), Gaussian(), 1.0, 10, 1, 8,
            calibrate(model, reference, 1.0, transport=False), leverage,
        )  # fmt: skip
        everything = np.arange(2000)[None, :]
        statistics, carried = chain._per_slot(chain.take_slots(everything), everything)
        q = leverage.size[:2000] / leverage.size[:2000].sum(dtype=float)
        np.testing.assert_allclose(np.asarray(statistics[0]) @ q, 0.0, atol=1e-4)
        np.testing.assert_allclose(np.asarray(carried[0]) @ q, reference.gradient / 2000, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rare", [200, 20])
def test_a_rare_dummy(rare):
    """True in 200 and in 20 of 10⁶ rows, n = 1000: right spread and centre for every coefficient, the dummy's too.

    The reference for the dummy is quadrature over its coefficient with the others at their conditional mode; its
    posterior is skewed, which Laplace misses.
    """
    model, data, *_ = simulate_logistic(1_000_000, seed=1, parameters=4)
    dummy = np.zeros(1_000_000, np.float32)
    dummy[np.random.default_rng(0).choice(1_000_000, rare, replace=False)] = 1
    data["x"][:, 3] = dummy
    with jax.enable_x64(True):
        reference = find_reference(model, as_rows(data), np.zeros(4), 1)
    sd = np.sqrt(np.diag(np.linalg.inv(reference.precision)))
    fit = lwa.sample(
        model, data, target="calibrated", subset_size=1000, draws=1000, tune=100, chains=32, seed=1, progress=False
    )
    assert fit.attributes["leverage"]
    # Rows with the dummy are so few that the other coefficients do not notice: conditionally on them, one dimension.
    own = dummy > 0
    offset = data["x"][own, :3].astype(float) @ reference.theta[:3]
    grid = reference.theta[3] + sd[3] * np.linspace(-8, 8, 2001)
    sign = 2.0 * data["y"][own] - 1
    log = -np.logaddexp(0, -sign[:, None] * (offset[:, None] + grid)).sum(0) - 0.5 * (grid / 5) ** 2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ grid
    spread = np.sqrt(weight @ (grid - mean) ** 2)
    draws = fit.posterior["beta"][..., 3]
    error = draws.mean(1).std(ddof=1) / np.sqrt(32) / spread
    assert abs(draws.mean() - mean) / spread < 0.05 + 3 * error
    assert 0.95 < draws.std() / spread < 1.05
    others = fit.posterior["beta"][..., :3]
    assert np.all(np.abs(others.std((0, 1)) / sd[:3] - 1) < 0.05)
    assert np.all(np.abs(others.mean((0, 1)) - reference.theta[:3]) / sd[:3] < 0.05)
