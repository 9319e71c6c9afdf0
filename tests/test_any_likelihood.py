"""Models in plain Python, NumPy, SciPy or C: the same law and the same randomness as their JAX twins."""

import ctypes
import ctypes.util
import signal
import threading
import time
import traceback
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.kernels import HMC, MALA, NUTS, Autoregressive, Blockwise, Independence, RandomWalk
from lwa.subsets import Fixed, Free, Swap, Window
from lwa.targets import Calibrated
from tests.support import SHORT_RUN

RNG = np.random.default_rng(0)
N = 600
X = RNG.normal(size=(N, 2))
Y = 0.7 + X @ [1.0, -0.5] + 0.8 * RNG.normal(size=N)
DATA = {"x": X, "y": Y, "unit": np.repeat(np.arange(N // 4), 4)}
SIZES = {"subset_size": 60, "draws": 40, "tune": 64, "chains": 2, "thinning": 2, "seed": 1, "progress": False}


def regression(xp, **options):
    """Normal(a + x'b, e^2s), in NumPy or in JAX: NumPy's own functions refuse to be traced."""

    def log_likelihood(theta, rows):
        away = xp.multiply(rows["y"] - theta["a"] - rows["x"] @ theta["b"], xp.exp(-theta["s"]))
        return -0.5 * away**2 - theta["s"]

    def log_prior(theta):
        return -0.02 * (theta["a"] ** 2 + xp.square(theta["b"]).sum() + theta["s"] ** 2)

    return lwa.Model(log_likelihood, log_prior, {"a": 0.0, "b": np.zeros(2), "s": 0.0}, **options)


PYTHON, JAX = regression(np), regression(jnp)


def same_draws(python, twin, data, **options):
    """Both runs; every draw within 10⁻⁴ of its sd, as no decision fell otherwise."""
    options = SIZES | options
    fits = [lwa.sample(python, data, **options), lwa.sample(twin, data, **options, precision="float64")]
    assert fits[0].attributes["host"] > 0
    assert fits[1].attributes["host"] is None
    for name, values in fits[1].posterior.items():
        np.testing.assert_allclose(fits[0].posterior[name], values, atol=1e-4 * values.std(), rtol=0)
    for name in ("accepted", "subset_accepted", "n_rows_read"):
        np.testing.assert_array_equal(fits[0].sample_stats[name], fits[1].sample_stats[name])
    return fits


BLOCKS = [["a", "s"], ["b"]]
LEVERAGE = Calibrated(transport=True, leverage=True)


@pytest.mark.filterwarnings("ignore:Each change of the subset:lwa.LwaWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"target": "powered"},
        {
            "target": "subposterior",
            "subset_move": Swap(3),
            "refresh_steps": 3,
            "kernel": Blockwise([["a", "s"], ["b"]]),
        },
        {"target": "powered", "subset_move": Free(), "refresh_steps": 2},
        {"target": Calibrated(transport=True)},
        {"target": Calibrated(transport=True), "subset_move": Fixed(), "kernel": Independence()},
        pytest.param({"target": Calibrated(transport=False), "kernel": RandomWalk()}, marks=pytest.mark.slow),
        pytest.param({"target": LEVERAGE, "kernel": Autoregressive()}, marks=pytest.mark.slow),
    ],
    ids=lambda options: " ".join(str(value).split("(")[0] for value in options.values()),
)
def test_the_same_draws_as_in_jax(options):
    same_draws(PYTHON, JAX, DATA, **options)


@pytest.mark.slow
def test_the_same_draws_with_as_many_rows_as_are_needed():
    fits = same_draws(PYTHON, JAX, DATA, subset_size="auto", target=Calibrated(tolerance=0.2))
    assert fits[0].attributes["subset_size"] == fits[1].attributes["subset_size"]


@pytest.mark.filterwarnings("ignore:Each change of the subset:lwa.LwaWarning")
@pytest.mark.parametrize("target", [pytest.param("powered", marks=pytest.mark.slow), "calibrated"])
def test_groups(target):
    sizes = []

    def log_likelihood(theta, rows):
        if isinstance(rows["y"], np.ndarray):
            sizes.append(len(rows["y"]))
            assert len(set(rows["unit"])) == 1
        return PYTHON.log_likelihood(theta, rows)

    ragged = {name: np.delete(values, [0, 1, 9], axis=0) for name, values in DATA.items()}  # groups of 2, 3 and 4
    twin = lwa.Model(JAX.log_likelihood, JAX.log_prior, JAX.init, groups="unit")
    python = lwa.Model(log_likelihood, PYTHON.log_prior, PYTHON.init, groups="unit")
    same_draws(python, twin, ragged, target=target, draws=20)
    assert {2, 3, 4} <= set(sizes) <= {2, 3, 4, 32, 33}  # the last two when it was checked


def arma_in_python(theta, y):
    """ARMA(1, 1) with its recursion written as a loop."""
    terms, before, noise = np.empty(len(y)), y[0], 0.0
    for t, value in enumerate(y):
        noise = value - theta["phi"] * before - theta["ma"] * noise
        before, terms[t] = value, -0.5 * noise**2
    return terms


def arma_in_jax(theta, y):
    def step(carry, value):
        before, noise = carry
        noise = value - theta["phi"] * before - theta["ma"] * noise
        return (value, noise), -0.5 * noise**2

    return jax.lax.scan(step, (y[0], jnp.zeros_like(y[0])), y)[1]


@pytest.mark.parametrize("target", [pytest.param("powered", marks=pytest.mark.slow), "calibrated"])
@pytest.mark.filterwarnings("ignore:Each change of the subset:lwa.LwaWarning")
def test_windows_of_a_sequence(target):
    noise, series = RNG.normal(size=801), np.zeros(800)
    for t in range(1, 800):
        series[t] = 0.5 * series[t - 1] + noise[t] + 0.3 * noise[t - 1]

    def log_prior(theta):
        return -0.5 * (theta["phi"] ** 2 + theta["ma"] ** 2)

    python, twin = (
        lwa.Model(function, log_prior, {"phi": 0.1, "ma": 0.1}, ordered=True)
        for function in (arma_in_python, arma_in_jax)
    )
    same_draws(python, twin, series, target=target, subset_size=160, draws=20, tune=32, subset_move=Window())


# Laws


def test_a_conjugate_posterior():
    """Normal mean, normal prior: the calibrated target is the posterior itself, whatever U is."""
    y = RNG.normal(3.0, 2.0, 500)
    model = lwa.Model(lambda mu, y: np.log(np.exp(-0.125 * (y - mu) ** 2)), lambda mu: -0.5 * (mu - 1.0) ** 2, 0.0)
    fit = lwa.sample(model, y, subset_size=50, draws=600, tune=200, chains=4, thinning=1, seed=3, progress=False)
    precision = len(y) / 4.0 + 1.0
    mean, sd = (y.sum() / 4.0 + 1.0) / precision, precision**-0.5
    z = (fit.posterior["theta"] - mean) / sd
    error = effective_draws(z[..., None]).min() ** -0.5
    assert abs(z.mean()) < 4 * error
    assert abs(z.std() - 1.0) < 4 * error  # 1/√(2 m) for a Gaussian, and the square mixes faster than the draws
    assert error < 0.05


def test_scipys_densities_and_constraints():
    """Student's t with unknown scale on all rows, against quadrature over log σ."""
    y = stats.t.rvs(df=4, scale=1.5, size=60, random_state=np.random.default_rng(5))

    def log_likelihood(theta, rows):
        assert theta["sigma"] > 0
        return stats.t.logpdf(rows, df=4, scale=theta["sigma"])

    model = lwa.Model(
        log_likelihood,
        lambda theta: stats.expon.logpdf(theta["sigma"]),
        {"sigma": 1.0},
        constraints={"sigma": "positive"},
    )
    options = {"target": "powered", "subset_move": Fixed(), "subset_size": len(y), "draws": 300, "tune": 200}
    fit = lwa.sample(model, y, **options, thinning=2, chains=2, seed=2, progress=False)
    grid = np.linspace(-1.5, 2.0, 2001)
    log_density = np.array([stats.t.logpdf(y, df=4, scale=np.exp(u)).sum() for u in grid]) - np.exp(grid) + grid
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)
    z = (np.log(fit.posterior["sigma"]) - mean) / sd
    error = effective_draws(z[..., None]).min() ** -0.5
    assert abs(z.mean()) < 4 * error
    assert abs(z.std() - 1.0) < 4 * error
    assert error < 0.1


def test_a_function_of_c():
    lgamma = ctypes.CDLL(ctypes.util.find_library("m")).lgamma
    lgamma.argtypes, lgamma.restype = [ctypes.c_double], ctypes.c_double
    counts = RNG.poisson(4.0, 300)

    def in_c(rate, y):
        return [value * rate - np.exp(rate) - lgamma(value + 1.0) for value in y]

    def in_jax(rate, y):
        return y * rate - jnp.exp(rate) - jax.scipy.special.gammaln(y + 1.0)

    def log_prior(rate):
        return -0.5 * rate**2

    same_draws(*(lwa.Model(function, log_prior, 0.0) for function in (in_c, in_jax)), counts)


@pytest.mark.parametrize("own", ["log_likelihood", "log_prior"])
def test_one_function_in_jax_the_other_in_numpy(own):
    functions = {"log_likelihood": JAX.log_likelihood, "log_prior": JAX.log_prior} | {own: getattr(PYTHON, own)}
    transported = Calibrated(transport=True)
    same_draws(lwa.Model(**functions, init=JAX.init), JAX, DATA, draws=20, target=transported)


@pytest.mark.slow
def test_corrections_by_all_rows_and_certificates():
    options = {"exact": True, "draws": 50, "thinning": 1, "subset_size": 100, "target": Calibrated(transport=True)}
    fits = same_draws(PYTHON, JAX, DATA, **options)
    found = lwa.certify(PYTHON, DATA, dict(fits[0].posterior), points=40, progress=False)
    expected = fits[1].certify(points=40, progress=False)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6)
    np.testing.assert_allclose(found.sd_ratio, expected.sd_ratio, rtol=1e-5)
    polished = [fit.polish(1, draws=10, progress=False).posterior["b"] for fit in fits]
    np.testing.assert_allclose(*polished, atol=1e-4 * polished[1].std())


