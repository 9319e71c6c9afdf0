"""U: the subset chain. Its moves R, its weights Φ, its bandwidth ε."""

from lwa.subsets.moves import Fixed, Free, Move, Swap, Window
from lwa.subsets.weights import Epanechnikov, Gaussian, Laplace, Weight

__all__ = ["Epanechnikov", "Fixed", "Free", "Gaussian", "Laplace", "Move", "Swap", "Weight", "Window"]
