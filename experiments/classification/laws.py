"""Draws beside the posterior of all rows, which is known: classes are normal, and so many rows drown any prior."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.classification.model import SHARE
from experiments.exhibit import CHUNK


class Law(NamedTuple):
    """Draws of one method, measured in the posterior of all rows."""

    method: str
    shift: float  # largest |mean - posterior mean| of a parameter, in posterior sds
    narrowest: float  # sd / posterior sd
    widest: float


class Posterior(NamedTuple):
    """Of all rows, `(6,)`. What the prior adds is of order 1/N, some thousandths of an sd and less."""

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]

    def law_of(self, method: str, theta: NDArray[np.float64]) -> Law:
        """Of draws `(draws, 6)`."""
        shift = np.abs(theta.mean(0) - self.mean) / self.sd
        ratio = theta.std(0) / self.sd
        return Law(method, float(shift.max()), float(ratio.min()), float(ratio.max()))


def posterior_of(rows: Mapping[str, Any]) -> Posterior:
    """Sample means, σ̂² = ½ Σ_c Var(y_c)/share_c, and sds σ̂√(share/N_j) and σ̂/(2√N_j), from one pass."""
    sums = np.zeros((2, 5))  # by class: rows, Σ y, Σ y²
    for first in range(0, len(rows["class"]), CHUNK):
        y1, y2, label = (np.asarray(rows[name][first : first + CHUNK], np.float64) for name in ("y1", "y2", "class"))
        each = np.stack([np.ones_like(y1), y1, y2, y1**2, y2**2])
        sums += np.stack([each @ (label == j) for j in (0, 1)])
    count, mean = sums[:, :1], sums[:, 1:3] / sums[:, :1]
    sigma = np.sqrt(((sums[:, 3:] / count - mean**2) / SHARE).mean(1))
    sd = sigma[:, None] * np.sqrt(SHARE / count)
    return Posterior(
        np.concatenate([mean.ravel(), sigma]), np.concatenate([sd.ravel(), sigma / (2 * np.sqrt(count[:, 0]))])
    )