# How a function is called


def test_a_function_gets_numpys_numbers_of_its_own_on_the_callers_thread():
    """What it is given it may write on: nobody else reads it."""
    threads, seen = set(), set()

    def careless(theta, rows):
        values = PYTHON.log_likelihood(theta, rows)
        threads.add(threading.current_thread())
        leaves = [*theta.values(), *rows.values()]
        assert all(isinstance(leaf, np.ndarray | np.float64) for leaf in leaves)
        seen.update((np.asarray(leaf).dtype.name, np.asarray(leaf).flags.c_contiguous) for leaf in leaves)
        for array in (theta["b"], *rows.values()):
            array[...] = 0
        return values

    kept = {name: values.copy() for name, values in DATA.items()}
    data = {**DATA, "x": DATA["x"].astype(np.float32)}
    options = SIZES | {"draws": 20}
    fits = [
        lwa.sample(lwa.Model(function, PYTHON.log_prior, PYTHON.init), data, **options)
        for function in (careless, PYTHON.log_likelihood)
    ]
    np.testing.assert_array_equal(fits[0].posterior["b"], fits[1].posterior["b"])
    assert threads == {threading.main_thread()}
    assert seen == {("float64", True), ("int64", True)}
    for name, values in kept.items():
        np.testing.assert_array_equal(DATA[name], values)


