"""Whether a model can be sampled, checked before any pass over the data."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import TracebackType

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from lwa.errors import ModelError
from lwa.models.model import FloatType, Model
from lwa.models.python_model import as_python_model, build_theta, call_user, copy_column
from lwa.rows import Batch
from lwa.rows.slots import repeat_to

HIDDEN_FOLDERS = [Path(jax.__file__).parent, Path(jax.__file__).parents[1] / "numpyro", Path(__file__).parents[1]]
"""Folders of JAX, NumPyro and lwa: their frames say nothing about a user's function."""
ROW_NUMBERS = (5, 1)
"""A shape that happens to fit one number of rows does not fit both; refreshes bring one at a time."""
MOST_ENTRIES = 12
"""Numbers of one parameter that a message shows."""
STEP_NUMBERS = (33, 32)
"""Numbers of rows for models of series or groups: a model that looks back may need some."""


def choose_row_numbers(model: Model) -> tuple[int, int]:
    """Return the numbers of rows with which to try a model."""
    return ROW_NUMBERS if model.ordered is False and model.groups is None else STEP_NUMBERS


def check_model(model: Model, batch: Batch, dtype: FloatType) -> Model:
    """Trace the model on abstract rows shaped like `batch`: it must give one log-likelihood per row, for any number.

    A function that JAX cannot trace is called with NumPy's arrays instead. If that works, return a `PythonModel`.
    """
    check_labels(model)
    if model.in_python:
        return model
    reasons = {}
    # Functions are called after JAX's error is handled, so that what they raise does not carry it along.
    if fault := find_fault(trace_prior, model, dtype):
        call_prior(model, fault)
        reasons["log_prior"] = fault.reason
    if fault := find_fault(trace_rows, model, dtype, batch):
        call_rows(model, batch, fault)
        reasons["log_likelihood"] = fault.reason
    return as_python_model(model, dict(sorted(reasons.items()))) if reasons else model


class NotTraced(ModelError):
    """What a user's function raised while JAX traced it."""

    @property
    def reason(self) -> str:
        """The type of error, and the line of the user's function."""
        cause = self.__cause__
        own = traceback.extract_tb(cause.__traceback__) if cause else []
        where = f" at {Path(own[-1].filename).name}, line {own[-1].lineno}" if own else ""
        return f"{type(cause).__name__}{where}"

    @property
    def of_tracing(self) -> bool:
        """Whether the error only says that the function is not JAX, so that calling it with numbers shows more."""
        return isinstance(self.__cause__, jax.errors.JAXTypeError) or "Tracer" in str(self.__cause__)


def find_fault[**P](trace: Callable[P, None], *arguments: P.args, **options: P.kwargs) -> NotTraced | None:
    """Return what JAX could not trace; None if it could."""
    try:
        trace(*arguments, **options)
    except NotTraced as fault:
        return fault
    return None


def trace_prior(model: Model, dtype: FloatType) -> None:
    """Trace log_prior with an abstract θ."""
    with report_user_errors("log_prior", "theta", NotTraced):
        prior = jax.eval_shape(model.log_prior, build_abstract_theta(model, dtype))
    require_number(prior)


def trace_rows(model: Model, dtype: FloatType, batch: Batch) -> None:
    """Trace log_likelihood with abstract rows."""
    theta = build_abstract_theta(model, dtype)
    for m in choose_row_numbers(model):
        rows = jax.tree.map(lambda leaf, m=m: abstract_column(leaf, m, dtype), batch)
        with report_user_errors("log_likelihood", f"theta and {m} rows", NotTraced):
            values = jax.eval_shape(model.log_likelihood, theta, rows)
        require_one_per_row(values, m)
    chains = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype), (theta, rows))  # type: ignore[no-untyped-call]
    with report_user_errors("log_likelihood", "several chains side by side (jax.vmap)", NotTraced):
        jax.eval_shape(jax.vmap(model.log_likelihood), *chains)


def call_prior(model: Model, fault: NotTraced) -> None:
    """Call log_prior with numbers, since JAX could not trace it."""
    with choose_error(fault):
        with report_user_errors("log_prior", "theta"):
            prior = np.asarray(call_user(model.log_prior, build_theta(model, model.ravel(model.init))))
        require_number(prior)


