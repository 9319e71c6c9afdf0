"""Ordered data: U is a window. Laws, sums and posteriors against what can be had exactly."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import chisquare

import lwa
from lwa.backend.random import Purpose, generator
from lwa.data.data import lay_out
from lwa.data.lead_in import extend_lead_in
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.kernels import RandomWalk
from lwa.rows.slots import to_columns
from lwa.rows.units import build_windows
from lwa.run import loop
from lwa.subsets import Fixed, Free, Gaussian, Window
from lwa.subsets.windows.chain import WindowChain
from lwa.summaries import Autocorrelations, Combine, Custom, MinMax, Moments, Quantiles
from lwa.summaries.running_sums import compute_running_sums
from lwa.summaries.summary import NO_STATISTIC
from lwa.targets import Calibrated
from lwa.targets.calibration import build_expansion, calibrate
from lwa.targets.reference import compute_log_posterior, find_reference
from lwa.targets.target import Target
from tests.support import SHORT_RUN

S0 = Combine(Quantiles(0.2, 0.5, 0.8), Autocorrelations(5))


def arma_series(N, ar, ma, seed=1, drift=0.1, burn=500):
    z = np.random.default_rng(seed).normal(size=N + burn)
    return lfilter([1, *ma], [1, *(-np.asarray(ar))], z + drift / (1 + np.sum(ma)))[burn:]


# An autoregression with known variance is a linear regression: its posterior is a Gaussian, known exactly.


def ar_terms(theta, y):
    """Y_k ~ Normal(drift + ar Y_{k-1}, 1); before the first there was 0."""
    return -0.5 * (y - theta["drift"] - theta["ar"] * jnp.concatenate([jnp.zeros(1, y.dtype), y[:-1]])) ** 2


def ar_prior(theta):
    return -0.5 * (theta["ar"] ** 2 + theta["drift"] ** 2) / 100.0


AR = lwa.Model(ar_terms, ar_prior, {"ar": 0.0, "drift": 0.0}, ordered=True)


def ar_posterior(series):
    """Mean and covariance of (ar, drift)."""
    x = np.concatenate([np.column_stack([np.r_[0.0, y[:-1]], np.ones(len(y))]) for y in series])
    y = np.concatenate(series)
    covariance = np.linalg.inv(x.T @ x + np.eye(2) / 100.0)
    return covariance @ x.T @ y, covariance


def check_posterior(fit, mean, sd, shift=0.02, ratio=0.02):
    """Means within `shift` sds and sds within `ratio`, and 4.5 Monte Carlo errors."""
    draws = np.stack([fit.posterior[name] for name in ("ar", "drift")], axis=-1)
    effective = effective_draws(draws).min()
    found_mean, found_sd = draws.mean((0, 1)), draws.std((0, 1))
    assert np.abs((found_mean - mean) / sd).max() < shift + 4.5 / effective**0.5
    assert np.abs(found_sd / sd - 1).max() < ratio + 4.5 / (2 * effective) ** 0.5


Y = arma_series(20_000, [0.6], []).astype(np.float32).astype(np.float64)
SEVERAL = [Y[:60], Y[500:5000], Y[9000:9500]]


@pytest.mark.parametrize("exact", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["calibrated", "exact"])
def test_an_autoregression_has_its_exact_posterior(exact):
    fit = lwa.sample(
        AR, Y, subset_size=200, draws=150 if exact else 2000, tune=500, seed=1, exact=exact, thinning=5,
        chains=8, progress=False,
    )  # fmt: skip
    mean, covariance = ar_posterior([Y])
    check_posterior(fit, mean, np.sqrt(np.diag(covariance)))
    assert fit.sample_stats["n_rows_read"][0, 0] == (
        5 * 201 + (len(Y) if exact else 0)
    )  # the model looks one step back


@pytest.mark.slow
def test_polish_corrects_draws_of_windows():
    """From draws that are twice too wide, passes over all rows lead to the posterior."""
    fit = lwa.sample(AR, Y, subset_size=200, draws=300, tune=500, seed=1, chains=4, progress=False)
    mean, covariance = ar_posterior([Y])
    for name, at in (("ar", 0), ("drift", 1)):
        fit.posterior[name][...] = mean[at] + 2 * (fit.posterior[name] - mean[at])
    polished = fit.polish(6, draws=250, progress=False)
    check_posterior(polished, mean, np.sqrt(np.diag(covariance)), 0.02, 0.05)


def test_several_series_are_a_list_or_a_column():
    mean, covariance = ar_posterior(SEVERAL)
    options = {"subset_size": 50, "draws": 1000, "tune": 500, "seed": 1, "chains": 8, "progress": False}
    listed = lwa.sample(AR, SEVERAL, **options)
    check_posterior(listed, mean, np.sqrt(np.diag(covariance)))
    assert listed.certify(progress=False).passed
    by_column = lwa.Model(lambda t, rows: ar_terms(t, rows["y"]), ar_prior, AR.init, ordered="t", groups="s")
    label = np.repeat([5, 2, 9], list(map(len, SEVERAL)))
    mixed = np.argsort(np.concatenate([np.arange(len(y)) for y in SEVERAL]), kind="stable")  # all series side by side
    time = np.concatenate([np.arange(len(y)) for y in SEVERAL])
    data = {"y": np.concatenate(SEVERAL)[mixed], "s": label[mixed], "t": time[mixed]}
    told = lwa.sample(by_column, data, **options)
    for name in ("ar", "drift"):
        np.testing.assert_allclose(told.posterior[name], listed.posterior[name], rtol=1e-5)


def test_sums_over_segments_are_those_of_the_whole_series():
    """ARMA(1,1) at θ̂: one recursion over all rows by SciPy, and lwa's over segments with a lead-in."""
    y = arma_series(30_000, [0.5], [0.9])
    layout = lay_out(lwa.arma(1, 1, sigma=1.0), y)
    model = layout.model
    with jax.enable_x64(True):
        reference = find_reference(model, layout.full, np.zeros(3), 1)
        layout, _ = extend_lead_in(layout, reference.theta, reference.factor)
        points = reference.theta + np.random.default_rng(2).normal(size=(5, 3)) @ reference.factor.T
        found = compute_log_posterior(model, layout.full, points)
    for theta, value in zip(points, found, strict=True):
        named = {name: np.asarray(leaf) for name, leaf in layout.given.by_name(theta).items()}
        w = y - named["ar"][0] * np.r_[y[0], y[:-1]] - named["drift"]
        z = lfilter([1], [1, named["ma"][0]], w)
        whole = (-0.5 * z**2 - 0.5 * np.log(2 * np.pi)).sum() + float(layout.given.log_prior(named))
        assert value == pytest.approx(whole, abs=1e-6 * abs(whole) ** 0.5)


