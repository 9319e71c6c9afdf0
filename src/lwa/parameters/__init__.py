"""θ: the kernels that move the parameters given a subset."""

from lwa.parameters.autoregressive import Autoregressive
from lwa.parameters.kernel import Kernel
from lwa.parameters.random_walk import RandomWalk

__all__ = ["Autoregressive", "Kernel", "RandomWalk"]