def call_rows(model: Model, batch: Batch, fault: NotTraced) -> None:
    """Call log_likelihood with numbers, since JAX could not trace it."""
    with choose_error(fault):
        for m in choose_row_numbers(model):
            rows = jax.tree.map(copy_column, repeat_to(jax.tree.map(lambda leaf, m=m: leaf[:m], batch), m))
            with report_user_errors("log_likelihood", f"theta and {m} rows"):
                values = np.asarray(call_user(model.log_likelihood, build_theta(model, model.ravel(model.init)), rows))
            require_one_per_row(values, m)


@contextmanager
def choose_error(fault: NotTraced) -> Iterator[None]:
    """Raise what JAX raised if a function fails with numbers too, unless that only says that it is not JAX."""
    try:
        yield
    except ModelError as error:
        if fault.of_tracing:
            raise error from error.__cause__
        raise ModelError(str(fault)) from fault.__cause__


def build_abstract_theta(model: Model, dtype: FloatType) -> PyTree:
    """Return θ without values."""
    return jax.eval_shape(lambda: model.unravel(jnp.zeros(model.dimension, dtype)))


def require_number(prior: PyTree) -> None:
    """Refuse what is no log prior."""
    if getattr(prior, "shape", None) != ():
        hint = "a single number is expected. Sum over the parameters: jnp.sum(...)."
        raise ModelError(f"log_prior returned {describe_shape(prior)}; {hint}")
    if not (jnp.issubdtype(prior.dtype, jnp.floating) or jnp.issubdtype(prior.dtype, jnp.integer)):
        hint = "Return log p(theta), for example jnp.where(inside, 0.0, -jnp.inf)."
        raise ModelError(f"log_prior returned a value of type {prior.dtype}; a real number is expected. {hint}")


def require_one_per_row(values: PyTree, m: int) -> None:
    """Refuse what is no log-likelihood of m rows."""
    if getattr(values, "shape", None) == ():
        raise ModelError(
            f"log_likelihood returned a single number for {m} rows; one value per row, shape ({m},), is expected. "
            "Return log f(Y_k|theta) of each row, not their sum."
        )
    if not hasattr(values, "shape") or values.shape != (m,):
        raise ModelError(
            f"log_likelihood returned {describe_shape(values)} for {m} rows; one value per row, shape ({m},), is "
            "expected. Return an array with log f(Y_k|theta) of each row."
        )
    if not jnp.issubdtype(values.dtype, jnp.floating):
        hint = "real numbers (floats) are expected. Return log f as floats: values.astype(float)."
        raise ModelError(f"log_likelihood returned {values.dtype} values; {hint}")


def check_labels(model: Model) -> None:
    """Refuse names, dims and coords that xarray could not hold, before any draw is made."""
    derived = find_derived_shapes(model)
    for name in [*model.shapes, *derived]:
        if name in ("chain", "draw"):
            source = "derived names a value" if name in derived else "init names a parameter"
            raise ModelError(f"{source} {name!r}, which is an axis of the draws. Pass another name.")
    if both := [name for name in derived if name in model.shapes]:
        raise ModelError(f"derived names {both[0]!r}, which is a parameter. Pass another name.")
    shapes = model.shapes | derived
    axes: dict[str, int] = {}
    for name, dims in (model.dims or {}).items():
        if name not in shapes:
            raise ModelError(f"dims names {name!r}, which is not a parameter. Valid: {', '.join(map(repr, shapes))}.")
        shape = shapes[name]
        taken = {"chain", "draw", *shapes}
        if isinstance(dims, str) or len(dims) != len(shape) or len(taken | set(dims)) != len(taken) + len(shape):
            raise ModelError(
                f"dims[{name!r}]={dims!r} does not fit {name!r}, whose shape is {shape}. Pass a list of {len(shape)} "
                "names, all different and none of them 'chain', 'draw' or a parameter."
            )
        for axis, length in zip(dims, shape, strict=True):
            if axes.setdefault(axis, length) != length:
                raise ModelError(f"dims gives {axis!r} to axes of lengths {axes[axis]} and {length}. Pass two names.")
    for axis, labels in (model.coords or {}).items():
        if axis in axes and len(labels) != axes[axis]:
            raise ModelError(
                f"coords[{axis!r}] holds {len(labels)} labels for an axis of length {axes[axis]}. Pass one for each."
            )


