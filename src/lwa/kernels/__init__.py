"""θ: the kernels that move the parameters given a subset."""

from lwa.kernels.autoregressive import Autoregressive
from lwa.kernels.blockwise import Blockwise
from lwa.kernels.hmc import HMC
from lwa.kernels.independence import Independence
from lwa.kernels.kernel import Kernel
from lwa.kernels.mala import MALA
from lwa.kernels.nuts import NUTS
from lwa.kernels.random_walk import RandomWalk

__all__ = ["HMC", "MALA", "NUTS", "Autoregressive", "Blockwise", "Independence", "Kernel", "RandomWalk"]
