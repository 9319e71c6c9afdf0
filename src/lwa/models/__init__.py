"""What is to be inferred."""

from lwa.models import arma
from lwa.models.model import Model
from lwa.models.recursion import Recursion

__all__ = ["Model", "Recursion", "arma"]
