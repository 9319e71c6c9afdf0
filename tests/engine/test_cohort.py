"""The engine as a whole: what must hold draw for draw and bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.backend.random import Purpose, generator
from lwa.engine import cohort as cohorts
from lwa.engine.problem import PilotSubsets, choose_precision
from lwa.kernels import RandomWalk
from lwa.run import loop
from lwa.subsets import Fixed, Free, Swap
from tests.support import SHORT_RUN
from tests.tiny import MEAN, MODEL, PRIOR_SD

ROWS = np.random.default_rng(11).normal(1.0, 1.0, size=40)
"""The canonical problem of this file: 40 rows, subsets of 10, so that programs are compiled once."""
SETTINGS = dict(
    target="powered", subset_size=10, summary=MEAN, epsilon=0.5, draws=60, tune=100, chains=4, thinning=2, seed=3,
    progress=False,
)  # fmt: skip


def fit(**changes):
    return lwa.sample(MODEL, ROWS, **(SETTINGS | changes))


def plain_metropolis(rows, theta, noise, scale):
    """Metropolis-Hastings on all rows, in NumPy: what n = N must reproduce."""

    def log_posterior(theta):
        return -0.5 * (theta / PRIOR_SD) ** 2 - 0.5 * ((rows - theta) ** 2).sum()

    path = []
    for direction, log_u in zip(np.asarray(noise.direction)[:, 0], np.asarray(noise.log_u), strict=True):
        proposed = theta + scale * direction
        if log_u < log_posterior(proposed) - log_posterior(theta):
            theta = proposed
        path.append(theta)
    return np.array(path)


@SHORT_RUN
@pytest.mark.parametrize("move", [Swap(1), Swap(3), Free(), Fixed()], ids=str)
@pytest.mark.parametrize("L", [1, 4])
def test_all_rows_give_plain_metropolis(move, L):
    """n = N: the same keys give the same draws as M-H on all rows, whatever the move of U.

    `Swap` never refreshes here, `Free` always does but with the same rows: after each refresh come L moves, and a
    draw is kept at the end of each transition.
    """
    kernel = RandomWalk(scale=0.4)
    run = fit(subset_size=40, subset_move=move, kernel=kernel, tune=0, thinning=1, precision="float64", refresh_steps=L)
    stride = L if isinstance(move, Free) else 1
    for chain in range(4):
        with jax.enable_x64(True):
            pages = [
                kernel.noise(generator(3, Purpose.THETA, chain, page), run.attributes["page_moves"], 1, np.float64)
                for page in range(-(-60 * stride // run.attributes["page_moves"]))
            ]
            noise = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pages)
        expected = plain_metropolis(ROWS, 0.0, noise, 0.4)[stride - 1 :: stride][:60]
        np.testing.assert_allclose(run.posterior["theta"][chain], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("L", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_block_length_changes_no_bit(monkeypatch, L):
    """Blocks of 1, 7 and 1000 moves give the same bits, tune and all."""
    fits = []
    for length in (1000, 7, 1):
        monkeypatch.setattr(loop.BlockLength, "after", lambda self, took, moves, n=length: loop.BlockLength(n))
        fits.append(fit(refresh_steps=L, thinning="auto"))
    for other in fits[1:]:
        assert other.attributes["thinning"] == fits[0].attributes["thinning"]
        assert np.array_equal(other.posterior["theta"], fits[0].posterior["theta"])
        for name, values in fits[0].sample_stats.items():
            assert np.array_equal(values, other.sample_stats[name]), name


@pytest.mark.parametrize("exact", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["calibrated", "exact"])
def test_block_length_changes_no_bit_of_the_default(monkeypatch, exact):
    """The same for the calibrated target, whose U moves every fourth time, and for its corrections."""
    rows = np.random.default_rng(12).gamma(3.0, size=300)
    model = lwa.Model(lambda s, y: -3 * s - y * jnp.exp(-s), lambda s: -0.5 * s**2, init=0.0)
    fits = []
    for length in (1000, 7, 1):
        monkeypatch.setattr(loop.BlockLength, "after", lambda self, took, moves, n=length: loop.BlockLength(n))
        fits.append(lwa.sample(model, rows, subset_size=40, draws=40, tune=100, seed=3, exact=exact, progress=False))
    for other in fits[1:]:
        assert np.array_equal(other.posterior["theta"], fits[0].posterior["theta"])
        for name, values in fits[0].sample_stats.items():
            assert np.array_equal(values, other.sample_stats[name], equal_nan=True), name


def test_same_seed_same_draws_and_chains_differ():
    one, two, other = fit(), fit(), fit(seed=4)
    assert np.array_equal(one.posterior["theta"], two.posterior["theta"])
    assert not np.array_equal(one.posterior["theta"], other.posterior["theta"])
    chains = one.posterior["theta"]
    assert len({chain.tobytes() for chain in chains}) == len(chains)


def test_odd_numbers_of_chains_share_one_program():
    """Three chains make two cohorts of two; the chain that fills the last is dropped, the others are as with four."""
    assert np.array_equal(fit(chains=3).posterior["theta"], fit(chains=4).posterior["theta"][:3])


def test_nothing_is_traced_again():
    """After the first run, longer runs of the same shapes trace the log-likelihood no more; nor do later blocks."""
    traced = []

    def log_likelihood(theta, y):
        traced.append(y.shape)
        return -0.5 * (y - theta) ** 2

    model = lwa.Model(log_likelihood, lambda theta: -0.5 * theta**2, init=0.0)
    lwa.sample(model, ROWS, **SETTINGS)
    before = len(traced)
    assert before > 0
    lwa.sample(model, ROWS, **(SETTINGS | dict(draws=400, tune=300, seed=8, thinning=7, epsilon=0.3)))
    shape_checks = 3  # `check_model` looks at the model anew for each run
    assert len(traced) - before <= shape_checks


def test_nothing_is_traced_again_by_the_default():
    traced = []

    def log_likelihood(s, y):
        traced.append(y.shape)
        return -3 * s - y * jnp.exp(-s)

    model = lwa.Model(log_likelihood, lambda s: -0.5 * s**2, init=0.0)
    rows = np.random.default_rng(12).gamma(3.0, size=300)
    options = {"subset_size": 40, "progress": False}
    lwa.sample(model, rows, draws=40, tune=100, seed=3, **options)
    before = len(traced)
    lwa.sample(model, rows, draws=200, tune=300, seed=4, **options)
    looks = 6  # `check_model` thrice, and `require_derivatives`, which differentiates what it looks at
    assert len(traced) - before <= looks


def check_frozen():
    """What the kernel learnt does not change after tune, for any chain."""
    seen = []

    def watch(cohort, stop, run=cohorts.LocalCohort.run):
        moves = run(cohort, stop)
        if cohort.moves > 100:
            seen.append((cohort.chains[0], [np.asarray(leaf) for leaf in jax.tree.leaves(cohort.state.tuning)]))
        return moves

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cohorts.LocalCohort, "run", watch)
        patch.setattr(loop.BlockLength, "after", lambda self, took, moves: loop.BlockLength(50))
        fit(draws=200)
    for first in {chain for chain, _ in seen}:
        mine = [leaves for chain, leaves in seen if chain == first]
        assert len(mine) > 2
        for leaves in mine[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(leaves, mine[0], strict=True))


def test_adaptation_is_frozen_after_tune():
    check_frozen()


def check_fresh_terms(move):
    """At every stop, each chain's cached terms are those of its θ and its subset, computed anew."""
    checked = []

    def watch(cohort, stop, run=cohorts.LocalCohort.run):
        moves = run(cohort, stop)
        with jax.enable_x64(True):
            state = cohort.state
            anew = cohorts.evaluate(cohort.problem.target, state.theta, state.rows)
            np.testing.assert_allclose(state.terms.rows, anew.rows, rtol=1e-12)
            np.testing.assert_allclose(state.terms.total, anew.total, rtol=1e-12)
        checked.append(int(moves.refreshed.sum()))
        return moves

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cohorts.LocalCohort, "run", watch)
        patch.setattr(loop.BlockLength, "after", lambda self, took, moves: loop.BlockLength(3))
        fit(precision="float64", subset_move=move)
    assert sum(checked) > 0


