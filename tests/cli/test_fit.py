"""`lwa fit`: from a table to a page in one command, and every way in which it is refused."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lwa
from lwa.cli.app import use_command_words
from lwa.cli.json import as_plain_json
from lwa.diagnostics.certificate import Certificate
from lwa.rows.store import files
from lwa.run import budget

N = 3000
SMALL = ["--subset-size", "100", "--draws", "100", "--tune", "100", "--seed", "1"]


def flights(rows=N, seed=0):
    rng = np.random.default_rng(seed)
    distance, origin = rng.gamma(2.0, 400.0, rows).round(), rng.choice(["ATL", "JFK", "SFO"], rows)
    delay = (20 * rng.normal(size=rows) + 0.01 * distance + 8.0 * (origin == "JFK")).round(1)
    return pd.DataFrame({"distance": distance, "origin": origin, "delay": delay, "late": (delay > 15).astype(int)})


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a table and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "cache"))
    flights().to_csv("flights.csv", index=False)
    return tmp_path


# What it does


def test_from_a_csv_to_a_page(call, place):
    code, out, err = call(
        "fit", "late ~ distance + origin", "flights.csv", "--family", "bernoulli", "--budget", "60s", *SMALL
    )
    assert code == 0
    table, certificate = out.split("\nCertificate: ")
    assert [line.split()[0] for line in table.splitlines()[1:]] == [
        "beta[Intercept]",
        "beta[distance]",
        "beta[origin[T.JFK]]",
        "beta[origin[T.SFO]]",
    ]
    assert certificate.startswith(("pass", "warn"))
    assert "Saved to runs/fit. Open runs/fit/report.html for the full report." in certificate
    for words in ("Converting", "3000/3000", "origin (2 columns) ~ normal(0, 2.5)", "passes over all rows", "draws"):
        assert words in err
    assert err.index("~ normal(0, 2.5)") < err.index("4 chains:")  # priors before sampling

    fit = lwa.load("runs/fit")
    stages = fit.attributes["stages"]
    assert {"imports", "conversion", "layout", "mode", "tune", "draws", "certificate", "report"} <= set(stages)
    assert re.fullmatch(r"Time: \d+\.\d s: imports \d+\.\d, .*\.", certificate.splitlines()[-1])
    assert fit.posterior["beta"].shape == (4, 100, 4)
    assert fit.certificate.names == [line.split()[0] for line in table.splitlines()[1:]]
    typed = "lwa fit 'late ~ distance + origin' flights.csv --family bernoulli --budget 60s " + " ".join(SMALL)
    assert fit.attributes["command"] == typed
    page = Path("runs/fit/report.html").read_text(encoding="utf-8")
    assert "lwa fit &#x27;late ~ distance + origin&#x27; flights.csv --family bernoulli" in page
    assert "The same command in the same folder" in page

    code, out, _ = call("summary", "runs/fit")
    assert code == 0
    assert "certificate:" in out
    assert "beta[distance]" in out
    Path("runs/fit/report.html").unlink()
    assert call("report", "runs/fit")[0] == 0
    assert Path("runs/fit/report.html").read_text(encoding="utf-8") == page

    code, out, err = call("fit", "late ~ distance", "flights.csv")
    assert (code, out) == (2, "")
    assert err == "lwa: runs/fit holds a run already. Pass --overwrite to replace it, or --out with a new folder.\n"
    assert lwa.load("runs/fit").attributes["command"] == typed


@pytest.mark.slow
def test_many_chains_of_which_a_summary_is_kept(call, place, monkeypatch):
    monkeypatch.setattr(budget, "LAST_BYTES", 100_000)
    many = ["--chains", "80", "--keep", "summary", "--subset-size", "100", "--tune", "100", "--seed", "1"]
    code, out, err = call("fit", "delay ~ distance", "flights.csv", *many, "--draws", "40")
    assert code == 0
    assert "80 chains x 40 draws would be" in err
    assert "nested_r_hat" in out
    assert "Of 80 chains x 40 draws, summarised while they were made" in out
    assert "Certificate: " in out
    fit = lwa.load("runs/fit")
    assert fit.draws < 40
    assert "command" in fit.attributes
    page = Path("runs/fit/report.html").read_text(encoding="utf-8")
    assert f"80 chains × 40 draws (summarised; pictures show the last {fit.draws})" in page
    assert "16 of the 80 chains are shown" in page
    code, out, _ = call("resume", "runs/fit", "--draws", "60", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["draws"] == fit.draws
    assert told["summary"]["beta[distance]"]["nested_r_hat"] < 1.1
    assert lwa.load("runs/fit").attributes["draws_summarised"] == 60
    code, _, err = call("fit", "delay ~ distance", "flights.csv", "--keep", "some", "--out", "other")
    assert code == 2
    assert "--keep 'some' is not known. Valid: 'auto', 'all', 'summary'. Pass --keep 'auto', for example." in err


def read_strictly(text):
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_and_nothing_else(call, place):
    asked = ["fit", "(delay > 15) ~ distance + C(origin, ref='JFK')", "flights.csv", "--family=bernoulli", "--json"]
    code, out, err = call(*asked, "--budget", "60 s", "--out", "runs/a", *SMALL[:-2])
    assert (code, err) == (0, "")
    found = read_strictly(out)
    names = ["Intercept", "distance", "C(origin, ref='JFK')[T.ATL]", "C(origin, ref='JFK')[T.SFO]"]
    assert list(found["summary"]) == found["certificate"]["names"] == [f"beta[{name}]" for name in names]
    assert all(isinstance(value, float | int) for row in found["summary"].values() for value in row.values())
    assert isinstance(found["certificate"]["shift"][0], float)
    assert found["certificate"]["outcome"] in ("pass", "warn")
    assert (found["run"], found["report"], found["rows"]) == ("runs/a", "runs/a/report.html", N)
    assert (found["subset_size"], found["chains"], found["draws"], found["warnings"]) == (100, 4, 100, [])
    assert "distance ~ normal(0, " in found["model"]

    again = read_strictly(call("summary", "runs/a", "--json")[1])
    assert again == found

    # What was typed, with the seed that was drawn, gives the same draws.
    typed = lwa.load("runs/a").attributes["command"]
    assert typed.startswith("lwa fit \"(delay > 15) ~ distance + C(origin, ref='JFK')\" flights.csv")
    assert typed.endswith(f" --seed {found['seed']}")
    code, out, _ = call(*asked, "--out", "runs/b", *SMALL[:-2], "--seed", found["seed"], "--no-certify", "--no-report")
    assert code == 0
    told = read_strictly(out)
    assert (told["summary"], told["certificate"], told["report"]) == (found["summary"], None, None)


def test_nan_is_null():
    given = {"a": [1.0, float("nan")], 2: (np.float64("inf"), True, None), "b": {"c": np.int64(3)}}
    assert as_plain_json(given) == {"a": [1.0, None], "2": [None, True, None], "b": {"c": 3}}


MODELS = """
import numpyro, numpyro.distributions as dist

