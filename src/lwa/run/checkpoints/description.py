"""The description of a run in its checkpoint, as JSON: the arguments of the call, and everything that draws depend on.

Arguments are numbers, names and lwa's own objects; no code is stored or run. A run is resumed only if it is the same.
"""

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lwa import kernels, subsets, summaries, targets
from lwa.errors import RunFolderError
from lwa.models.likelihood import find_likelihood
from lwa.models.model import Model
from lwa.rows import Rows
from lwa.rows.passes import list_strata
from lwa.run.begin import Run
from lwa.run.budget import RowReads

HOMES = {"kernels": kernels, "subsets": subsets, "summaries": summaries, "targets": targets}
SPREAD = ("levels", "parts")
"""Fields that constructors take as positional arguments: `Quantiles(0.2, 0.5)`, `Combine(Quantiles(0.5), MinMax())`."""
PROBES = 3
"""Values of θ at which log densities are compared."""
PROBE_ROWS = 256
MAY_DIFFER = ("draws", "budget")
"""Settings that may change on resuming: no draw depends on them."""
PROCESSOR = "processor"
"""Compiled programs round alike only on processors of one kind."""


class UnsupportedValue(Exception):
    """A value that JSON cannot hold: a function, an array."""


def encode_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that JSON can hold, and the names of the others as "unkept"."""
    kept: dict[str, Any] = {"arguments": {}, "unkept": []}
    for name, value in arguments.items():
        try:
            kept["arguments"][name] = encode_value(value)
        except UnsupportedValue:
            kept["unkept"].append(name)
    return kept


def decode_arguments(kept: Mapping[str, Any], given: Mapping[str, Any], folder: os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments of the call that began a run; those that JSON could not hold come from `given`."""
    if missing := [name for name in kept["unkept"] if name not in given]:
        raise RunFolderError(
            f"{folder} was begun with {missing[0]}=..., which a file cannot hold. Pass the same again: "
            f"lwa.resume({str(folder)!r}, model, data, {missing[0]}=...)."
        )
    return {name: decode_value(value) for name, value in kept["arguments"].items()} | dict(given)


def encode_value(value: Any) -> Any:
    """Return a value as JSON, or raise `UnsupportedValue`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, RowReads):
        return {"lwa": "RowReads", "fields": {"count": encode_value(value.count)}}
    if isinstance(value, list | tuple):
        return [encode_value(one) for one in value]
    home = next((name for name, module in HOMES.items() if type(value).__name__ in module.__all__), None)
    if home is None or not is_dataclass(value) or isinstance(value, type):
        raise UnsupportedValue
    own = {field.name: encode_value(getattr(value, field.name)) for field in fields(value) if field.repr}
    return {"lwa": f"{home}.{type(value).__name__}", "fields": own}


def decode_value(value: Any) -> Any:
    """Return the value that `encode_value` encoded; of objects, only lwa's own classes are built."""
    if isinstance(value, list):
        return [decode_value(one) for one in value]
    if not isinstance(value, dict):
        return value
    home, _, name = str(value.get("lwa")).partition(".")
    own = {str(field): decode_value(one) for field, one in dict(value.get("fields", {})).items()}
    made: Any = RowReads if home == "RowReads" else None
    if home in HOMES and name in HOMES[home].__all__:
        made = getattr(HOMES[home], name)
    if not (isinstance(made, type) and is_dataclass(made)):
        raise RunFolderError(f"A run names {value.get('lwa')!r}, which is no class of lwa. It is not lwa's own.")
    passed = [one for field in SPREAD if field in own for one in own.pop(field)]
    if name == "Combine":
        own.pop("column", None)  # derived from its parts
    return made(*passed, **own)


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
    rows = list_strata(rows)[0]  # of groups in strata, those of the shortest
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
