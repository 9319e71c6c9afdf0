"""Check that a resumed run is the one that was begun: same data, model, settings, versions and processor."""

import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lwa.errors import RunFolderError
from lwa.models.likelihood import find_likelihood
from lwa.models.model import Model
from lwa.rows import Rows
from lwa.run.begin import Run

PROBES = 3
"""Values of θ at which log densities are compared."""
PROBE_ROWS = 256
MAY_DIFFER = ("draws", "budget")
"""Settings that may change on resuming: no draw depends on them."""
PROCESSOR = "processor"
"""Compiled programs round alike only on processors of one kind."""


def describe_identity(run: Run) -> dict[str, Any]:
    """Return everything that draws depend on, as JSON."""
    model, rows = run.data.model, run.data.full
    probes = draw_probes(model, run.settings.seed)
    settings = {name: value for name, value in run.record().items() if name not in MAY_DIFFER}
    return {
        "rows": run.survey.length, "fingerprint of the data": run.survey.fingerprint,
        "model": find_likelihood(model).identify(rows.take(np.zeros(1, np.int64))),
        "start, and probes around it": probes.tolist(),
        "log densities": compute_log_densities(model, rows, probes).tolist(), **settings,
        "cohort_chains": len(run.cohorts[0].chains), "precision in use": np.dtype(run.problem.dtype).name,
        "lwa": version("lwa"), **{name: version(name) for name in ("jax", "jaxlib", "numpy")},
        PROCESSOR: find_processor(),
    }  # fmt: skip


def require_same_run(then: dict[str, Any], run: Run, folder: Path) -> list[str]:
    """Raise if `run` is not the run that was begun, and name the differences; return remarks for the user otherwise."""
    now = describe_identity(run)
    differences = {
        name: f"{name}: {shorten_repr(then.get(name))} then, {shorten_repr(now[name])} now"
        for name in now
        if name != "log densities" and then.get(name) != now[name]
    }
    elsewhere = differences.pop(PROCESSOR, None)
    named = list(differences.values())
    held, found = np.array(then["log densities"], float), np.array(now["log densities"])
    if not named and not np.allclose(found, held, rtol=1e-9, atol=0):
        worst = int(np.argmax(np.abs(found - held)))
        named = [f"the model: log density {held[worst]:.10g} at a probe then, {found[worst]:.10g} now"]
    if named:
        raise RunFolderError(
            f"{folder} was begun differently, so its draws cannot be continued: {'; '.join(named)}. Pass what it "
            "was begun with, or begin a new run in another folder."
        )
    if elsewhere is None:
        return []
    return [
        f"The run continues on another {elsewhere}. Further draws are as good, but may differ in their last bits from "
        "those of the first processor."
    ]


def shorten_repr(value: Any) -> str:
    """Return a value as text, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def draw_probes(model: Model, seed: int) -> np.ndarray[Any, Any]:
    """Return the model's start, and random points around it."""
    rng = np.random.default_rng(seed)
    start = model.ravel(model.init)
    return np.stack([start, *(start + 0.1 * rng.normal(size=(PROBES - 1, len(start))))])


def compute_log_densities(model: Model, rows: Rows, probes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the log-likelihood of the first rows at each probe; 0 if it is not finite."""
    batch = rows.take(np.arange(min(PROBE_ROWS, len(rows))))
    with jax.enable_x64(True):
        found = find_likelihood(model).sum_values(probes, batch, PROBE_ROWS)
    return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)


def find_processor() -> str:
    """Return the model name of the processor."""
    try:
        listed = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", listed, re.MULTILINE)
    return found[1] if found else platform.machine()
