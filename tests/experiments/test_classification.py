"""Binary classification: the mathematics is exact, and what the paper scale shows is there at the small one."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.classification.laws import posterior_of
from experiments.classification.model import (
    MODEL,
    SHARE,
    Box,
    bayes_error,
    error_rate,
    expected_error,
    log_likelihood,
    prior_draws,
    range_bound,
    theta_of,
    truth,
    vector_of,
)
from experiments.classification.paths import ERROR_WITHIN, path_of
from experiments.classification.run import READINGS, SIZES, SUBSET, run
from experiments.classification.simulate import box_of, simulate
from experiments.exhibit import Out
from tests.support import SHORT_RUN

pytestmark = SHORT_RUN  # the small exhibits' runs, on purpose
SMALL = SIZES["small"]
FAR = 5.0
"""Standard errors that nothing is away by chance."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("classification")


@pytest.fixture(scope="module")
def found(folder):
    return run(SMALL, 1, Out(folder))


@pytest.fixture(scope="module")
def every(found):
    return [one for scenarios in found.scenarios.values() for one in scenarios]


@pytest.fixture(scope="module")
def rows():
    return simulate("test", 100_000, 0.25, 1)


def somewhere(count, seed=0):
    """Parameters from the prior and near the truth."""
    rng = np.random.default_rng(seed)
    near = truth(0.25) * np.exp(0.2 * rng.normal(size=(count, 6))) + [0, 0.1, 0, -0.1, 0, 0]
    return np.concatenate([prior_draws(count, rng), near])


@pytest.mark.slow
def test_figures_and_tables_are_written(found, folder):
    for name in ("observations", "scenarios"):
        for ending in ("png", "svg"):
            assert (folder / f"{name}.{ending}").stat().st_size > 10_000
        assert (folder / f"{name}.svg").stat().st_size < 400_000
    for name in ("rows", "convergence", "readings", "laws"):
        lines = (folder / f"{name}.csv").read_text().splitlines()
        assert len((folder / f"{name}.md").read_text().splitlines()) == len(lines) + 1


@pytest.mark.slow
def test_lwa_reads_n_rows_a_transition_and_mhsublhd_more(every):
    for scenario in every:
        ours, rival = scenario.paths["lwa"], scenario.paths["rival"]
        assert ours.rows_a_transition() == SUBSET
        assert rival.rows_a_transition() > SUBSET
        arrival = rival.theta_arrives(scenario.sigma)
        assert rival.rows_a_transition(arrival) > rival.rows_a_transition(0, arrival)  # close calls take more rows


