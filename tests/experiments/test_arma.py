"""The paper's ARMA(1,1) at small scale: what holds of its claims, and the exhibit's own mathematics."""

from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

from experiments import exhibit
from experiments.arma import simulate
from experiments.arma.model import MODEL, NAMES, PRIOR_SD, TRUTH, starts
from experiments.arma.paths import Arrival, Path, arrival, shown
from experiments.arma.posterior import log_posterior, moments
from experiments.arma.run import EPSILONS, SIZES, label, run
from experiments.arma.runs import GRIDS, Runs, ahead, best, criteria, densities
from experiments.exhibit import Out
from tests.support import SHORT_RUN

pytestmark = SHORT_RUN  # the small exhibits' runs, on purpose
SMALL = SIZES["small"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("arma")


@pytest.fixture(scope="module")
def found(folder):
    return run(SMALL, seed=1, out=Out(folder))


@pytest.mark.slow
def test_everything_is_written(found, folder):
    figures = ["paths", "boxplots", "epsilon", "summaries", "calibrated"]
    assert all((folder / f"{name}.{kind}").stat().st_size < 400_000 for name in figures for kind in ("png", "svg"))
    tables = ["paths", "boxplots", "epsilon", "best", "summaries", "refresh", "starts", "calibrated"]
    for name in tables:
        lines = (folder / f"{name}.md").read_text().splitlines()
        assert len({line.count("|") for line in lines}) == 1  # no cell breaks the table
        assert len((folder / f"{name}.csv").read_text().splitlines()) == len(lines) - 1


@pytest.mark.slow
def test_lwa_reads_n_rows_and_metropolis_all(found):
    whole, *lwa = found.paths.values()
    assert (np.diff(whole.rows, prepend=0) == SMALL.rows).all()
    for path, n in zip(lwa, SMALL.path_sizes, strict=True):
        assert (np.diff(path.rows, prepend=0) == n * np.diff(path.transitions, prepend=0)).all()
    assert all(runs.rows == n for runs, n in [*((r, n) for n, r in found.boxes.items()), (found.setups["free"], 100)])


@pytest.mark.slow
def test_in_rows_read_lwa_is_near_the_truth_first(found):
    """All three arrive: the paper's M-H did not. They need about as many transitions, so rows are as N to n."""
    whole, *lwa = found.arrivals.values()
    assert np.isfinite(whole.rows)
    assert all(10 * came.rows < whole.rows * (n / 1000) for came, n in zip(lwa, SMALL.path_sizes, strict=True))


@pytest.mark.slow
def test_spread_shrinks_with_n(found):
    """About like √n: from 100 to 1,000 steps by √10, within a third, the sub-posteriors of 100 not being Gaussian."""
    widths = {n: np.diff(runs.quantiles[:, [1, 3]]).ravel() for n, runs in found.boxes.items()}
    assert (widths[1000] < widths[300]).all()
    assert (widths[300] < widths[100]).all()
    np.testing.assert_allclose(widths[100] / widths[1000], np.sqrt(10), rtol=0.33)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["setups", "laplace"])
def test_refresh_falls_with_epsilon(found, reading):
    rates = [getattr(found, reading)[label(epsilon)].refresh[1] for epsilon in EPSILONS]
    assert 1 > rates[0] > rates[1] > 2 * rates[2] > 4 * rates[3]
    assert rates[3] >= rates[4]  # both are transients: windows that come nearer and nearer, each more rarely
    assert found.setups["free"].refresh[1] > 0.999
    assert found.setups["fixed"].refresh == (0, 0, 0)


@pytest.mark.slow
def test_neither_reading_gives_the_papers_rates(found):
    """.81 at ε = 1 is far from both: 20 runs of 4,000 proposals have an error below 0.01."""
    for runs in (found.setups, found.laplace):
        assert abs(runs[label(1.0)].refresh[1] - 0.81) > 0.05


