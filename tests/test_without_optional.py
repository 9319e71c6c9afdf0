"""A fit needs JAX, NumPy and SciPy: what only shows it, or only some kernels need, may be missing."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]
MISSING = [
    "arviz", "arviz_base", "arviz_plots", "arviz_stats", "blackjax", "cloudpickle", "dask", "distributed", "fsspec",
    "h5netcdf", "h5py", "matplotlib", "pandas", "polars", "pyarrow", "pymc", "typer", "xarray",
]  # fmt: skip

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
print(again.summary())
kept = sample(checkpoint="kept", progress=True)
assert lwa.resume("kept", MODEL, Y, draws=40, progress=False).draws == 40
"""


def test_a_fit_runs_is_saved_and_certified_without_them(tmp_path):
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "theta" in done.stdout
    assert "ArviZ is not installed: these are lwa's own numbers" in done.stdout
    assert "Each move reads 20 of 200 rows" in done.stderr
