"""The kernel behind `kernel="auto"`: measured in effective draws per second, d = 2 … 100 (`benchmarks/kernels.py`)."""

from lwa.kernels.autoregressive import Autoregressive
from lwa.kernels.hmc import HMC
from lwa.kernels.kernel import Kernel
from lwa.kernels.random_walk import RandomWalk

GAUSSIAN = 0.85
"""Acceptance rate of the Gaussian's proposals above which nothing is better: each move costs one evaluation."""
NOT_GAUSSIAN = 0.7
"""... and below which trajectories of several gradients are better, given enough parameters."""
TRAJECTORIES, TAILS = 10, 20
"""Numbers of parameters above which trajectories are worth their gradients, and up to which a Student-t covers a skewed
or heavy-tailed posterior better than the Gaussian. Effective draws per second, in thousands, by the predicted
acceptance rate (`benchmarks/kernels.py --cases crossing`):

|  d | predicted | Gaussian | Student-t | HMC |
|----|-----------|----------|-----------|-----|
|  5 |      0.61 |       14 |        65 |  64 |
|  5 |      0.77 |       68 |       152 |  54 |
|  5 |      0.90 |      156 |       176 |  28 |
| 10 |      0.57 |       11 |        35 |  58 |
| 10 |      0.75 |       81 |       120 |  38 |
| 10 |      0.89 |      123 |       103 |  17 |
| 30 |      0.45 |        4 |         8 |  23 |
| 30 |      0.57 |       10 |        13 |  13 |
| 30 |      0.71 |       20 |        17 |   8 |
"""


def choose_kernel(d: int, *, calibrated: bool, accepted: float | None = None) -> Kernel:
    """Return the kernel for d parameters.

    With a reference, it proposes from the Gaussian there, unless too few proposals would be accepted; `accepted` is
    None as long as that is not known. Otherwise it is the adaptive random walk: it needs no derivatives, and if the
    subset moves the target, the subset's own moves limit what draws are worth, whichever kernel moves θ.
    """
    if not calibrated:
        return RandomWalk()
    if accepted is None or accepted >= GAUSSIAN:
        return Autoregressive()
    if accepted < NOT_GAUSSIAN and d >= TRAJECTORIES:
        return HMC()
    return Autoregressive(df=8.0) if d <= TAILS else Autoregressive()
