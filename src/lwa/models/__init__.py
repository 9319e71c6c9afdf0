"""What is to be inferred."""

from lwa.models.model import Model

__all__ = ["Model"]
