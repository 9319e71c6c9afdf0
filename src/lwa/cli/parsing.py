"""What a command names: an object of a user's own module, and priors in a few words."""

import os
import re
import sys
from importlib import import_module
from typing import Any

from lwa.errors import InputError

PRIOR = re.compile(r"\s*(?P<of>.+?)\s*=\s*(?P<kind>[a-z_]+)\s*(?:\((?P<numbers>[^()]*)\))?\s*")


def own_object(name: str) -> Any:
    """What `module:name` stands for, looked for in this folder first."""
    module, _, attribute = name.partition(":")
    if not (module and attribute) or "/" in module:
        raise InputError(f"{name!r} is no module:name. Pass models:mine for what models.py of this folder calls mine.")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name!r} cannot be loaded: {error}. Pass module:name of a module in this folder.") from None
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name!r} cannot be loaded: {type(error).__name__} while {module!r} was imported: {error}. Mend it first."
        ) from error
    finally:
        sys.path.remove(os.getcwd())


def priors_of(texts: list[str]) -> Any:
    """`["x = normal(0, 1)", "sigma = exponential(2)"]` as `lwa.glm` takes it; `["flat"]` is none at all."""
    if texts in ([], ["auto"]):
        return "auto"
    if texts == ["flat"]:
        return "flat"
    found = dict(map(prior_of, texts))
    if len(found) < len(texts):
        raise InputError(f"Of {texts!r}, two are priors of the same. Pass one for each.")
    return found


def prior_of(text: str) -> tuple[str, tuple[Any, ...]]:
    """One of them."""
    found = PRIOR.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        numbers = [float(number) for number in (found["numbers"] or "").split(",") if number.strip()]
    except ValueError:
        raise InputError(f"prior {text!r} is not understood. Pass 'x = normal(0, 1)', for example, or flat.") from None
    return found["of"], (found["kind"], *numbers)
