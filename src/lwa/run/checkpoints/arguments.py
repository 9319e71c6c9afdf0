"""The arguments of a call as JSON and back: numbers, names and lwa's own objects. No code is stored or run."""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from lwa import kernels, subsets, summaries, targets
from lwa.errors import RunFolderError
from lwa.run.budget import RowReads

HOMES = {"kernels": kernels, "subsets": subsets, "summaries": summaries, "targets": targets}
SPREAD = ("levels", "parts")
"""Fields that constructors take as positional arguments: `Quantiles(0.2, 0.5)`, `Combine(Quantiles(0.5), MinMax())`."""


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
