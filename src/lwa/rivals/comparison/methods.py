"""What can be compared: lwa itself and every rival, by name."""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.models.model import Model
from lwa.result.result import Result
from lwa.rivals.rival import Rival, Setting
from lwa.rivals.sampling import rival_of
from lwa.rivals.sampling import sample as rival_sample
from lwa.run.sample import sample
from lwa.targets.reference import Reference


class Method(Protocol):
    """Something that draws θ within a budget."""

    @property
    def label(self) -> str:
        """What tables call it."""

    def excluded(self, setting: Setting) -> str:
        """Why it does not apply; nothing where it does."""

    def run(self, model: Model, data: Any, mode: Reference | None, common: dict[str, Any]) -> Result:
        """Draws under the options that all methods share; `mode` is known where there is one."""


@dataclass(frozen=True)
class Lwa:
    """`lwa.sample` in a comparison.

    Parameters
    ----------
    subset_size, exact, target, kernel
        As `lwa.sample` takes them.
    """

    subset_size: int | str = 1000
    exact: bool = False
    target: str = "auto"
    kernel: Any = "auto"

    @property
    def label(self) -> str:
        """With n, and what sets it apart."""
        told = ["lwa", "exact"] if self.exact else ["lwa"]
        if self.target != "auto":
            told.append(self.target)
        return ", ".join([*told, f"n = {self.subset_size:,}" if isinstance(self.subset_size, int) else "n auto"])

    def excluded(self, setting: Setting) -> str:
        """It falls back to the powered target where there are no derivatives or no mode."""
        return ""

    def run(self, model: Model, data: Any, mode: Reference | None, common: dict[str, Any]) -> Result:
        """By `lwa.sample`."""
        known = None
        if mode is not None and self.target in ("auto", "calibrated"):
            known = as_written(model, mode.theta)
        return sample(
            model, data, subset_size=self.subset_size, exact=self.exact, target=self.target, kernel=self.kernel,
            reference=known, **common,
        )  # fmt: skip


@dataclass(frozen=True)
class Other:
    """A rival in a comparison."""

    rival: Rival
    kernel: Any = "walk"

    @property
    def label(self) -> str:
        """Its own."""
        return self.rival.label

    def excluded(self, setting: Setting) -> str:
        """Its own reason."""
        return self.rival.excluded(setting)

    def run(self, model: Model, data: Any, mode: Reference | None, common: dict[str, Any]) -> Result:
        """By `lwa.rivals.sample`."""
        return rival_sample(self.rival, model, data, kernel=self.kernel, reference=mode, **common)


def as_written(model: Model, vector: NDArray[np.float64]) -> Any:
    """A flat θ as users write it, inside its constraints."""
    values = [array[0] for array in model.by_name(vector[None]).values()]
    return jax.tree.unflatten(jax.tree.structure(model.init), values)


RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "metropolis": ("metropolis", {}),
    "delayed_acceptance": ("delayed_acceptance", {}),
    "confidence": ("confidence", {}),
    "confidence_proxy": ("confidence", {"proxy": True}),
    "austerity": ("austerity", {}),
    "firefly": ("firefly", {}),
    "pseudo_marginal": ("pseudo_marginal", {}),
    "pseudo_marginal_difference": ("pseudo_marginal", {"estimator": "difference"}),
    "noisy": ("noisy", {}),
    "noisy_proxy": ("noisy", {"proxy": True}),
    "sgld": ("sgld", {}),
}
"""Name of the method, and what sets it apart from others of the same paper."""
NAMES = ["lwa", "lwa_exact", *RIVALS]


def methods_of(asked: Any, subset_size: int | str, bound: Any, kernel: Any = "walk") -> list[Method]:
    """By name, or as they are; `"auto"` are all."""
    if isinstance(asked, str):
        asked = NAMES if asked == "auto" else [asked]
    if not isinstance(asked, list | tuple) or not asked:
        raise InputError(f"methods={asked!r} is no list of methods. Pass methods=['lwa', 'metropolis'], for example.")
    return [method_of(one, subset_size, bound, kernel) for one in asked]


def method_of(asked: Any, subset_size: int | str, bound: Any, kernel: Any = "walk") -> Method:
    """One of them."""
    if isinstance(asked, Lwa):
        return asked
    if isinstance(asked, Rival):
        return Other(asked, kernel)
    if asked in ("lwa", "lwa_exact"):
        return Lwa(subset_size, exact=asked == "lwa_exact")
    if isinstance(asked, str) and asked in RIVALS:
        name, options = RIVALS[asked]
        return Other(rival_of(name, options | ({"bound": bound} if name == "firefly" else {})), kernel)
    raise InputError(
        f"methods holds {asked!r}, which is not known. Valid: {', '.join(map(repr, NAMES))}, an object such as "
        "lwa.rivals.Austerity(epsilon=0.01), or lwa.rivals.comparison.Lwa(subset_size=100)."
    )
