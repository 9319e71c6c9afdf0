"""Which cohort a device can play."""

from lwa.engine.cohort import Problem
from lwa.engine.device.subsets import SubsetsOnDevice
from lwa.engine.device.windows import WindowsOnDevice

type Kind = type[SubsetsOnDevice] | type[WindowsOnDevice]


def kind_for(problem: Problem, chains: int) -> Kind | None:
    """What plays so many chains on the device; None where the host does."""
    kinds: tuple[Kind, ...] = (SubsetsOnDevice, WindowsOnDevice)
    return next((kind for kind in kinds if kind.suits(problem, chains)), None)
