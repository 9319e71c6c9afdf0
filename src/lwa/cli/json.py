"""A run as JSON: what `lwa fit --json` and `lwa summary --json` print."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lwa.result.result import Result

ATTRIBUTES = (
    "rows", "target", "exact", "subset_size", "seed", "seconds", "stages", "stopped", "warnings", "command", "model",
)  # fmt: skip
"""Attributes of a run that its JSON repeats."""

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None


def format_run(fit: Result, folder: Path, page: Path | None) -> str:
    """Return where a run is, how it was made, its certificate, and ArviZ's table in full digits."""
    described = {
        "run": str(folder),
        "report": None if page is None else str(page),
        "chains": len(next(iter(fit.posterior.values()))),
        "draws": fit.draws,
        **{name: fit.attributes.get(name) for name in ATTRIBUTES},
        "certificate": fit.attributes.get("certificate"),
        "summary": fit.summary(round_to="none").to_dict(orient="index"),
    }
    return format_json(described)


def format_json(described: Mapping[str, object]) -> str:
    """Return one line of strict JSON."""
    return json.dumps(as_plain_json(described), allow_nan=False, ensure_ascii=False)


def as_plain_json(value: object) -> Json:
    """Return a value as strict JSON can hold it: NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(name): as_plain_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain_json(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, str | bool | int | None) else str(value)