@SHORT_RUN
def test_nothing_is_traced_again():
    traced = []

    class Counting(RandomWalk):
        def propose(self, noise, tuning, theta):
            traced.append(theta.shape)
            return super().propose(noise, tuning, theta)

    run = partial(lwa.sample, PYTHON, DATA, **SIZES | {"target": "subposterior"})
    run(kernel=Counting())
    before = len(traced)
    run(kernel=Counting(), draws=300)
    assert 0 < before == len(traced)


def test_what_it_costs_is_said_before_it_begins(capsys):
    def slow(theta, rows):
        time.sleep(0.002)
        return PYTHON.log_likelihood(theta, rows)

    model = lwa.Model(slow, PYTHON.log_prior, PYTHON.init)
    options = {"target": "subposterior", "draws": 10, "tune": 40, "thinning": 1, "progress": True}
    fit = lwa.sample(model, DATA, **SIZES | options)
    told = " ".join(capsys.readouterr().err.split())
    said = "log_likelihood and log_prior are not JAX (TracerArrayConversionError at test_any_likelihood.py, line"
    assert said in told
    assert "called from Python, once per chain and step, about 2," in told
    assert told.index("called from Python") < told.index("2 chains: 40 tuning steps")
    assert 2000 < fit.attributes["host"] < 20_000
    assert fit.attributes["precision"] == "float64"