@pytest.mark.filterwarnings("ignore:Each change of the subset:lwa.LwaWarning")
@pytest.mark.parametrize("move", [Swap(2), Free()], ids=str)
def test_cached_terms_are_never_stale(move):
    check_fresh_terms(move)


def test_theta_sees_the_rows_of_its_subset():
    """The rows on the device are the rows whose numbers the U chain holds, after hundreds of refreshes."""
    stated = []

    run = None
    with pytest.MonkeyPatch.context() as patch:

        def close(cohort, shut=cohorts.LocalCohort.close):
            shut(cohort)
            stated.append(cohort)

        patch.setattr(cohorts.LocalCohort, "close", close)
        run = fit(draws=2000, thinning=1, precision="float64")
    assert run.draws == 2000
    for cohort in stated:
        # The tape runs ahead of θ, so replay it to θ's position from the same keys.
        subsets = cohort.problem.subsets
        with jax.enable_x64(True):
            U, _ = subsets.burn_in(subsets.start(cohort.chains), cohort.chains)
            pages = []
            for page in range(-(-cohort.moves // subsets.page)):
                start = np.asarray(U.indices)
                U, done = subsets.advance(U, cohort.chains, page)
                pages.append(done)
            indices = start.copy()
            candidates, _ = subsets.candidates(cohort.chains, len(pages) - 1, Purpose.SUBSET)
            for t in range(cohort.moves - (len(pages) - 1) * subsets.page):
                for c in range(len(cohort.chains)):
                    if pages[-1].accepted[t, c]:
                        indices[c, np.asarray(candidates.slots)[t, c]] = np.asarray(candidates.incoming)[t, c]
        np.testing.assert_array_equal(np.asarray(cohort.state.rows), ROWS[indices])


def check_powered_spread(draws=4000, chains=16):
    """With U fixed, the powered target is conjugate: Normal((N/n) Σ_U y / P, 1/P), P = N + 1/PRIOR_SD²."""
    run = fit(
        subset_move=Fixed(), draws=draws, chains=chains, tune=1000, thinning=10, target="powered", precision="float64"
    )
    precision = len(ROWS) + 1 / PRIOR_SD**2
    with jax.enable_x64(True):
        from lwa.backend.random import generator

        means = [
            len(ROWS) * ROWS[generator(3, Purpose.FIRST_SUBSET, chain).choice(40, 10, replace=False)].mean() / precision
            for chain in range(chains)
        ]
    z = (run.posterior["theta"] - np.array(means)[:, None]) * np.sqrt(precision)
    # One number a chain, and chains are independent: t tests on their means and mean squares.
    assert stats.ttest_1samp(z.mean(1), 0.0).pvalue > 1e-4
    assert stats.ttest_1samp((z**2).mean(1), 1.0).pvalue > 1e-4


@SHORT_RUN
def test_powered_has_the_spread_of_all_rows():
    check_powered_spread()


@SHORT_RUN
def test_subposterior_has_the_spread_of_n_rows():
    run = fit(subset_move=Fixed(), draws=4000, chains=16, tune=1000, thinning=10, target="subposterior")
    expected = 1 / np.sqrt(10 + 1 / PRIOR_SD**2)
    ratio = run.posterior["theta"].std(1) / expected
    assert stats.ttest_1samp(ratio, 1.0).pvalue > 1e-4


def test_precision_is_chosen_from_the_rounding_it_would_bring():
    """float32 brings noise of about N/√n |ℓ| 2⁻²⁴ to the log ratio: none to speak of here, much at N/n = 10⁷."""
    assert fit().attributes["precision"] == "float32"
    with jax.enable_x64(True):
        target = lwa.targets.target.Target(MODEL, 1e7)
        chosen = choose_precision("auto", target, PilotSubsets(ROWS.reshape(4, 10), None, None), 1, None)
    assert chosen is np.float64


def test_two_kinds_of_columns_and_a_tree_of_parameters():
    """Rows as a dict with a matrix and integer labels, θ as a dict: the posterior finds the simulated values."""
    rng = np.random.default_rng(0)
    x, group = rng.normal(size=(20_000, 2)), rng.integers(0, 3, size=20_000).astype(np.int8)
    truth = {"slope": np.array([0.5, -1.0]), "level": np.array([0.0, 1.0, 2.0]), "log_sd": np.log(0.5)}
    y = x @ truth["slope"] + truth["level"][group] + 0.5 * rng.normal(size=20_000)

    def log_likelihood(theta, rows):
        mean = rows["x"] @ theta["slope"] + theta["level"][rows["group"]]
        return -0.5 * ((rows["y"] - mean) / jnp.exp(theta["log_sd"])) ** 2 - theta["log_sd"]

    init = {"slope": jnp.zeros(2), "level": jnp.zeros(3), "log_sd": 0.0}
    model = lwa.Model(log_likelihood, lambda theta: -0.5 * jnp.sum(theta["level"] ** 2) / 100, init)
    run = lwa.sample(
        model, {"x": x, "group": group, "y": y}, subset_size=500, target="subposterior", tune=3000, draws=300,
        summary=lwa.summaries.Counts("group"), seed=2, progress=False,
    )  # fmt: skip
    for name, value in truth.items():
        draws = run.posterior[name]
        assert draws.shape == (4, 300, *np.shape(value))
        assert np.all(np.abs(draws.mean((0, 1)) - value) < 4 * draws.std((0, 1)))