@pytest.mark.slow
def test_mhsublhd_looks_at_thousands_of_rows_and_evaluates_each_twice(every):
    """After ℓ postponements it has read 1000 + 1000 (1 + … + ℓ) rows, or all of them."""
    grown = SUBSET * (1 + np.arange(100) * np.arange(1, 101) // 2)
    for scenario in every:
        rival = scenario.paths["rival"]
        assert set(np.diff(rival.evaluations) // 2) <= {*grown[grown < SMALL.rows].tolist(), SMALL.rows}


@pytest.mark.slow
def test_in_rows_read_lwa_arrives_first_in_every_scenario(every):
    for scenario in every:
        ours, rival = (scenario.paths[name] for name in ("lwa", "rival"))
        assert ours.rows[ours.theta_arrives(scenario.sigma)] < rival.rows[rival.theta_arrives(scenario.sigma)]
        assert ours.rows[ours.classifier_arrives(scenario.sigma)] < rival.rows[rival.classifier_arrives(scenario.sigma)]


@pytest.mark.slow
def test_both_end_where_their_laws_are(found):
    """LWA-MCMC: the sub-posterior of n rows, around a mode that varies as much with U. MHSubLhd: that of all rows."""
    for reading, scenarios in found.scenarios.items():
        exact = posterior_of(found.data[reading])
        sd = {"lwa": exact.sd * np.sqrt(2 * SMALL.rows / SUBSET), "rival": exact.sd}
        for scenario in scenarios:
            for name, path in scenario.paths.items():
                assert np.all(np.abs(path.theta[-1] - exact.mean) < FAR * sd[name])


@pytest.mark.slow
def test_lwas_law_is_as_wide_as_n_rows_make_it_and_the_calibrated_one_as_all_rows_do(found):
    as_in_the_paper, _, calibrated = found.laws
    wide = np.sqrt(SMALL.rows / SUBSET * (2 - SUBSET / SMALL.rows))
    error = FAR / np.sqrt(2 * SMALL.lwa["draws"] / 4)  # draws are a quarter of a renewal of U apart
    assert wide * (1 - error) < as_in_the_paper.narrowest < as_in_the_paper.widest < wide * (1 + error)
    assert calibrated.shift < 0.15  # 4 chains of 1000 draws
    assert 0.9 < calibrated.narrowest < calibrated.widest < 1.1


@pytest.mark.slow
def test_classifiers_end_near_the_smallest_error(every):
    for scenario in every:
        for name, path in scenario.paths.items():
            expected = expected_error(path.theta[-1], scenario.sigma)
            assert bayes_error(scenario.sigma) <= expected < ERROR_WITHIN * bayes_error(scenario.sigma)
            for purpose in ("train", "test"):
                mistakes = SMALL.rows * scenario.errors[name, purpose][-1]
                low, high = stats.binom.interval(1 - 1e-6, SMALL.rows, expected)
                assert low <= mistakes <= high


@pytest.mark.slow
def test_errors_are_those_of_the_state_at_that_time(every):
    scenario = every[0]
    held = {name: jnp.asarray(column) for name, column in simulate("test", SMALL.rows, scenario.sigma, 1).items()}
    path, time = scenario.paths["rival"], scenario.times[10]
    last = max(i for i, seconds in enumerate(path.seconds) if seconds <= time)
    assert scenario.errors["rival", "test"][10] == error_rate(path.theta[last], held, SMALL.rows)


@pytest.mark.slow
def test_starts_are_shared(every):
    for scenario in every:
        assert np.array_equal(scenario.paths["lwa"].theta[0], scenario.paths["rival"].theta[0])


def test_the_likelihood_is_that_of_two_normal_classes(rows):
    some = {name: np.asarray(column[:100], np.float64) for name, column in rows.items()}
    for vector in somewhere(3):
        theta = theta_of(vector)
        expected = [
            stats.multivariate_normal.logpdf([y1, y2], theta[f"mu{j}"], np.diag(theta[f"sigma{j}"] ** 2 * SHARE))
            for y1, y2, j in zip(some["y1"], some["y2"], 1 + some["class"].astype(int), strict=True)
        ]
        with jax.enable_x64(True):
            away = log_likelihood(theta, some) - np.array(expected)
        assert np.ptp(away) < 1e-8 * np.abs(expected).max()
        assert away[0] == pytest.approx(np.log(2 * np.pi) + np.log(0.5) / 2, abs=1e-6)


def test_the_prior_is_the_one_that_starts_are_drawn_from():
    with jax.enable_x64(True):
        flat = np.random.default_rng(0).normal(size=(5, 6))  # σ as its logarithm
        told = np.array([MODEL.log_prior_at(jnp.asarray(one)) for one in flat])
    expected = stats.norm.logpdf(flat[:, :4], scale=2).sum(1) + stats.norm.logpdf(flat[:, 4:]).sum(1)
    assert np.ptp(told - expected) < 1e-10
    draws = prior_draws(100_000, np.random.default_rng(1))
    assert np.allclose(draws[:, :4].std(0), 2, rtol=FAR / np.sqrt(2 * 100_000))
    assert np.allclose(np.log(draws[:, 4:]).std(0), 1, rtol=FAR / np.sqrt(2 * 100_000))


@pytest.mark.parametrize("sigma", READINGS.values())
def test_the_exact_error_is_bayes_error_at_the_truth_and_the_data_s_elsewhere(sigma):
    assert expected_error(truth(sigma), sigma) == pytest.approx(bayes_error(sigma), rel=1e-6)
    N = 100_000
    held = {name: jnp.asarray(column) for name, column in simulate("test", N, sigma, 1).items()}
    for vector in somewhere(8):
        expected = expected_error(vector, sigma)
        low, high = stats.binom.interval(1 - 1e-6, N, expected)
        assert low - 1 <= N * error_rate(vector, held, N // 2) <= high + 1
        assert expected >= bayes_error(sigma) * (1 - 1e-6)


def test_the_range_bound_bounds_every_row(rows):
    bound = range_bound(box_of(rows))
    all_rows = {name: np.asarray(column, np.float64) for name, column in rows.items()}
    vectors = somewhere(20)
    with jax.enable_x64(True):
        for one, other in zip(vectors, np.roll(vectors, 1, axis=0), strict=True):
            ratios = log_likelihood(theta_of(other), all_rows) - log_likelihood(theta_of(one), all_rows)
            assert np.ptp(ratios) <= bound(theta_of(one), theta_of(other)) * (1 + 1e-12)


def test_the_range_bound_is_reached_where_rows_fill_the_box():
    low, high = np.array([[-2.0, -1.0], [0.0, -1.0]]), np.array([[0.5, 1.0], [2.0, 0.5]])
    grids = [np.stack(np.meshgrid(*(np.linspace(*ends, 301) for ends in zip(*box, strict=True))), -1).reshape(-1, 2)
             for box in zip(low, high, strict=True)]  # fmt: skip
    y, label = np.concatenate(grids), np.repeat([0.0, 1.0], [len(grid) for grid in grids])
    filled = {"y1": y[:, 0], "y2": y[:, 1], "class": label}
    vectors = somewhere(10)
    with jax.enable_x64(True):
        bound = range_bound(Box(low, high))
        for one, other in zip(vectors, np.roll(vectors, 1, axis=0), strict=True):
            ratios = log_likelihood(theta_of(other), filled) - log_likelihood(theta_of(one), filled)
            assert np.ptp(ratios) == pytest.approx(float(bound(theta_of(one), theta_of(other))), rel=1e-3)


def test_only_one_class_moves_and_the_bound_knows_it(rows):
    """The other class's rows have ℓ = 0, which must lie in the range."""
    one, other = truth(0.25), truth(0.25)
    other[0] += 1e-3
    box = box_of(rows)
    with jax.enable_x64(True):
        told = float(range_bound(box)(theta_of(one), theta_of(other)))
    ends = (np.array([box.low[0, 0], box.high[0, 0]]) + 1 - 0.5e-3) * 1e-3 / 0.25**2
    assert told == pytest.approx(max(ends.max(), 0.0) - min(ends.min(), 0.0), rel=1e-9)


def test_the_posterior_of_all_rows_is_that_of_mode_and_curvature(rows):
    data = {name: np.asarray(column[:10_000], np.float64) for name, column in rows.items()}
    exact = posterior_of(data)

    def total(vector, data):
        return log_likelihood(theta_of(vector), data).sum()

    with jax.enable_x64(True):
        gradient, curvature = (np.asarray(of(total)(exact.mean, data)) for of in (jax.grad, jax.hessian))
    sd = np.sqrt(np.diag(np.linalg.inv(-curvature)))
    assert np.allclose(exact.sd, sd, rtol=1e-6)
    assert np.all(np.abs(gradient * sd) < 1e-6)


def test_rows_are_simulated_as_the_paper_says(rows):
    y, label = np.stack([rows["y1"], rows["y2"]], -1), np.asarray(rows["class"])
    assert abs(label.mean() - 0.5) < FAR * 0.5 / np.sqrt(len(label))
    for j, mean in enumerate(truth(0.25)[:4].reshape(2, 2)):
        own = y[label == j]
        sd = 0.25 * np.sqrt(SHARE)
        assert np.all(np.abs(own.mean(0) - mean) < FAR * sd / np.sqrt(len(own)))
        assert np.allclose(own.std(0), sd, rtol=FAR / np.sqrt(2 * len(own)))


def test_a_path_has_the_start_first_and_its_time_goes_by_rows_read():
    warmup, draws = somewhere(1), somewhere(2)[None, :3]
    start = truth(0.5)
    fit = SimpleNamespace(
        warmup=jax.tree.map(lambda *leaves: np.stack(leaves)[None], *map(theta_of, warmup)),
        posterior=jax.tree.map(lambda *leaves: np.stack(leaves)[None], *map(theta_of, draws[0])),
        warmup_stats={"n_rows_read": np.array([[10, 30]])},
        sample_stats={"n_rows_read": np.array([[20, 20, 40]])},
        attributes={
            "thinning": 2, "tune_moves": 2, "seconds": 9.0, "sampling_seconds": 8.0, "tune_clock": [[2, 5.0]],
            "clock": [[2, 6.0], [3, 9.0]],
        },
    )  # fmt: skip
    path = path_of(fit, start, reads=2)
    assert np.array_equal(path.theta, np.concatenate([start[None], warmup, draws[0]]))
    assert path.transitions.tolist() == [0, 1, 2, 4, 6, 8]
    assert path.rows.tolist() == [0, 5, 20, 30, 40, 60]
    assert path.seconds.tolist() == [0, 1, 4, 4.5, 5, 8]
    assert path.prepared == 1.0
    assert path.at(np.array([0.5, 4.0, 4.4, 99.0])).tolist() == [0, 2, 2, 5]
    assert path.rows_a_transition() == 60 / 8


def test_vectors_and_names_are_one_theta():
    for vector in somewhere(2):
        assert np.array_equal(vector_of(theta_of(vector)), vector)
