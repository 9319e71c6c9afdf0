"""`lwa report`: what it writes, and how it fails."""

import subprocess
import sys

import pytest

import lwa
from lwa.result.report.page import build_page
from tests.result.report.made import certificate, fit


@pytest.fixture
def saved(tmp_path):
    return fit(certified=certificate()).save(tmp_path / "run")


def test_a_saved_run_is_reported_into_its_folder(call, saved):
    code, out, err = call("report", saved)
    assert (code, err) == (0, "")
    assert out == f"Wrote {saved / 'report.html'}\n"
    assert (saved / "report.html").read_text(encoding="utf-8") == build_page(lwa.load(saved))
    assert call("report", saved)[0] == 0  # and again
    fit(seed=1).save(saved)  # a report is no obstacle to a new run
    assert (saved / "report.html").exists()


def test_a_page_of_ones_own_choice(call, saved, tmp_path):
    code, _, _ = call("report", saved, "--out", tmp_path / "pages" / "mine.html")
    assert code == 0
    assert (tmp_path / "pages" / "mine.html").exists()
    assert not (saved / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{tmp}/nothing"], "holds no run: there is no manifest.json. Pass a folder made by fit.save()."),
        (["{tmp}/run", "--out", "{tmp}"], "is a folder. Pass the path of a file, such as"),
        (["{tmp}/run", "--out", "{tmp}/run/manifest.json"], "exists and is not a report of lwa."),
    ],
)
def test_what_is_refused_is_one_sentence(call, saved, tmp_path, arguments, words):
    code, out, err = call("report", *(argument.format(tmp=tmp_path) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("lwa: ")
    assert words in err
    assert err.count("\n") == 1
    assert lwa.load(saved).draws == 1000


@pytest.mark.slow
def test_in_a_process_of_its_own(saved):
    code = "from lwa.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "report", saved], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (saved / "report.html").exists()
