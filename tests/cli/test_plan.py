"""`lwa plan`: what it says a fit will do is what the fit then does."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lwa.backend.machine import read_cgroup_memory
from lwa.cli.forecast import row_sample
from lwa.cli.forecast.work import (
    Costs,
    Workload,
    estimate_move,
    estimate_pass,
    estimate_phases,
    estimate_total,
    scale_rows,
)
from lwa.rows import StoreRows, convert

N = 3000


def table(rows=N, seed=0):
    rng = np.random.default_rng(seed)
    x, k, city = rng.normal(size=rows), rng.integers(3, size=rows), rng.choice(["Rome", "Oslo", "Bern"], rows)
    chance = 1 / (1 + np.exp(-(0.5 * x + 0.3 * k - 0.2 * (city == "Oslo"))))
    rare = (np.arange(rows) % (rows // 20) == 0).astype(float)
    return pd.DataFrame(
        {"x": x, "k": k, "city": city, "rare": rare, "late": (rng.random(rows) < chance).astype(np.int8)}
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a cache of its own; trials are short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("lwa.cli.forecast.trial.TRIAL_SECONDS", 0.2)
    return tmp_path


@pytest.fixture
def passes(monkeypatch):
    """Every stretch of a store that is scanned: all its rows where it begins a pass, else None, and the bytes."""
    found = []
    plain = StoreRows.between

    def counted(self, start, stop, size):
        here = [None if start else len(self), 0]
        found.append(here)
        for batch in plain(self, start, stop, size):
            here[1] += sum(array.nbytes for array in batch.values())
            yield batch

    monkeypatch.setattr(StoreRows, "between", counted)
    return found


def made(passes):
    """The rows of each pass."""
    return [rows for rows, _ in passes if rows is not None]


def planned(call, *arguments):
    code, out, err = call("plan", *arguments, "--json")
    assert (code, err) == (0, ""), err
    return json.loads(out)


ASKED = ["--family", "bernoulli", "--seed", "3", "--chains", "4", "--subset-size", "200", "--tune", "200"]
CASES = {
    "calibrated": ("late ~ x + city", ["--draws", "600"], {"bind": 1, "survey": 1, "certificate": 1}),
    "levels of numbers": ("late ~ x + C(k)", ["--draws", "600"], {"bind": 2}),
    "exact": ("late ~ x", ["--draws", "60", "--exact", "--no-certify"], {"exact": 61, "certificate": 0}),
    "powered": ("late ~ x", ["--draws", "50", "--target", "powered", "--no-certify"], {"mode": 0}),
    "leverage": ("late ~ x + rare", ["--draws", "100", "--no-certify"], {"leverage": 1}),
    "auto": ("late ~ x", ["--draws", "100", "--subset-size", "auto", "--no-certify"], {"size": 1}),
}


@pytest.mark.parametrize(
    "case", ["calibrated", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "calibrated")]
)
def test_passes_and_bytes_are_those_of_the_fit(call, place, passes, case):
    formula, options, said = CASES[case]
    table().to_parquet("table.parquet")
    found = planned(call, "table.parquet", "--formula", formula, *ASKED, *options)
    assert said.items() <= found["passes"].items()
    assert found["passes"]["convert"] == 1
    assert not (place / "cache").exists()  # it kept nothing
    passes.clear()
    code, _, err = call("fit", formula, "table.parquet", *ASKED, *options, "--no-report")
    assert code == 0, err
    assert len(made(passes)) == sum(found["passes"].values()) - 1
    assert set(made(passes)) == {N}
    source = Path("table.parquet").stat().st_size
    assert sum(size for _, size in passes) == found["bytes_read"] - source
    # Once it is converted there is nothing left to convert.
    again = planned(call, "table.parquet", "--formula", formula, *ASKED, *options)
    assert again["passes"] == found["passes"] | {"convert": 0}
    assert again["bytes_read"] == found["bytes_read"] - source


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_of_many_rows_some_tell(call, place, passes, monkeypatch, seed):
    rows, most = 300_000, 2**14
    monkeypatch.setattr(row_sample, "MOST_SAMPLED_ROWS", most)
    convert(table(rows, seed), "store", progress=False)
    passes.clear()
    asked = ["--family", "bernoulli", "--subset-size", "200", "--draws", "300", "--seed", str(seed)]
    found = planned(call, "store", "--formula", "late ~ x + city", *asked)
    assert set(made(passes)) == {most}  # never all of them
    assert found["rows"] == rows
    passes.clear()
    assert call("fit", "late ~ x + city", "store", *asked, "--no-report")[0] == 0
    assert made(passes) == [rows] * sum(found["passes"].values())
    assert sum(size for _, size in passes) == found["bytes_read"]


@pytest.mark.slow
def test_a_level_that_the_sample_lacks_is_no_obstacle(call, place, monkeypatch):
    monkeypatch.setattr(row_sample, "MOST_SAMPLED_ROWS", 1000)
    rows = table()
    rows.loc[N - 1, "city"] = "Ulm"
    convert(rows, "store", progress=False)
    found = planned(call, "store", "--formula", "late ~ city", *ASKED)
    assert found["parameters"] == 3


@pytest.mark.slow
def test_rows_of_csv_are_estimated_and_that_is_said(call, place, monkeypatch):
    monkeypatch.setattr(row_sample, "MOST_SAMPLED_ROWS", 2000)
    monkeypatch.setattr(row_sample, "COUNTED_BYTES", 20_000)
    monkeypatch.setattr("lwa.rows.store.formats.CSV_BLOCK_BYTES", 20_000)
    table(20_000).to_csv("table.csv", index=False)
    found = planned(call, "table.csv", "--formula", "late ~ x", *ASKED)
    assert not found["rows_counted"]
    assert abs(found["rows"] / 20_000 - 1) < 0.05
    code, out, _ = call("plan", "table.csv", "--formula", "late ~ x", *ASKED)
    assert code == 0
    assert f"About {found['rows']:,} rows" in out


@pytest.mark.slow
def test_a_csv_whose_types_widen(call, place, monkeypatch):
    monkeypatch.setattr("lwa.rows.store.formats.CSV_BLOCK_BYTES", 2000)
    rows = table()
    rows["x"] = np.where(np.arange(N) < N // 2, 1 + np.arange(N) % 3, rows["x"])
    rows["x"] = [f"{value:.0f}" if i < N // 2 else f"{value:.3f}" for i, value in enumerate(rows["x"])]
    rows.to_csv("table.csv", index=False)
    assert planned(call, "table.csv", "--formula", "late ~ x", *ASKED)["rows"] == N


def test_what_a_user_reads(call, place):
    table().to_parquet("table.parquet")
    code, out, _ = call("plan", "table.parquet", "--formula", "late ~ x", *ASKED)
    assert code == 0
    for words in (
        "3,000 rows of 9 bytes, 2 parameters",
        "convert",
        "Newton's method",
        "µs per step and chain",
        "total",
    ):
        assert words in out
    for words in ("Memory:", "--subset-size 200 is enough", "--exact", "The first fit converts", "--budget '"):
        assert words in out


@pytest.mark.slow
def test_a_small_subset_and_dear_corrections_are_named(call, place):
    table().to_parquet("table.parquet")
    found = planned(call, "table.parquet", "--formula", "late ~ x + city + C(k)", *ASKED, "--subset-size", "80")
    assert "Pass --subset-size 100" in found["advice"][0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Exactly one model is needed. Pass --formula 'y ~ x', or --numpyro module:model."),
        (["--formula", "late ~ x", "--numpyro", "a:b"], "Exactly one model is needed."),
        (["--formula", "late ~ y"], "no column 'y'"),
        (["--formula", "late ~ x", "--subset-size", "4000"], "--subset-size 4000 exceeds the 3000 rows of the data."),
        (["--formula", "late ~ x", "--draws", "few"], "--draws 'few' is no whole number."),
        (["--formula", "late ~ x", "--missing", "ignore"], "missing"),
    ],
)
def test_what_is_refused(call, place, options, said):
    table().to_parquet("table.parquet")
    code, out, err = call("plan", "table.parquet", *options)
    assert (code, out) == (2, "")
    assert said in err


# The model itself

WORK = Workload(1000, 10, {"survey": 1, "mode": 3}, moves=50, chains=2, gathered=0.25)
COSTS = Costs({"survey": 1e-3, "mode": 2e-3}, move=0.1, gather=0.01, disk=2500.0, start=7.0, free=1e6)


def test_a_pass_costs_what_takes_longer():
    assert estimate_pass(WORK, COSTS, "mode", cold=False) == pytest.approx(2.0)
    assert estimate_pass(WORK, COSTS, "mode", cold=True) == pytest.approx(4.0)
    assert estimate_pass(WORK, COSTS, "mode", cold=True, workers=2) == pytest.approx(2.0 + 0.004)


def test_what_fits_into_memory_is_read_once():
    assert estimate_phases(WORK, COSTS) == pytest.approx({"start": 7.0, "survey": 4.0, "mode": 6.0, "moves": 5.0})
    large = scale_rows(WORK, 10**5)
    assert estimate_phases(large, COSTS) == pytest.approx({"start": 7.0, "survey": 400.0, "mode": 1200.0, "moves": 5.0})
    assert estimate_total(large, COSTS) == pytest.approx(1612.0)


def test_moves_wait_for_rows_only_where_these_are_slower():
    assert estimate_move(WORK, COSTS) == 0.1
    assert estimate_move(WORK, Costs(COSTS.row, 0.001, 0.01, 1.0, 0.0, 0.0)) == pytest.approx(0.005)


PEAK = """
import json, sys
from lwa.cli.app import main
from lwa.backend.machine import PeakMemory
sys.argv = ["lwa", *json.loads(sys.argv[1])]
with PeakMemory() as peak:
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
print(json.dumps(peak.bytes))
"""


@pytest.mark.slow
@pytest.mark.parametrize("rows", [3000, 400_000])
def test_memory_is_an_upper_bound_of_what_a_fit_holds(call, place, rows):
    table(rows).to_parquet("table.parquet")
    asked = ["late ~ x + city", "table.parquet", *ASKED, "--draws", "5000"]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps(["fit", *asked])], capture_output=True, text=True, check=True
    )
    measured = json.loads(done.stdout.splitlines()[-1])
    plan = ["plan", "table.parquet", "--formula", *asked[:1], *asked[2:], "--json"]
    said = subprocess.run([sys.executable, "-c", PEAK, json.dumps(plan)], capture_output=True, text=True, check=True)
    bound = json.loads(said.stdout.splitlines()[0])["memory_bytes"]
    assert measured < bound < 4 * measured


def test_memory_that_a_container_may_use(tmp_path):
    assert read_cgroup_memory(tmp_path) == float("inf")
    for what, said in (("max", "1000"), ("current", "700"), ("stat", "anon 5\ninactive_file 100\n")):
        (tmp_path / f"memory.{what}").write_text(said + "\n")
    assert read_cgroup_memory(tmp_path) == 400
    (tmp_path / "memory.max").write_text("max\n")
    assert read_cgroup_memory(tmp_path) == float("inf")
