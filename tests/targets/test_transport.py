"""Transport: every subset is given the gradient and the curvature of all rows at θ̂."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.algorithm import spread
from lwa.data.data import lay_out
from lwa.rivals.problems import simulate_logistic
from lwa.rows import as_rows
from lwa.rows.slots import to_columns
from lwa.subsets import Fixed, Gaussian, Swap
from lwa.subsets.chain import SubsetChain
from lwa.subsets.leverage import find_leverage
from lwa.summaries.summary import NO_STATISTIC
from lwa.targets import Calibrated
from lwa.targets.calibration import (
    build_expansion,
    calibrate,
    invert_factors,
    invert_factors_in_batch,
    is_leverage_needed,
)
from lwa.targets.reference import find_reference
from lwa.targets.target import Target

ROWS, SIZE = 600, 60


def log_likelihood(theta, rows):
    predictor = theta["a"][rows["level"]] + theta["b"] * rows["x"]
    return rows["y"] * predictor - jax.nn.softplus(predictor)


def log_prior(theta):
    return -0.5 * jnp.sum(theta["a"] ** 2) - 0.5 * theta["b"] ** 2


LEVELS = lwa.Model(log_likelihood, log_prior, {"a": jnp.zeros(4), "b": 0.0})
"""One object, so that tests share its compiled programs."""


def levels(absent):
    """A factor of four levels beside a covariate; the last level has no row where it is `absent`."""
    rng = np.random.default_rng(1)
    level = rng.integers(3 if absent else 4, size=ROWS).astype(np.int32)
    x = rng.normal(size=ROWS)
    y = (rng.random(ROWS) < 0.4).astype(float)
    return LEVELS, {"level": level, "x": x, "y": y}


@jax.jit
def derivatives_given(target, at, columns, given, counts):
    """Gradient and Hessian of the log target given each subset."""

    def value(theta, *own):
        return target.evaluate(theta, *own).total

    return [jax.vmap(f(value), (None, 0, 0, 0))(at, columns, given, counts) for f in (jax.grad, jax.hessian)]


@jax.jit
def derivatives_of_all(at, everything):
    """Gradient and Hessian of the log posterior of all rows."""

    def full(theta):
        return LEVELS.log_prior_at(theta) + LEVELS.log_likelihood(LEVELS.unravel(theta), everything).sum()

    return jax.grad(full)(at), jax.hessian(full)(at)


def transported(model, data, size, leverage, move=None, second_order=False):
    """The target, its U chain and the reference; U uniform or drawn by leverage; rows expanded or U transported."""
    rows = as_rows(data)
    reference = find_reference(model, rows, np.zeros(model.dimension), 1)
    q = find_leverage(model, rows, reference).cut(size) if leverage else None
    move = move or Swap(1)
    held = None if second_order else calibrate(model, reference, len(rows) / size, transport=True)
    chain = SubsetChain(rows, NO_STATISTIC, move, Gaussian(), 1.0, size, 1, 64, held, q)
    return Target(model, len(rows) / size, build_expansion(reference, second_order=second_order)), chain, reference


@pytest.mark.parametrize("absent", [False, True], ids=["full rank", "a level without rows"])
@pytest.mark.parametrize("leverage", [False, True], ids=["uniform", "leverage"])
@pytest.mark.parametrize(
    ("move", "second_order"), [(Swap(1), False), (Fixed(), False), (Swap(1), True)], ids=["Swap", "Fixed", "expanded"]
)
def test_every_subset_has_the_gradient_and_curvature_of_all_rows(absent, leverage, move, second_order):
    """Derivatives of the log target given U at θ̂, by JAX, are those of the log posterior, for each of 20 subsets."""
    model, data = levels(absent)
    with jax.enable_x64(True):
        target, chain, reference = transported(model, data, SIZE, leverage, move, second_order)
        U = chain.start(range(20))
        if move.replaced(SIZE):
            U, _ = chain.advance(U, range(20), 0)
        given, counts = chain.given(U), chain.counts(U)
        columns = to_columns(chain.take(U), np.float64, axis=1)
        at = jnp.asarray(reference.theta)
        assert second_order or bool(given.feasible.all())
        slope, bend = derivatives_given(target, at, columns, given, counts)
        full_slope, full_bend = derivatives_of_all(at, jax.tree.map(jnp.asarray, data))
        np.testing.assert_allclose(slope, np.broadcast_to(full_slope, slope.shape), atol=1e-7)
        np.testing.assert_allclose(bend, np.broadcast_to(full_bend, bend.shape), atol=1e-7 * ROWS)


def test_many_matrices_are_inverted_one_by_one_as_in_a_batch():
    """With some among them that are not positive definite."""
    with jax.enable_x64(True):
        x = np.random.default_rng(2).normal(size=(6, 30, 6))
        bend = jnp.asarray(np.einsum("mij,mik->mjk", x, x)).at[2].add(-50 * jnp.eye(6))
        bend = bend.at[5, 4, 4].set(-1.0)
        alone, feasible = invert_factors(bend)
        assert feasible.tolist() == [True, True, False, True, True, False]
        together, also = jax.jit(invert_factors_in_batch)(bend)
        np.testing.assert_allclose(together, alone, atol=1e-12)
        assert also.tolist() == feasible.tolist()


def test_a_subset_that_is_not_definite_scores_nothing():
    """θ holds still, without a NaN, and moves on once U is feasible again."""
    model, data = levels(absent=False)
    with jax.enable_x64(True):
        target, chain, reference = transported(model, data, SIZE, leverage=False)
        U = chain.assess(np.flatnonzero(data["level"] != 3)[None, :SIZE])
        given = chain.given(U)
        columns = to_columns(chain.take(U), np.float64, axis=1)
        own = jax.tree.map(lambda leaf: leaf[0], (columns, given))
        terms = target.evaluate(jnp.asarray(reference.theta), *own)
        assert not bool(given.feasible[0])
        assert terms.log_density == -jnp.inf
        assert not bool(terms.invalid)


def test_the_target_ends_far_out():
    """Student-t rows have logarithmic tails, which the linear term outweighs: past 30 sds there is nothing."""
    y = np.random.default_rng(3).standard_t(2, size=400)
    model = lwa.Model(lambda mu, y: -1.5 * jnp.log1p((y - mu) ** 2 / 2), lambda mu: 0.0 * mu, init=0.0)
    with jax.enable_x64(True):
        target, chain, reference = transported(model, y, 40, leverage=False)
        U, _ = chain.advance(chain.start([0]), [0], 0)
        own = jax.tree.map(lambda leaf: leaf[0], (to_columns(chain.take(U), np.float64, axis=1), chain.given(U)))
        sd = float(reference.factor[0, 0])
        inside, outside = (target.evaluate(jnp.asarray(reference.theta + s * sd), *own).total for s in (29.0, 32.0))
        assert np.isfinite(inside)
        assert outside == -np.inf
    fit = lwa.sample(model, y, subset_size=40, draws=200, tune=200, seed=1, progress=False)
    assert abs(fit.posterior["theta"].mean() - reference.theta[0]) < sd
    assert fit.attributes["warnings"] == []


def test_U_is_left_alone_between_proposals():
    """Swap(1, every=3): one θ move after a refused proposal and L = 2 after a refresh, then one for each pause."""
    source, first, ends = spread(np.array([True, False]), 2, every=3)
    assert source.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert first.tolist() == [True, False, False, False, False, False, False]
    assert ends.tolist() == [False, True, True, True, True, True, True]
    model, data, *_ = simulate_logistic(2000, seed=1, parameters=3)
    fit = lwa.sample(model, data, subset_size=100, draws=200, tune=64, thinning=4, seed=1, progress=False)
    assert fit.attributes["subset_renewal_moves"] == 400
    assert abs(fit.sample_stats["subset_accepted"].mean() - 0.25) < 0.02  # but for rows that are in U already
    with pytest.raises(lwa.InputError, match=r"every=0\) must be a whole number"):
        Swap(1, every=0)


@pytest.mark.parametrize(("share", "helps"), [(0.5, False), (0.02, True)])
def test_leverage_is_used_where_uniform_subsets_miss_a_direction(share, helps):
    """A dummy in half of the rows needs none; one that an average subset of 50 has once does."""
    model, data, *_ = simulate_logistic(5000, seed=4, parameters=3)
    data["x"][:, 2] = np.arange(5000) % 5000 < share * 5000
    with jax.enable_x64(True):
        layout = lay_out(model, data)
        reference = find_reference(model, layout.full, np.zeros(3), 1)
        assert is_leverage_needed(model, layout.full, 50, reference, 1) == helps
    for asked, used in (("auto", helps), (True, True), (False, False)):
        options = {"subset_size": 50, "draws": 5, "tune": 5, "seed": 1, "progress": False}
        fit = lwa.sample(model, data, target=Calibrated(transport=True, leverage=asked), **options)
        assert fit.attributes["leverage"] == used


@pytest.mark.slow
def test_too_few_rows_are_refused_with_a_number_that_does():
    model, data, *_ = simulate_logistic(20_000, seed=1, parameters=10)
    with pytest.raises(lwa.InputError, match=r"subset_size=9 is too small .* Pass subset_size=\d+") as refused:
        lwa.sample(model, data, subset_size=9, target=Calibrated(transport=True), seed=1, progress=False)
    enough = refused.value.advice
    fit = lwa.sample(
        model, data, draws=20, tune=20, target=Calibrated(transport=True), seed=1, progress=False, **enough
    )
    assert np.isfinite(fit.posterior["beta"]).all()


@pytest.mark.slow
def test_the_smallest_subset_that_will_do():
    model, data, *_ = simulate_logistic(20_000, seed=2, parameters=4)
    fit = lwa.sample(model, data, subset_size="auto", draws=20, tune=20, seed=1, progress=False)
    assert fit.attributes["subset_size"] == 100
    assert 0 <= fit.attributes["predicted_sd_error"] <= 0.02
    wider, closer = (
        lwa.sample(
            model,
            data,
            subset_size="auto",
            target=Calibrated(transport=False, tolerance=t),
            draws=20,
            tune=20,
            seed=1,
            summary=lwa.summaries.Curvature(),
            progress=False,
        ).attributes
        for t in (0.02, 0.0005)
    )
    assert wider["subset_size"] < closer["subset_size"]
    assert closer["predicted_sd_error"] <= 0.0005
    with pytest.raises(lwa.InputError, match="subset_size='auto' needs a target"):
        lwa.sample(model, data, subset_size="auto", target="powered", progress=False)
    with pytest.raises(lwa.InputError, match="tolerance=2 must lie between 0 and 1"):
        Calibrated(tolerance=2)


@pytest.mark.slow
def test_a_budget_bounds_the_subset():
    model, data, *_ = simulate_logistic(20_000, seed=2, parameters=4)
    options = {"summary": lwa.summaries.Curvature(), "draws": 20, "tune": 20}
    fit = lwa.sample(
        model, data, subset_size="auto", target=Calibrated(transport=False, tolerance=1e-4),
        budget=lwa.RowReads(2 * 4 * 60 * 150), seed=1, progress=False, **options,
    )  # fmt: skip
    assert fit.attributes["subset_size"] == 150


def test_a_thousand_parameters_are_told_what_to_do_before_any_pass():
    model, data, *_ = simulate_logistic(2000, seed=1, parameters=1000)
    with pytest.raises(lwa.InputError, match=r"GiB of curvature along\. Pass subset_move=lwa\.subsets\.Fixed\(\)"):
        lwa.sample(model, data, subset_size=1000, target=Calibrated(transport=True), progress=False)


@pytest.mark.slow
def test_a_hundred_parameters_with_default_arguments():
    """Logistic, d = 100: the certificate, which is no part of how they were drawn, finds nothing wrong."""
    model, data, *_ = simulate_logistic(200_000, seed=1, parameters=100)
    fit = lwa.sample(model, data, seed=1, progress=False)
    assert fit.certify(progress=False).outcome == "pass"