@pytest.mark.parametrize(
    "beta", [pytest.param(0.5, marks=pytest.mark.slow), 0.9, pytest.param(0.97, marks=pytest.mark.slow)]
)
def test_the_lead_in_is_as_long_as_the_model_remembers(beta):
    """A start is forgotten like β^k: the score's error, about k β^k, falls under the limit after that many steps."""
    y = arma_series(60_000, [0.5], [beta], seed=3)
    layout = lay_out(lwa.arma(1, 1), y)
    with jax.enable_x64(True):
        reference = find_reference(layout.model, layout.full, layout.given.ravel(layout.given.init), 1)
        layout, memory = extend_lead_in(layout, reference.theta, reference.factor)
    found = memory.lead_in(1000, 60_000)
    limit = 0.01 * 1000 / 60_000**0.5  # in scores whose sd is 1
    k = np.arange(5000)
    fades = np.cumsum(((k + 1) * beta**k)[::-1])[::-1]
    expected = np.flatnonzero(fades < limit)[0]
    assert 0.3 * expected <= found <= 1.7 * expected
    assert memory.forgets(1000, 60_000)


def test_a_model_without_memory_needs_no_lead_in():
    model = lwa.Model(lambda t, y: -0.5 * (y - t) ** 2, lambda t: -0.5 * t**2, init=0.0, ordered=True)
    layout = lay_out(model, Y)
    with jax.enable_x64(True):
        reference = find_reference(layout.model, layout.full, np.zeros(1), 1)
        _, memory = extend_lead_in(layout, reference.theta, reference.factor)
    assert memory.lead_in(10, len(Y)) == 0


