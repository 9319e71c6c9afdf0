"""The page of a run: what it says, that it needs nothing else, and that no name can break it."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.result.report.data import collect_data
from lwa.result.report.page import build_page
from tests.result.report.made import SETTINGS, Cells, Page, certificate, fit, repeated
from tests.support import MODEL, SEVERAL, Y, run, sample

IDS = ["verdict", "table", "forest", "densities", "chains", "rows", "autocorrelation", "warnings", "settings"]


def sound(text):
    """The page as it is read, once it is known to be whole and to need nothing else."""
    found = Page(text)
    assert found.faults == []
    assert text.startswith("<!doctype html>")
    names = [name for name, _, _ in found.elements]
    assert not {"script", "img", "iframe", "object", "embed", "base", "form"} & set(names)
    ids = [attributes["id"] for _, attributes, _ in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for name, attributes, _ in found.elements:
        assert "src" not in attributes
        assert not any(key.startswith("on") for key in attributes)
        link = attributes.get("href", "#")
        assert link in ("#", "data:,") or link[1:] in ids, f"{name} leads to {link}"
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    assert "http:" not in text
    assert "https:" not in text
    return found


@pytest.fixture(scope="module")
def certified():
    return fit(certified=certificate())


@pytest.fixture(scope="module")
def text(certified):
    return build_page(certified)


# The verdict


@pytest.mark.parametrize(
    ("given", "outcome", "headline"),
    [
        (certificate(), "pass", "Certified"),
        (certificate(shift=0.5), "fail", "Not draws of the posterior"),
        (certificate(error=0.9), "warn", "Cannot tell"),
    ],
)
def test_the_verdict_comes_first(given, outcome, headline):
    made = fit(certified=given)
    found = sound(build_page(made))
    assert given.outcome == outcome
    assert found.of("verdict-headline") == headline
    assert found.of("verdict-words") == given.verdict
    assert found.having("section")[0] == {"id": "verdict", "data-outcome": outcome}
    assert all(name in found.of("verdict") for name in given.names)


def test_without_a_certificate_the_page_says_what_to_type():
    found = sound(build_page(fit()))
    assert found.of("verdict-headline") == "Not certified"
    assert "lwa.certify(model, data, fit)" in found.of("verdict-words")
    assert found.having("section", id="verdict")[0]["data-outcome"] == "none"
    assert "exact" in sound(build_page(fit(exact=True))).of("verdict-words")


# Numbers


def test_every_section_is_there_in_order(text):
    found = sound(text)
    assert [attributes["id"] for attributes in found.having("section")] == IDS
    assert [attributes["href"] for attributes in found.having("a")] == [f"#{name}" for name in IDS[1:]]


def test_the_table_is_the_summary(certified, text):
    table = certified.summary(round_to="none")
    head, *lines = Cells(text).rows["table"]
    assert head == ["parameter", "mean", "sd", "89 % from", "to", "bulk ESS", "tail ESS", "R-hat"]
    assert [line[0] for line in lines] == list(table.index) == ["beta[0]", "beta[1]", "sigma"]
    columns = ["mean", "sd", "eti89_lb", "eti89_ub", "ess_bulk", "ess_tail", "r_hat"]
    for line, expected in zip(lines, table[columns].to_numpy(), strict=True):
        for cell, value in list(zip(line[1:], expected, strict=True)):
            decimals = len(cell.partition(".")[2])
            assert float(cell) == pytest.approx(value, abs=1.0 if decimals == 0 else 0.51 * 10.0**-decimals)
        sd = float(line[2])
        assert 10.0 ** -len(line[1].partition(".")[2]) <= 0.01 * sd * 1.01  # means to a hundredth of the sd


def test_names_are_arviz_own_whatever_the_shape():
    several = sample(SEVERAL, thinning=1)
    assert collect_data(several).names == list(several.summary().index)
    found = sound(build_page(several))
    for name in collect_data(several).names:
        assert name in found.of("table")
        assert name in found.of("forest")
        assert name in found.of("densities")
        assert name in found.of("chains")
        assert name in found.of("autocorrelation")


def test_what_mixes_badly_is_marked_and_explained():
    rng = np.random.default_rng(1)
    apart = rng.normal(size=(4, 500)) + 3.0 * np.arange(4)[:, None]
    slow = np.cumsum(rng.normal(size=(4, 500)), axis=1)
    found = sound(build_page(fit({"good": rng.normal(size=(4, 500)), "apart": apart, "slow": slow})))
    assert "Chains disagree on apart, slow: R-hat is above 1.01. Pass a longer tune" in found.of("warnings")
    assert len(found.having("td", class_="flag")) >= 4
    assert found.having("a", href="#warnings")[0]["class"] == "flag"


def test_many_chains_make_no_more_lines_than_can_be_seen():
    many = fit(chains=300, draws=20)
    found = sound(build_page(many))
    head, *lines = Cells(build_page(many)).rows["table"]
    assert head == ["parameter", "mean", "sd", "89 % from", "to", "ESS", "R-hat"]
    assert len(lines) == 3
    for section in ("densities", "chains"):
        assert "16 of the 300 chains are shown, evenly spaced." in found.of(section)
    lines = [attributes for attributes in found.having("path") if attributes["class"].startswith("line thin")]
    assert len(lines) == 16 * 4  # traces of three parameters, and of the subsets' distance
    assert "chain 18" in found.of("densities")  # the second of them
    assert found.of("warnings") == "WarningsNone."  # 6,000 draws, if only 20 per chain
    assert "fewer than 1,600 effective draws in all" in sound(build_page(fit(chains=100, draws=2))).of("warnings")


def test_one_draw_of_each_of_many_chains():
    assert "beta[0]" in sound(build_page(fit(chains=2000, draws=1))).of("table")


def test_warnings_of_the_run_are_told():
    found = sound(build_page(fit(warnings=["Only 2 % of <the moves> were accepted. Pass a longer tune."])))
    assert "Only 2 % of <the moves> were accepted. Pass a longer tune." in found.of("warnings")
    assert "1 warning" in found.text
    assert sound(build_page(fit())).of("warnings") == "WarningsNone."


def test_the_same_run_gives_the_same_page(certified, text):
    assert build_page(certified) == text


# Names


ODD = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "β[α, γ]", "a&amp;b", "it's", "</style>", "{x}"]


def test_no_name_breaks_the_page():
    rng = np.random.default_rng(0)
    odd = fit(
        {name: rng.normal(size=(4, 200)) for name in ODD} | {"w": rng.normal(size=(4, 200, 2))},
        dims={"w": ["<b>axis</b>"]},
        coords={"<b>axis</b>": ["<i>one</i>", "two & three"]},
        certified=certificate(names=["<script>alert(2)</script>", "b"]),
        kernel="<u>kernel</u>",
        fingerprint="</code>",
    )
    found = sound(build_page(odd))
    for name in [*ODD, "w[<i>one</i>]", "w[two & three]"]:
        assert name in found.of("table")
        assert {"title": name} in found.having("figcaption")
    assert "<script>alert(2)</script>" in found.of("verdict")
    assert "<u>kernel</u>" in found.of("settings")


# Sizes


def test_a_hundred_coefficients():
    rng = np.random.default_rng(0)
    scales = np.where(np.arange(100) < 50, 1.0, 1e4)
    text = build_page(fit({"beta": scales * rng.normal(np.arange(100.0), 1.0, (4, 400, 100))}))
    found = sound(text)
    assert len(text) < 2_000_000
    names = [f"beta[{i}]" for i in range(100)]
    assert [line[0] for line in Cells(text).rows["table"] if line[0] != "parameter"] == names
    at_once = [inside for name, _, inside in found.elements if name == "figure" and "details" not in inside]
    assert len(at_once) == 4 * 8 + 1  # densities, ranks, traces, autocorrelations, and the trace of the distance
    seen = [inside for name, _, inside in found.elements if name == "tr" and "details" not in inside]
    assert len(seen) == 26
    assert "75 more parameters" in found.of("table")
    assert "92 more densities" in found.of("densities")
    assert [sum(name in words for words in found.by_id["forest"]) for name in ("beta[7]", "beta[99]")] == [1, 1]


def test_panels_have_an_end():
    rng = np.random.default_rng(0)
    found = sound(build_page(fit({"beta": rng.normal(size=(2, 50, 130))})))
    assert "30 more parameters have no panel here" in found.of("densities")
    assert "beta[129]" in found.of("table")


# Runs of all kinds


def test_a_run_without_draws():
    with pytest.warns(lwa.LwaWarning, match="the budget was spent"):
        none = run(budget=lwa.RowReads(1))
    found = sound(build_page(none))
    assert [attributes["id"] for attributes in found.having("section")] == ["verdict", "rows", "warnings", "settings"]
    assert "Not certified" in found.text
    assert "No draws were kept" in found.of("warnings")
    assert "the budget was spent after 0 of 20 draws" in found.of("warnings")
    assert "budget=lwa.RowReads(1)" in found.of("call")


@pytest.mark.parametrize(("chains", "draws"), [(1, 1), (1, 3), (2, 5), (1, 200), (12, 40)])
def test_few_chains_few_draws_or_many_chains(chains, draws):
    found = sound(build_page(fit(chains=chains, draws=draws)))
    assert "beta[1]" in found.of("table")
    assert "sigma" in found.of("chains")


def test_draws_that_stand_still_or_are_not_finite():
    rng = np.random.default_rng(0)
    broken = rng.normal(size=(4, 100))
    broken[0, :3] = np.nan, np.inf, -np.inf
    still = {"still": np.ones((4, 100)), "never": np.full((4, 100), np.nan), "broken": broken, "flag": broken > 0}
    found = sound(build_page(fit(still | {"one": np.concatenate([np.ones((1, 100)), rng.normal(size=(3, 100))])})))
    assert "All draws are the same, or none is finite." in found.of("densities")
    for name in still:
        assert name in found.of("table")


@pytest.fixture(scope="module")
def tiny():
    return run(draws=200, thinning=1, seed=5)


def test_a_saved_run_has_the_same_page_but_for_how_to_certify_it(tiny, tmp_path):
    live, loaded = build_page(tiny), build_page(lwa.load(tiny.save(tmp_path / "run")))
    mine, theirs = sound(live), sound(loaded)
    for name in IDS:
        if name != "verdict":
            assert mine.of(name) == theirs.of(name)
    assert "fit.certify()" in mine.of("verdict")
    assert "lwa.certify(model, data, fit)" in theirs.of("verdict")
    assert "drawn at random" in theirs.of("rows")


def test_certified_before_it_is_reported(tiny, tmp_path):
    found = tiny.certify(progress=False)
    for one in (tiny, lwa.load(tiny.save(tmp_path / "run"))):
        assert sound(build_page(one)).of("verdict-words") == found.verdict


def test_a_polished_run(tiny):
    polished = tiny.polish(passes=1, draws=50, progress=False)
    found = sound(build_page(polished))
    assert "1 passes over all rows" in found.of("rows") or "2 passes over all rows" in found.of("rows")
    assert "all 200: a pass over all rows decided every kept draw" in found.of("rows")


def test_a_rivals_run():
    made = lwa.rivals.sample("metropolis", MODEL, Y, draws=100, tune=50, chains=2, seed=3, progress=False)
    found = sound(build_page(made))
    assert "metropolis" in found.of("rows")
    assert "Draws are of" in found.of("rows")
    assert "Subset" not in found.of("rows")
    read = made.attributes["rows_read"]
    assert f"{read:,} row evaluations" in found.of("rows")
    again = repeated(found.of("call"), MODEL, Y)
    assert again.posterior["theta"].tobytes() == made.posterior["theta"].tobytes()


def log_likelihood(theta, y):
    """Normal(μ, σ²)."""
    return -0.5 * ((y - theta["mu"]) / theta["sigma"]) ** 2 - jnp.log(theta["sigma"])


def test_a_constrained_model():
    model = lwa.Model(
        log_likelihood, lambda theta: -theta["sigma"], {"mu": 0.0, "sigma": 1.0}, constraints={"sigma": "positive"}
    )
    made = sample(model, draws=100, thinning=1, target="calibrated", subset_size=100)
    verdict = made.certify(progress=False).verdict
    found = sound(build_page(made))
    assert found.of("verdict-words") == verdict
    assert "log(sigma)" in found.of("verdict")
    assert [line[0] for line in Cells(build_page(made)).rows["table"]] == ["parameter", "mu", "sigma"]
    assert "Subsets are drawn at random, with no preference" in found.of("rows")


def test_subsets_of_groups_are_told_in_groups():
    model = lwa.Model(lambda mu, rows: -0.5 * (rows["y"] - mu) ** 2, lambda mu: -0.005 * mu**2, 0.0, groups="subject")
    made = sample(model, {"y": Y, "subject": np.arange(len(Y)) // 4}, subset_size=10, thinning=1, target="calibrated")
    words = sound(build_page(made)).of("rows")
    assert "10 of 50 groups (20 %)" in words
    assert "a subset holds whole groups; there are 50, of 200 rows" in words
    assert "Distinct groups visited" in words


# Where it is written


def test_report_writes_and_returns_the_path(certified, tmp_path, monkeypatch):
    path = certified.report(tmp_path / "new" / "page.html")
    assert path == tmp_path / "new" / "page.html"
    assert path.read_text(encoding="utf-8") == build_page(certified)
    assert certified.report(str(path)) == path  # a report may be written again
    monkeypatch.chdir(tmp_path)
    assert certified.report().name == "report.html"
    assert (tmp_path / "report.html").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new", "report.html"]


def test_what_is_no_report_is_left_alone(certified, tmp_path):
    other = tmp_path / "thesis.html"
    other.write_text("<html>mine</html>")
    with pytest.raises(lwa.InputError, match=r"is not a report of lwa\. Pass the path of a new file"):
        certified.report(other)
    assert other.read_text() == "<html>mine</html>"
    with pytest.raises(lwa.InputError, match=r"is a folder\. Pass the path of a file, such as .*report\.html"):
        certified.report(tmp_path)
    with pytest.raises(lwa.InputError, match="Cannot write the report to"):
        certified.report(other / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.html"]


# The attributes that a made-up run has are those of a real one


def test_made_up_attributes_are_real_ones(tiny):
    assert set(fit().attributes) <= set(tiny.attributes)
    assert set(SETTINGS) <= set(tiny.attributes["settings"])
    assert set(fit().sample_stats) <= set(tiny.sample_stats)
