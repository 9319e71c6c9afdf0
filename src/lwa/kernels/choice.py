"""Which kernel `kernel="auto"` is: measured, in effective draws a second over d = 2 … 100 (`benchmarks/kernels.py`)."""

from importlib.util import find_spec

from lwa.kernels.autoregressive import Autoregressive
from lwa.kernels.hmc import HMC
from lwa.kernels.kernel import Kernel
from lwa.kernels.random_walk import RandomWalk

GAUSSIAN = 0.85
"""Share of the Gaussian's proposals accepted from which on nothing is better: each move costs one evaluation."""
NOT_GAUSSIAN = 0.7
"""... and under which trajectories of some gradients are, given enough parameters."""
TRAJECTORIES, TAILS = 10, 20
"""Parameters from which on trajectories are worth their gradients, and up to which a Student-t covers a skewed or
heavy-tailed posterior better than the Gaussian. Effective draws a second, in thousands, by the share that is predicted
to be accepted (`benchmarks/kernels.py --cases crossing`):

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
    """The kernel for d parameters.

    Where there is a reference, proposals from the Gaussian there, unless too few of them would be accepted; `accepted`
    is None as long as that is not known. Else the adaptive random walk: it asks for no derivatives, and where U moves
    the target draws are worth what U's moves make of them, whatever moves θ.
    """
    if not calibrated:
        return RandomWalk()
    if accepted is None or accepted >= GAUSSIAN:
        return Autoregressive()
    if accepted < NOT_GAUSSIAN and d >= TRAJECTORIES and find_spec("blackjax"):
        return HMC()
    return Autoregressive(df=8.0) if d <= TAILS else Autoregressive()
