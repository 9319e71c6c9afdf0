"""Draws beyond the region in which subsets stand for all rows are an escape, if subsets could have led them there."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.run.escape import find_escape
from lwa.subsets.influence import find_influence
from lwa.targets.reference import find_reference

N = 20_000


@pytest.fixture(scope="module")
def located():
    """A Poisson regression with rows far out, its reference, and how rows are drawn by influence."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=N)
    x[:20] = 12.0
    data = {"x": x, "y": rng.poisson(0.05 * np.exp(-0.1 * x)).astype(float)}
    model = lwa.Model(
        lambda t, r: r["y"] * (t[0] + t[1] * r["x"]) - jnp.exp(t[0] + t[1] * r["x"]),
        lambda t: -0.005 * jnp.sum(t**2),
        jnp.zeros(2),
    )
    with jax.enable_x64(True):
        layout = lay_out(model, data)
        reference = find_reference(layout.model, layout.full, np.zeros(2), 1)
        yield layout, reference, find_influence(layout.model, layout.full, reference, 1)


def pretend(located, n, leverage=None):
    """As much of a run as the check looks at."""
    layout, reference, influence = located
    subsets = SimpleNamespace(n=n, size=n, rows=layout.full, leverage=influence.cut(n) if leverage else None)
    problem = SimpleNamespace(subsets=subsets, reference=reference)
    return SimpleNamespace(problem=problem, data=layout, settings=SimpleNamespace(seed=1))


def draw(reference, sds, size=2000):
    z = np.random.default_rng(0).normal(size=(size, 2))
    return reference.theta + sds * z @ reference.factor.T


def test_draws_of_the_gaussian_are_none(located):
    assert find_escape(pretend(located, 100), draw(located[1], 1.0)) is None


@pytest.mark.parametrize(("n", "leverage", "escapes"), [(100, False, True), (N // 2, True, False), (N, False, False)])
def test_far_draws_are_measured(located, n, leverage, escapes):
    """Ten sds out, uniform subsets of 100 rows say nothing; half of the rows, drawn by influence, and all rows do."""
    found = find_escape(pretend(located, n, leverage), draw(located[1], 10.0))
    assert (found is not None) == escapes
    if found is not None:
        assert "escape" in str(found)
        assert found.advice == {"subset_size": N}


def test_a_subset_of_all_rows_has_no_edge():
    """A posterior like Student's t with two degrees of freedom, 60 sds wide: nothing cuts it off, nothing is said."""
    model = lwa.Model(lambda t, y: -1e-9 * (y - t) ** 2, lambda t: -1.5 * jnp.log1p(t**2 / 2), 0.0)
    fit = lwa.sample(model, np.zeros(50), seed=1, draws=3000, progress=False)
    draws = np.abs(np.asarray(fit.posterior["theta"]))
    assert draws.max() > 31 * np.sqrt(2 / 3)  # sds at the mode
    below = np.mean(draws < 4.303)  # 97.5 % of Student's t with 2 degrees of freedom
    assert abs(below - 0.95) < 0.02


def test_a_scale_that_collapses_is_refused_with_its_cause():
    rng = np.random.default_rng(0)
    data = {"y": rng.normal(size=800), "g": rng.integers(8, size=800)}
    model = lwa.Model(
        lambda t, r: -0.5 * (r["y"] - jnp.take(t["u"], r["g"])) ** 2,
        lambda t: (
            -0.5 * t["mu"] ** 2
            - 0.5 * t["tau"] ** 2
            - jnp.sum(0.5 * ((t["u"] - t["mu"]) / t["tau"]) ** 2 + jnp.log(t["tau"]))
        ),
        {"mu": 0.0, "tau": 0.5, "u": jnp.zeros(8)},
        constraints={"tau": "positive"},
    )
    with pytest.raises(lwa.ModelError, match=r"no mode: its density grows without end as log\(tau\) falls"):
        lwa.sample(model, data, seed=1, progress=False)
