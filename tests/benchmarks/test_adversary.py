"""The adversary's harness: references agree with each other, verdicts with what draws are, and a case runs through."""

import json
import sys
from pathlib import Path

import adversary
import numpy as np
import pytest
from adversary_cases import CASES
from adversary_references import Problem, compute, reference, summarise
from scipy.stats import norm

import lwa


def normal_draws(seed, shift=0.0, scale=1.0):
    return shift + scale * np.random.default_rng(seed).normal(size=(4, 1000, 2))


@pytest.fixture(scope="module")
def truth():
    points = np.random.default_rng(0).normal(size=(200_000, 2))
    return summarise(points, np.full(len(points), 1 / len(points)), {"kind": "exact"})


def test_errors_of_a_reference(truth):
    slope = (norm.ppf(0.035) - norm.ppf(0.015)) / 0.02
    for name, known in (("mean", 1.0), ("sd", 0.5**0.5), ("quantiles", (0.025 * 0.975) ** 0.5 * slope)):
        np.testing.assert_allclose(truth.errors[name] * np.sqrt(200_000), known, rtol=0.05)


@pytest.mark.parametrize(
    ("shift", "scale", "right"), [(0.0, 1.0, True), (0.2, 1.0, False), (0.0, 1.2, False), (0.0, 0.8, False)]
)
def test_verdict(truth, shift, scale, right):
    found = adversary.judge(normal_draws(1, shift, scale), truth)
    assert found["right"] is right


def test_draws_that_mix_badly_are_not_excused(truth):
    steps = np.random.default_rng(2).normal(size=(4, 1000, 2)) * 0.3
    assert not adversary.judge(1.0 + np.cumsum(steps, axis=1), truth)["right"]


def test_references_agree():
    """The same posterior by quadrature, by importance sampling and by NUTS, within four standard errors."""
    problem = CASES["groups_to_10000"].build(0)
    exact = compute(problem)
    for kind in ("importance", "nuts"):
        other = compute(problem, kind)
        for name in ("mean", "sd", "quantiles"):
            off = (getattr(other, name) - getattr(exact, name)) / exact.sd
            assert (np.abs(off) < 4 * np.hypot(other.errors[name], exact.errors[name])).all(), (kind, name)


def test_reference_is_kept(tmp_path):
    y = np.random.default_rng(0).normal(size=50)
    problem = Problem(lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2, init=0.0), y)
    made = reference("normal", problem, tmp_path)
    kept = reference("normal", problem, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_allclose(made.quantiles, kept.quantiles)
    assert abs(made.mean[0] - y.sum() / 51) < 4 * made.errors["mean"][0] / 51**0.5
    np.testing.assert_allclose(made.sd, 51**-0.5, rtol=0.03)


@pytest.mark.slow
def test_two_cases_run_through(tmp_path, monkeypatch):
    out, page = tmp_path / "found.json", tmp_path / "page.md"
    command = [
        "adversary",
        "--cases",
        "hierarchical_8",
        "laplace",
        "--seeds",
        "1",
        "--out",
        str(out),
        "--page",
        str(page),
    ]
    monkeypatch.setattr(sys, "argv", command)
    adversary.main()
    found = json.loads(out.read_text())
    assert set(found["cases"]) == {"laplace", "hierarchical_8", "hierarchical_8_funnel"}
    assert found["summary"]["runs"] == 3
    assert all(run["verdict"] in adversary.VERDICTS for case in found["cases"].values() for run in case["runs"])
    text = Path(page).read_text(encoding="utf-8")
    assert "| laplace | 4 | 5,000 |" in text
    assert "{" not in text


def test_a_run_that_hangs_is_wrong(monkeypatch):
    """The watchdog ends the process, counts the run, and gives up on the case after two of them."""
    case = next(iter(CASES))
    task = adversary.Task(case, [1, 2, 3], {"advice": False, "data_seed": 0}, {"parameters": 1, "rows": 1})
    started = []
    monkeypatch.setattr(task, "start", lambda: started.append(1))
    task.process = type("Process", (), {"kill": lambda self: None, "join": lambda self: None})()
    task.doing = ("run", 1)
    assert not task.give_up("no draws in 120 s")
    task.doing = ("run", 2)
    assert task.give_up("no draws in 120 s")
    assert [run["verdict"] for run in task.runs] == ["wrong"] * 3
    assert task.runs[2]["why"].startswith("not tried")
    assert len(started) == 1
