"""The other algorithms that the paper names, one paper a file, on equal terms: the same model, data and counts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lwa.rivals.austerity import Austerity
    from lwa.rivals.bounds import JaakkolaJordan, StudentT
    from lwa.rivals.confidence import Confidence
    from lwa.rivals.delayed_acceptance import DelayedAcceptance
    from lwa.rivals.firefly import Firefly
    from lwa.rivals.metropolis import Metropolis
    from lwa.rivals.noisy import Noisy, total_variation_bound
    from lwa.rivals.pseudo_marginal import PseudoMarginal
    from lwa.rivals.sampling import sample
    from lwa.rivals.sgld import SGLD

_HOME = {
    "Austerity": "austerity",
    "Confidence": "confidence",
    "DelayedAcceptance": "delayed_acceptance",
    "Firefly": "firefly",
    "JaakkolaJordan": "bounds",
    "Metropolis": "metropolis",
    "Noisy": "noisy",
    "PseudoMarginal": "pseudo_marginal",
    "SGLD": "sgld",
    "StudentT": "bounds",
    "sample": "sampling",
    "total_variation_bound": "noisy",
}

__all__ = [
    "SGLD",
    "Austerity",
    "Confidence",
    "DelayedAcceptance",
    "Firefly",
    "JaakkolaJordan",
    "Metropolis",
    "Noisy",
    "PseudoMarginal",
    "StudentT",
    "sample",
    "total_variation_bound",
]


def __getattr__(name: str) -> Any:
    """Import a rival when it is asked for."""
    if name in _HOME:
        return getattr(import_module(f"lwa.rivals.{_HOME[name]}"), name)
    raise AttributeError(f"module 'lwa.rivals' has no attribute {name!r}. Public names: {', '.join(__all__)}.")
