"""Φ: how fast the weight ν(U) ∝ Φ(‖S̄(Y_U) - s_N‖ / ε) of a subset falls with its distance."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array


class Weight(ABC):
    """Φ, given by its logarithm."""

    @abstractmethod
    def log(self, x: Array) -> Array:
        """log Φ(x) for x = distance / ε ≥ 0, up to a constant."""

    @staticmethod
    @abstractmethod
    def log_of_number(x: float) -> float:
        """log Φ as a plain function of a number, which `lwa.backend.numba_jit` compiles."""


@dataclass(frozen=True)
class Gaussian(Weight):
    """Φ(x) = exp(-x²/2), the paper's choice. The typical distance is ε√dim(S): ε itself is not a distance."""

    def log(self, x: Array) -> Array:
        """-x²/2."""
        return -0.5 * x**2

    @staticmethod
    def log_of_number(x: float) -> float:
        """-x²/2."""
        return -0.5 * x * x


@dataclass(frozen=True)
class Laplace(Weight):
    """Φ(x) = exp(-x): heavier tails."""

    def log(self, x: Array) -> Array:
        """-x."""
        return -x

    @staticmethod
    def log_of_number(x: float) -> float:
        """-x."""
        return -x


OUTSIDE = -1e6
"""log Φ just outside the support of `Epanechnikov`."""


@dataclass(frozen=True)
class Epanechnikov(Weight):
    """Φ(x) = max(0, 1 - x²): no subset further than ε is ever visited."""

    def log(self, x: Array) -> Array:
        """log(1 - x²) inside the support, which no float can reach from outside.

        A subset drawn at random lies outside. There the weight is exp(-10⁶ - x²): zero in every float, so ν is right,
        but still ordered, so that the chain finds its way in.
        """
        inside = x < 1.0
        return jnp.where(inside, jnp.log1p(-(jnp.where(inside, x, 0.0) ** 2)), OUTSIDE - x**2)

    @staticmethod
    def log_of_number(x: float) -> float:
        """log(1 - x²), and -10⁶ - x² outside the support."""
        return math.log1p(-x * x) if x < 1.0 else OUTSIDE - x * x


WEIGHTS: dict[str, Weight] = {"gaussian": Gaussian(), "laplace": Laplace(), "epanechnikov": Epanechnikov()}
