"""Methods side by side: what is measured, what is listed with a reason, and what is kept when one fails."""

import json

import numpy as np
import pytest

import lwa
from lwa.rivals import Austerity
from lwa.rivals.comparison import Comparison, Line, Lwa
from lwa.rivals.comparison.judge import PosteriorMoments, build_curve, estimate_errors
from lwa.rivals.comparison.methods import find_method, label_methods
from lwa.rivals.problems import simulate, simulate_arma

Y = np.random.default_rng(0).normal(3.0, 1.0, 2000)
MODEL = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * (mu / 10.0) ** 2, init=0.0)
EXACT = PosteriorMoments(np.array([Y.sum() / (len(Y) + 0.01)]), np.array([(len(Y) + 0.01) ** -0.5]), "closed form")


def compare(methods, model=MODEL, data=Y, **options):
    common = dict(budget=lwa.RowReads(4_000_000), subset_size=100, tune=50, seed=1, progress=False)
    return lwa.compare(model, data, methods, **(common | options))


@pytest.fixture(scope="module")
def found():
    return compare(["lwa", "lwa_exact", "metropolis", Austerity(epsilon=0.01), Lwa(50), "firefly"])


@pytest.mark.slow
def test_one_line_a_method(found):
    table = found.table()
    assert list(table.index) == [
        "lwa, n = 100",
        "lwa, exact, n = 100",
        "metropolis",
        "austerity, epsilon = 0.01",
        "lwa, n = 50",
        "firefly",
    ]
    ran = table[table["reason"] == ""]
    assert len(ran) == 5
    assert (ran["steps"] > 0).all()
    assert ran.loc["lwa, n = 100", "rows_per_step"] == 100
    assert ran.loc["lwa, n = 50", "rows_per_step"] == 50
    assert ran.loc["metropolis", "rows_per_step"] == 2000
    assert table["exact"].tolist() == [False, True, True, False, False, True]


@pytest.mark.slow
def test_errors_are_against_the_posterior(found):
    """The certificate's mean and sd are those of the closed form, so errors are what they would be against that."""
    for line in found.ran:
        fit = found.fits[line.method]
        exact = estimate_errors(MODEL, fit, EXACT, np.array([fit.draws]))
        assert abs(abs(exact.shift[0, 0]) - line.shift) < 0.01
        assert abs(exact.error[0] - line.error) < 0.01
    assert "gradients of all rows at the draws of lwa, n = 100" in found.source


@pytest.mark.slow
def test_a_method_without_what_it_needs_is_listed_with_the_reason(found):
    line = next(line for line in found.lines if line.method == "firefly")
    assert "bound" in line.reason
    assert np.isnan(line.error)
    assert f"not run: firefly: {line.reason}" in repr(found)
    assert "- firefly: " in found.markdown()


@pytest.mark.slow
def test_methods_for_independent_rows_are_out_on_a_series():
    found = compare("auto", lwa.arma(1, 1, sigma=1.0), simulate_arma(1000, 1).data, budget=lwa.RowReads(10**6))
    ran = [line.method for line in found.ran]
    assert ran == ["lwa, n = 100", "lwa, exact, n = 100", "metropolis", "delayed_acceptance"]
    out = {line.method: line.reason for line in found.lines if line.reason}
    assert len(out) == 9
    for reason in out.values():
        assert "ordered" in reason
        assert "depends on all rows before it" in reason


@pytest.mark.slow
def test_methods_that_need_derivatives_are_out_without():
    python = lwa.Model(
        lambda mu, y: -0.5 * (np.asarray(y) - float(mu)) ** 2, lambda mu: -0.5 * float(mu) ** 2, init=3.0
    )
    found = compare(
        ["metropolis", "sgld", "confidence_proxy", "pseudo_marginal"],
        python,
        Y[:200],
        initvals=3.0,
        budget=lwa.RowReads(10**5),
    )
    assert [line.method for line in found.ran] == ["metropolis"]
    out = [line.reason for line in found.lines if line.reason]
    assert len(out) == 3
    assert all("derivatives" in reason and "not JAX" in reason for reason in out)


def test_a_failing_method_does_not_lose_the_others():
    class Broken(Austerity):
        def step(self, key, state, problem):
            raise ZeroDivisionError("no such luck")

    found = compare(["metropolis", Broken()])
    assert [line.method for line in found.ran] == ["metropolis"]
    assert found.lines[1].reason == "failed with ZeroDivisionError: no such luck"