@pytest.fixture(scope="module")
def arma():
    """ARMA(1,1) at its reference, with running sums and a chain of windows."""
    y = arma_series(20_000, [0.5], [0.8], seed=4)
    layout = lay_out(lwa.arma(1, 1), [y[:700], y[700:]])
    with jax.enable_x64(True):
        reference = find_reference(layout.model, layout.full, layout.given.ravel(layout.given.init), 1)
        layout, memory = extend_lead_in(layout, reference.theta, reference.factor)
        sums = compute_running_sums(layout.given, layout.full, reference, curvature=True)
    return layout, reference, memory, sums


def chain_of(arma, n=150, lead_in=None, own=False, **options):
    layout, reference, memory, sums = arma
    lead_in = memory.lead_in(n, len(layout)) if lead_in is None else lead_in
    calibration = calibrate(layout.model, reference, layout.scored / n, transport=True)
    return WindowChain(
        build_windows(layout.rows, layout.series, n, lead_in), NO_STATISTIC, Window(), Gaussian(), np.inf, 1, 1, 16,
        calibration, steps=n, sums=None if own else sums, **options,
    )  # fmt: skip


def test_running_sums_are_those_of_each_window(arma):
    """With a lead-in that is long enough, differences of running sums are what each window's own derivatives add to."""
    windows = np.array([0, 1, 400, 5000, 19_000 - 300])
    with jax.enable_x64(True):
        quick, slow = chain_of(arma).find_sums(windows), chain_of(arma, lead_in=400, own=True).find_sums(windows)
    scale = np.abs(slow).max(0)
    np.testing.assert_allclose(quick / scale, slow / scale, atol=1e-8)


@pytest.mark.parametrize(
    ("own", "lead_in"),
    [pytest.param(True, 0, marks=pytest.mark.slow), pytest.param(True, None, marks=pytest.mark.slow), (False, None)],
    ids=["no past", "own", "sums"],
)
def test_given_any_window_gradient_and_curvature_are_those_of_all_rows(arma, own, lead_in):
    """... at θ̂: exactly where each window's own are computed, even without a lead-in; nearly, by running sums."""
    layout, reference, _, _ = arma
    with jax.enable_x64(True):
        chain = chain_of(arma, own=own, lead_in=lead_in)
        U = chain.start(range(8))
        given, batch = chain.given(U), to_columns(chain.take(U), np.float64, axis=1)
        target = Target(layout.model, layout.scored / 150, build_expansion(reference))

        def at(theta, rows, given):
            return target.evaluate(theta, rows, given).total

        gradient = jax.jit(jax.vmap(jax.grad(at), (None, 0, 0)))(reference.theta, batch, given)
        bend = -jax.jit(jax.vmap(jax.hessian(at), (None, 0, 0)))(reference.theta, batch, given)
        prior = jax.grad(layout.model.log_prior_at)(jnp.asarray(reference.theta))
        gradient, bend, prior = (np.asarray(found) for found in (gradient, bend, prior))
    assert given.feasible.all()
    white = reference.factor
    error = 1e-8 if own else 0.02  # posterior sds; what a window may forget is 0.01 on average
    np.testing.assert_allclose((gradient - reference.gradient - prior) @ white, 0, atol=error)
    whitened = np.einsum("ji,cjk,kl->cil", white, bend, white)
    np.testing.assert_allclose(whitened, np.broadcast_to(np.eye(4), whitened.shape), atol=1e-7 if own else 0.01)


