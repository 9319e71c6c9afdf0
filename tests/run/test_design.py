"""How subsets are chosen by default: all rows if they are few, uniform if that is right, by influence if not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln

import lwa
from lwa.data.data import lay_out
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.run.design import NEGLIGIBLE, Design, Designer
from lwa.run.sample import sample
from lwa.run.settings import DEFAULT_SIZE, MOST_ROWS, WHOLE, Settings
from lwa.targets import Calibrated
from lwa.targets.calibration import build_expansion
from lwa.targets.reference import find_reference
from lwa.targets.target import LARGEST_REMAINDER, Target


def settings(**options):
    """The settings of `lwa.sample` with these arguments."""
    defaults = {name: value for name, value in sample.__kwdefaults__.items()}
    return Settings.check(defaults | {"seed": 1} | options, ordered=False)


def logistic(d):
    return lwa.Model(
        lambda t, r: -jax.nn.softplus((1 - 2 * r["y"]) * (r["x"] @ t)), lambda t: -0.005 * jnp.sum(t**2), jnp.zeros(d)
    )


def classified(N, d, df=None, seed=4):
    """Labels by d covariates, the first a constant, the others normal or Student's t."""
    rng = np.random.default_rng(seed)
    shape = (N, d - 1)
    x = np.c_[np.ones(N), rng.normal(size=shape) if df is None else rng.standard_t(df, size=shape)]
    b = rng.normal(size=d) * 2 / np.sqrt(d)
    return {"x": x, "y": (rng.random(N) < 1 / (1 + np.exp(1 - x @ b))).astype(float)}


def designer(model, data, **options):
    with jax.enable_x64(True):
        layout = lay_out(model, data)
        reference = find_reference(layout.model, layout.full, layout.model.ravel(layout.model.init), 1)
        return Designer(layout, settings(**options), reference)


@pytest.fixture(scope="module")
def heavy():
    """Twenty covariates with 2.5 degrees of freedom: a few rows hold most of what is beyond second order."""
    return designer(logistic(20), classified(20_000, 20, df=2.5))


def test_few_rows_are_all_read():
    assert settings().fit_to(WHOLE, ordered=False).subset_size == WHOLE
    assert settings().fit_to(WHOLE + 1, ordered=False).subset_size == DEFAULT_SIZE
    assert settings().fit_to(WHOLE, ordered=True).subset_size == DEFAULT_SIZE
    assert settings().fit_to(300, ordered=True).subset_size == 300
    assert settings(target="powered").fit_to(3000, ordered=False).subset_size == DEFAULT_SIZE
    assert settings(subset_size=50).fit_to(300, ordered=False).subset_size == 50


@pytest.mark.parametrize("d", [3, 14])
def test_uniform_subsets_if_they_are_right(d):
    with jax.enable_x64(True):
        chosen = designer(logistic(d), classified(50_000, d)).choose(1000)
    assert chosen.leverage is None
    assert chosen.second_order == (d > 12)
    assert chosen.predicted <= NEGLIGIBLE


def test_influence_if_uniform_subsets_are_wrong(heavy):
    """Uniform subsets of 1000 rows are off by 16 % of an sd, those drawn by influence by nothing."""
    with jax.enable_x64(True):
        chosen = heavy.choose(1000)
        assert chosen.second_order
        assert len(chosen.leverage.sure) > 10
        assert chosen.predicted < 0.002
        assert heavy._pool.predict_error(1000, None) > 0.05
        assert heavy.enlarge(chosen) is chosen


def test_subsets_grow_until_the_error_is_tolerable():
    """Without leverage, as the user asks here; explicit sizes are left alone, and reported."""
    asked = designer(logistic(20), classified(20_000, 20, df=2.5), target=Calibrated(leverage=False))
    with jax.enable_x64(True):
        small = asked.choose(1000)
        assert small.leverage is None
        enough = asked.enlarge(small)
    assert small.predicted > 0.05
    assert enough.n > 2000
    assert enough == Design(20_000) or enough.predicted <= asked.settings.calibration.tolerance
    assert asked.enlarge(Design(20_000)).n == 20_000
    assert MOST_ROWS >= 20_000


def test_all_rows_rather_than_most_of_them():
    asked = designer(logistic(60), classified(6000, 60), target=Calibrated(leverage=False, tolerance=1e-4))
    with jax.enable_x64(True):
        assert asked.enlarge(asked.choose(1000)) == Design(6000)


def test_an_explicit_size_that_is_too_small_is_reported_with_one_that_does():
    model, data = logistic(20), classified(20_000, 20, df=2.5)
    options = {"draws": 20, "tune": 20, "seed": 1, "progress": False, "target": Calibrated(leverage=False)}
    with pytest.warns(lwa.LwaWarning, match="subset_size=1000 draws are predicted to be off by") as heard:
        lwa.sample(model, data, subset_size=1000, **options)
    advised = next(one.message.advice for one in heard if "predicted" in str(one.message))
    assert set(advised) == {"subset_size"}
    with jax.enable_x64(True):
        again = designer(model, data, target=Calibrated(leverage=False)).choose(advised["subset_size"])
    assert again == Design(20_000) or again.predicted < 0.02


