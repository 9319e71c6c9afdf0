"""Model: a log-likelihood per row, a log-prior and the shape of θ."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from math import prod
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.errors import InputError, ModelError
from lwa.executors import Executor
from lwa.models.predictors import Predictors
from lwa.models.recursion import Recursion
from lwa.models.supports import Support, find_supports
from lwa.rows import Rows
from lwa.rows.slots import Columns, to_rows
from lwa.rows.units import Layers, Stretch
from lwa.user.progress import Display

type LogLikelihood = Callable[[PyTree, PyTree], Array]
"""(θ, rows) -> log f(Y_k|θ) of each row."""
type Vector = Float64[np.ndarray, " d"]
"""A flat θ, or one number per parameter."""
type Vectors = Float64[np.ndarray, "M d"]
type RowNumbers = Float64[np.ndarray, " m"]
"""One number per row, or per θ."""
type RowVectors = Float64[np.ndarray, "m c"]
type RowSizes = tuple[RowNumbers, NDArray[np.int64]]
"""A number and an index per row."""
type Matrix = Float64[np.ndarray, "d d"]
type FloatType = type[np.floating]


def sum_over_units(log_likelihood: LogLikelihood, theta: PyTree, units: Stretch | Layers) -> Array:
    """Return Σ over the scored rows of each unit, in float64: differences of such large sums matter."""
    if not isinstance(units, Stretch):
        parts = [sum_over_units(log_likelihood, theta, layer) for layer in units if len(layer.scored)]
        return jnp.concatenate(parts) if parts else jnp.zeros(0)

    def one(rows: PyTree, scored: Array | NDArray[np.bool_]) -> Array:
        return jnp.where(scored, log_likelihood(theta, rows), 0.0).sum(dtype=jnp.float64)

    return jax.vmap(one)(units.rows, units.scored)


@dataclass(frozen=True, eq=False)
class Model:
    """A log-likelihood per row, a log prior and the shape of θ: f(Y_k|θ), p(θ) and θ's support.

    Parameters
    ----------
    log_likelihood
        `(theta, rows) -> (n,)`: log f(Y_k|θ) of each row, written with `jax.numpy`, or in any Python: NumPy, SciPy, C.
        A function that JAX cannot trace is called with NumPy's float64 arrays, one θ at a time, and differentiated
        numerically. It should return -inf, not raise, if θ has no density: an exception ends the run.
        `rows` is shaped as the data: an array, or a dict of arrays, of any number of rows. If rows are ordered or come
        in groups, it is called with consecutive steps of one series or the rows of one group, and a term may depend on
        the rows before it: log f(Y_k|Y_1, …, Y_{k-1}, θ).
    log_prior
        `theta -> scalar`: log p(θ), up to a constant: a density of θ as you write it, constrained or not.
    init
        A θ as a pytree (an array, or a dict of arrays): shapes, names and a start.
    prior_draw
        `key -> theta`, to start each chain from its own draw of the prior.
    constraints
        Constraints by parameter name: `"positive"`, `"unit_interval"`, `"simplex"`, `"ordered"`, `"covariance"`,
        `"correlation"`, `"lower_cholesky"` and others, or a NumPyro constraint, such as
        `numpyro.distributions.constraints.interval(0, 2)`. A parameter without one may be any real number. In an
        array, each entry is positive, each vector along the last axis a simplex, each matrix of the last two axes a
        covariance. Kernels move an unconstrained vector: lwa maps it and adds the logarithm of the Jacobian to
        `log_prior`. The density of a simplex is that of all entries but the last, the density of a covariance that of
        its lower triangle.
    ordered
        Whether rows are a sequence, of which subsets are contiguous windows: True, or the column that holds the time,
        which must ascend. Pass several series as a list, or name them by `groups`.
    groups
        The column that names the group (or series) of each row, by name or position: subsets are sets of whole groups,
        and `subset_size` counts groups. Rows of a group keep the order of the data.
    dims, coords
        Names of the axes of parameters and of `derived`, and their labels, as in ArviZ.
    derived
        `theta -> dict`, in JAX: functions of θ by name, computed from the draws and shown beside the parameters.
    predictors
        For a model whose rows depend on θ through a few linear predictors, as those of `lwa.glm` do: the predictors, so
        that derivatives in many parameters are cheap.
    recursion
        For ordered rows: `log_likelihood` one row at a time, as a `lwa.models.Recursion(start, step)`, so that a GPU
        can run through thousands of windows side by side. `lwa.arma` has one.

    Examples
    --------
    >>> import jax.numpy as jnp, lwa
    >>> model = lwa.Model(
    ...     log_likelihood=lambda theta, y: -0.5 * (y - theta["mean"]) ** 2,
    ...     log_prior=lambda theta: -0.5 * (theta["mean"] / 10) ** 2,
    ...     init={"mean": 0.0},
    ... )

    A scale that must be positive, and has an exponential prior:

    >>> model = lwa.Model(
    ...     log_likelihood=lambda theta, y: -0.5 * (y / theta["sigma"]) ** 2 - jnp.log(theta["sigma"]),
    ...     log_prior=lambda theta: -theta["sigma"],
    ...     init={"sigma": 1.0},
    ...     constraints={"sigma": "positive"},
    ... )
    >>> model.scalar_names
    ['log(sigma)']

    A likelihood from SciPy, which is not JAX:

    >>> from scipy import stats
    >>> model = lwa.Model(lambda mu, y: stats.t.logpdf(y, df=4, loc=mu), lambda mu: -0.5 * mu**2, init=0.0)
    >>> y = stats.t.rvs(df=4, size=1000, random_state=1)
    >>> lwa.sample(model, y, subset_size=100, draws=100, tune=100, seed=1, progress=False).draws
    100
    """

    log_likelihood: LogLikelihood
    log_prior: Callable[[PyTree], Array]
    init: PyTree
    prior_draw: Callable[[Array], PyTree] | None = None
    constraints: Mapping[str, object] | None = None
    ordered: bool | str | int = False
    groups: str | int | None = None
    dims: Mapping[str, Sequence[str]] | None = None
    coords: Mapping[str, Sequence[object]] | None = None
    derived: Callable[[PyTree], Mapping[str, Array]] | None = None
    predictors: Predictors | None = None
    recursion: Recursion | None = None
    in_python: ClassVar[bool] = False  # whether a function is not JAX: `PythonModel`
    sum_units = staticmethod(sum_over_units)

    def __post_init__(self) -> None:
        """Refuse invalid arguments before any data are read."""
        for name in ("log_likelihood", "log_prior"):
            if not callable(getattr(self, name)):
                raise ModelError(f"{name}={getattr(self, name)!r} is not a function. Pass a function of theta.")
        for name, words in (("derived", "theta -> dict"), ("prior_draw", "key -> theta")):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise ModelError(f"{name}={given!r} is not a function. Pass {words}, or leave it out.")
        if self.recursion is not None and not isinstance(self.recursion, Recursion):
            raise ModelError(f"recursion={self.recursion!r} is not one. Pass lwa.models.Recursion(start, step).")
        for name in ("ordered", "groups"):
            column = getattr(self, name)
            if not isinstance(column, bool | str | int | None) or (name == "groups" and isinstance(column, bool)):
                raise ModelError(f"{name}={column!r} is not a column. Pass its name, or its position.")
        if self.dimension == 0:
            raise ModelError(f"init={self.init!r} holds no parameter. Pass a theta such as {{'beta': jnp.zeros(3)}}.")
        if self.constrained:
            self.ravel(self.init, "init")

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name, in the order of the flat vector."""
        leaves = jax.tree_util.tree_flatten_with_path(self.init)[0]
        shapes: dict[str, tuple[int, ...]] = {}
        for path, leaf in leaves:
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "theta"
            array = np.asarray(leaf)
            if not (np.issubdtype(array.dtype, np.number) and np.isrealobj(array)):
                raise ModelError(f"init[{name!r}]={leaf!r} is not a real number or array. Parameters are real.")
            if name in shapes:
                raise ModelError(f"init has two parameters named {name!r}. Rename one of them.")
            shapes[name] = array.shape
        return shapes

    @cached_property
    def supports(self) -> dict[str, Support]:
        """The support of each parameter, by name."""
        return find_supports(self.shapes, self.constraints)

    @cached_property
    def constrained(self) -> bool:
        """Whether any parameter has a constraint."""
        return self.constraints is not None and any(support.is_mapped for support in self.supports.values())

    @cached_property
    def free_shapes(self) -> dict[str, tuple[int, ...]]:
        """The unconstrained shapes of the parameters by name: those of `shapes`, but for constraints."""
        if not self.constrained:
            return self.shapes
        return {name: support.free_shape for name, support in self.supports.items()}

    @cached_property
    def entry_names(self) -> dict[str, list[str]]:
        """Names of each parameter's entries in the flat vector: `mu`, `beta[3]`; `log(sigma)` if σ is positive."""
        forms = {name: self.supports[name].form if self.constrained else "{}{}" for name in self.shapes}
        return {
            name: [forms[name].format(name, index_label(index)) for index in np.ndindex(*shape)]
            for name, shape in self.free_shapes.items()
        }

    @cached_property
    def scalar_names(self) -> list[str]:
        """A name for each entry of the flat vector."""
        return [entry for entries in self.entry_names.values() for entry in entries]

    @cached_property
    def dimension(self) -> int:
        """d, the length of the flat vector."""
        return sum(map(prod, self.free_shapes.values()))

    @cached_property
    def places(self) -> list[tuple[slice, tuple[int, ...]]]:
        """Where each parameter lies in the flat vector, and its unconstrained shape."""
        shapes = list(self.free_shapes.values())
        ends = accumulate(map(prod, shapes))
        return [(slice(end - prod(shape), end), shape) for end, shape in zip(ends, shapes, strict=True)]

    def ravel(self, theta: PyTree, source: str = "theta") -> NDArray[np.float64]:
        """Return θ as a flat, unconstrained float64 vector; refuse one unlike `init` or outside of a constraint."""
        leaves = self.leaves(theta)
        if not self.constrained:
            return np.concatenate([leaf.reshape(-1) for leaf in leaves])
        parts = []
        for (name, support), leaf in zip(self.supports.items(), leaves, strict=True):
            free, inside = support.free(leaf)
            if not inside:
                raise support.outside_error(name, leaf, source)
            parts.append(free)
        return np.concatenate(parts)

    def leaves(self, theta: PyTree) -> list[NDArray[np.float64]]:
        """Return θ's arrays in float64; refuse another structure or other shapes than `init`'s."""
        if not self.fits(theta):
            came, expected = jax.tree.structure(theta), jax.tree.structure(self.init)
            raise ModelError(f"theta has the structure {came}, but init has {expected}.")
        leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(theta)]
        for (name, shape), leaf in zip(self.shapes.items(), leaves, strict=True):
            if leaf.shape != shape:
                raise ModelError(f"theta[{name!r}] has shape {leaf.shape}, but init has {shape}.")
        return leaves

    def fits(self, theta: PyTree) -> bool:
        """Whether θ is built like `init`."""
        return bool(jax.tree.structure(theta) == jax.tree.structure(self.init))  # type: ignore[operator]

    def unravel(self, vector: Array) -> PyTree:
        """Return θ as the user wrote it, from the flat vector that kernels move."""
        parts = (vector[place].reshape(shape) for place, shape in self.places)
        if self.constrained:
            parts = (support.constrain(free) for support, free in zip(self.supports.values(), parts, strict=True))
        return jax.tree.unflatten(jax.tree.structure(self.init), list(parts))

    def by_name(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Return flat vectors `(..., d)` as one array `(..., *shape)` per parameter, constrained."""
        free = self.free_by_name(draws)
        if self.constrained:
            with jax.enable_x64(True):
                found = map_in_batches(partial(constrain, self), draws.reshape(-1, self.dimension))
            free = dict(zip(self.shapes, found, strict=True))
        return {name: free[name].reshape((*draws.shape[:-1], *shape)) for name, shape in self.shapes.items()}

    def free_by_name(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Return flat vectors `(..., d)` as one array `(..., size)` per parameter, unconstrained."""
        return {name: draws[..., place] for name, (place, _) in zip(self.shapes, self.places, strict=True)}

    def with_derived(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Return `by_name`, and what is derived of each draw."""
        named = self.by_name(draws)
        if self.derived is None:
            return named
        with jax.enable_x64(True):
            found = map_in_batches(partial(derive, self), draws.reshape(-1, self.dimension))
        return named | {name: array.reshape((*draws.shape[:-1], *array.shape[1:])) for name, array in found.items()}

    @cached_property
    def of_units(self) -> "Model":
        """The posterior with units in place of rows, each of which adds the terms of its scored rows."""
        summed = partial(self.sum_units, self.log_likelihood)
        return replace(self, log_likelihood=summed, ordered=False, groups=None, predictors=None)

    def log_prior_at(self, vector: Array) -> Array:
        """Return log p at a flat θ, as a density of that vector: log |∂θ/∂vector| is added if θ is constrained."""
        log_prior = jnp.asarray(self.log_prior(self.unravel(vector)))
        return log_prior + self.log_jacobian_at(vector) if self.constrained else log_prior

    def log_jacobian_at(self, vector: Array) -> Array:
        """Return log |∂θ/∂vector| of the constrained parameters."""
        parts = [vector[place].reshape(shape) for place, shape in self.places]
        mapped = zip(self.supports.values(), parts, strict=True)
        jacobians = (support.log_jacobian(free) for support, free in mapped if support.is_mapped)
        return sum(jacobians, start=jnp.zeros((), vector.dtype))

    def log_likelihood_at(self, vector: Array, columns: Columns) -> Array:
        """Return log f(Y_k|θ) at a flat θ, for rows with their slots on the last axis."""
        return self.log_likelihood(self.unravel(vector), to_rows(columns))


class BoundModel(Protocol):
    """A model and the rows that it is a model of."""

    @property
    def model(self) -> Model:
        """The model of `rows`."""

    @property
    def rows(self) -> Rows:
        """The data as the model reads them."""

    @property
    def described(self) -> str:
        """What was chosen from the data, in words."""


class Unbound(ABC):
    """A model that must see the data first, for levels of factors and scales of priors, as `lwa.glm` makes it."""

    ordered: ClassVar[bool] = False

    @abstractmethod
    def bind(self, data: object, progress: bool | Display = False, executor: Executor | None = None) -> BoundModel:
        """Return the model of these data; show how a table on disk is converted, and compute passes by `executor`."""


def require_model(model: object) -> None:
    """Refuse what is no model, nor becomes one."""
    if not isinstance(model, Model | Unbound):
        hint = "Pass a lwa.Model(log_likelihood, log_prior, init), or lwa.glm('y ~ x')."
        raise InputError(f"model is of type {type(model).__name__}. {hint}")


def index_label(index: tuple[int, ...]) -> str:
    """Return `[3]` or `[3, 0]`; nothing for a single number."""
    return f"[{', '.join(map(str, index))}]" if index else ""


VECTORS_AT_ONCE = 256
"""Flat vectors that are mapped to parameters in one call."""


def map_in_batches(function: Callable[[np.ndarray], PyTree], vectors: np.ndarray) -> PyTree:
    """Return a function of all vectors, batch by batch: one program, whose bits do not depend on their number."""
    count, size = len(vectors), VECTORS_AT_ONCE
    padded = np.zeros((max(1, -(-count // size)) * size, vectors.shape[1]))
    padded[:count] = vectors
    parts = [function(padded[first : first + size]) for first in range(0, len(padded), size)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)


@partial(jax.jit, static_argnames=("model",))
def constrain(model: Model, vectors: Array) -> list[Array]:
    """Return the parameters at many flat vectors."""
    return jax.vmap(lambda vector: jax.tree.leaves(model.unravel(vector)))(vectors)


@partial(jax.jit, static_argnames=("model",))
def derive(model: Model, vectors: Array) -> Mapping[str, Array]:
    """Return what is derived of θ at many flat vectors."""
    assert model.derived is not None
    return jax.vmap(lambda vector: model.derived(model.unravel(vector)))(vectors)  # type: ignore[misc]