@pytest.mark.slow
def test_proposals_are_tuned_as_in_the_paper(found):
    for name in ("free", label(1.0), label(1e-2), "all windows"):
        assert 0.30 < found.setups[name].acceptance < 0.40, name


@pytest.mark.slow
def test_short_windows_are_biased_whatever_is_refreshed_freely(found):
    """β is drawn towards 0 in windows of 100, by many errors, for free subsets and ε = 1."""
    for name in ("free", label(1.0)):
        runs = found.setups[name]
        assert (runs.mean[1] - TRUTH[1]) / runs.error[1] < -4
    assert found.boxes[100].mean[1] < found.boxes[1000].mean[1]


@pytest.mark.slow
def test_a_small_epsilon_narrows_the_mean_density(found):
    """By γ, which the quantiles of S₀ fix, ε = 0.01 is nearer to θ* than free subsets."""
    nearer = criteria()["mean distance from θ*", "γ"]
    assert ahead(nearer, found.setups[label(1e-2)], found.setups["free"]) > 3


@pytest.mark.slow
def test_extremes_draw_alpha_away(found):
    """S₂ asks for windows as wide as the whole series: α is too large, beyond chance and beyond free subsets."""
    runs = found.summaries["S₂"]
    assert (runs.mean[0] - TRUTH[0]) / runs.error[0] > 3
    assert ahead(criteria()["bias of the mean", "α"], runs, found.setups["free"]) < -3


@pytest.mark.slow
def test_calibrated_is_the_full_posterior(found):
    """The draws' own error is the certificate's bar."""
    draws = found.calibrated.reshape(-1, 3)
    bar = found.certificate.shift_error.max()
    assert found.certificate.outcome != "fail"
    assert (np.abs(draws.mean(0) - found.full.mean) / found.full.sd).max() < bar
    np.testing.assert_allclose(draws.std(0) / found.full.sd, 1.0, atol=found.certificate.sd_ratio_error.max())


@pytest.mark.slow
def test_sub_posteriors_are_wider_by_the_root(found):
    """Each by √(N/n); the modes of windows spread as much again, of which θ follows some: up to √2 √(N/n)."""
    quarter, three_quarters = found.boxes[1000].quantiles[:, [1, 3]].T
    ratio = (three_quarters - quarter) / 1.349 / found.full.sd / np.sqrt(SMALL.rows / 1000)
    assert ((ratio > 0.9) & (ratio < 1.1 * np.sqrt(2))).all()


def test_the_stream_is_one_recursion(tmp_path, monkeypatch):
    """Chunk by chunk it is the series that the same noise makes step by step, in a cut-off last chunk too."""
    for module in (exhibit, simulate):
        monkeypatch.setattr(module, "CHUNK", 400)
    monkeypatch.setattr(exhibit, "CACHE", tmp_path)
    series = np.load(simulate.series(1000, seed=3))
    rngs = [np.random.default_rng(np.random.SeedSequence(3, spawn_key=(chunk,))) for chunk in range(3)]
    made = [rngs[0].normal()]  # Y_0; the first chunk's noise then begins with Z_0
    z = np.concatenate([rng.normal(size=size) for rng, size in zip(rngs, (400, 400, 200), strict=True)])
    alpha, beta, gamma = TRUTH
    for before, now in pairwise(z):
        made.append(alpha * made[-1] + beta * before + gamma + now)
    np.testing.assert_allclose(series, made, atol=1e-5)


def test_steps_have_the_moments_of_the_stationary_series():
    """Within four standard errors: √(2 Σ ρ_k² / n) of the variance, ρ_k = ρ₁ α^(k-1)."""
    n, (alpha, beta, gamma) = 50_000, TRUTH
    made, last = simulate.steps(np.random.default_rng(0).normal(size=n), 0.3, -0.2)
    assert last[0] == made[-1]
    assert abs(made.mean() - gamma / (1 - alpha)) < 4 * (1 + beta) / (1 - alpha) / np.sqrt(n)
    power = 1 + 2 * alpha * beta + beta**2
    first = (1 + alpha * beta) * (alpha + beta) / power
    error = np.sqrt(2 * (1 + 2 * first**2 / (1 - alpha**2)) / n)
    assert abs(made.var() / (power / (1 - alpha**2)) - 1) < 4 * error


