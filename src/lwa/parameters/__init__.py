"""θ: the kernels that move the parameters given a subset."""

from lwa.parameters.autoregressive import Autoregressive
from lwa.parameters.blockwise import Blockwise
from lwa.parameters.hmc import HMC
from lwa.parameters.independence import Independence
from lwa.parameters.kernel import Kernel
from lwa.parameters.mala import MALA
from lwa.parameters.nuts import NUTS
from lwa.parameters.random_walk import RandomWalk

__all__ = ["HMC", "MALA", "NUTS", "Autoregressive", "Blockwise", "Independence", "Kernel", "RandomWalk"]
