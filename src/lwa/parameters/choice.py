"""Which kernel `kernel="auto"` is."""

from lwa.parameters.autoregressive import Autoregressive
from lwa.parameters.kernel import Kernel
from lwa.parameters.random_walk import RandomWalk


def choose_kernel(d: int, calibrated: bool) -> Kernel:
    """Autoregressive around the reference where there is one, else the adaptive random walk, in every dimension d.

    `benchmarks/kernels.py` measures all kernels against each other.
    """
    return Autoregressive() if calibrated else RandomWalk()
