"""What a finished run says of its draws, with a call that helps."""

import warnings
from types import SimpleNamespace

import arviz_stats
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.run.budget import Budget
from lwa.run.remarks import enlarge_budget, find_edge
from lwa.targets.reference import Reference
from tests.support import MODEL, Y

SLOW = {
    "target": "powered", "subset_size": len(Y), "tune": 0, "thinning": 1, "seed": 1, "progress": False,
    "initvals": [2.9, 3.0, 3.05, 3.1],
}  # fmt: skip
"""A walk that does not adapt, on all rows: the posterior of mean 3.01 and sd 0.07."""


def sample(*args, **options):
    """Return the run, and what it warned of."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fit = lwa.sample(*args, **options)
    return fit, [one.message for one in seen if isinstance(one.message, lwa.LwaWarning)]


def test_few_effective_draws_are_reported_with_how_many_would_do():
    """Chains start apart and creep: the call that the warning names leaves nothing to warn of."""
    creeping = SLOW | {"kernel": lwa.kernels.RandomWalk(scale=0.001)}
    fit, (told,) = sample(MODEL, Y, draws=200, **creeping)
    assert str(told).startswith("Chains disagree on theta (R-hat ")
    assert set(told.advice) == {"draws", "tune"}
    assert f"Pass draws={told.advice['draws']}, tune={told.advice['tune']}." in str(told)
    assert fit.attributes["warnings"] == [str(told)]
    assert sample(MODEL, Y, **creeping | told.advice)[1] == []


def test_slow_chains_that_agree():
    walking = SLOW | {"kernel": lwa.kernels.RandomWalk(scale=0.03)}
    fit, (told,) = sample(MODEL, Y, draws=1000, **walking)
    worth = arviz_stats.ess(fit.idata.posterior.to_dataset()).theta
    assert f"The 4,000 draws of theta are worth {worth:.0f} independent ones" in str(told)
    assert set(told.advice) == {"draws"}
    assert sample(MODEL, Y, **walking, **told.advice)[1] == []


def test_a_default_run_has_nothing_to_report():
    assert sample(MODEL, Y, seed=1, progress=False)[1] == []


def test_a_run_that_its_budget_ended_is_told_a_larger_one():
    budget, walk = lwa.RowReads(4 * len(Y) * 100), lwa.kernels.RandomWalk(scale=0.003)
    _, (stopped, slow) = sample(MODEL, Y, draws=1000, budget=budget, kernel=walk, **SLOW)
    assert "the budget was spent after 100 of 1000 draws" in str(stopped)
    assert slow.advice["budget"].count > 2 * budget.count
    assert enlarge_budget(Budget(seconds=10.0), 3.0) == {"budget": "30 s"}
    assert enlarge_budget(Budget(), 3.0) == {}


def test_honest_heavy_tails_are_no_escape():
    """Cauchy: 3 % of it lies beyond 30 sds of the Gaussian at its mode."""
    model = lwa.Model(lambda theta, y: -0.5 * jnp.log1p((theta - y) ** 2), lambda theta: 0.0, 0.1)
    fit, told = sample(model, np.zeros(2), draws=2000, seed=2, progress=False)
    assert not [one for one in told if "escape" in str(one) or "cut off" in str(one)]
    assert np.abs(fit.posterior["theta"]).max() > 40


@pytest.mark.parametrize(("N", "advice"), [(50_000, {"subset_size": 50_000}), (10**6, {"exact": True})])
def test_draws_at_the_edge_are_an_escape(N, advice):
    run = SimpleNamespace(
        problem=SimpleNamespace(
            reference=Reference(np.zeros(1), np.zeros(1), np.eye(1), np.zeros((1, 1)), 1),
            target=SimpleNamespace(expansion=SimpleNamespace(radius=31.0)),
        ),
        data=SimpleNamespace(available=N, ordered=False), settings=SimpleNamespace(exact=False), subset_size=1000,
    )  # fmt: skip
    theta = np.array([[0.0], [30.0]])
    told = find_edge(run, SimpleNamespace(furthest=30.0), theta)
    assert "an escape and no draws of the posterior" in str(told)
    assert told.advice == advice
    assert find_edge(run, SimpleNamespace(furthest=30.0), theta[:1]) is None  # only tune was there
    assert find_edge(run, SimpleNamespace(furthest=20.0), theta) is None
    run.settings.exact = True
    assert find_edge(run, SimpleNamespace(furthest=0.0), theta).advice == {"subset_size": N, "exact": False}


@pytest.mark.slow
def test_corrections_that_are_mostly_refused():
    """Subsets of a tenth of the rows, powered: no longer tune helps, but more rows do."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 6))
    data = {"x": x, "y": x.sum(1) + rng.normal(size=500)}
    model = lwa.Model(
        lambda b, rows: -0.5 * (rows["y"] - rows["x"] @ b) ** 2, lambda b: -0.005 * jnp.sum(b**2), jnp.zeros(6)
    )
    options = {"target": "powered", "exact": True, "draws": 60, "thinning": 20, "seed": 1, "progress": False}
    _, told = sample(model, data, subset_size=50, **options)
    (refused,) = [one for one in told if "of the corrections were accepted" in str(one)]
    assert refused.advice == {"subset_size": 200}
    fit, _ = sample(model, data, **options | refused.advice)
    assert fit.sample_stats["acceptance_rate"].mean() > 0.05


@pytest.mark.slow
def test_if_many_parameters_have_no_mode_the_advice_is_nuts_on_all_rows_and_helps():
    """Effects of 8 groups that hardly differ, not centred: gradients at the mode vanish along a ridge."""
    rng = np.random.default_rng(82)
    g = rng.integers(0, 8, 3000)
    y = 1.0 + 0.05 * rng.normal(size=8)[g] + rng.normal(size=3000)
    model = lwa.Model(
        lambda t, rows: -0.5 * (rows["y"] - t["mu"] - jnp.exp(t["log_tau"]) * t["z"][rows["g"]]) ** 2,
        lambda t: -0.5 * (t["mu"] ** 2 / 25 + jnp.sum(t["z"] ** 2) + jnp.exp(2 * t["log_tau"])) + t["log_tau"],
        {"mu": 0.0, "log_tau": 0.0, "z": jnp.zeros(8)},
    )
    with pytest.raises(lwa.InputError, match=r"kernel=lwa\.kernels\.NUTS\(\) needs no mode") as refused:
        lwa.sample(model, {"g": g, "y": y}, seed=1, progress=False)
    assert refused.value.advice["kernel"] == lwa.kernels.NUTS()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lwa.LwaWarning)  # some trajectories diverge in the funnel
        fit = lwa.sample(model, {"g": g, "y": y}, seed=1, progress=False, **refused.value.advice)
    assert fit.certify(progress=False).outcome != "fail"
    assert effective_draws(fit.posterior["z"].reshape(4, -1, 8)).min() > 400