@pytest.mark.parametrize("move", [Window(), Window(local=0.5, rate=1.0), Free()], ids=str)
def test_end_windows_have_their_weight(arma, move):
    """ε = ∞: after many pages every window is as likely, the first and last of each series too."""
    layout = lay_out(AR, [np.arange(9.0), np.arange(7.0)])
    chain = WindowChain(
        build_windows(layout.rows, layout.series, 4, 1), NO_STATISTIC, move, Gaussian(), np.inf, 1, 5, 64, steps=4
    )
    chains = range(200)
    seen = np.zeros(10, int)
    with jax.enable_x64(True):
        U = chain.start(chains)
        for page in range(5):
            U, done = chain.advance(U, chains, page)
            seen += np.bincount(np.asarray(U.indices)[:, 0], minlength=10)
            assert done.rows.rows.shape == (64, 200, 1, 5)
    assert chisquare(seen).pvalue > 1e-4


def test_the_tape_brings_the_rows_of_every_new_window(arma):
    layout = lay_out(AR, Y[:300])
    column = np.asarray(Y[:300])
    statistic = S0.prepare(column, np.array([300]))
    chain = WindowChain(
        build_windows(layout.rows, layout.series, 20, 3), statistic, Window(), Gaussian(), 0.3, 1, 2, 50, steps=20,
        column=column,
    )  # fmt: skip
    with jax.enable_x64(True):
        U = chain.start(range(3))
        before = np.asarray(U.indices)[:, 0]
        last, done = chain.advance(U, range(3), 0)
    assert done.accepted.any(0).all()
    assert not done.accepted.all()
    for c in range(3):
        for t in np.flatnonzero(done.accepted[:, c]):
            rows, scored = done.rows.rows[t, c, 0], done.rows.scored[t, c, 0]
            start = int(np.flatnonzero((column[:281, None] == rows[scored][0]).any(1))[0])
            assert np.array_equal(rows[scored], column[start : start + 20])
            out = np.empty(8)
            statistic.function(column[start : start + 20], out)
            assert done.distance[t, c] == pytest.approx(np.linalg.norm(out - statistic.full))
        t = np.flatnonzero(done.accepted[:, c])[-1]
        x = int(np.asarray(last.indices)[c, 0])
        assert np.array_equal(done.rows.rows[t, c, 0][done.rows.scored[t, c, 0]], column[x : x + 20])
    assert len(before) == 3


@SHORT_RUN
@pytest.mark.parametrize("move", [Window(), Free(), Fixed()], ids=str)
def test_all_steps_give_plain_metropolis(move):
    """n = N: the window never moves, and the same keys give the same draws as M-H on the whole series."""
    y, kernel = Y[:80], RandomWalk(scale=0.05)
    fit = lwa.sample(
        AR, y, subset_size=80, target="powered", subset_move=move, kernel=kernel, tune=0, draws=60, thinning=1,
        chains=2, seed=3, precision="float64", progress=False,
    )  # fmt: skip
    for chain in range(2):
        noise = kernel.noise(generator(3, Purpose.THETA, chain, 0), fit.attributes["page_moves"], 2, np.float64)
        theta, path = np.zeros(2), []

        def log_density(theta):
            residual = y - theta[1] - theta[0] * np.r_[0.0, y[:-1]]
            return -0.5 * (residual**2).sum() - 0.5 * (theta**2).sum() / 100.0

        for direction, log_u in zip(noise.direction[:60], noise.log_u[:60], strict=True):
            proposed = theta + 0.05 * direction
            if log_u < log_density(proposed) - log_density(theta):
                theta = proposed
            path.append(theta)
        found = np.stack([fit.posterior["ar"][chain], fit.posterior["drift"][chain]], axis=-1)
        np.testing.assert_allclose(found, path, rtol=1e-10, atol=1e-12)


