"""Given its digit, an image is a template seen in noise: Y = φ(θ_digit) + σ ε, with φ linear and all of it conjugate.

φ is a sum of Gaussian bumps, φ(θ)(x) = Σ_c K(x, c) θ_c, over control points c on a square grid whose first and last lie
on the image's edges (Allassonnière, Amit and Trouvé, 2007). With 16 x 16 of them over 15 x 15 pixels these are the
pixels' corners. K is a product of one factor an axis, so that with A = θ as a matrix φ(θ) = P A Pᵀ.
"""

from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

import lwa
from experiments.digits.images import DIGITS, SIDE

PATCH = 4
"""Control points along the edge of a block: those of one digit that move together."""
WIDTH = 0.5
"""Sd of a bump, in distances between control points. Wider ones make φ all but singular: bumps of one distance have
singular values down to 0.0003 of the largest, these down to 0.008."""


def bumps(at: np.ndarray, centres: np.ndarray, sd: float) -> np.ndarray:
    """One axis of K: exp(-(x - c)²/(2 sd²)), `(points, centres)`."""
    return np.exp(-0.5 * ((at[:, None] - centres) / sd) ** 2)


@dataclass(frozen=True)
class Templates:
    """The model of the five digits, with `grid` x `grid` control points each and noise of a known sd."""

    grid: int
    sigma: float = field(default=1.0)

    @cached_property
    def controls(self) -> np.ndarray:
        """Control points along one axis, in pixels from the edge."""
        return np.linspace(0, SIDE, self.grid)

    @cached_property
    def to_pixels(self) -> np.ndarray:
        """P: one axis of φ, `(pixels, controls)`."""
        return bumps(np.arange(SIDE) + 0.5, self.controls, WIDTH * self.controls[1])

    @cached_property
    def stiffness(self) -> np.ndarray:
        """One axis of the prior's precision K(c, c'), `(controls, controls)`."""
        return bumps(self.controls, self.controls, WIDTH * self.controls[1])

    @property
    def patches(self) -> int:
        """Blocks along an edge of the grid."""
        return self.grid // PATCH

    @property
    def names(self) -> list[str]:
        """Parameters, one a block: `digit1_patch00`, in the order that JAX sorts them into."""
        return [f"digit{digit}_patch{patch:02d}" for digit in DIGITS for patch in range(self.patches**2)]

    def squares(self, theta):
        """Parameters by name, leaves `(..., PATCH, PATCH)`, as one grid a digit: `(..., 5, grid, grid)`."""
        where = jnp if isinstance(theta[self.names[0]], jax.Array) else np
        held = where.stack([theta[name] for name in self.names], axis=-3)
        before = held.shape[:-3]
        held = held.reshape(*before, len(DIGITS), self.patches, self.patches, PATCH, PATCH)
        return where.moveaxis(held, -2, -3).reshape(*before, len(DIGITS), self.grid, self.grid)

    def phi(self, squares):
        """Templates of grids: P A Pᵀ, `(..., 15, 15)`."""
        return self.to_pixels.astype(squares.dtype) @ squares @ self.to_pixels.T.astype(squares.dtype)

    @property
    def matrix(self) -> np.ndarray:
        """φ as a matrix, `(225, grid²)`."""
        return np.kron(self.to_pixels, self.to_pixels)

    @property
    def prior_precision(self) -> np.ndarray:
        """Of one digit's θ, `(grid², grid²)`."""
        return np.kron(self.stiffness, self.stiffness)

    def model(self) -> lwa.Model:
        """For lwa and its rivals alike: all five templates once an evaluation, each image against its own.

        Squares are in float32 and sums over rows in float64, for both.
        """

        def log_likelihood(theta, rows):
            templates = self.phi(self.squares(theta).astype(jnp.float32)).reshape(len(DIGITS), -1)
            images = rows["image"].astype(jnp.float32) / 255
            misfit = jnp.sum((images - templates[rows["digit"] - DIGITS[0]]) ** 2, -1)
            return -0.5 * misfit / self.sigma**2

        def log_prior(theta):
            squares = self.squares(theta)
            stiffness = self.stiffness.astype(squares.dtype)
            return -0.5 * jnp.sum(squares * (stiffness @ squares @ stiffness))

        return lwa.Model(log_likelihood, log_prior, {name: jnp.zeros((PATCH, PATCH)) for name in self.names})