def test_values_that_are_no_density_are_refused_and_counted():
    def log_likelihood(mu, y):
        return np.sqrt(0.3 - mu) - 0.5 * (y - mu) ** 2  # NaN above 0.3, where NumPy would warn

    model = lwa.Model(log_likelihood, lambda mu: 0.0, 0.0)
    with pytest.warns(lwa.LwaWarning, match="NaN or \\+inf and were rejected"):
        fit = lwa.sample(model, Y - Y.mean(), **SIZES | {"target": "subposterior", "draws": 200})
    assert fit.attributes["nonfinite_proposals"] > 0
    assert fit.posterior["theta"].max() <= 0.3


@pytest.mark.parametrize("kernel", [MALA(), HMC(), NUTS()])
def test_kernels_that_need_gradients_are_refused(kernel):
    name = type(kernel).__name__
    with pytest.raises(lwa.InputError, match=f"kernel={name}.*needs gradients.*not JAX.*Pass kernel='auto'"):
        lwa.sample(PYTHON, DATA, **SIZES, kernel=kernel)


def test_single_precision_is_refused():
    with pytest.raises(lwa.InputError, match=r"precision='float32'.*Pass precision='float64'"):
        lwa.sample(PYTHON, DATA, **SIZES, precision="float32")


def test_a_function_that_returns_something_else_is_told_by_what_it_does():
    for function, fragment in [
        (lambda mu, y: np.log(y - mu).sum(), "a single number for 5 rows"),
        (lambda mu, y: np.log(y - mu)[:3], "shape .3,. for 5 rows"),
        (lambda mu, y: np.log(y - mu) > 0, "bool values"),
    ]:
        with pytest.raises(lwa.ModelError, match=fragment):
            lwa.sample(lwa.Model(function, lambda mu: 0.0, 0.0), np.exp(Y), **SIZES)


def test_a_function_that_changes_its_mind():
    calls = []

    def log_likelihood(mu, y):
        calls.append(y)
        return np.log(y - mu)[: 3 if len(calls) > 20 else None]

    with pytest.raises(lwa.ModelError, match=r"returned shape .3,. for"):
        lwa.sample(lwa.Model(log_likelihood, lambda mu: 0.0, 0.0), np.exp(Y) + 1.0, **SIZES | {"target": "powered"})


def test_a_mode_at_a_boundary_is_no_crash():
    model = lwa.Model(lambda s, y: np.where(s > 0, -s - 0.0 * y, -np.inf), lambda s: 0.0, 1e-9)
    with pytest.raises(lwa.ModelError):
        lwa.sample(model, Y, **SIZES)


# What it raises


class Failing:
    """A likelihood that raises one and the same error at its k-th call."""

    def __init__(self, error, at=float("inf"), pause=0.0):
        self.error, self.at, self.pause, self.calls = error, at, pause, 0

    def __call__(self, theta, rows):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        time.sleep(self.pause)
        return PYTHON.log_likelihood(theta, rows)


RUN = {"target": "subposterior", "subset_move": Fixed(), "tune": 40, "draws": 200, "thinning": 1, "chains": 2}
IN_DRAWS = 2 * (RUN["tune"] + 150)


@cache
def calls_before_the_first_move():
    counting = Failing(None)
    lwa.sample(lwa.Model(counting, PYTHON.log_prior, PYTHON.init), DATA, **SIZES | RUN)
    return counting.calls - 2 * (RUN["tune"] + RUN["draws"])


