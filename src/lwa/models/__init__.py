"""What is to be inferred."""

from lwa.models import arma
from lwa.models.model import Model

__all__ = ["Model", "arma"]
