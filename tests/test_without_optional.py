"""Packages that lwa names as optional may be missing: a fit runs, is certified, saved, loaded and resumed without them."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]
MISSING = ["dask", "distributed", "fsspec", "pandas", "polars", "pymc"]

CODE = f"""
import sys
for name in {MISSING!r}:
    sys.modules[name] = None  # importing it raises ImportError
sys.path.insert(0, {str(HERE)!r})

import lwa
from tests.support import MODEL, Y, sample

fit = sample(target="calibrated", draws=100, progress=True)
assert fit.certify(progress=True).verdict
fit.save("saved")
again = lwa.load("saved")
assert (again.posterior["theta"] == fit.posterior["theta"]).all()
assert again.certificate is not None
kept = sample(checkpoint="kept", progress=True)
assert lwa.resume("kept", MODEL, Y, draws=40, progress=False).draws == 40
"""


def test_a_fit_runs_is_saved_and_certified_without_them(tmp_path):
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Each move reads 20 of 200 rows" in done.stderr
