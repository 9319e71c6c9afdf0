"""A user's own model, named on the command line as `module:name`."""

from pathlib import Path

from lwa.cli.parsing import own_object
from lwa.errors import InputError
from lwa.models.model import Model
from lwa.rivals.problems import Simulated


def own_problem(name: str, data: Path | None) -> Simulated:
    """A `lwa.Model` with a file of data, or what a function returns as (model, data) or (model, data, bound)."""
    found = own_object(name)
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
