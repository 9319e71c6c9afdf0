"""What can be compared: lwa itself and every rival, by name."""

import warnings
from dataclasses import dataclass
from typing import TypedDict

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


type Method = Lwa | Rival


def draw_by(
    method: Method, model: Model, data: PyTree, mode: Reference | None, kernel: str | MetropolisKernel,
    common: CommonOptions,
) -> Result:  # fmt: skip
    """Draw under the options that all methods share, from the mode if it is known; rivals propose by `kernel`."""
    if isinstance(method, Rival):
        return sample_by_rival(method, model, data, kernel=kernel, reference=mode, **common)
    target: TargetChoice | str = method.target
    if mode is not None and target in ("auto", "calibrated"):
        target = Calibrated(reference=constrain_theta(model, mode.theta))
    return sample(
        model, data, subset_size=method.subset_size, exact=method.exact, target=target, kernel=method.kernel, **common
    )


def constrain_theta(model: Model, vector: Float64[np.ndarray, " d"]) -> PyTree:
    """Return a flat θ as users write it, inside its constraints."""
    values = [array[0] for array in model.by_name(vector[None]).values()]
    return jax.tree.unflatten(jax.tree.structure(model.init), values)


NAMED_RIVALS: dict[str, tuple[str, dict[str, object]]] = {
    "metropolis": ("metropolis", {}), "delayed_acceptance": ("delayed_acceptance", {}),
    "confidence": ("confidence", {}), "confidence_proxy": ("confidence", {"proxy": True}),
    "austerity": ("austerity", {}), "firefly": ("firefly", {}), "pseudo_marginal": ("pseudo_marginal", {}),
    "pseudo_marginal_difference": ("pseudo_marginal", {"estimator": "difference"}),
    "noisy": ("noisy", {}), "noisy_proxy": ("noisy", {"proxy": True}), "sgld": ("sgld", {}),
}  # fmt: skip
"""The rival behind each name, and its hyperparameters."""
METHOD_NAMES = ["lwa", "lwa_exact", *NAMED_RIVALS]


def find_methods(asked: object, subset_size: int | str, bound: RowBound | None) -> list[Method]:
    """Return methods by name, or as they are; `"auto"` are all."""
    if isinstance(asked, str):
        asked = METHOD_NAMES if asked == "auto" else [asked]
    if not isinstance(asked, list | tuple) or not asked:
        raise InputError(f"methods={asked!r} is no list of methods. Pass methods=['lwa', 'metropolis'], for example.")
    return [find_method(one, subset_size, bound) for one in asked]


def find_method(asked: object, subset_size: int | str, bound: RowBound | None) -> Method:
    """Return a method by name, or as it is."""
    if isinstance(asked, Lwa | Rival):
        return asked
    if asked in ("lwa", "lwa_exact"):
        return Lwa(subset_size, exact=asked == "lwa_exact")
    if isinstance(asked, str) and asked in NAMED_RIVALS:
        name, options = NAMED_RIVALS[asked]
        return find_rival(name, options | ({"bound": bound} if name == "firefly" else {}))
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


def try_method(
    method: Method, model: Model, data: Data, mode: Reference | None, kernel: str, common: CommonOptions
) -> Result | str:
    """Return a method's draws, or why there are none: if one method fails, the others still count."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kept with the run
        try:
            fit = draw_by(method, model, data, mode, kernel=kernel, common=common)
        except LwaError as error:
            return f"failed: {error}".rstrip(".")
        except Exception as error:
            if is_users_error(error):
                raise
            return f"failed with {type(error).__name__}: {error}".rstrip(".")
    return fit if fit.draws else "no draw was made within the budget"
