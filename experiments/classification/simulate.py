"""Rows of two normal classes in the plane, simulated once and kept on disk."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.classification.model import SHARE, Box, truth
from experiments.exhibit import CHUNK, cached

PURPOSES = {"train": 0, "test": 1}
COLUMNS = ("y1", "y2", "class")


def simulate(purpose: str, N: int, sigma: float, seed: int) -> dict[str, NDArray[Any]]:
    """Memory-mapped columns `y1`, `y2` and `class` (0 or 1, as likely) of N rows."""
    theta = truth(sigma)
    means = theta[:4].reshape(2, 2)

    def fill(first: int, rows: NDArray[np.float32]) -> None:
        rng = np.random.default_rng([seed, PURPOSES[purpose], first])
        label = rng.integers(2, size=len(rows))
        rows[:, :2] = means[label] + sigma * np.sqrt(SHARE) * rng.standard_normal((len(rows), 2), np.float32)
        rows[:, 2] = label

    path = cached(f"classification_{purpose}_{sigma:g}_{N}_{seed}", (N, 3), np.float32, fill)
    rows = np.load(path, mmap_mode="r")
    return {name: rows[:, i] for i, name in enumerate(COLUMNS)}


def box_of(rows: dict[str, NDArray[Any]]) -> Box:
    """Extremes of each class and coordinate, from one pass."""
    low, high = np.full((2, 2), np.inf), np.full((2, 2), -np.inf)
    for first in range(0, len(rows["class"]), CHUNK):
        y1, y2, label = (rows[name][first : first + CHUNK] for name in COLUMNS)
        for j in (0, 1):
            own = np.stack([y1[label == j], y2[label == j]])
            if own.size:
                low[j], high[j] = np.minimum(low[j], own.min(1)), np.maximum(high[j], own.max(1))
    return Box(low, high)