def test_all_steps_give_the_posterior_whatever_the_target():
    """n = N, calibrated: one window, which is the whole series."""
    y = Y[:400]
    fit = lwa.sample(AR, y, subset_size=400, draws=2000, tune=300, chains=4, seed=1, progress=False)
    mean, covariance = ar_posterior([y])
    check_posterior(fit, mean, np.sqrt(np.diag(covariance)), 0.0, 0.0)


def test_a_short_series_that_is_never_forgotten_is_looked_at_whole():
    """A random walk seen through noise-free sums: each term depends on the sum of all steps before."""

    def terms(theta, y):
        return -0.5 * (y - theta["drift"] - theta["ar"] * jnp.cumsum(y) / len(Y[:900])) ** 2

    y = Y[:900]
    layout = lay_out(lwa.Model(terms, ar_prior, AR.init, ordered=True), y)
    with jax.enable_x64(True):
        reference = find_reference(layout.model, layout.full, np.zeros(2), 1)
        layout, memory = extend_lead_in(layout, reference.theta, reference.factor)
        found = compute_log_posterior(layout.model, layout.full, np.array([[0.3, 0.1]]))
    assert memory.lead_in(2000, len(y), 1e-6) == len(memory.left)
    whole = -0.5 * ((y - 0.1 - 0.3 * np.cumsum(y) / 900) ** 2).sum() - 0.5 * (0.3**2 + 0.1**2) / 100.0
    assert found[0] == pytest.approx(whole, rel=1e-12)


def test_block_length_changes_no_bit(monkeypatch):
    fits = []
    for length in (1000, 7):
        monkeypatch.setattr(loop.BlockLength, "after", lambda self, took, moves, n=length: loop.BlockLength(n))
        fits.append(lwa.sample(AR, Y[:3000], subset_size=50, draws=50, tune=100, seed=3, chains=2, progress=False))
    for name, values in fits[0].posterior.items():
        assert np.array_equal(values, fits[1].posterior[name])


def test_nothing_is_traced_again():
    traced = []

    def terms(theta, y):
        traced.append(y.shape)
        return ar_terms(theta, y)

    model = lwa.Model(terms, ar_prior, AR.init, ordered=True)
    run = partial(lwa.sample, model, Y[:3000], subset_size=50, tune=64, seed=3, chains=2, progress=False)
    run(draws=20)
    before = len(traced)
    run(draws=3000)
    assert len(traced) - before <= 10  # the checks of the model's shapes and derivatives, no compiled program


@SHORT_RUN
@pytest.mark.parametrize("target", ["powered", "subposterior"])
@pytest.mark.parametrize(
    "summary",
    [S0, MinMax(), Moments(3), Custom(lambda y: y.mean()), "auto"],
    ids=["S0", "minmax", "moments", "own", "-"],
)
@pytest.mark.filterwarnings("ignore:Each change of the subset moves:lwa.LwaWarning")
def test_every_summary_runs_with_the_papers_targets(target, summary):
    fit = lwa.sample(
        AR, Y[:3000], subset_size=100, target=target, summary=summary, draws=50, tune=200, chains=2, seed=1,
        progress=False,
    )  # fmt: skip
    assert np.isfinite(fit.posterior["ar"]).all()
    distance = fit.sample_stats["subset_distance"]
    assert np.isnan(distance).all() if summary == "auto" else (distance > 0).all()


def test_a_smaller_epsilon_makes_windows_more_alike():
    distances, rates = [], []
    for epsilon in (float("inf"), 0.2, 0.05):
        fit = lwa.sample(
            AR, Y, subset_size=100, target="subposterior", summary=S0, epsilon=epsilon, draws=500, tune=200, chains=2,
            seed=1, progress=False,
        )  # fmt: skip
        distances.append(fit.sample_stats["subset_distance"].mean())
        rates.append(fit.sample_stats["subset_accepted"].mean())
    assert distances[0] > distances[1] > distances[2]
    assert rates[0] > rates[1] > rates[2]


