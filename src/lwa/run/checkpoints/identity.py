"""Whether a run that is taken up is the one that was put down: data, model, settings, versions, machine."""

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
"""Values of θ at which the log density is kept."""
PROBE_ROWS = 256
MAY_DIFFER = ("draws", "budget")
"""Settings that no draw depends on."""
PROCESSOR = "processor"
"""Compiled programs round alike on processors of one kind."""


def identity_of(run: Run) -> dict[str, Any]:
    """All that draws depend on, as JSON."""
    model, rows = run.data.model, run.data.full
    probes = probe_points(model, run.settings.seed)
    settings = {name: value for name, value in run.record().items() if name not in MAY_DIFFER}
    return {
        "rows": run.survey.length,
        "fingerprint of the data": run.survey.fingerprint,
        "model": find_likelihood(model).identify(rows.take(np.zeros(1, np.int64))),
        "start, and probes around it": probes.tolist(),
        "log densities": log_densities(model, rows, probes).tolist(),
        **settings,
        "cohort_chains": len(run.cohorts[0].chains),
        "precision in use": np.dtype(run.problem.dtype).name,
        "lwa": version("lwa"),
        **{name: version(name) for name in ("jax", "jaxlib", "numpy")},
        PROCESSOR: processor(),
    }


def require_same(then: dict[str, Any], run: Run, folder: Path) -> list[str]:
    """Refuse to go on with another run, and name what is different; returns what is to be known of one that goes on."""
    now = identity_of(run)
    told = {name: f"{name}: {shortened(then.get(name))} then, {shortened(now[name])} now" for name in now}
    differences = [name for name in now if name != "log densities" and then.get(name) != now[name]]
    elsewhere = PROCESSOR in differences
    named = [told[name] for name in differences if name != PROCESSOR]
    held, found = np.array(then["log densities"], float), np.array(now["log densities"])
    if not named and not np.allclose(found, held, rtol=1e-9, atol=0):
        worst = int(np.argmax(np.abs(found - held)))
        named = [f"the model: log density {held[worst]:.10g} at a probe then, {found[worst]:.10g} now"]
    if named:
        raise RunFolderError(
            f"{folder} was begun differently, so its draws cannot be continued: {'; '.join(named)}. Pass what it "
            "was begun with, or begin a new run in another folder."
        )
    if not elsewhere:
        return []
    return [
        f"The run goes on with another {told[PROCESSOR]}: its further draws are as good, but may differ in their last "
        "bits from those that it would have made there."
    ]


def shortened(value: Any) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def probe_points(model: Model, seed: int) -> np.ndarray[Any, Any]:
    """The start, and points around it."""
    rng = np.random.default_rng(seed)
    start = model.ravel(model.init)
    return np.stack([start, *(start + 0.1 * rng.normal(size=(PROBES - 1, len(start))))])


def log_densities(model: Model, rows: Rows, probes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """At the probes, of the first rows."""
    batch = rows.take(np.arange(min(PROBE_ROWS, len(rows))))
    with jax.enable_x64(True):
        found = find_likelihood(model).sum_values(probes, batch, PROBE_ROWS)
    return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)


def processor() -> str:
    """Its kind."""
    try:
        told = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    return found[1] if found else platform.machine()
