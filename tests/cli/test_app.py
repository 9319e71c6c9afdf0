"""The commands: what `lwa demo` and `lwa summary` print, and how they fail."""

import re
import subprocess
import sys

import numpy as np
import pytest

import lwa
from tests.support import run

DEMO = ["demo", "--rows", "2000", "--subset-size", "50", "--draws", "50"]


def test_demo_and_summary(call, tmp_path):
    folder = tmp_path / "run"
    code, out, _ = call(*DEMO, "--out", folder)
    assert code == 0
    assert "Simulating 2,000 rows" in out
    header = next(line for line in out.splitlines() if "truth" in line and "mean" in line)
    assert header.split()[:2] == ["truth", "mean"]
    assert len(re.findall(r"^beta\[\d\]", out, re.MULTILINE)) == 10
    assert "read 50 of 2,000 rows" in out.replace("\n", " ")
    assert "certificate" in out.lower()
    assert "On all rows it would take" in out.replace("\n", " ")
    assert str(folder) in out.replace("\n", "")

    fit = lwa.load(folder)
    assert fit.attributes["target"] == "calibrated"
    assert fit.posterior["beta"].shape == (4, 50, 10)
    assert fit.certificate.outcome in ("pass", "warn")

    code, out, err = call("summary", folder)
    assert code == 0
    assert out.startswith("lwa.Result: 4 chains x 50 draws of beta")
    assert len(re.findall(r"^beta\[\d\]", out, re.MULTILINE)) == 10
    assert err == ""


def test_summary_of_any_saved_run(call, tmp_path):
    code, out, _ = call("summary", run(thinning=1).save(tmp_path / "run"))
    assert code == 0
    assert re.search(r"^theta", out, re.MULTILINE)


def test_summary_of_something_else(call, tmp_path):
    code, out, err = call("summary", tmp_path / "nothing")
    assert (code, out) == (2, "")
    assert (
        err
        == f"lwa: {tmp_path / 'nothing'} holds no run: there is no manifest.json. Pass a folder made by fit.save().\n"
    )


def test_summary_in_a_process_of_its_own(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "from lwa.cli.app import main; main()", "summary", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("lwa: ")
    assert done.stderr.count("\n") == 1


def test_demo_does_no_work_for_a_folder_that_is_taken(call, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    code, out, err = call(*DEMO, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert err == f"lwa: {tmp_path} exists and is not a saved run. Pass the path of a new or empty folder.\n"


def test_demo_refuses_what_sample_refuses(call, tmp_path):
    code, _, err = call("demo", "--rows", 20, "--subset-size", 50, "--out", tmp_path / "run")
    assert code == 2
    assert "lwa: --subset-size 50 exceeds the 20 rows of the data. Pass --subset-size <= 20." in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("arguments", [["demo", "--rows", "few"], ["demo", "--draws", "0"], ["summary"], ["dmeo"]])
def test_usage(call, arguments):
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert "Usage:" in err


def test_help(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "demo" in out
    assert "summary" in out


@pytest.mark.slow
def test_compare(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["--rows", "2e3", "--budget", "1 s", "--methods", "lwa, metropolis", "--subset-size", "100"]
    code, out, _ = call("compare", "gaussian", *asked)
    assert code == 0
    assert re.search(r"^lwa, n = 100 ~ ", out, re.MULTILINE)
    assert re.search(r"^metropolis  ", out, re.MULTILINE)
    assert "Lowest error at the end" in out
    assert (tmp_path / "runs" / "compare-gaussian" / "figure.png").exists()


OWN = """
import lwa, numpy as np
model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: 0.0 * mu, init=0.0)
data = np.random.default_rng(0).normal(size=500)
def problem():
    return model, data
number = 3
"""


@pytest.mark.slow
def test_compare_a_model_of_ones_own(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    asked = ["--budget", "0.2 s", "--methods", "metropolis"]
    assert call("compare", "mine:problem", *asked)[0] == 0
    np.save("rows.npy", np.random.default_rng(0).normal(size=500))
    assert call("compare", "mine:model", "rows.npy", *asked)[0] == 0
    for name, words in [
        ("mine:model", "is a model without data"),
        ("mine:number", "is of type int; a lwa.Model"),
        ("mine:nothing", "cannot be loaded"),
        ("yours:model", "cannot be loaded: No module named 'yours'"),
        ("probit", "problem='probit' is not known"),
    ]:
        code, _, err = call("compare", name, *asked)
        assert code == 2
        assert words in err
        assert "Traceback" not in err
