"""A user's own object, named on the command line as `module:name`."""

import os
import sys
from importlib import import_module

from lwa.errors import InputError


def load_object(name: str) -> object:
    """Import `module:name`, from the current folder first."""
    module, _, attribute = name.partition(":")
    if not (module and attribute) or "/" in module:
        raise InputError(
            f"{name!r} is no module:name. Pass models:mine for the object mine in models.py of this folder."
        )
    sys.path.insert(0, os.getcwd())
    try:
        found: object = getattr(import_module(module), attribute)
        return found
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name!r} cannot be loaded: {error}. Pass module:name of a module in this folder.") from None
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name!r} cannot be loaded: {type(error).__name__} while {module!r} was imported: {error}. Correct the "
            "module first."
        ) from error
    finally:
        sys.path.remove(os.getcwd())