def find_derived_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what is derived of θ, by name."""
    if model.derived is None:
        return {}
    with report_user_errors("derived", "theta"):
        found = jax.eval_shape(model.derived, build_abstract_theta(model, np.float64))
    if not isinstance(found, Mapping) or not all(hasattr(values, "shape") for values in found.values()):
        raise ModelError(f"derived returned {describe_shape(found)}, not a dict of arrays. Return {{'name': value}}.")
    return {name: values.shape for name, values in found.items()}


def abstract_column(leaf: NDArray[np.generic], m: int, dtype: FloatType) -> jax.ShapeDtypeStruct:
    """Return m rows of a column as the device will hold them: floats in the working precision, others as they are."""
    held = dtype if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype
    return jax.ShapeDtypeStruct((m, *leaf.shape[1:]), held)  # type: ignore[no-untyped-call]


def describe_shape(value: object) -> str:
    """Return the shape of an array, or the type of anything else, in words."""
    return f"shape {value.shape}" if hasattr(value, "shape") else type(value).__name__


@contextmanager
def report_user_errors(name: str, arguments: str, kind: type[ModelError] = ModelError) -> Iterator[None]:
    """Turn what a user's function raises into a ModelError that points to their line, without the frames of JAX."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_hidden(frame.filename)]
        where = f" at {Path(own[-1].filename).name}, line {own[-1].lineno}: {own[-1].line}" if own else ""
        first_line = (str(error).strip().splitlines() or ["no message"])[0]
        hint = ""
        if isinstance(error, jax.errors.JAXTypeError):
            first_line = first_line.rstrip(".") + "."
            hint = " It must be written with jax.numpy, without Python branches on the values of theta or rows."
        cause = error.with_traceback(prune(error.__traceback__))
        cause.__cause__, cause.__suppress_context__ = None, True
        came = f"{name} raised {type(error).__name__} when called with {arguments}{where}"
        raise kind(f"{came}\n  {first_line}{hint}") from cause


def is_hidden(filename: str) -> bool:
    """Return whether a frame belongs to JAX, NumPyro or lwa."""
    return any(parent in Path(filename).parents for parent in HIDDEN_FOLDERS)


def prune(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback with only the user's frames."""
    if frames is None:
        return None
    rest, frame = prune(frames.tb_next), frames.tb_frame
    hidden = is_hidden(frame.f_code.co_filename)
    return rest if hidden else TracebackType(rest, frame, frames.tb_lasti, frames.tb_lineno)


def describe_theta(model: Model, vector: NDArray[np.floating]) -> dict[str, object]:
    """Return a flat θ by its names, as the user wrote it, for messages."""

    def shorten(values: NDArray[np.floating]) -> object:
        rounded = [float(f"{value:.6g}") for value in np.ravel(values)]
        if len(rounded) > MOST_ENTRIES:
            return [*rounded[:MOST_ENTRIES], f"... {len(rounded) - MOST_ENTRIES} more"]
        return np.reshape(rounded, np.shape(values)).tolist()

    return {name: shorten(values) for name, values in model.by_name(np.asarray(vector)).items()}


def label_entries(model: Model) -> list[str]:
    """Return `model.scalar_names` with the labels of `coords` if there are any: `beta[distance]` for `beta[1]`."""
    found: list[str] = []
    for name, entries in model.entry_names.items():
        axes = [(model.coords or {}).get(axis) for axis in (model.dims or {}).get(name, ())]
        mapped = model.constrained and model.supports[name].is_mapped
        if not mapped and axes and all(labels is not None for labels in axes):
            found += [f"{name}[{', '.join(map(str, labels))}]" for labels in product(*axes)]  # type: ignore[arg-type]
        else:
            found += entries
    return found
