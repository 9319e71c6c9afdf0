"""Some rows stand for all: the same certificate at a cost that does not grow with N, and a guard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.diagnostics import some_rows
from lwa.diagnostics.gradients import score_places
from lwa.diagnostics.some_rows import Known, draw_batches, estimate_scores, is_worthwhile
from lwa.models.likelihood import Places
from lwa.subsets.influence import find_influence
from lwa.targets.reference import find_reference
from lwa.user.progress import Display

N, D = 100_000, 4
QUIET = {"progress": False}
rng = np.random.default_rng(1)
X = np.c_[np.ones(N), rng.normal(size=(N, D - 1))]
DATA = {"x": X, "y": (rng.random(N) < 1 / (1 + np.exp(-X @ [-2.0, 0.5, -0.3, 0.1]))).astype(float)}


def log_likelihood(theta, rows):
    return -jax.nn.softplus((1 - 2 * rows["y"]) * (rows["x"] @ theta["beta"]))


MODEL = lwa.Model(log_likelihood, lambda theta: -0.5 * jnp.sum((theta["beta"] / 5) ** 2), {"beta": jnp.zeros(D)})


@pytest.fixture(scope="module")
def reference():
    with jax.enable_x64(True):
        return find_reference(MODEL, lay_out(MODEL, DATA).full, np.zeros(D), 1)


def places_around(reference, count=120, spread=1.0):
    z = np.random.default_rng(2).normal(size=(2, count, D))
    points, ends = reference.theta + spread * z @ reference.factor.T
    return Places(points, points[:0], ends)


@pytest.mark.parametrize("by_influence", [False, True])
def test_estimates_are_those_of_all_rows_within_their_errors(reference, by_influence):
    layout, places = lay_out(MODEL, DATA), places_around(reference)
    with jax.enable_x64(True), Display(False) as display:
        drawing = find_influence(MODEL, layout.full, reference, 1) if by_influence else None
        found = estimate_scores(layout, Known(reference, drawing), places, reference.factor, display)
        right = score_places(layout, places, reference.factor, display, precision=np.float64)
    error = found.noise.std(0, ddof=1) / np.sqrt(len(found.noise))
    apart = np.abs(found.scores.gradient - right.gradient)
    assert np.all(apart <= 6 * error + 1e-9 * np.abs(right.gradient))  # errors of 16 batches are themselves uncertain
    assert np.abs(apart @ reference.factor).max() < 0.02
    for name in ("log_density", "proposed"):
        off = getattr(found.scores, name) - getattr(right, name)
        assert np.abs(off - off.mean()).max() < 0.1
    assert found.read < N / 10


def test_batches_are_unbiased(reference):
    layout = lay_out(MODEL, DATA)
    with jax.enable_x64(True):
        drawing = find_influence(MODEL, layout.full, reference, 1)
    for known in (Known(reference), Known(reference, drawing)):
        totals = [counts.sum() for _, counts in draw_batches(known, layout.full, 400)]
        assert np.mean(totals) == pytest.approx(N, abs=4 * np.std(totals) / 20 + 1e-6)


def exact(reference, seed, size=(4, 1000)):
    """Draws of the posterior, which is a Gaussian to 0.01 here."""
    return reference.theta + np.random.default_rng(seed).normal(size=(*size, D)) @ reference.factor.T


def test_certificates_agree_with_those_of_all_rows(reference, monkeypatch):
    draws = {"beta": exact(reference, 3)}
    few = lwa.certify(MODEL, DATA, draws, **QUIET)
    monkeypatch.setattr("lwa.diagnostics.certify.is_worthwhile", lambda layout: False)
    all_rows = lwa.certify(MODEL, DATA, draws, **QUIET)
    assert 0 < few.read < N / 10
    assert all_rows.read == 0
    assert "some" in few.source
    assert few.outcome == all_rows.outcome == "pass"
    np.testing.assert_allclose(few.shift, all_rows.shift, atol=0.005)
    np.testing.assert_allclose(few.log_ratio, all_rows.log_ratio, atol=0.005)
    np.testing.assert_allclose(few.shift_error, all_rows.shift_error, rtol=0.05)


@pytest.mark.parametrize("shift", [0.2, -1.0])
def test_wrong_draws_are_condemned(reference, shift):
    sd = np.sqrt(np.diag(reference.factor @ reference.factor.T))
    found = lwa.certify(MODEL, DATA, {"beta": exact(reference, 4) + shift * sd}, **QUIET)
    assert found.outcome == "fail"
    assert found.read > 0


def test_a_fit_passes_on_what_it_knows():
    fit = lwa.sample(MODEL, DATA, draws=1000, seed=1, **QUIET)
    assert fit.origin.known.reference.theta.shape == (D,)
    found = fit.certify(**QUIET)
    assert found.passed
    assert found.read > 0


def test_an_influential_row_that_was_missed_is_noticed(reference):
    """One count of zero where the model soon expects thousands: a wall, in none of the rows that were drawn."""
    n = 60_000
    x = np.random.default_rng(5).normal(size=(n, 1))
    x[123] = 40.0
    y = np.random.default_rng(6).poisson(np.exp(0.1 * np.clip(x[:, 0], -5, 5) - 3)).astype(float)
    y[123] = 0.0

    def poisson(theta, rows):
        eta = rows["x"][:, 0] * theta - 3.0
        return rows["y"] * eta - jnp.exp(eta)

    model = lwa.Model(poisson, lambda theta: -0.5 * theta**2, 0.0)
    layout = lay_out(model, {"x": x, "y": y})
    with jax.enable_x64(True), Display(False) as display:
        found = find_reference(model, layout.full, np.zeros(1), 1)
        points = found.theta + np.random.default_rng(7).normal(size=(300, 1)) @ found.factor.T
        places = Places(points, points[:0], points[:100])
        drawn = np.concatenate([rows for rows, _ in draw_batches(Known(found), layout.full, some_rows.BATCHES)])
        assert 123 not in drawn
        assert estimate_scores(layout, Known(found), places, found.factor, display) is None
        seen = Known(found, find_influence(model, layout.full, found, 1))
        assert estimate_scores(layout, seen, places, found.factor, display) is not None


def test_rows_that_cannot_stand_for_all():
    assert is_worthwhile(lay_out(MODEL, DATA))
    assert not is_worthwhile(lay_out(MODEL, {name: column[:5000] for name, column in DATA.items()}))
    assert not is_worthwhile(lay_out(lwa.arma(1, 0), np.random.default_rng(1).normal(size=50_000)))
    in_python = lwa.Model(lambda mu, y: -0.5 * (np.asarray(y) - float(mu)) ** 2, lambda mu: 0.0, init=0.0)
    assert not is_worthwhile(lay_out(in_python, X[:, 1]))


def test_a_model_without_curvature_is_scored_on_all_rows():
    """Absolute values: the expansion at one point says nothing of another, and the guard notices."""
    y = np.random.default_rng(1).laplace(size=50_000)
    model = lwa.Model(lambda mu, y: -jnp.abs(y - mu), lambda mu: -0.5 * mu**2, init=0.0)
    draws = np.median(y) + np.random.default_rng(2).normal(size=(4, 1000)) / np.sqrt(len(y))
    found = lwa.certify(model, y, {"theta": draws}, **QUIET)
    assert found.read == 0
    assert found.outcome in ("pass", "warn")