def normal(distance, delay):
    slope = numpyro.sample("slope", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(50))
    with numpyro.plate("rows", len(delay)):
        numpyro.sample("delay", dist.Normal(slope * distance / 1000, sigma), obs=delay)

def unobserved(distance):
    numpyro.sample("slope", dist.Normal(0, 10))

def needs_more(delay, speed):
    normal(speed, delay)

def fails(delay):
    raise RuntimeError("not yet written")

number = 3
"""


def test_a_numpyro_model(call, place):
    (place / "mine.py").write_text(MODELS)
    hole = flights()
    hole.loc[5, "late"] = None  # a column that the model does not take may have holes
    hole.to_parquet("flights.parquet")
    code, out, _ = call("fit", "--numpyro", "mine:normal", "flights.parquet", *SMALL, "--out", "runs/n")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["sigma", "slope"]
    assert "Certificate: " in out
    assert "lwa fit --numpyro mine:normal flights.parquet" in (place / "runs/n/report.html").read_text()


@pytest.mark.slow
def test_fewer_rows_than_a_step_would_read(call, place):
    flights(200).to_csv("few.csv", index=False)
    code, out, _ = call("fit", "delay ~ distance", "few.csv", *SMALL[2:], "--json", "--no-certify", "--no-report")
    assert code == 0
    assert read_strictly(out)["subset_size"] == 200


@pytest.mark.slow
def test_a_certificate_that_condemns(call, place, monkeypatch):
    monkeypatch.setattr(Certificate, "outcome", property(lambda self: "fail"))
    code, out, _ = call("fit", "delay ~ distance", "flights.csv", *SMALL)
    assert code == 1
    assert "Saved to runs/fit" in out


def test_too_few_draws_for_a_certificate(call, place):
    code, out, _ = call("fit", "delay ~ distance", "flights.csv", *SMALL[:2], "--draws", "2", "--tune", "100")
    assert code == 0
    assert "Certificate: none. " in out
    assert lwa.load("runs/fit").draws == 2


def test_a_certificate_that_is_interrupted(call, place, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lwa.diagnostics.certify.certify_layout", interrupt)
    code, out, _ = call("fit", "delay ~ distance", "flights.csv", *SMALL)
    assert code == 0
    assert "Certificate: none: its pass over all rows was interrupted." in out
    assert Path("runs/fit/report.html").exists()


def test_ctrl_c_before_there_are_draws(call, place, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lwa.cli.source.open_path", interrupt)
    code, out, _ = call("fit", "delay ~ distance", "flights.csv", *SMALL)
    assert (code, out) == (130, "")
    assert not Path("runs").exists()


@pytest.mark.slow
def test_ctrl_c_keeps_and_saves_what_is_drawn(place):
    asked = ["fit", "delay ~ distance", "flights.csv", "--subset-size", "100", "--draws", "100000000"]
    child = subprocess.Popen(
        [sys.executable, "-c", "from lwa.cli.app import main; main()", *asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in child.stderr:
            if "Keeping one draw" in line:
                break
        time.sleep(1.0)  # some draws later
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0, err
    assert "Warning: Stopped early: interrupted after" in out
    assert "Certificate: " in out
    assert lwa.load("runs/fit").draws > 0
    assert Path("runs/fit/report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--target", "powered", "--epsilon", "0.1"],
        [
            "--target",
            "auto",
            "--chains",
            "2",
            "--prior",
            "distance = normal(0, 0.1)",
            "--prior",
            "sigma=exponential(1)",
        ],
        ["--exact", "--prior", "flat"],
        ["--draws", "auto", "--budget", "1s"],
        ["--weights", "late + 1", "--offset", "0.01 * distance", "--link", "identity"],
    ],
)
def test_options(call, place, options):
    code, out, err = call("fit", "delay ~ distance", "flights.csv", *SMALL, *options, "--json")
    assert code in (0, 1)  # the powered target is not the posterior of all rows, and its certificate says so
    assert err == ""
    settings = lwa.load("runs/fit").attributes["settings"]
    if "--epsilon" in options:
        assert (settings["target"], settings["epsilon"]) == ("powered", 0.1)
    if "--exact" in options:
        assert read_strictly(out)["exact"] is True
        assert "flat" in read_strictly(out)["model"]


def test_help_is_worth_reading(call):
    code, out, _ = call("fit", "--help")
    assert code == 0
    for words in ("Examples:", "--budget 60s", "Exit codes: 0 if all went well", "Sampling", "Output", "PRIOR"):
        assert words in out


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("target='foo' is not known. Pass target='auto'.", "--target 'foo' is not known. Pass --target 'auto'."),
        ("subset_size=9 exceeds 5. Pass subset_size <= 5.", "--subset-size 9 exceeds 5. Pass --subset-size <= 5."),
        ("Pass another folder, or overwrite=True.", "Pass another folder, or --overwrite."),
        ("else pass checkpoint= with a new folder.", "else pass --out with a new folder."),
        ("lwa.resume('runs/fit', model, data) goes on.", "lwa resume runs/fit goes on."),
        ("again with lwa.rows.convert('a', 'b', overwrite=True).", "again with lwa convert 'a' 'b' --overwrite."),
        ("Leave them out: columns=['x'].", "Leave them out: columns=['x']."),
    ],
)
def test_messages_say_what_to_type_in_a_shell(message, told):
    assert use_command_words(message) == told


# What is refused


def parquet(name, **columns):
    pq.write_table(pa.table(columns), name)


def truncated():
    parquet("t.parquet", x=np.arange(5000.0), y=np.arange(5000.0))
    os.truncate("t.parquet", 9000)


def drift():
    Path("parts").mkdir()
    parquet("parts/a.parquet", x=[1.0, 2.0], y=[1.0, 2.0])
    parquet("parts/b.parquet", x=["1", "2"], y=[1.0, 2.0])


def drift_of_levels():
    """Levels that only one of the files has are levels all the same."""
    Path("parts").mkdir()
    parquet("parts/a.parquet", x=["p", "q"] * 100, y=np.arange(200.0))
    parquet("parts/b.parquet", x=["r", "q"] * 100, y=np.arange(200.0) ** 2)


def missing_file():
    Path("parts").mkdir()
    parquet("parts/a.parquet", x=[1.0, 2.0], y=[1.0, 2.0])
    parquet("parts/b.parquet", z=[1.0, 2.0], y=[1.0, 2.0])


def repeated():
    table = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names=["x", "x", "y"])
    pq.write_table(table, "t.parquet")


def text(content):
    return lambda: Path("t.csv").write_text(content)


def separated():
    """Whoever flies from SFO is always late."""
    table = flights()
    table.loc[table["origin"] == "SFO", "late"] = 1
    table.to_csv("t.csv", index=False)


def taken():
    Path("runs/fit").mkdir(parents=True)
    Path("runs/fit/thesis.tex").write_text("mine")


def nothing():
    pass


def models():
    Path("mine.py").write_text(MODELS)
    Path("broken.py").write_text("import numpy\n1 / 0\n")
    Path("leaves.py").write_text("raise SystemExit(3)\n")


MIXED = "x,y\n" + "".join(f"{i % 9},{i}\n" for i in range(300)) + "oops,2\n"
REFUSED = {
    "missing column": (nothing, ["late ~ distanse", "flights.csv"], "'distanse' in '", "mean 'distance'? It has 'dist"),
    "missing response": (nothing, ["lates ~ distance", "flights.csv"], "no column 'lates'", "Did you mean 'late'?"),
    "not 0 or 1": (
        nothing,
        ["delay ~ 1", "flights.csv", "--family", "bernoulli"],
        "--family 'bernoulli' expects 0 or 1. Outside of that: 'delay' has ",
        "the first in row 0 (",
    ),
    "no counts": (nothing, ["delay ~ 1", "flights.csv", "--family", "poisson"], "whole numbers >= 0", "in row 0 ("),
    "no counts too": (nothing, ["delay ~ 1", "flights.csv", "--family", "negative_binomial"], "numbers >= 0", "row 0"),
    "not positive": (nothing, ["delay ~ 1", "flights.csv", "--family", "gamma"], "expects numbers > 0", "(-"),
    "more than trials": (
        nothing,
        ["distance ~ 1", "flights.csv", "--family", "binomial", "--trials", "9"],
        "from 0 to the number of trials",
        "Check trials",
    ),
    "no trials": (nothing, ["late ~ 1", "flights.csv", "--family", "binomial"], "--trials 'n' (a column)", ""),
    "text": (nothing, ["origin ~ distance", "flights.csv"], "holds text: 'ATL'", "--family 'categorical'"),
    "three levels": (nothing, ["origin ~ 1", "flights.csv", "--family", "bernoulli"], "two levels", "'categorical'"),
    "too many levels": (
        nothing,
        ["(origin == 'LAX') ~ 1", "flights.csv", "--family", "bernoulli"],
        "no row of 'origin' is 'LAX'",
        "There are 'ATL', 'JFK', 'SFO'",
    ),
    "separated": (
        separated,
        ["late ~ distance + origin", "t.csv", "--family", "bernoulli", "--prior", "flat"],
        "beta[origin[T.SFO]] kept changing",
        "perfectly separated",
    ),
    "names twice in a CSV": (text("x,x,y\n1,2,3\n"), ["y ~ x", "t.csv"], "has columns ['x'] more than once", "Rename"),
    "names twice in Parquet": (repeated, ["y ~ x", "t.parquet"], "has columns ['x'] more than once", "Rename"),
    "the same column twice": (
        lambda: flights().assign(miles=lambda table: 0.62 * table["distance"]).to_csv("t.csv"),
        ["delay ~ distance + miles", "t.csv"],
        "'miles' is a multiple of 'distance'",
        "Leave one of these columns out of the formula",
    ),
    "truncated": (truncated, ["y ~ x", "t.parquet"], "is no Parquet file, or it is damaged or cut short", "copy it"),
    "schema drift": (drift, ["y ~ x", "parts"], "column 'x' is double in '", "and string in '"),
    "files that differ": (missing_file, ["y ~ x", "parts"], "b.parquet' lacks ['x']", "compared with"),
    "mixed types": (text(MIXED), ["y ~ x", "t.csv"], "'x' has mixed types: 9 of its 10", "'oops'. Correct those"),
    "mixed types, numpyro": (
        lambda: [models(), Path("t.csv").write_text(MIXED.replace("x,y", "distance,delay"))],
        ["--numpyro", "mine:normal", "t.csv"],
        "column 'distance' has mixed types: 9 of its 10 different values are numbers",
        "such as 'oops'",
    ),
    "empty folder": (lambda: Path("parts").mkdir(), ["y ~ x", "parts"], "There is no table in the folder", ".parquet"),
    "missing values": (
        text("x,y\n" + "1,2\n,3\n" * 50),
        ["y ~ x", "t.csv"],
        "column 'x' has 50, the first in row 1",
        "Leave those rows out with --missing 'drop'",
    ),
    "no file": (nothing, ["y ~ x", "nowhere.parquet"], "nowhere.parquet' does not exist", "Pass the path"),
    "no table": (text("1"), ["y ~ x", "mine.xlsx"], "mine.xlsx' does not exist", ""),
    "folder taken": (taken, ["y ~ x", "flights.csv"], "runs/fit exists and is not a saved run", "new or empty folder"),
    "a file in the way": (nothing, ["y ~ x", "flights.csv", "--out", "flights.csv/a"], "is no folder that you may", ""),
    "a formula alone": (nothing, ["late ~ distance"], "came alone", "lwa fit 'y ~ x' table.parquet"),
    "no formula": (nothing, ["late", "flights.csv"], "needs one '~'", "Pass 'y ~ a + b'"),
    "import": (nothing, ["late ~ {__import__('os')}", "flights.csv"], "calls '__import__', which is not", "Valid:"),
    "import and call": (nothing, ["late ~ __import__('os').system('touch made')", "flights.csv"], "__import__", ""),
    "attribute": (nothing, ["late ~ distance.__class__", "flights.csv"], "cannot be read from '.__class__'", ""),
    "lambda": (nothing, ["late ~ (lambda: 0)()", "flights.csv"], "'lambda' in the formula cannot be read", ""),
    "f-string": (nothing, ["late ~ (origin == f'{open(\"made\", \"w\")}')", "flights.csv"], "part of a formula", ""),
    "response that runs": (nothing, ["exec('1') ~ distance", "flights.csv"], "calls 'exec'", ""),
    "offset that runs": (nothing, ["late ~ 1", "flights.csv", "--offset", "eval(late)"], "calls 'eval'", ""),
    "subset size": (nothing, ["late ~ 1", "flights.csv", "--subset-size", "many"], "-size 'many' is no whole", "auto"),
    "negative": (nothing, ["late ~ 1", "flights.csv", "--subset-size", "-4"], "--subset-size -4 must be", ">= 1"),
    "subset too large": (nothing, ["late ~ 1", "flights.csv", "--subset-size", "4e3"], "exceeds the 3000", "<= 3000"),
    "epsilon": (nothing, ["late ~ 1", "flights.csv", "--epsilon", "few"], "--epsilon 'few' is no number", "auto"),
    "nan": (nothing, ["late ~ 1", "flights.csv", "--epsilon", "nan"], "--epsilon nan must be a positive", ""),
    "budget": (nothing, ["late ~ 1", "flights.csv", "--budget", "soon"], "--budget 'soon' is not under", "'10 min'"),
    "draws": (nothing, ["late ~ 1", "flights.csv", "--draws", "auto"], "needs a budget", "--budget '60 s'"),
    "target": (nothing, ["late ~ 1", "flights.csv", "--target", "best"], "--target 'best' is not known", "'powered'"),
    "family": (nothing, ["late ~ 1", "flights.csv", "--family", "normal"], "'normal' is not known", "'gaussian'"),
    "missing": (nothing, ["late ~ 1", "flights.csv", "--missing", "fill"], "--missing 'fill' is not known", "'drop'"),
    "prior": (nothing, ["late ~ 1", "flights.csv", "--prior", "x normal"], "prior 'x normal' is not under", "flat"),
    "prior of nothing": (nothing, ["late ~ 1", "flights.csv", "--prior", "z = normal(0, 1)"], "names 'z'", "'sigma'"),
    "prior twice": (
        nothing,
        ["late ~ 1", "flights.csv", "--prior", "sigma=exponential(1)", "--prior", "sigma=exponential(2)"],
        "two are priors of the same parameter",
        "",
    ),
    "no module": (nothing, ["--numpyro", "yours:model", "flights.csv"], "No module named 'yours'", "module:name"),
    "no name": (models, ["--numpyro", "mine", "flights.csv"], "'mine' is no module:name", "models:mine"),
    "a path": (models, ["--numpyro", "./mine.py:normal", "flights.csv"], "is no module:name", "models:mine"),
    "not in the module": (models, ["--numpyro", "mine:nothing", "flights.csv"], "'mine:nothing' cannot be loaded", ""),
    "module that fails": (models, ["--numpyro", "broken:model", "flights.csv"], "ZeroDivisionError while 'broken'", ""),
    "module that leaves": (models, ["--numpyro", "leaves:model", "flights.csv"], "SystemExit while 'leaves'", ""),
    "no function": (models, ["--numpyro", "mine:number", "flights.csv"], "model=3 is not a function", ""),
    "no observation": (models, ["--numpyro", "mine:unobserved", "flights.csv"], "No site of the model is obs", ""),
    "no such argument": (models, ["--numpyro", "mine:needs_more", "flights.csv"], "no column 'speed'", "It has 'dist"),
    "formula and numpyro": (models, ["a ~ b", "flights.csv", "--numpyro", "mine:normal"], "Pass the data alone", ""),
    "family of numpyro": (
        models,
        ["flights.csv", "--numpyro", "mine:normal", "--family", "poisson"],
        "--family belongs to a formula",
        "Write it into the model",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_one_sentence(call, place, case):
    make, arguments, *words = REFUSED[case]
    make()
    there = set(place.rglob("*"))
    code, out, err = call("fit", *arguments)
    assert (code, out) == (2, "")
    complaint = err[err.index("lwa: ") :]
    assert complaint.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        assert word in complaint
    assert not {path for path in set(place.rglob("*")) - there if not {"cache", "__pycache__"} & set(path.parts)}


def test_a_budget_that_buys_no_draw(call, place):
    asked = ["late ~ 1", "flights.csv", *SMALL[:2], "--seed", "1", "--budget", "0.000001s", "--draws", "10"]
    code, out, err = call("fit", *asked, "--no-certify", "--no-report")
    assert (code, out) == (2, "")
    assert "lwa: There are no draws: " in err
    assert "Pass a larger budget, for example: lwa resume runs/fit --budget '10 min'.\n" in err
    code, out, _ = call("resume", "runs/fit", "--budget", "10 min", "--no-certify", "--no-report")
    assert code == 0
    assert lwa.load("runs/fit").draws == 10


def test_a_numpyro_model_that_fails(call, place):
    models()
    code, out, err = call("fit", "--numpyro", "mine:fails", "flights.csv")
    assert (code, out) == (2, "")
    assert 'at mine.py, line 17: raise RuntimeError("not yet written")\n' in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", [["--chains", "few"], ["--seed", "-1"], ["--nonsense"], ["--tune", "1.5"]])
def test_usage(call, place, option):
    code, out, err = call("fit", "late ~ distance", "flights.csv", *option)
    assert (code, out) == (2, "")
    assert "Usage:" in err
    assert option[0] in err


def test_nothing_long_is_begun_for_options_that_are_wrong(call, place, monkeypatch):
    monkeypatch.setattr("lwa.cli.source.open_path", None)  # whoever reads the data fails
    for option in (["--target", "best"], ["--budget", "soon"], ["--epsilon", "-1"], ["--link", "logit"]):
        assert call("fit", "late ~ distance", "flights.csv", *option)[0] == 2


@pytest.mark.slow
def test_levels_that_one_file_alone_has(call, place):
    drift_of_levels()
    code, out, _ = call("fit", "y ~ x", "parts", *SMALL, "--no-certify", "--no-report")
    assert code == 0
    assert "beta[x[T.r]]" in out


@pytest.mark.slow
def test_missing_values_are_dropped_when_asked(call, place):
    table = flights()
    table.loc[:9, "distance"] = None
    table.to_csv("t.csv", index=False)
    code, out, _ = call("fit", "delay ~ distance", "t.csv", *SMALL, "--missing", "drop", "--json", "--no-certify")
    assert code == 0
    assert read_strictly(out)["rows"] == N - 10


def test_without_permission_to_read(call, place, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("lwa.rows.store.formats.open_bytes", refuse)  # chmod does not stop root
    code, _, err = call("fit", "late ~ distance", "flights.csv")
    assert code == 2
    assert "flights.csv' cannot be read: Permission denied. Check its permissions with ls -l.\n" in err


def test_without_permission_to_write(call, place, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    code, _, err = call("fit", "late ~ distance", "flights.csv", "--out", "runs/x")
    assert code == 2
    assert err.startswith("lwa: Cannot save a run to runs/x: '")
    assert "is no folder that you may write to. Pass the path of a new folder." in err


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("command", [["convert", "flights.csv", "rows"], ["fit", "late ~ distance", "flights.csv"]])
def test_a_full_disk_leaves_nothing_half_written(call, place, monkeypatch, command):
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_rows", full)
        code, out, err = call(*command)
    assert (code, out) == (2, "")
    assert "lwa: the disk is full: No space left on device while rows were written to '" in err
    assert "Traceback" not in err
    left = {path.name for path in place.rglob("*") if path.is_file() and not path.name.endswith(".lock")}
    assert left == {"flights.csv"}
    assert call("convert", "flights.csv", "rows")[0] == 0  # and now there is room


def test_a_full_disk_when_the_run_begins(call, place, monkeypatch):
    monkeypatch.setattr("numpy.lib.format.write_array", lambda *_, **__: full())
    code, _, err = call("fit", "late ~ distance", "flights.csv", *SMALL)
    assert code == 2
    assert "lwa: Cannot write a checkpoint to runs/fit: No space left on device. Pass another folder.\n" in err
    assert not list(Path("runs/fit").iterdir())
