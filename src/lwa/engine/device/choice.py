"""The choice of the cohort that a device can play."""

from lwa.engine.device.subsets import SubsetsOnDevice
from lwa.engine.device.windows import WindowsOnDevice
from lwa.engine.problem import Problem

type CohortKind = type[SubsetsOnDevice] | type[WindowsOnDevice]


def choose_cohort_kind(problem: Problem, chains: int) -> CohortKind | None:
    """Return the kind of cohort that plays these chains on the device; None if the host plays them."""
    kinds: tuple[CohortKind, ...] = (SubsetsOnDevice, WindowsOnDevice)
    return next((kind for kind in kinds if kind.suits(problem, chains)), None)