def test_the_quadrature_has_the_models_posterior():
    """log π differs from the model's by a constant, and moments are those of a fine grid."""
    y, _ = simulate.steps(np.random.default_rng(2).normal(size=1000), 0.0, 0.0)
    points = TRUTH + np.array([[0.0, 0.0, 0.0], [0.1, -0.2, 0.05], [-0.3, 0.1, 0.4]])
    with jax.enable_x64(True):
        ours = [log_posterior(y, theta) for theta in points]
        theirs = [
            float(MODEL.log_likelihood(theta, y).sum() + MODEL.log_prior(theta))
            for theta in ({"ar": p[:1], "ma": p[1:2], "drift": p[2]} for p in points)
        ]
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-9)

    mode = minimize(lambda theta: -log_posterior(y, theta), TRUTH, method="Nelder-Mead").x
    axes = [np.linspace(m - 5 * s, m + 5 * s, 17) for m, s in zip(mode, (0.04, 0.03, 0.07), strict=True)]
    theta = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    log = np.array([log_posterior(y, one) for one in theta])
    share = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
    mean, covariance = share @ theta, np.cov(theta.T, aweights=share, ddof=0)
    sd = np.sqrt(np.diag(covariance))
    found = moments(y, mean, 1.05 * covariance)  # a Gaussian near it, not the best one
    np.testing.assert_allclose((found.mean - mean) / sd, 0.0, atol=0.01)
    np.testing.assert_allclose(found.sd, sd, rtol=0.01)


def test_starts_are_of_the_prior_inside_its_ends():
    flat = np.array([[s["ar"][0], s["ma"][0], s["drift"]] for s in starts(4000, seed=1, largest_drift=np.inf)])
    assert (np.abs(flat[:, :2]) < 1).all()
    assert abs(flat[:, 2].std() / PRIOR_SD - 1) < 4 / np.sqrt(2 * 4000)
    assert max(abs(s["drift"]) for s in starts(100, seed=1)) < 1


def test_arrival_and_what_is_shown():
    theta = TRUTH + np.array([[1.0, 0, 0], [0.05, 0.2, 0], [0.05, 0.05, 0], [0, 0, 0.5]])
    path = Path(theta, 2.0, np.array([1.0, 2, 3, 4]), np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40]))
    assert arrival(path) == Arrival(3.0, 3.0, 30.0, 0.5)
    assert arrival(path._replace(theta=theta + 1)).rows == np.inf
    assert shown(path).tolist() == [0, 1, 2, 3]


def test_densities_are_densities():
    grid = GRIDS["α"]
    values = np.random.default_rng(0).normal(0.5, 0.1, (3, 20_000))
    found = densities(values, grid)
    np.testing.assert_allclose(found.sum(1) * (grid[1] - grid[0]), 1.0, atol=1e-3)
    exact = np.exp(-0.5 * ((grid - 0.5) / 0.1) ** 2) / (0.1 * np.sqrt(2 * np.pi))
    assert np.abs(found - exact).max() < 0.15 * exact.max()


def test_the_verdict_needs_a_clear_lead():
    def runs(bias, seed):
        means = TRUTH + bias + np.random.default_rng(seed).normal(0, 0.01, (50, 3))
        return Runs(None, means, np.abs(means - TRUTH), None, None, 0.35, (0, 0, 0), 1, 100.0)

    for (what, name), criterion in criteria().items():
        assert name in (*NAMES, "all"), what
        assert best(criterion, runs(0.0, 1), [runs(0.1, 2), runs(0.2, 3)]) == "yes"
        assert best(criterion, runs(0.1, 1), [runs(0.0, 2), runs(0.2, 3)]) == "no"
        assert best(criterion, runs(0.1, 1), [runs(0.1, 2)]) == "not decided"