def test_a_model_may_look_back_several_steps():
    """Its log-likelihood need not work for a single row."""

    def terms(theta, y):
        ahead = -0.5 * (y[3:] - theta["drift"] - theta["ar"] * y[:-3]) ** 2
        return jnp.concatenate([jnp.zeros(3, y.dtype), ahead])

    model = lwa.Model(terms, ar_prior, AR.init, ordered=True)
    fit = lwa.sample(model, Y[:3000], subset_size=100, draws=100, tune=200, chains=2, seed=1, progress=False)
    assert fit.sample_stats["n_rows_read"][0, 0] == 103 * fit.attributes["thinning"]


def test_subset_size_auto():
    fit = lwa.sample(AR, Y, subset_size="auto", draws=100, tune=200, chains=2, seed=1, progress=False)
    assert 100 <= fit.attributes["subset_size"] <= 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subset_move": lwa.subsets.Swap(1)}, r"exchanges single rows, but these rows are ordered.*Window\(\)"),
        ({"target": Calibrated(leverage=True)}, r"leverage=True draws single rows.*Leave it out"),
        ({"summary": lwa.summaries.Counts()}, r"summary=Counts\(...\) summarises rows one by one"),
        ({"summary": Custom(lambda y: y[: 3 + int(y[0] > 0)])}, r"numbers for a window, but \d for all rows"),
        ({"summary": MinMax(column="z")}, r"MinMax\(column='z'\) does not fit rows of shape \(\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:The function of summary=Custom:lwa.LwaWarning")
def test_what_does_not_fit_ordered_data(options, message):
    with pytest.raises(lwa.InputError, match=message):
        lwa.sample(AR, Y[:500], subset_size=20, draws=20, tune=20, chains=2, progress=False, **options)


@SHORT_RUN
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:In .* of the moves the subset's curvature:lwa.LwaWarning")
def test_windows_that_are_too_short_are_refused_with_a_length_that_does():
    """The length that the refusal names runs; if its draws are predicted to be off, so does what that warning names."""
    model = lwa.arma(1, 1)
    options = {"draws": 20, "tune": 20, "chains": 2, "seed": 1, "progress": False}
    with pytest.raises(lwa.InputError, match=r"subset_size=2 is too small .*Pass subset_size=\d+") as caught:
        lwa.sample(model, Y, subset_size=2, **options)
    enough = caught.value.advice
    assert 4 <= enough["subset_size"] <= 1024
    with pytest.warns(lwa.LwaWarning, match="draws are predicted to be off by 8%") as told:
        assert lwa.sample(model, Y, **enough, **options).draws == 20
    better = next(one.message.advice for one in told if "predicted" in str(one.message))
    fit = lwa.sample(model, Y, **better, **options)
    assert fit.draws == 20
    assert fit.attributes["predicted_sd_error"] <= 0.05


def test_what_needs_ordered_data():
    model = lwa.Model(lambda t, y: -0.5 * (y - t) ** 2, lambda t: -0.5 * t**2, init=0.0)
    with pytest.raises(lwa.InputError, match="these rows have no order"):
        lwa.sample(model, Y, subset_move=Window(), progress=False)
    with pytest.raises(lwa.InputError, match="summarises windows of ordered data"):
        lwa.sample(model, Y, summary=S0, progress=False)


@pytest.mark.slow
def test_without_transport_a_short_lead_in_is_told():
    y = arma_series(20_000, [0.5], [0.95])
    with pytest.warns(lwa.LwaWarning, match=r"lead_in=0 is shorter than the model remembers.*Pass lead_in=\d+"):
        lwa.sample(
            lwa.arma(1, 1), y, subset_size=500, subset_move=Window(lead_in=0), target=Calibrated(transport=False),
            draws=20, tune=50, chains=2, seed=1, progress=False,
        )  # fmt: skip
