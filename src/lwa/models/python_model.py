"""Models that JAX cannot trace: plain Python, NumPy, SciPy, C.

Their functions are called with NumPy's arrays in float64, one θ at a time, on the thread that called lwa.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import Array
from jaxtyping import PyTree
from numpy.typing import ArrayLike, NDArray

from lwa.errors import ModelError
from lwa.models.model import Model, RowNumbers, Vector, Vectors
from lwa.rows.passes import count_rows
from lwa.rows.slots import split_layers
from lwa.rows.units import Layers, Stretch


def call_user[**P, R](function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """Return what a user's function returns; what it raises passes through, and `is_users_error` finds this frame.

    NumPy's warnings of NaN and infinity are suppressed, as JAX has none: such values are rejected and counted. If a
    user made them errors, they stay errors.
    """
    warned = {kind: "ignore" for kind, how in np.geterr().items() if how == "warn"}
    with np.errstate(**warned):  # type: ignore[arg-type]
        return function(*arguments, **options)


def is_users_error(error: BaseException) -> bool:
    """Return whether an error came out of a user's function that `call_user` called."""
    return any(frame.f_code is call_user.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def require_terms(values: ArrayLike, m: int) -> NDArray[np.float64]:
    """Return what a log-likelihood returned for m rows, of the shape that it was checked for at first."""
    terms = np.asarray(values, np.float64)
    if terms.shape != (m,):
        raise ModelError(
            f"log_likelihood returned shape {terms.shape} for {m} rows; one value per row, shape ({m},), is expected. "
            "Return an array with log f(Y_k|theta) of each row."
        )
    return terms


def sum_units_in_python(log_likelihood: Callable[..., ArrayLike], theta: PyTree, units: Stretch | Layers) -> RowNumbers:
    """Return Σ over the scored rows of each unit; rows that only fill a unit up are left out."""

    def one(layer: Stretch, i: int) -> float:
        rows, scored = cut_unit(layer, i)
        return float(require_terms(call_user(log_likelihood, theta, rows), len(scored))[scored].sum())

    return np.array([one(layer, i) for layer in split_layers(units) for i in range(len(layer.scored))])


def cut_unit(units: Stretch, i: int) -> tuple[PyTree, NDArray[np.bool_]]:
    """Return the rows of one unit up to its last scored one, and which of them are scored."""
    stop = int(np.flatnonzero(units.scored[i])[-1]) + 1
    return jax.tree.map(lambda leaf: leaf[i, :stop], units.rows), units.scored[i, :stop]


@dataclass(frozen=True, eq=False)
class PythonModel(Model):
    """A model that runs in Python; made by `check_model`."""

    reasons: tuple[tuple[str, str], ...] = ()  # which function is not JAX, and what JAX says
    in_python: ClassVar[bool] = True
    sum_units = staticmethod(sum_units_in_python)  # type: ignore[assignment]  # NumPy's arrays in place of JAX's

    @property
    def in_words(self) -> str:
        """Which functions are not JAX, and why."""
        names = " and ".join(name for name, _ in self.reasons)
        return f"{names} {'is' if len(self.reasons) == 1 else 'are'} not JAX ({self.reasons[0][1]})"


PYTHON_MODELS: WeakKeyDictionary[Model, PythonModel] = WeakKeyDictionary()
"""Models that were found to run in Python before: what is compiled for one serves its next run."""


def as_python_model(model: Model, reasons: dict[str, str]) -> PythonModel:
    """Return the model in Python: a function that is JAX after all is compiled, and called like the other."""
    given = tuple(reasons.items())
    if model in PYTHON_MODELS and PYTHON_MODELS[model].reasons == given:
        return PYTHON_MODELS[model]
    compiled = {name: jax.jit(getattr(model, name)) for name in ("log_likelihood", "log_prior") if name not in reasons}
    fields = {name: value for name, value in vars(model).items() if name in Model.__dataclass_fields__}
    PYTHON_MODELS[model] = PythonModel(**fields | compiled, reasons=given)
    return PYTHON_MODELS[model]


def build_theta(model: Model, vector: ArrayLike) -> PyTree:
    """Return θ as the user wrote it, in NumPy's arrays of its own: what a user writes on it changes no chain."""
    vector = np.array(vector, np.float64)
    if model.constrained:
        leaves = [np.array(leaf[0])[()] for leaf in model.by_name(vector[None]).values()]
    else:
        leaves = [vector[place].reshape(shape)[()] for place, shape in model.places]
    return jax.tree.unflatten(jax.tree.structure(model.init), leaves)


def evaluate_rows(model: Model, vector: Vector, rows: PyTree) -> RowNumbers:
    """Return log f(Y_k|θ) at a flat θ, for rows with their slots on the first axis."""
    rows = jax.tree.map(copy_column, rows)
    values = call_user(model.log_likelihood, build_theta(model, vector), rows)
    return require_terms(values, count_rows(rows))


def evaluate_prior(model: Model, vector: Vector) -> float:
    """Return log p at a flat θ, as a density of that vector."""
    value = float(np.asarray(call_user(model.log_prior, build_theta(model, vector)), np.float64).reshape(()))
    return value + float(log_jacobian(model, np.asarray(vector, np.float64))) if model.constrained else value


def evaluate_priors(model: Model, vectors: Vectors) -> RowNumbers:
    """Return log p at several flat θ."""
    return np.array([evaluate_prior(model, vector) for vector in vectors], np.float64)


def copy_column(leaf: np.ndarray) -> np.ndarray:
    """Return a copy of a column, contiguous as C wants it; floats in float64, other types as they are."""
    floating = np.issubdtype(leaf.dtype, np.floating)
    return np.array(leaf, np.float64 if floating else leaf.dtype, order="C")


@partial(jax.jit, static_argnames=("model",))
def log_jacobian(model: Model, vector: Array) -> Array:
    """Return log |∂θ/∂vector| of a constrained model."""
    return model.log_jacobian_at(vector)
