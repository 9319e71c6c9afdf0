"""The other algorithms that the paper names, one file per paper, on equal terms: same model, data and counts."""

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

_RIVAL_MODULES = {
    "Austerity": "austerity", "Confidence": "confidence", "DelayedAcceptance": "delayed_acceptance",
    "Firefly": "firefly", "JaakkolaJordan": "bounds", "Metropolis": "metropolis", "Noisy": "noisy",
    "PseudoMarginal": "pseudo_marginal", "SGLD": "sgld", "StudentT": "bounds", "sample": "sampling",
    "total_variation_bound": "noisy",
}  # fmt: skip

__all__ = [
    "SGLD", "Austerity", "Confidence", "DelayedAcceptance", "Firefly", "JaakkolaJordan", "Metropolis", "Noisy",
    "PseudoMarginal", "StudentT", "sample", "total_variation_bound",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a rival on first use."""
    if name in _RIVAL_MODULES:
        return getattr(import_module(f"lwa.rivals.{_RIVAL_MODULES[name]}"), name)
    raise AttributeError(f"module 'lwa.rivals' has no attribute {name!r}. Public names: {', '.join(__all__)}.")
