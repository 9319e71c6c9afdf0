"""Windows on a device: U's law is the host's, window by window, and so is what θ is scored by."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.engine.device import choice
from lwa.engine.device.cohort import DeviceCohort
from lwa.engine.device.pallas_windows import play_in_streams, why_not_in_streams
from lwa.engine.device.window_walk import (
    draw_jumps,
    draw_neighbour,
    draw_windows,
    jump_probability,
    locate_windows,
    walk_on_device,
)
from lwa.engine.device.windows import WindowsOnDevice, play_windows, read_window
from lwa.errors import LwaWarning, ModelError
from lwa.rows.parts import Parts
from lwa.rows.units import number_windows
from lwa.subsets.moves import Window
from lwa.subsets.windows import law as on_host
from lwa.subsets.windows.walk import walk_page

N, STEPS = 3000, 60
MODEL = lwa.arma(1, 1, sigma=1.0)
OPTIONS = {"subset_size": STEPS, "tune": 64, "seed": 3, "progress": False}


def simulated(N, seed=1):
    z = np.random.default_rng(seed).normal(size=N + 1)
    y = np.zeros(N + 1)
    for k in range(1, N + 1):
        y[k] = 0.1 + 0.5 * y[k - 1] + z[k] + 0.4 * z[k - 1]
    return y[1:].astype(np.float32)


Y = simulated(N)


def sample(model=MODEL, data=Y, **options):
    return lwa.sample(model, data, **(OPTIONS | options))


@pytest.fixture
def law():
    return on_host.build_window_law(40, Window(local=0.7, rate=0.2))


def test_neighbours_are_the_hosts(law):
    x, u = np.meshgrid(np.arange(law.windows), (np.arange(997) + 0.5) / 997, indexing="ij")
    expected = [
        on_host.find_neighbour(int(a), float(b), law.windows, law.rate) for a, b in zip(x.flat, u.flat, strict=True)
    ]
    with jax.enable_x64(True):
        found = draw_neighbour(jnp.asarray(x), jnp.asarray(u), jax.tree.map(jnp.asarray, law))
    np.testing.assert_array_equal(np.ravel(found), expected)


@pytest.mark.parametrize("move", [Window(0.0, 0.3), Window(0.9, 0.1), Window(1.0, 5.0), Window(0.5, 900.0)])
@pytest.mark.parametrize("windows", [1, 2, 31])
def test_probabilities_are_the_hosts(windows, move):
    law = on_host.build_window_law(windows, move)
    x, new = np.meshgrid(np.arange(windows), np.arange(windows), indexing="ij")
    expected = [on_host.window_probability(law, int(a), int(b)) for a, b in zip(x.flat, new.flat, strict=True)]
    with jax.enable_x64(True):
        found = jump_probability(jnp.asarray(x), jnp.asarray(new), jax.tree.map(jnp.asarray, law))
    np.testing.assert_allclose(np.ravel(found), expected, rtol=1e-13)


def test_a_walk_is_the_hosts(law):
    """Transition by transition, from the same draws."""
    draws = on_host.draw_window_page(np.random.default_rng(2), 4000, law)
    expected = walk_page(5, draws, number_windows(Parts(np.array([0, 43])), 4), law)
    with jax.enable_x64(True):
        found = walk_on_device(jnp.asarray(5), jax.tree.map(jnp.asarray, draws), jax.tree.map(jnp.asarray, law))
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.accepted, expected.accepted)
    assert 0.1 < expected.accepted.mean() < 1.0


def test_what_is_drawn_there(law):
    """Remote windows have the law h, the rest are uniform: by χ² and by the mean, five standard errors."""
    size = 200_000
    with jax.enable_x64(True):
        drawn = draw_jumps(jax.random.key(1), size, jax.tree.map(jnp.asarray, law))
    draws = jax.tree.map(np.asarray, drawn)
    h = np.array([on_host.window_probability(law._replace(local=0.0), 0, x) for x in range(law.windows)])
    counts = np.bincount(draws.remote, minlength=law.windows)
    chi = ((counts - size * h) ** 2 / (size * h)).sum()
    assert abs(chi - (law.windows - 1)) < 5 * np.sqrt(2 * (law.windows - 1))
    assert abs(np.mean(draws.is_local) - law.local) < 5 * np.sqrt(law.local * (1 - law.local) / size)
    assert abs(np.mean(draws.local_u) - 0.5) < 5 / np.sqrt(12 * size)
    assert abs(np.mean(draws.log_u) + 1.0) < 5 / np.sqrt(size)


def cohort_of(patching, model=MODEL, data=Y, chains=37, **options):
    """A cohort as a run makes it, tune over."""
    made = []

    def begun(self, theta):
        DeviceCohort.begin(self, theta)
        made.append(self)
        raise KeyboardInterrupt

    with patching.context() as patched:
        patched.setattr(WindowsOnDevice, "begin", begun)
        with pytest.raises(KeyboardInterrupt):
            sample(model, data, chains=chains, draws=5, **options)
    return made[0]


@pytest.mark.slow
def test_windows_are_the_hosts(device, monkeypatch):
    """Their rows, with what leads in, of several series, near their beginnings too; and their sums."""
    cohort = cohort_of(monkeypatch, data=[Y[:500], Y[500:620], Y[620:]], chains=4)
    chain = cohort.problem.subsets
    numbers = np.arange(len(chain.rows))[::7]
    expected = chain.rows.take(numbers)
    with jax.enable_x64(True):
        span, sums = locate_windows(jnp.asarray(numbers), cohort.series, n=STEPS, lead_in=cohort.length - STEPS)
        found = jax.vmap(lambda one: read_window(cohort.series.rows, one, cohort.length))(span)
    assert cohort.length > STEPS
    np.testing.assert_array_equal(
        np.asarray(found.scored)[..., 0], np.broadcast_to(expected.scored, found.scored.shape[:2])
    )
    np.testing.assert_array_equal(np.asarray(found.rows)[..., 0], expected.rows)
    np.testing.assert_allclose(np.asarray(sums)[:, : chain.calibration.width], chain.find_sums(numbers), rtol=1e-12)


MODELS = {
    "arma": (MODEL, Y),
    "sigma": (lwa.arma(1, 1), Y),
    "stationary": (lwa.arma(2, 1, stationary=True, sigma=1.0), Y),
    "regressors": (
        lwa.arma(1, 0, regressors=["week"], sigma=1.0),
        {"y": Y, "week": np.sin(np.arange(N)).astype(np.float32)},
    ),
    "series": (MODEL, [Y[:500], Y[500:700], Y[700:]]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kernel", ["auto", lwa.kernels.RandomWalk()])
def test_streams_make_the_moves_of_an_ordinary_program(device, monkeypatch, name, kernel):
    cohort = cohort_of(monkeypatch, *MODELS[name], kernel=kernel, precision="float64", subset_size=150)
    cohort.freeze()
    every = cohort.every
    with jax.enable_x64(True):
        page = cohort._page(0)
        given = {"series": cohort.series, "target": cohort.target, "kernel": cohort.problem.kernel}
        assert why_not_in_streams(cohort.place, page, **given) == ""
        for at, end in ((0, 9), (9, 14)):  # the second begins between two proposals of U
            options = {**given, "start": at, "stop": end, "every": every, "length": cohort.length}
            copy = jax.tree.map(jnp.copy, cohort.place)
            place, played = play_in_streams(copy, page, interpret=True, **options)
            room = jax.tree.map(jnp.copy, cohort.room)
            cohort.place, expected = play_windows(cohort.place, room, page, gain=cohort._gain(at), **options)
            for found, plain in zip(jax.tree.leaves(played.draws), jax.tree.leaves(expected.draws), strict=True):
                np.testing.assert_allclose(found[:, at:end], plain[:, at:end], rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(place.state.theta, cohort.place.state.theta, rtol=1e-9)
            np.testing.assert_array_equal(place.indices, cohort.place.indices)
            assert 0 < played.draws.info.accepted[:, at:end].mean() <= 1


@pytest.mark.slow
def test_a_model_that_does_not_tell_its_recursion(device, monkeypatch):
    cohort = cohort_of(monkeypatch, replace(MODEL, recursion=None), chains=2)
    with jax.enable_x64(True):
        found = why_not_in_streams(cohort.place, cohort._page(0), cohort.series, cohort.target, cohort.problem.kernel)
    assert "recursion" in found
    fit = sample(replace(MODEL, recursion=None), chains=2, draws=10)
    np.testing.assert_allclose(fit.posterior["ar"], sample(chains=2, draws=10).posterior["ar"], rtol=1e-4)


@pytest.mark.slow
def test_a_recursion_of_another_model_is_refused(device):
    wrong = replace(MODEL, recursion=lwa.arma(1, 1, sigma=2.0).recursion)
    with pytest.raises(ModelError, match="recursion"):
        sample(wrong, chains=2, draws=5)


@pytest.mark.slow
def test_pages_go_on_from_each_other(device, monkeypatch):
    """The walk of a page begins where the one before it ended."""
    cohort = cohort_of(monkeypatch)
    with jax.enable_x64(True):
        first = cohort._page(0)
        cohort.place = cohort.place._replace(indices=first.walked.x[:, -1:])
        second = cohort._page(1)
        again, _ = draw_windows(
            *cohort.keys, 1, first.walked.x[:, -1], cohort.series.law, kernel=cohort.problem.kernel,
            transitions=second.walked.x.shape[1], moves=cohort.problem.page, d=3, dtype=np.float32,
        )  # fmt: skip
    np.testing.assert_array_equal(second.walked.x, again.x)
    assert (np.asarray(first.walked.x) != np.asarray(second.walked.x)).any()


@pytest.mark.slow
def test_blocks_and_budgets_change_no_draw(device):
    whole = sample(chains=4, draws=120)
    reads = int(whole.sample_stats["n_rows_read"][0, 0] / whole.attributes["thinning"])
    with pytest.warns(LwaWarning, match="budget"):
        cut = sample(chains=4, draws=120, budget=lwa.RowReads(reads * 4 * (64 + 85)))  # ends in the midst of a page
    kept = cut.posterior["ar"]
    assert 0 < kept.shape[1] < 120
    np.testing.assert_array_equal(kept, whole.posterior["ar"][:, : kept.shape[1]])


@pytest.mark.slow
@pytest.mark.parametrize("moves", [71, 90])
def test_a_run_is_taken_up_to_the_same_bits(device, tmp_path, moves):
    """In the midst of a page."""
    whole = sample(chains=4, draws=120)
    reads = int(whole.sample_stats["n_rows_read"][0, 0] / whole.attributes["thinning"])
    with pytest.warns(LwaWarning, match="budget"):
        sample(chains=4, draws=120, checkpoint=tmp_path / "run", budget=lwa.RowReads(reads * 4 * (64 + moves)))
    again = lwa.resume(tmp_path / "run", MODEL, Y, budget=lwa.RowReads(10**9), progress=False)
    np.testing.assert_array_equal(again.posterior["ar"], whole.posterior["ar"])


@pytest.mark.slow
def test_a_summary_is_that_of_the_draws(device):
    whole, summary = sample(chains=8, draws=40), sample(chains=8, draws=40, keep="summary")
    moments = summary.running.moments
    assert int(moments.count) == 40
    np.testing.assert_allclose(moments.mean[:, 0], whole.posterior["ar"].mean(1)[:, 0], rtol=1e-6)


@pytest.mark.slow
def test_the_posterior_is_the_hosts(device, monkeypatch):
    """Means and sds of 32 chains beside those of 32 others on the host: five standard errors of their difference."""
    there = sample(chains=32, draws=400, subset_size=200)
    assert there.attributes["cohort_chains"] == 32
    monkeypatch.undo()
    here = sample(chains=32, draws=400, subset_size=200, seed=4)
    for name in ("ar", "ma", "drift"):
        a, b = (fit.posterior[name].reshape(32, -1).astype(float) for fit in (there, here))
        for of in (lambda x: x.mean(1), lambda x: x.std(1)):
            error = np.sqrt((of(a).var(ddof=1) + of(b).var(ddof=1)) / 32)
            assert abs(of(a).mean() - of(b).mean()) < 5 * error


@pytest.mark.slow
def test_what_is_played_elsewhere(device, monkeypatch):
    """Windows that are weighed by a statistic, and those that are drawn anew, are walked on the host."""
    seen = []

    def looked(problem, chains):
        seen.append(WindowsOnDevice.suits(problem, chains))
        raise KeyboardInterrupt

    monkeypatch.setattr(choice, "choose_cohort_kind", looked)
    for options in ({}, {"summary": lwa.summaries.Moments(2), "epsilon": 1.0}, {"subset_move": lwa.subsets.Free()}):
        with pytest.raises(KeyboardInterrupt):
            sample(chains=2, draws=5, **options)
    monkeypatch.setattr("lwa.engine.device.windows.device_memory", lambda: 1000.0)
    with pytest.raises(KeyboardInterrupt):
        sample(chains=2, draws=5)
    assert seen == [True, False, False, False]


@pytest.mark.slow
def test_of_many_windows_only_some_lack_curvature(device, monkeypatch):
    """They alone move on, until they have it; the others stay where they were drawn."""
    cohort = cohort_of(monkeypatch, chains=2, subset_size=STEPS)
    chain, chains = cohort.problem.subsets, list(range(3000))
    with jax.enable_x64(True):
        first = chain.start(chains)
        lacking = ~np.asarray(chain.calibration.given(first.sums).feasible)
        found = chain.move_until_feasible(first, chains)
        assert np.asarray(chain.calibration.given(found.sums).feasible).all()
    assert 0 < lacking.sum() < 300
    np.testing.assert_array_equal(np.asarray(found.indices)[~lacking], np.asarray(first.indices)[~lacking])
    assert (np.asarray(found.indices)[lacking] != np.asarray(first.indices)[lacking]).all()
