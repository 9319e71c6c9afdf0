"""What can be compared: lwa itself and every rival, by name."""

import warnings
from dataclasses import dataclass
from typing import Protocol, TypedDict

import jax
import numpy as np
from jaxtyping import Float64, PyTree

from lwa.data.data import Data
from lwa.errors import InputError, LwaError
from lwa.kernels.kernel import MetropolisKernel
from lwa.models.model import Model
from lwa.models.python_model import is_users_error
from lwa.result.result import Result
from lwa.rivals.bounds import RowBound
from lwa.rivals.rival import Rival, Setting
from lwa.rivals.sampling import find_rival
from lwa.rivals.sampling import sample as sample_by_rival
from lwa.run.begin import WIDER, draw_start
from lwa.run.sample import sample
from lwa.run.settings import BudgetOption, KernelOption
from lwa.targets import Calibrated, TargetChoice
from lwa.targets.reference import Reference


class CommonOptions(TypedDict, total=False):
    """The options that all methods of a comparison share."""

    draws: int | str
    tune: int
    chains: int
    thinning: int
    budget: BudgetOption
    seed: int
    initvals: PyTree
    progress: bool


class Method(Protocol):
    """Something that draws θ within a budget."""

    @property
    def label(self) -> str:
        """What tables call it."""

    @property
    def exact(self) -> bool:
        """Whether its draws converge to the posterior of all rows."""

    def explain_exclusion(self, setting: Setting) -> str:
        """Return why the method does not apply; empty if it does."""

    def run(self, model: Model, data: PyTree, mode: Reference | None, common: CommonOptions) -> Result:
        """Draw under the options that all methods share; `mode` is known if there is one."""


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
    kernel: KernelOption = "auto"

    @property
    def label(self) -> str:
        """Its name, with n and what differs from the default."""
        parts = ["lwa", "exact"] if self.exact else ["lwa"]
        if self.target != "auto":
            parts.append(self.target)
        return ", ".join([*parts, f"n = {self.subset_size:,}" if isinstance(self.subset_size, int) else "n auto"])

    def explain_exclusion(self, setting: Setting) -> str:
        """Return nothing: without derivatives or a mode, lwa falls back to the powered target."""
        return ""

    def run(self, model: Model, data: PyTree, mode: Reference | None, common: CommonOptions) -> Result:
        """Draw by `lwa.sample`, from the mode if it is known."""
        target: TargetChoice | str = self.target
        if mode is not None and self.target in ("auto", "calibrated"):
            target = Calibrated(reference=constrain_theta(model, mode.theta))
        return sample(
            model, data, subset_size=self.subset_size, exact=self.exact, target=target, kernel=self.kernel, **common,
        )  # fmt: skip


@dataclass(frozen=True)
class RivalMethod:
    """A rival in a comparison."""

    rival: Rival
    kernel: str | MetropolisKernel = "walk"

    @property
    def label(self) -> str:
        """The rival's own label."""
        return self.rival.label

    @property
    def exact(self) -> bool:
        """Whether its draws converge to the posterior of all rows."""
        return self.rival.exact

    def explain_exclusion(self, setting: Setting) -> str:
        """Return why the rival does not apply; empty if it does."""
        return self.rival.explain_exclusion(setting)

    def run(self, model: Model, data: PyTree, mode: Reference | None, common: CommonOptions) -> Result:
        """Draw by `lwa.rivals.sample`, from the mode if it is known."""
        return sample_by_rival(self.rival, model, data, kernel=self.kernel, reference=mode, **common)


type MethodOption = str | Rival | Lwa


def constrain_theta(model: Model, vector: Float64[np.ndarray, " d"]) -> PyTree:
    """Return a flat θ as users write it, inside its constraints."""
    values = [array[0] for array in model.by_name(vector[None]).values()]
    return jax.tree.unflatten(jax.tree.structure(model.init), values)


NAMED_RIVALS: dict[str, tuple[str, dict[str, object]]] = {
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
"""The rival behind each name, and its hyperparameters."""
METHOD_NAMES = ["lwa", "lwa_exact", *NAMED_RIVALS]


def find_methods(asked: object, subset_size: int | str, bound: RowBound | None, kernel: str) -> list[Method]:
    """Return methods by name, or as they are; `"auto"` are all."""
    if isinstance(asked, str):
        asked = METHOD_NAMES if asked == "auto" else [asked]
    if not isinstance(asked, list | tuple) or not asked:
        raise InputError(f"methods={asked!r} is no list of methods. Pass methods=['lwa', 'metropolis'], for example.")
    return [find_method(one, subset_size, bound, kernel) for one in asked]


def find_method(
    asked: object, subset_size: int | str, bound: RowBound | None, kernel: str | MetropolisKernel = "walk"
) -> Method:
    """Return a method by name, or as it is."""
    if isinstance(asked, Lwa):
        return asked
    if isinstance(asked, Rival):
        return RivalMethod(asked, kernel)
    if asked in ("lwa", "lwa_exact"):
        return Lwa(subset_size, exact=asked == "lwa_exact")
    if isinstance(asked, str) and asked in NAMED_RIVALS:
        name, options = NAMED_RIVALS[asked]
        return RivalMethod(find_rival(name, options | ({"bound": bound} if name == "firefly" else {})), kernel)
    raise InputError(
        f"methods holds {asked!r}, which is not known. Valid: {', '.join(map(repr, METHOD_NAMES))}, an object such as "
        "lwa.rivals.Austerity(epsilon=0.01), or lwa.rivals.comparison.Lwa(subset_size=100)."
    )


def label_methods(methods: list[Method]) -> dict[str, Method]:
    """Return methods by label; those that share a label are numbered."""
    found: dict[str, Method] = {}
    for method in methods:
        same = sum(1 for other in found.values() if other.label == method.label)
        found[f"{method.label} ({same + 1})" if same else method.label] = method
    return found


def draw_starts(model: Model, mode: Reference | None, seed: int, chains: int) -> list[PyTree] | None:
    """Draw starts around the mode, as users write them; None, for each method's own, if there is no mode."""
    if mode is None:
        return None
    spread = [draw_start(model, mode, seed, chain, attempt=1, spread=WIDER) for chain in range(chains)]
    return [constrain_theta(model, theta) for theta in spread]


def try_method(method: Method, model: Model, data: Data, mode: Reference | None, common: CommonOptions) -> Result | str:
    """Return a method's draws, or why there are none: if one method fails, the others still count."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kept with the run
        try:
            fit = method.run(model, data, mode, common)
        except LwaError as error:
            return f"failed: {error}".rstrip(".")
        except Exception as error:
            if is_users_error(error):
                raise
            return f"failed with {type(error).__name__}: {error}".rstrip(".")
    return fit if fit.draws else "no draw was made within the budget"
