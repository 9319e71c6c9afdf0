"""S if subsets are sets of groups: the sum over each group's rows of how far they are from s_N."""

from dataclasses import dataclass, field

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.rows.units import Stretch
from lwa.summaries.summary import Statistic


@dataclass(frozen=True)
class OverGroups:
    """S̄(Y_U) - s_N = Σ_{groups of U} Σ_{rows} (S(Y_k) - s_N) / (n m̄), m̄ the mean size of a group."""

    statistic: Statistic
    mean_size: float
    dimension: int = field(init=False)  # s

    def __post_init__(self) -> None:
        """Copy the number of components."""
        object.__setattr__(self, "dimension", self.statistic.dimension)

    def centred(self, groups: Stretch, counts: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return what each group adds, times what it counts, `(m, s)`."""
        m, length = groups.scored.shape
        rows = jax.tree.map(lambda leaf: leaf.reshape(m * length, *leaf.shape[2:]), groups.rows)
        values = self.statistic.centred(rows).reshape(m, length, -1)
        summed = np.where(groups.scored[..., None], values, 0.0).sum(1) / self.mean_size
        return summed if counts is None else counts[:, None] * summed