def test_the_second_order_target_falls_outwards_whatever_the_subset():
    """Along 200 rays to the edge, given 20 subsets of 60 rows: at least a tenth of the Gaussian's exponent is left."""
    with jax.enable_x64(True):
        layout = lay_out(logistic(20), classified(20_000, 20, df=2.5))
        reference = find_reference(layout.model, layout.full, np.zeros(20), 1)
        target = Target(layout.model, 20_000 / 60, build_expansion(reference, second_order=True))
        evaluate = jax.jit(jax.vmap(target.evaluate, (0, None)))
        rng, escaped, most = np.random.default_rng(0), 0, 0.5 * LARGEST_REMAINDER * 25.0**2
        for _ in range(20):
            U = rng.choice(20_000, 60, replace=False)
            rows = jax.tree.map(lambda leaf: jnp.moveaxis(jnp.asarray(leaf), 0, -1), layout.full.take(U))
            z = rng.normal(size=(10, 20))
            z *= 25.0 / np.linalg.norm(z, axis=1, keepdims=True)
            found = evaluate(reference.theta + z @ reference.factor.T, rows)
            escaped += int((target.power * np.asarray(found.rows).sum(-1) > most).sum())
            centre = float(evaluate(reference.theta[None], rows).total[0])
            assert (np.asarray(found.total) - centre < -0.09 * 25.0**2 / 2).all()
    assert escaped > 0  # it would have run away


def test_float64_where_the_tail_needs_it():
    """Negative binomial, the data Poisson: log alpha has a long tail, where float32 loses differences of lgamma."""
    rng = np.random.default_rng(0)
    x = np.c_[np.ones(3000), rng.normal(size=3000)]
    y = rng.poisson(np.exp(x @ [0.5, 0.3])).astype(float)

    def log_likelihood(t, r):
        mean, k = jnp.exp(r["x"] @ t["b"]), 1 / t["alpha"]
        return gammaln(r["y"] + k) - gammaln(k) - (r["y"] + k) * jnp.log1p(mean / k) + r["y"] * jnp.log(mean / k)

    model = lwa.Model(
        log_likelihood, lambda t: -0.005 * jnp.sum(t["b"] ** 2) - t["alpha"], {"b": jnp.zeros(2), "alpha": 0.5},
        constraints={"alpha": "positive"},
    )  # fmt: skip
    options = {"draws": 10, "tune": 10, "seed": 1, "progress": False}
    assert lwa.sample(model, {"x": x, "y": y}, **options).attributes["precision"] == "float64"
    plain = lwa.sample(logistic(3), classified(3000, 3), **options)
    assert plain.attributes["precision"] == "float32"
    assert plain.attributes["subset_size"] == 3000


@pytest.mark.slow
def test_wall_rows_cut_the_tail_off():
    """Poisson with two rows of no counts far out: the 97.5 % limit of b, against quadrature over all rows."""
    rng, N = np.random.default_rng(5), 20_000
    x, e = rng.normal(size=N), np.full(N, 400 / N)
    x[:2], e[:2] = 35.0, 0.3
    y = rng.poisson(e * np.exp(-0.1 * x)).astype(float)
    y[:2] = 0
    model = lwa.Model(
        lambda t, r: r["y"] * (t[0] + t[1] * r["x"]) - r["e"] * jnp.exp(t[0] + t[1] * r["x"]),
        lambda t: -0.005 * jnp.sum(t**2), jnp.zeros(2),
    )  # fmt: skip
    fit = lwa.sample(model, {"x": x, "y": y, "e": e}, seed=1, progress=False)
    draws = fit.posterior["theta"]
    a, b = np.linspace(-0.3, 0.3, 61), np.linspace(-0.4, 0.1, 201)
    total = (y[:, None] * x[:, None] * b).sum(0) - 0.005 * b**2
    rate = (e[:, None] * np.exp(x[:, None] * b)).sum(0)
    log = y.sum() * a[:, None] + total - np.exp(a)[:, None] * rate - 0.005 * a[:, None] ** 2
    density = np.exp(log - log.max()).sum(0)
    share = np.cumsum(density) / density.sum()
    for p in (0.025, 0.5, 0.975):
        limit = np.interp(p, share, b)
        below = draws[..., 1] < limit
        error = np.sqrt(p * (1 - p) / effective_draws(below[..., None].astype(float)).min())
        assert abs(below.mean() - p) < 4 * error + 0.002  # the grid's own error


def test_large_groups_are_fewer_in_a_subset():
    """Rows decide what a step costs: all groups if they have few rows, at least 100 of those that have many."""
    assert settings().fit_to(400, ordered=False, rows=WHOLE).subset_size == 400
    assert settings().fit_to(3000, ordered=False, rows=30_000).subset_size == DEFAULT_SIZE
    assert settings().fit_to(3000, ordered=False, rows=600_000).subset_size == 500
    assert settings().fit_to(3000, ordered=False, rows=3_000_000).subset_size == 100
    assert settings().fit_to(20, ordered=False, rows=3_000_000).subset_size == 20
