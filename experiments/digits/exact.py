"""What is known in closed form, since the model is conjugate: Gaussian posteriors of any number of images a digit."""

import numpy as np

from experiments.digits.images import DIGITS
from experiments.digits.model import PATCH, Templates


def class_means(images: dict[str, np.ndarray]) -> np.ndarray:
    """The mean image of each digit, pixels between 0 and 1: `(5, 225)`."""
    return np.stack([images["image"][images["digit"] == digit].mean(0) for digit in DIGITS]) / 255


def residual_sd(images: dict[str, np.ndarray]) -> float:
    """Sd of pixels around the mean image of their digit: what σ is fixed at."""
    away = images["image"] / 255 - class_means(images)[images["digit"] - DIGITS[0]]
    return float(np.sqrt(np.mean(away**2)))


def precision(templates: Templates, count: int) -> np.ndarray:
    """Of one digit's posterior given `count` of its images: φᵀφ count/σ² + K(c, c')."""
    return templates.matrix.T @ templates.matrix * count / templates.sigma**2 + templates.prior_precision


def posterior_mean(templates: Templates, means: np.ndarray, count: int) -> np.ndarray:
    """The mean of θ, also its mode, given `count` images a digit of these mean images: `(5, grid, grid)`.

    It is linear in the mean images. So with the mean images of all rows and the count of a balanced subset it is the
    mean over all balanced subsets of their posterior means, which is where the running mean of LWA goes.
    """
    pull = templates.matrix.T @ means.T * count / templates.sigma**2
    return np.linalg.solve(precision(templates, count), pull).T.reshape(len(DIGITS), templates.grid, templates.grid)


def block_variance(templates: Templates, count: int) -> float:
    """Variance of a control point given those outside its block, averaged over all of them: a walk's room to move."""
    held = precision(templates, count)
    entries = np.arange(templates.grid**2).reshape(templates.grid, templates.grid)
    corners = [(i, j) for i in range(0, templates.grid, PATCH) for j in range(0, templates.grid, PATCH)]
    blocks = [entries[i : i + PATCH, j : j + PATCH].ravel() for i, j in corners]
    return float(np.mean([np.diag(np.linalg.inv(held[np.ix_(block, block)])) for block in blocks]))


def round_variance(templates: Templates, count: int) -> float:
    """1 / the mean curvature along one control point: what the variance of a round walk goes with.

    A move of variance s² an entry loses s²/2 times the trace of its block's precision on average, which decides on it.
    """
    return float(1 / np.diag(precision(templates, count)).mean())


def distance(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """d: Euclidean distances between arrays `(..., 5, a, b)`, summed over the five digits."""
    return np.sqrt(((these - those) ** 2).sum((-2, -1))).sum(-1)
