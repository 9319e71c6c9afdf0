"""Generalised linear models by formula."""

from lwa.models.glm.regression import BoundGlm, Glm, glm

__all__ = ["BoundGlm", "Glm", "glm"]
