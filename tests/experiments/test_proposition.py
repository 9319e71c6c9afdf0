"""Proposition 1: quadrature against closed forms, and what both bounds are claimed to do."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln, log_ndtr
from scipy.special import psi as digamma

from experiments.exhibit import Out
from experiments.proposition.bounds import (
    finite_B,
    finite_bound,
    offset,
    paper_B,
    paper_bound,
    psi,
    signed_bound,
)  # fmt: skip
from experiments.proposition.quadrature import GAUSSIAN, POINTS, PROBIT, Problem, kl
from experiments.proposition.run import COMPACT, SIZES, holds, least_at_zero, ordered, run

PROBLEMS = [Problem(PROBIT, 10_000, 0.84), Problem(GAUSSIAN, 10_000, 1.0)]
PRECISION_OF_PRIOR = 1 / PROBLEMS[1].prior_sd ** 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("proposition")


@pytest.fixture(scope="module")
def found(folder):
    return run(SIZES["small"], seed=1, out=Out(folder))


@pytest.mark.slow
def test_figure_and_tables_are_written(found, folder):
    tables = {f"{name}.{kind}" for name in ("bounds", "checks", "psi") for kind in ("csv", "md")}
    assert {path.name for path in folder.iterdir()} == {"bounds.png", "bounds.svg"} | tables
    assert (folder / "bounds.svg").stat().st_size < 400_000


@pytest.mark.slow
def test_both_bounds_hold_are_least_at_zero_and_ordered(found):
    for one in found.checked:
        for bound, of in ((one.finite, one.kl), (one.paper, one.kl_compact)):
            assert holds(bound, of)
            assert least_at_zero(bound)
            assert ordered(bound)
        assert holds(one.signed, one.kl)
        assert holds(one.finite, one.signed)
        assert least_at_zero(one.signed)


@pytest.mark.slow
def test_the_order_is_that_of_the_bound_not_of_the_divergence(found):
    probit = found.checked[0]
    assert not ordered(probit.kl)
    assert not least_at_zero(probit.kl)


@pytest.mark.slow
def test_the_papers_bound_is_the_looser_and_depends_on_Theta(found):
    for one in found.checked:
        assert (one.paper - one.kl_compact).min() > (one.finite - one.kl).max()
    assert (np.diff(found.psi_by_Theta[:, :-1], axis=1) > 0).all()
    assert np.isinf(found.psi_by_Theta[:, -1]).all()


@pytest.mark.parametrize("n", [1, 100, 5000])
@pytest.mark.parametrize("xi", [-0.3, 0.0, 0.1])
def test_gaussian_quadrature_is_the_closed_form(n, xi):
    problem = PROBLEMS[1]

    def conjugate(rows, mean):
        variance = 1 / (rows + PRECISION_OF_PRIOR)
        return variance * rows * mean, variance

    (m, v), (mu, vu) = conjugate(problem.N, 1.0), conjugate(n, 1.0 + xi)
    sub = problem.sub(n, xi)
    assert (sub.mean, sub.sd) == pytest.approx((mu, np.sqrt(vu)), rel=1e-7)
    assert kl(problem.full, sub) == pytest.approx(0.5 * (np.log(vu / v) + (v + (m - mu) ** 2) / vu - 1), abs=1e-8)
    # E exp(c|X|) of X ~ N(0, v) is 2 exp(c² v / 2) Φ(c √v).
    c = problem.N * abs(xi)
    expected = n / problem.N * (c**2 * v / 2 + np.log(2) + log_ndtr(c * np.sqrt(v)))
    assert finite_B(problem, n, xi) == pytest.approx(expected, abs=1e-6)
    assert offset(problem, n) == pytest.approx(
        (1 - n / problem.N) * 0.5 * (np.log(PROBLEMS[1].prior_sd ** 2 / v) + (v + m**2) * PRECISION_OF_PRIOR - 1)
    )


def test_probit_quadrature_is_that_of_beta_laws():
    # Under the prior N(0, 1), α = Φ(θ) is uniform.
    problem, n, ones = Problem(PROBIT, 1000, 0.84, prior_sd=1.0), 40, 30
    (a, b), (c, d) = (841, 161), (ones + 1, n - ones + 1)
    sub = problem.sub(n, ones / n - 0.84)
    assert sub.log_Z == pytest.approx(betaln(c, d))
    expected = betaln(c, d) - betaln(a, b) + (a - c) * digamma(a) + (b - d) * digamma(b)
    expected += (c - a + d - b) * digamma(a + b)
    assert kl(problem.full, sub) == pytest.approx(expected)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.family.name)
def test_a_finer_grid_changes_nothing_that_is_shown(problem):
    finer, compact = replace(problem, points=4 * POINTS), replace(problem, Theta=COMPACT)
    for n, xi in ((1, 0.0), (100, 0.1), (5000, -0.1), (1, 0.16)):
        assert kl(finer.full, finer.sub(n, xi)) == pytest.approx(kl(problem.full, problem.sub(n, xi)), rel=1e-5)
        assert finite_bound(finer, n, xi) == pytest.approx(finite_bound(problem, n, xi), rel=1e-5)
        assert paper_bound(replace(compact, points=4 * POINTS), n, xi) == pytest.approx(
            paper_bound(compact, n, xi), rel=1e-5
        )


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.family.name)
def test_the_papers_bound_is_infinite_on_the_real_line_and_says_so(problem):
    with pytest.warns(UserWarning, match=r"infimum 0 over the real line.*Give a compact Theta"):
        assert paper_bound(problem, 100, 0.0) == np.inf
    assert psi(problem, problem.N) == 0


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.family.name)
def test_the_finite_bound_is_attained_without_rows_and_with_all(problem):
    assert finite_bound(problem, 0, 0.0) == pytest.approx(kl(problem.full, problem.sub(0, 0.0)))
    assert finite_bound(problem, problem.N, 0.0) == pytest.approx(0.0, abs=1e-9)


def test_the_finite_bound_of_the_probit_ends_where_a_subset_has_no_zeros_left():
    # Far out the integrand is exp(-θ²/2 (N (1 - ȳ - |ξ|) + 1/b²)).
    problem = PROBLEMS[0]
    assert np.isfinite(finite_bound(problem, 100, -0.16))
    assert finite_bound(problem, 100, -0.1601) == np.inf
    assert np.isfinite(signed_bound(problem, 100, -0.5))
    assert np.isfinite(finite_bound(PROBLEMS[1], 100, 0.5))


def test_B_alone_does_not_measure_a_mismatch():
    for problem in PROBLEMS:
        for xi in (-0.1, 0.1):
            added = kl(problem.full, problem.sub(100, xi)) - kl(problem.full, problem.sub(100, 0.0))
            assert paper_B(problem, 100, xi) < added


def test_the_prior_moves_the_least_divergence_away_from_zero():
    # π_U and π have the same mean where ξ = ȳ (1/n - 1/N) / b².
    problem = PROBLEMS[1]
    best = PRECISION_OF_PRIOR * (1 - 1 / problem.N)
    assert kl(problem.full, problem.sub(1, best)) < kl(problem.full, problem.sub(1, 0.0))


MODELS = st.one_of(
    st.builds(Problem, st.just(PROBIT), st.just(1000), st.floats(0.1, 0.9)),
    st.builds(Problem, st.just(GAUSSIAN), st.just(1000), st.floats(-3.0, 3.0)),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(MODELS, st.integers(1, 1000), st.floats(-0.09, 0.09), st.floats(0.0, 1.0))
def test_bounds_hold_whatever_the_data(problem, n, xi, share):
    compact = replace(problem, Theta=(-4.0, 4.0))
    rounding = 1e-7
    divergence = kl(problem.full, problem.sub(n, xi))
    assert divergence <= signed_bound(problem, n, xi) + rounding
    assert signed_bound(problem, n, xi) <= finite_bound(problem, n, xi) + rounding
    assert kl(compact.full, compact.sub(n, xi)) <= paper_bound(compact, n, xi) + rounding
    # (ii) and (iii): zero at ξ = 0, and growing with |ξ| whatever its sign.
    for B in (finite_B, paper_B):
        assert B(problem, n, 0.0) == pytest.approx(0.0, abs=rounding)
        assert -rounding <= B(problem, n, -share * xi) <= B(problem, n, xi) + rounding
    # Power means grow with their power; and an average of the likelihood is at least its infimum.
    assert paper_B(problem, n, xi) <= finite_B(problem, n, xi) + rounding
    assert offset(compact, n) <= psi(compact, n) + rounding


def test_compact_Theta_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(paper_bound(replace(PROBLEMS[0], Theta=COMPACT), 100, 0.1))