def test_a_given_reference():
    draws = {"theta": EXACT.mean + EXACT.sd * np.random.default_rng(1).normal(size=(4, 50_000))}
    found = compare(["metropolis"], reference=draws)
    assert found.source == "200,000 given draws"


@pytest.mark.slow
def test_the_curve_ends_with_the_final_error(found):
    for line in found.ran:
        seconds, errors = zip(*line.curve, strict=True)
        assert errors[-1] == pytest.approx(line.error, rel=1e-6)
        assert list(seconds) == sorted(seconds)
        assert seconds[-1] <= line.seconds


def test_signs_weigh_the_draws():
    """Draws worth nothing together: what negative ones say is taken away."""
    theta = np.array([[1.0, 2.0, 3.0, 2.0]])
    attributes = {"clock": [[4, 1.0]]}
    fit = lwa.Result({"theta": theta}, {"sign": np.array([[1.0, 1.0, 1.0, -1.0]])}, attributes, {}, {})
    moments = PosteriorMoments(np.zeros(1), np.ones(1), "")
    assert estimate_errors(MODEL, fit, moments, np.array([4])).shift[0, 0] == (1 + 2 + 3 - 2) / 2
    assert len(build_curve(MODEL, fit, moments)) == 1


def test_when_an_error_is_reached_for_good():
    line = Line("a", True, curve=((1.0, 0.5), (2.0, 0.05), (3.0, 0.2), (4.0, 0.09), (5.0, 0.01)))
    assert line.time_to(0.1) == 4.0
    assert line.time_to(0.001) == float("inf")
    slow = Line("b", True, error=0.3, curve=((1.0, 0.4),))
    fast = Line("c", True, error=0.02, curve=((2.0, 0.02),))
    words = Comparison((slow, fast), {}, 10, "", 1.0).verdict
    assert words.startswith("Lowest error at the end: c (0.02 posterior sds). Next: b (0.3).")
    assert words.endswith("First below 0.1 for good: c, after 2.0 s.")


@pytest.mark.slow
def test_all_is_saved(found, tmp_path):
    folder = found.save(tmp_path / "here")
    told = json.loads((folder / "comparison.json").read_text())
    assert [line["method"] for line in told["lines"]] == [line.method for line in found.lines]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert found.verdict in (folder / "table.md").read_text()
    assert lwa.load(folder / "runs" / "metropolis").draws == found.fits["metropolis"].draws
    found.save(folder)  # again, over it
    with pytest.raises(lwa.RunFolderError, match="Cannot write a comparison"):
        found.save(folder / "comparison.json" / "below")


@pytest.mark.parametrize(
    ("methods", "options", "words"),
    [
        ([], {}, "is no list of methods"),
        (["lwa", "gibbs"], {}, r"methods holds 'gibbs', which is not known\. Valid: 'lwa'"),
        (["lwa"], {"budget": None}, "needs a budget"),
        (["lwa"], {"chains": 0}, "chains=0 must be a whole number"),
    ],
)
def test_bad_input(methods, options, words):
    with pytest.raises(lwa.InputError, match=words):
        compare(methods, **options)


def test_no_model():
    with pytest.raises(lwa.InputError, match="model is of type int"):
        lwa.compare(3, Y)


@pytest.mark.parametrize("name", ["logistic", "student_t", "gaussian", "lognormal", "arma"])
def test_simulated_problems(name):
    case = simulate(name, 500, 1)
    data = case.data if isinstance(case.data, dict) else {"y": case.data}
    assert all(len(column) == 500 for column in data.values())
    assert (case.bound is None) == (name not in ("logistic", "student_t"))


def test_a_problem_that_is_not_known():
    with pytest.raises(lwa.InputError, match="problem='probit' is not known"):
        simulate("probit", 10, 1)


def test_labels_tell_methods_apart():
    methods = [Austerity(), Austerity(epsilon=0.01), Austerity(), Lwa(100), Lwa(100, exact=True)]
    labels = list(label_methods([find_method(method, 100, None) for method in methods]))
    assert labels == ["austerity", "austerity, epsilon = 0.01", "austerity (2)", "lwa, n = 100", "lwa, exact, n = 100"]
