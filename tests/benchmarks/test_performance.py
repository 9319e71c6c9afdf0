"""What goes onto docs/performance.md, from results as the benchmarks write them."""

import json
import sys
from pathlib import Path

import cold_start
import exhibits
import growth
import pytest

PAGE = """# A page

<!-- growth: begin -->
old
<!-- growth: end -->
between
<!-- cold start: begin -->
<!-- cold start: end -->
<!-- profile: begin -->
<!-- profile: end -->
"""


def line(size, us, **others):
    given = {"n": 1000, "kernel": "autoregressive", "transport": True, "setup_s": 0.1, "evaluations": 1.0}
    return {"size": size, "us": us, "us_range": [us, us], "stages": {"mode": 0.05}, **given, **others}


GROWTH = {
    "rows": [line(10**k, 16.0, setup_s=1e-6 * 10**k) for k in range(4, 9)],
    "subset": [line(n, 0.016 * n) for n in (100, 1000, 10_000)],
    "parameters": [
        line(2, 5.0),
        line(32, 300.0),
        line(33, 20.0, transport="second_order"),
        line(500, 4000.0, transport="second_order", n=5000, kernel="HMC", evaluations=4.0),
    ],
    "chains": [line(chains, 12.0 / chains**0.25) for chains in (1, 8, 64)],
}


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "performance.md").write_text(PAGE, encoding="utf-8")
    return tmp_path


def call(module, monkeypatch, results, docs):
    out = docs / "results.json"
    out.write_text(json.dumps(results))
    monkeypatch.setattr(sys, "argv", ["benchmark", "--plot", "--out", str(out), "--docs", str(docs)])
    module.main()
    return (docs / "performance.md").read_text(encoding="utf-8")


def test_growth(monkeypatch, docs):
    made = {"date": "2026-01-01", "machine": "2 cores"}
    page = call(growth, monkeypatch, {part: {**made, "table": table} for part, table in GROWTH.items()}, docs)
    assert "\nold\n" not in page
    assert "| N | 16 (10,000), 16 (100,000)" in page
    assert "| n | 1.6 (100), 16 (1,000), 160 (10,000) | +1.00 |" in page
    assert "| d, second order | 20 (33), 4,000 (500) | +1.95 |" in page
    assert "100 (100,000,000)." in page  # seconds before the first move
    assert "between\n<!-- cold start: begin -->\n<!-- cold start: end -->" in page
    drawing = (docs / "figures" / "growth.svg").read_text(encoding="utf-8")
    for words in (
        "slope +0.00",
        "slope 1.00 in the upper half",
        "second order",
        "HMC, 4.0 evaluations",
        "n = 5,000",
        "slope 0.75",
        "Up to 32 parameters",
        "64 cost 23 times as much as one",
        "varies by a factor of 1.00",
    ):
        assert words in drawing
    assert (docs / "figures" / "growth.png").stat().st_size > 10_000


def test_growth_waits_for_all_parts(monkeypatch, docs, capsys):
    page = call(growth, monkeypatch, {"rows": {"date": "", "machine": "", "table": GROWTH["rows"]}}, docs)
    assert page == PAGE
    assert "--parts subset parameters chains" in capsys.readouterr().out


def test_cold_start(monkeypatch, docs):
    stages = {"imports": 1.0, "conversion": 0.5, "mode": 1.5, "compiling": 0.001, "certificate": 3.0, "exit": 0.1}
    results = {
        "date": "2026-01-01", "machine": "2 cores", "rows": 1_000_000, "rounds": 3, "effective_draws": 2500,
        "certificate": "pass", "cold": {"total": 6.1, "stages": stages},
        "warm": {"total": 5.6, "stages": {**stages, "conversion": 0.0}},
        "compilation": {"programs": 57, "seconds": {"tracing": 0.8, "compiling": 5.0}, "longest": {"play": 1.0}},
        "imports": {"jax": 0.5, "lwa": 0.005, "lwa.sample": 0.9},
    }  # fmt: skip
    page = call(cold_start, monkeypatch, results, docs)
    assert "| certificate | 3.00 | 3.00 |" in page
    assert "compilation" not in page  # which took no time
    assert "| **all of it** | **6.1** | **5.6** |" in page
    assert "at least 2,500 effective draws of every parameter. At most 20 s cold with 1,000: holds." in page
    assert "57 programs: 0.8 s of tracing, 5.0 s of compiling" in page
    assert "| `play` | 1.00 |" in page
    assert "0.010 times as long" in page
    assert "6.1 s cold" in (docs / "figures" / "cold_start.svg").read_text(encoding="utf-8")
    assert "does NOT hold" in cold_start.markdown(results | {"effective_draws": 900})


def test_every_stage_has_a_name():
    with pytest.raises(SystemExit, match=r"no name here: polishing\. Add"):
        cold_start.medians([{"total": 1.0, "stages": {"polishing": 1.0}}])


def test_a_page_without_marks(tmp_path):
    exhibits.put("growth", "text", tmp_path)  # no page: nothing to do
    (tmp_path / "performance.md").write_text("# A page\n")
    with pytest.raises(SystemExit, match="has no marks <!-- growth: begin -->"):
        exhibits.put("growth", "text", tmp_path)


def test_the_page_has_a_place_for_all_that_is_measured():
    page = (Path(growth.__file__).parent.parent / "docs" / "performance.md").read_text(encoding="utf-8")
    for name in ("step cost", "growth", "cold start", "gpu", "profile"):
        assert f"<!-- {name}: begin -->" in page
        assert f"<!-- {name}: end -->" in page


def test_a_margin_leaves_the_first_fifth_out():
    clock = [[1, 0.0], [20, 10.0], [60, 12.0], [100, 14.0]]  # the first draws waited
    assert growth.margin(clock, 10) == pytest.approx(1e6 * 4.0 / 800)
    assert growth.margin([[1, 0.0], [2, 1.0], [40, 2.0]], 1) == pytest.approx(1e6 / 38)
