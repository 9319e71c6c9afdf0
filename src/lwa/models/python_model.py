"""Models that JAX cannot trace: plain Python, NumPy, SciPy, C.

Their functions are called with NumPy's arrays in float64, one θ at a time, on the thread that called lwa.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.models.model import Model
from lwa.models.user_calls import as_terms, ask


@dataclass(frozen=True, eq=False)
class OnHost(Model):
    """A model that runs in Python; made by `check_model`."""

    reasons: tuple[tuple[str, str], ...] = ()  # which function is not JAX, and what JAX says
    host: ClassVar[bool] = True

    @property
    def in_words(self) -> str:
        """What is not JAX, and why."""
        names = " and ".join(name for name, _ in self.reasons)
        return f"{names} {'is' if len(self.reasons) == 1 else 'are'} not JAX ({self.reasons[0][1]})"


HOSTED: WeakKeyDictionary[Model, OnHost] = WeakKeyDictionary()
"""Models that were found to run in Python before: what is compiled for one serves its next run."""


def on_host(model: Model, reasons: dict[str, str]) -> OnHost:
    """The same model in Python: a function that is JAX after all is compiled, and called like the other."""
    told = tuple(reasons.items())
    if model in HOSTED and HOSTED[model].reasons == told:
        return HOSTED[model]
    functions = {
        name: getattr(model, name) if name in reasons else jax.jit(getattr(model, name))
        for name in ("log_likelihood", "log_prior")
    }
    fields = {name: value for name, value in vars(model).items() if name in Model.__dataclass_fields__}
    HOSTED[model] = OnHost(**fields | functions, reasons=told)
    return HOSTED[model]


def theta_at(model: Model, vector: NDArray[Any]) -> Any:
    """θ as the user wrote it, NumPy's and the user's own: what they write on it changes no chain."""
    vector = np.array(vector, np.float64)
    if model.constrained:
        leaves = [np.array(leaf[0])[()] for leaf in model.by_name(vector[None]).values()]
    else:
        leaves = [vector[place].reshape(shape)[()] for place, shape in model.places]
    return jax.tree.unflatten(jax.tree.structure(model.init), leaves)


def row_terms(model: Model, vector: NDArray[Any], rows: Any) -> NDArray[np.float64]:
    """log f(Y_k|θ) at a flat θ, for rows with their slots on the first axis."""
    rows = jax.tree.map(owned, rows)
    return as_terms(ask(model.log_likelihood, theta_at(model, vector), rows), len(jax.tree.leaves(rows)[0]))


def log_prior(model: Model, vector: NDArray[Any]) -> float:
    """log p at a flat θ, as a density of that vector."""
    value = float(np.asarray(ask(model.log_prior, theta_at(model, vector)), np.float64).reshape(()))
    return value + float(log_jacobian(model, np.asarray(vector, np.float64))) if model.constrained else value


def log_priors(model: Model, vectors: NDArray[Any]) -> NDArray[np.float64]:
    """The same of several."""
    return np.array([log_prior(model, vector) for vector in vectors], np.float64)


def owned(leaf: Any) -> NDArray[Any]:
    """A copy of a column, contiguous as C wants it; floats in float64, other types as they are."""
    floating = np.issubdtype(leaf.dtype, np.floating)
    return np.array(leaf, np.float64 if floating else leaf.dtype, order="C")


@partial(jax.jit, static_argnames=("model",))
def log_jacobian(model: Model, vector: Array) -> Array:
    """log |∂θ/∂vector|."""
    return model.log_jacobian_at(vector)
