"""Groups of 1 to 3,000 rows: a random intercept, integrated out, against quadrature."""

import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.rows.strata import FILLED
from lwa.subsets import Fixed, Free, Swap

SLOW = pytest.mark.slow
RNG = np.random.default_rng(5)
SIZES = np.minimum(1 + RNG.geometric(0.3, 2000), 60)
SIZES[[0, 700]] = 3000, 400
WHO = np.repeat(np.arange(len(SIZES)), SIZES)
Y = 0.3 + 0.5 * RNG.normal(size=len(SIZES))[WHO] + RNG.normal(size=len(WHO))
DATA = {"who": WHO, "y": Y}
MIXED = RNG.permutation(len(WHO))
OPTIONS = {"draws": 1000, "tune": 500, "chains": 8, "seed": 1, "progress": False}
SHORT = {"draws": 40, "tune": 64, "chains": 4, "seed": 2, "progress": False, "subset_size": 100}


def log_likelihood(theta, rows, xp=jnp):
    """y_j = mu + u + noise with u ~ N(0, tau²) integrated out: each row given those before it in its group."""
    away = rows["y"] - theta["mu"]
    before, sums = xp.arange(len(away)), xp.cumsum(away) - away
    variance = theta["tau"] ** 2 / (1 + before * theta["tau"] ** 2)
    return -0.5 * (away - variance * sums) ** 2 / (1 + variance) - 0.5 * xp.log(1 + variance)


def log_prior(theta):
    return -0.5 * (theta["mu"] / 10) ** 2 - 0.5 * theta["tau"] ** 2


INIT, POSITIVE = {"mu": 0.0, "tau": 0.3}, {"tau": "positive"}
MODEL = lwa.Model(log_likelihood, log_prior, INIT, constraints=POSITIVE, groups="who")


def in_python(theta, rows):
    return log_likelihood({name: float(value) for name, value in theta.items()}, rows, np)


PYTHON = lwa.Model(in_python, lambda theta: float(log_prior(theta)), INIT, constraints=POSITIVE, groups="who")


def quadrature():
    """Means and sds of (mu, log tau) under the posterior, on a grid of 81 × 81 points."""
    sums, squares = np.bincount(WHO, Y), (Y**2).sum()

    def value(mu, log_tau):
        tau2 = np.exp(2 * log_tau)
        away = sums - SIZES * mu
        rest = squares - 2 * mu * sums.sum() + len(Y) * mu**2
        spread = (tau2 * away**2 / (1 + SIZES * tau2) - np.log1p(SIZES * tau2)).sum()
        return 0.5 * (spread - rest) - 0.5 * (mu / 10) ** 2 - 0.5 * tau2 + log_tau

    grid = [np.linspace(0.18, 0.42, 81), np.linspace(np.log(0.5) - 0.24, np.log(0.5) + 0.24, 81)]
    points = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, 2)
    values = np.array([value(*point) for point in points])
    weight = np.exp(values - values.max())
    weight /= weight.sum()
    edge = (points == points.min(0)) | (points == points.max(0))
    assert weight[edge.any(1)].sum() < 1e-9
    return weight @ points, np.sqrt(weight @ (points - weight @ points) ** 2)


def check(fit, shift=0.05, ratio=0.04):
    """Means within `shift` sds and sds within `ratio`, beyond 4.5 standard errors."""
    mean, sd = quadrature()
    draws = np.stack([fit.posterior["mu"], np.log(fit.posterior["tau"])], axis=-1)
    effective = effective_draws(draws).min()
    assert effective > 500
    assert np.abs((draws.mean((0, 1)) - mean) / sd).max() < shift + 4.5 / effective**0.5
    assert np.abs(draws.std((0, 1)) / sd - 1).max() < ratio + 4.5 / (2 * effective) ** 0.5


@pytest.mark.parametrize("order", ["together", pytest.param("apart", marks=SLOW)])
def test_the_posterior_of_all_rows(order):
    data = DATA if order == "together" else {name: values[MIXED] for name, values in DATA.items()}
    fit = lwa.sample(MODEL, data, subset_size=200, **OPTIONS)
    check(fit)
    assert fit.certify(progress=False).passed
    assert fit.attributes["subset_size"] == 200


def test_rows_read_per_step_are_those_of_the_subset():
    """200 of 2,000 groups: the giants are always there, the others are few; filler at most doubles them."""
    fit = lwa.sample(MODEL, DATA, **(SHORT | {"subset_size": 200}))
    problem = fit.origin.polish.problem
    strata, longest = problem.subsets.strata, [layer.length for layer in problem.full.layers]
    assert fit.attributes["rows_read"] == fit.attributes["moves"] * 4 * problem.reads
    assert problem.reads < len(Y) / 2
    assert strata.slots @ longest <= problem.reads / FILLED + 1


