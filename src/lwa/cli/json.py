"""A run as JSON: what `lwa fit --json` and `lwa summary --json` print."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lwa.result.result import Result

TOLD = (
    "rows",
    "target",
    "exact",
    "subset_size",
    "seed",
    "seconds",
    "stages",
    "stopped",
    "warnings",
    "command",
    "model",
)


def run_as_json(fit: Result, folder: Path, page: Path | None) -> str:
    """Where it is, how it came about, its certificate, and ArviZ's table in full digits."""
    table = fit.summary(round_to="none")
    chains = len(next(iter(fit.posterior.values())))
    described = {
        "run": str(folder),
        "report": None if page is None else str(page),
        "chains": chains,
        "draws": fit.draws,
        **{name: fit.attributes.get(name) for name in TOLD},
        "certificate": fit.attributes.get("certificate"),
        "summary": table.to_dict(orient="index"),
    }
    return as_json(described)


def as_json(described: Mapping[str, Any]) -> str:
    """One line that every reader of JSON takes."""
    return json.dumps(plain(described), allow_nan=False, ensure_ascii=False)


def plain(value: Any) -> Any:
    """What JSON has a word for: NaN and infinity are null."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, str | bool | int | None) else str(value)
