"""How many steps a model of a sequence remembers: how many must lead in before a window may be scored.

A window's terms are conditional on what came before it, which the window does not hold. Started d steps earlier, the
model has forgotten most of where it was started; what is left is measured in scores at θ̂, the derivatives that decide
where the posterior lies and how wide it is.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.data.data import SEGMENT, Data
from lwa.models import numerical
from lwa.models.model import Model
from lwa.rows.slots import double

START_PLACES = 8
"""Starts at which forgetting is measured."""
LONGEST = 16_384
"""Steps over which it is watched at the most."""
WINDOW_SHIFT = 0.01
"""What a late start may move a window's own mode by, in posterior sds."""
PASS_SHIFT = 1e-4
"""The same for segments of a pass over all rows."""


@dataclass(frozen=True)
class LeadIn:
    """What a start leaves in the scores of all later steps."""

    left: NDArray[np.float64]  # (H,)  Σ_{j≥k} ‖Fᵀ(∇ℓ_j started here - ∇ℓ_j started long before)‖, root mean square
    whole: bool  # H is half of the longest series: passes may look back to the beginning of each

    def steps(self, n: int, N: int, shift: float = WINDOW_SHIFT) -> int:
        """Steps before n scored ones, which count for N, so that their scores' sum is off by `shift` at the most.

        The linear term moves the mode by (N/n) ‖Fᵀ Σ (error of ∇ℓ_j)‖ posterior sds.
        """
        enough = np.flatnonzero(self.left * (N / n) <= shift)
        return int(enough[0]) if len(enough) else len(self.left)

    def forgets(self, n: int, N: int, shift: float = WINDOW_SHIFT) -> bool:
        """Whether that is enough."""
        return self.whole or self.steps(n, N, shift) < len(self.left)


def measure_lead_in(data: Data, theta: NDArray[np.float64], factor: NDArray[np.float64]) -> tuple[Data, LeadIn]:
    """The model's found at θ, and the data with segments that look back as far. `factor` is F."""
    found = find_lead_in(data, theta, factor)
    needed = found.steps(SEGMENT * data.lead_in, len(data), PASS_SHIFT)
    if needed == len(found.left) and found.whole:  # never forgotten, and short enough to look back to its beginning
        needed = int(data.series.sizes.max())
    return (data.look_back(1 << needed.bit_length()) if needed > data.lead_in else data), found


def find_lead_in(data: Data, theta: NDArray[np.float64], factor: NDArray[np.float64]) -> LeadIn:
    """Scores of the same steps, started at some places of the longest series and long before them."""
    model, rows, series = data.given, data.rows, data.series
    longest = int(np.argmax(series.sizes))
    size = int(series.sizes[longest])
    watched = max(1, min(LONGEST, size // 2))
    first, last = int(series.offsets[longest]) + watched, int(series.offsets[longest + 1]) - watched
    places = np.unique(np.linspace(first, max(first, last), START_PLACES).astype(np.int64))
    late = np.minimum(places[:, None] + np.arange(watched), series.offsets[longest + 1] - 1)
    early = places[:, None] - watched + np.arange(2 * watched)
    early = np.minimum(early, series.offsets[longest + 1] - 1)
    squares = np.zeros(watched)
    for near, far in zip(late, early, strict=True):
        apart = score_steps(model, theta, series.take(rows, near))
        apart = apart - score_steps(model, theta, series.take(rows, far))[watched:]
        squares += ((apart @ factor) ** 2).sum(1) / len(places)
    left = np.cumsum(np.sqrt(squares)[::-1])[::-1]
    return LeadIn(np.ascontiguousarray(left), watched < LONGEST)


def score_steps(model: Model, theta: NDArray[np.float64], batch: Any) -> NDArray[np.float64]:
    """∇ℓ_k of each step of one sequence, `(m, d)`."""
    if model.host:
        return numerical.row_scores(model, theta, batch)
    return np.asarray(step_scores(model, theta, jax.tree.map(double, batch)))


@partial(jax.jit, static_argnames=("model",))
def step_scores(model: Model, theta: Array, batch: Any) -> Array:
    """Forwards: there are many more steps than parameters."""
    return jax.jacfwd(lambda x: jnp.asarray(model.log_likelihood(model.unravel(x), batch)))(theta)