@pytest.mark.slow
def test_few_giants_among_many_small_groups():
    """What a page and a subset hold does not grow with the longest group times the number of slots."""
    sizes = np.r_[np.full(10_000, 5), np.full(3, 10_000)]
    who = np.repeat(np.arange(len(sizes)), sizes)
    data = {"who": who, "y": 0.5 * RNG.normal(size=len(sizes))[who] + RNG.normal(size=len(who))}
    full = lay_out(MODEL, data).full
    assert [(layer.length, len(layer)) for layer in full.layers] == [(5, 10_000), (10_000, 3)]
    fit = lwa.sample(MODEL, data, **SHORT)
    cells = fit.origin.polish.problem.subsets.strata.slots @ [5, 10_000]
    assert cells <= 3 * 10_000 + 100 * 5


@pytest.mark.slow
def test_exact_and_polish():
    exact = lwa.sample(MODEL, DATA, subset_size=100, exact=True, **(OPTIONS | {"draws": 150}))
    check(exact, 0.0, 0.0)
    check(lwa.sample(MODEL, DATA, subset_size=100, **OPTIONS).polish(2, progress=False), 0.0, 0.0)


def test_all_groups_are_the_posterior_itself():
    fit = lwa.sample(MODEL, DATA, subset_size=len(SIZES), **OPTIONS)
    check(fit, 0.0, 0.0)


@pytest.mark.filterwarnings("ignore::lwa.LwaWarning")
@pytest.mark.parametrize("move", [Swap(3), Free(), Fixed()])
@pytest.mark.parametrize(
    "target", ["calibrated", *(pytest.param(one, marks=SLOW) for one in ("powered", "subposterior"))]
)
def test_every_move_and_target(move, target):
    summary = lwa.summaries.PerRow(lambda rows: rows["y"]) if target == "powered" and move != Fixed() else None
    options = SHORT | ({"summary": summary} if summary else {})
    fit = lwa.sample(MODEL, DATA, target=target, subset_move=move, **options)
    assert np.isfinite(fit.posterior["mu"]).all()


@pytest.mark.slow
def test_a_model_in_python_gives_the_same_draws():
    python, twin = (
        lwa.sample(model, DATA, **(SHORT | {"draws": 10, "tune": 20, "chains": 2, "precision": "float64"}))
        for model in (PYTHON, MODEL)
    )
    for name in INIT:
        np.testing.assert_allclose(python.posterior[name], twin.posterior[name], rtol=1e-5)


@pytest.mark.parametrize("exact", [False, pytest.param(True, marks=SLOW)])
def test_resumed_runs_have_the_same_bits(exact, tmp_path):
    options = SHORT | ({"exact": True, "thinning": 4, "draws": 8} if exact else {})
    whole = lwa.sample(MODEL, DATA, **(options | {"draws": 2 * options["draws"]}))
    lwa.sample(MODEL, DATA, **options, checkpoint=tmp_path / "run")
    resumed = lwa.resume(tmp_path / "run", MODEL, DATA, draws=2 * options["draws"], progress=False)
    for name in INIT:
        np.testing.assert_array_equal(resumed.posterior[name], whole.posterior[name])


@pytest.mark.slow
def test_other_processes_compute_the_same_bits():
    here = lwa.sample(MODEL, DATA, **SHORT)
    with lwa.executors.Processes(2) as executor:
        there = lwa.sample(MODEL, DATA, **SHORT, executor=executor)
    for name in INIT:
        np.testing.assert_array_equal(there.posterior[name], here.posterior[name])


@pytest.mark.slow
def test_rivals_hold_all_groups():
    some = (WHO < 200) & (np.arange(len(WHO)) > 2900)
    few = {name: values[some] for name, values in DATA.items()}
    assert lay_out(MODEL, few).stratified
    fit = lwa.rivals.sample("metropolis", MODEL, few, draws=20, tune=20, chains=2, seed=1, progress=False)
    assert np.isfinite(fit.posterior["tau"]).all()


def test_too_few_groups_for_the_strata():
    with pytest.raises(lwa.InputError, match=r"groups of 2 to 3,000 rows, which are drawn from \d strata of size"):
        lwa.sample(MODEL, DATA, subset_size=2, progress=False)
