"""Law of θ: Algorithm 1 on tiny conjugate data against its exact kernel on a grid, for L = 1, 2, 30."""

import numpy as np
import pytest
from scipy import stats

import lwa
from experiments.law_of_theta import exact
from tests.tiny import MEAN, MODEL, N, Y, n

EPSILON, SCALE = 2.0, 0.5
POWER = N / n
CELLS = np.linspace(-0.6, 1.6, 9)
"""Inner edges of the histogram; what lies outside makes the first and last cell. Each holds at least 5 %."""


def law(L: int) -> np.ndarray:
    """The exact stationary law of θ on the grid."""
    return exact.stationary(EPSILON, POWER, SCALE, L).sum(0)


def cell_probabilities(density: np.ndarray) -> np.ndarray:
    """Mass of each cell: the grid's cumulative law, linear between points."""
    step = exact.GRID[1] - exact.GRID[0]
    cumulative = np.interp(CELLS, exact.GRID + step / 2, np.cumsum(density))
    return np.diff(np.concatenate([[0.0], cumulative, [1.0]]))


def simulate(L: int, seed: int, chains: int = 64, draws: int = 4000) -> np.ndarray:
    """Share of draws in each cell, a row a chain."""
    fit = lwa.sample(
        MODEL,
        Y,
        subset_size=n,
        target="powered",
        summary=MEAN,
        epsilon=EPSILON,
        draws=draws,
        tune=0,
        chains=chains,
        thinning=1,
        seed=seed,
        kernel=lwa.kernels.RandomWalk(scale=SCALE),
        refresh_steps=L,
        precision="float64",
        progress=False,
    )
    kept = fit.posterior["theta"][:, 100:]
    return (
        np.stack([np.bincount(np.digitize(chain, CELLS), minlength=len(CELLS) + 1) for chain in kept]) / kept.shape[1]
    )


def worst_p_value(shares: np.ndarray, expected: np.ndarray) -> float:
    """Student's t over chains, which are independent, for each cell; Bonferroni over cells."""
    return float(stats.ttest_1samp(shares, expected).pvalue.min() * shares.shape[1])


def check_theta_law(L: int, seed: int = 5) -> None:
    assert worst_p_value(simulate(L, seed), cell_probabilities(law(L))) > 1e-3


@pytest.mark.parametrize("L", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(30, marks=pytest.mark.slow)])
def test_theta_follows_the_exact_law(L):
    check_theta_law(L)


def test_the_comparison_can_tell_one_L_from_another():
    """The same test refuses draws made with L = 1 when they are held against the law of L = 2."""
    assert worst_p_value(simulate(1, 5), cell_probabilities(law(2))) < 1e-6


@pytest.mark.slow
def test_the_exact_law_approaches_the_mixture():
    """Total variation to Σ_U ν(U) π(θ|Y_U) falls with L; U's own law is ν at every L."""
    mixture = exact.mixture(EPSILON, POWER)
    away = [0.5 * np.abs(law(L) - mixture).sum() for L in (1, 2, 5, 30)]
    assert np.all(np.diff(away) < 0)
    assert away[-1] < 1e-3
    joint = exact.stationary(EPSILON, POWER, SCALE, 1)
    np.testing.assert_allclose(joint.sum(1), exact.weights(EPSILON), atol=1e-10)


@pytest.mark.slow
def test_the_grid_is_fine_enough():
    """Halving the grid's step moves no cell by more than a tenth of the Monte Carlo error."""
    fine = np.linspace(exact.GRID[0], exact.GRID[-1], 2 * len(exact.GRID) - 1)
    coarse = np.cumsum(law(1))
    finer = np.cumsum(exact.stationary(EPSILON, POWER, SCALE, 1, fine).sum(0))
    step = exact.GRID[1] - exact.GRID[0]
    at_coarse = np.interp(CELLS, exact.GRID + step / 2, coarse)
    at_fine = np.interp(CELLS, fine + step / 4, finer)
    assert np.abs(at_coarse - at_fine).max() < 2e-4
