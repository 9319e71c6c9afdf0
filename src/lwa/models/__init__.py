"""Models: f(Y_k|θ) and p(θ), how they are evaluated, and adapters that make them."""

from lwa.models import arma
from lwa.models.model import Model
from lwa.models.recursion import Recursion

__all__ = ["Model", "Recursion", "arma"]
