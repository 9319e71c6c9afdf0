"""Which kernel `kernel="auto"` is."""

from lwa.parameters.autoregressive import Autoregressive
from lwa.parameters.kernel import Kernel
from lwa.parameters.random_walk import RandomWalk


def worth_asking(d: int) -> bool:
    """Whether it matters how many of the Gaussian's proposals are accepted."""
    return False


def choose_kernel(d: int, *, calibrated: bool, accepted: float | None = None) -> Kernel:
    """Autoregressive around the reference where there is one, else the adaptive random walk, in every dimension d.

    `benchmarks/kernels.py` measures all kernels against each other.
    """
    return Autoregressive() if calibrated else RandomWalk()
