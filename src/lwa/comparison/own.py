"""A user's own model, named on the command line as `module:name`."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from lwa.errors import InputError
from lwa.models.model import Model
from lwa.problems import Simulated


def own_problem(name: str, data: Path | None) -> Simulated:
    """A `lwa.Model` with a file of data, or what a function returns as (model, data) or (model, data, bound)."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name!r} cannot be loaded: {error}. Pass module:name of a module in this folder.") from None
    finally:
        sys.path.remove(os.getcwd())
    if isinstance(found, Model):
        if data is None:
            raise InputError(f"{name!r} is a model without data. Pass a .npy file after it, or a function's name.")
        return Simulated(found, data)
    made = found() if callable(found) else found
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], Model):
        raise InputError(
            f"{name!r} is of type {type(made).__name__}; a lwa.Model, or a function that returns (model, data), is "
            "expected."
        )
    return Simulated(*made)
