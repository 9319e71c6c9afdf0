"""The memory of a model of a sequence, and the lead-in that it needs: steps that are read before those of a window.

A window's terms are conditional on earlier steps, which the window does not hold. If the model starts d steps earlier,
it forgets most of where it started. The remaining error is measured in scores at θ̂, the derivatives that determine
where the posterior lies and how wide it is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lwa.data.data import SEGMENT, Data
from lwa.models.likelihood import find_likelihood

PLACES = 8
"""Starts at which memory is measured."""
LONGEST = 16_384
"""The largest number of steps over which memory is measured."""
SHIFT = 0.01
"""How far a late start may move a window's own mode, in posterior sds."""
PASS_SHIFT = 1e-4
"""How far a late start may move the mode of a segment of a pass over all rows."""


@dataclass(frozen=True)
class SequenceMemory:
    """How much the start of a sequence affects the scores of all later steps."""

    left: NDArray[np.float64]  # (H,)  Σ_{j≥k} ‖Fᵀ(∇ℓ_j started here - ∇ℓ_j started long before)‖, root mean square
    whole: bool  # H is half of the longest series: passes may look back to the beginning of each

    def lead_in(self, n: int, N: int, shift: float = SHIFT) -> int:
        """Return the steps needed before n scored ones, which count for N, so that the mode moves by `shift` at most.

        The linear term moves the mode by (N/n) ‖Fᵀ Σ (error of ∇ℓ_j)‖ posterior sds.
        """
        enough = np.flatnonzero(self.left * (N / n) <= shift)
        return int(enough[0]) if len(enough) else len(self.left)

    def forgets(self, n: int, N: int, shift: float = SHIFT) -> bool:
        """Return whether some lead-in is long enough."""
        return self.whole or self.lead_in(n, N, shift) < len(self.left)


def extend_lead_in(data: Data, theta: NDArray[np.float64], factor: NDArray[np.float64]) -> tuple[Data, SequenceMemory]:
    """Return the data with a lead-in that is long enough, and the model's memory at θ. `factor` is F."""
    memory = measure_memory(data, theta, factor)
    needed = memory.lead_in(SEGMENT * data.lead_in, len(data), PASS_SHIFT)
    if needed == len(memory.left) and memory.whole:  # never forgotten, but series are short: start at their beginning
        needed = int(data.series.sizes.max())
    return (data.look_back(1 << needed.bit_length()) if needed > data.lead_in else data), memory


def measure_memory(data: Data, theta: NDArray[np.float64], factor: NDArray[np.float64]) -> SequenceMemory:
    """Compare scores of the same steps after a start at some places of the longest series and after an earlier one."""
    score, rows, series = find_likelihood(data.given).score_steps, data.rows, data.series
    longest = int(np.argmax(series.sizes))
    size = int(series.sizes[longest])
    watched = max(1, min(LONGEST, size // 2))
    first, end = int(series.offsets[longest]) + watched, int(series.offsets[longest + 1])
    places = np.unique(np.linspace(first, max(first, end - watched), PLACES).astype(np.int64))
    late = np.minimum(places[:, None] + np.arange(watched), end - 1)
    early = np.minimum(places[:, None] - watched + np.arange(2 * watched), end - 1)
    squares = np.zeros(watched)
    for near, far in zip(late, early, strict=True):
        apart = score(theta, series.take(rows, near)) - score(theta, series.take(rows, far))[watched:]
        squares += ((apart @ factor) ** 2).sum(1) / len(places)
    left = np.cumsum(np.sqrt(squares)[::-1])[::-1]
    return SequenceMemory(np.ascontiguousarray(left), watched < LONGEST)