def raised(error, at, pause=0.0, **options):
    """The error that came out; it went through the failing function."""
    failing = Failing(error, at, pause)
    with pytest.raises(type(error)) as caught:
        lwa.sample(lwa.Model(failing, PYTHON.log_prior, PYTHON.init), DATA, **SIZES | RUN | options)
    assert caught.value is error
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "__call__"
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


@SHORT_RUN
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("phase", ["setup", "tune"])
def test_what_it_raises_before_there_are_draws_surfaces_untouched(kind, phase):
    at = 10 if phase == "setup" else calls_before_the_first_move() + 50
    error = raised(kind("my message"), at)
    assert error.args == ("my message",)
    assert not hasattr(error, "lwa_result")
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("target", ["calibrated", "auto"])
def test_what_it_raises_on_a_pass_over_all_rows(target):
    raised(ValueError("my message"), 60, target=target, subset_move=None)


@SHORT_RUN
@pytest.mark.parametrize("kind", [ValueError, pytest.param(KeyboardInterrupt, marks=pytest.mark.slow)])
def test_what_it_raises_once_there_are_draws_comes_with_them(kind):
    error = raised(kind("my message"), calls_before_the_first_move() + IN_DRAWS, pause=0.002)
    kept = error.lwa_result
    assert 20 <= kept.draws <= 150
    assert error.__notes__ == [f"lwa kept {kept.draws} of 200 draws: they are error.lwa_result"]
    assert error.args == ("my message",)
    whole = lwa.sample(PYTHON, DATA, **SIZES | RUN)
    np.testing.assert_array_equal(kept.posterior["b"], whole.posterior["b"][:, : kept.draws])
    assert f"{kind.__name__} after {kept.draws} of 200 draws" in kept.attributes["stopped"]


@SHORT_RUN
def test_ctrl_c_ends_the_run_with_its_draws_and_a_second_one_ends_it_at_once():
    class Interrupted(Failing):
        def __call__(self, theta, rows):
            if self.calls + 1 in self.error:
                signal.raise_signal(signal.SIGINT)
            return super().__call__(theta, rows)

    before = calls_before_the_first_move()

    def run(*presses):
        pressing = Interrupted([before + press for press in presses], pause=0.002)
        return lwa.sample(lwa.Model(pressing, PYTHON.log_prior, PYTHON.init), DATA, **SIZES | RUN)

    with pytest.warns(lwa.LwaWarning, match="Stopped early: interrupted after"):
        assert 20 <= run(IN_DRAWS).draws < 200
    with pytest.raises(KeyboardInterrupt) as caught:
        run(IN_DRAWS, IN_DRAWS + 1)
    assert 20 <= caught.value.lwa_result.draws < 200


def test_what_it_raises_between_corrections_comes_with_them():
    options = {"exact": True, "draws": 30, "thinning": 2, "tune": 10}
    counting = Failing(None)
    lwa.sample(lwa.Model(counting, PYTHON.log_prior, PYTHON.init), DATA, **SIZES | RUN | options)
    error = raised(ValueError("my message"), counting.calls - 30, **options)
    assert 15 <= error.lwa_result.draws < 30


def test_what_it_raises_while_draws_are_certified_or_polished():
    failing = Failing(ValueError("my message"))
    fit = lwa.sample(lwa.Model(failing, PYTHON.log_prior, PYTHON.init), DATA, **SIZES | {"draws": 60})
    for verb in (partial(fit.certify, points=40, progress=False), partial(fit.polish, 3, draws=5, progress=False)):
        failing.at = failing.calls + 100
        with pytest.raises(ValueError, match="my message") as caught:
            verb()
        assert caught.value is failing.error


def test_a_bug_is_told_as_it_is_in_jax():
    def buggy(theta, rows):
        return rows["z"] - theta["a"]

    with pytest.raises(lwa.ModelError, match="log_likelihood raised KeyError when called with theta and 5 rows"):
        lwa.sample(lwa.Model(buggy, PYTHON.log_prior, PYTHON.init), DATA, **SIZES)
