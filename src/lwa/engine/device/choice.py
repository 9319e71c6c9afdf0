"""Which cohort a device can play."""

from lwa.engine.device.subsets import SubsetsOnDevice
from lwa.engine.device.windows import WindowsOnDevice
from lwa.engine.problem import Problem

type Kind = type[SubsetsOnDevice] | type[WindowsOnDevice]


def choose_cohort(problem: Problem, chains: int) -> Kind | None:
    """Return what plays so many chains on the device; None if the host does."""
    kinds: tuple[Kind, ...] = (SubsetsOnDevice, WindowsOnDevice)
    return next((kind for kind in kinds if kind.suits(problem, chains)), None)
