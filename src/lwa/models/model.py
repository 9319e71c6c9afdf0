"""Model: a log-likelihood per row, a log-prior and the shape of θ."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.errors import ModelError
from lwa.models.predictors import Predictors
from lwa.models.recursion import Recursion
from lwa.models.supports import Support, outside, supports_of
from lwa.models.user_calls import as_terms, ask
from lwa.rows.slots import Columns, to_rows
from lwa.rows.units import Stretch


@dataclass(frozen=True, eq=False)
class Model:
    """What is to be inferred: f(Y_k|θ), p(θ) and where θ lives.

    Parameters
    ----------
    log_likelihood
        `(theta, rows) -> (n,)`: log f(Y_k|θ) of each row, written with `jax.numpy`, or in any Python: NumPy, SciPy, C.
        What JAX cannot trace is called with NumPy's float64 arrays, one θ at a time, and differentiated numerically;
        it should return -inf, not raise, where θ has no density: whatever it raises ends the run.
        `rows` is shaped as the data: an array, or a dict of arrays, of any number of rows. Where they are ordered or
        come in groups, it is called with consecutive steps of one series or the rows of one group, and a term may
        depend on the rows before it: log f(Y_k|Y_1, …, Y_{k-1}, θ).
    log_prior
        `theta -> scalar`: log p(θ), up to a constant: a density of θ as you write it, constrained or not.
    init
        A θ as a pytree (an array, or a dict of arrays): shapes, names and a start.
    prior_draw
        `key -> theta`, to start each chain from its own draw of the prior.
    constraints
        Where parameters live, by name: `"positive"`, `"unit_interval"`, `"simplex"`, `"ordered"`, `"covariance"`,
        `"correlation"`, `"lower_cholesky"` and others, or NumPyro's own, such as
        `numpyro.distributions.constraints.interval(0, 2)`; any real numbers where nothing is said. Of an array, each
        entry is positive, each vector along the last axis a simplex, each matrix of the last two a covariance.
        Kernels move an unconstrained vector: lwa maps it and adds the logarithm of the Jacobian to `log_prior`. A
        density of a simplex is one of all its entries but the last, of a covariance one of its lower triangle.
    ordered
        Whether rows are a sequence, of which subsets are contiguous windows: True, or the column that holds the time,
        which must ascend. Several series are told apart by `groups`, or passed as a list.
    groups
        The column that tells groups (or series) of rows apart, by name or position: U is a set of whole groups, and
        `subset_size` counts them. Rows of a group keep the order of the data.
    dims, coords
        Names of the parameters' axes and their labels, as ArviZ has them; those of `derived` too.
    derived
        `theta -> dict`, in JAX: functions of θ by name, found once the draws are there and shown beside the parameters.
    predictors
        For a model whose rows see θ through a few linear predictors, as those of `lwa.glm` do: what they are, so that
        derivatives in many parameters are cheap.
    recursion
        For ordered rows: `log_likelihood` once more, one row after the other, as a `lwa.models.Recursion(start, step)`,
        so that a GPU can run through thousands of windows side by side. `lwa.arma` has one.

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

    A likelihood of SciPy, which is no JAX:

    >>> from scipy import stats
    >>> model = lwa.Model(lambda mu, y: stats.t.logpdf(y, df=4, loc=mu), lambda mu: -0.5 * mu**2, init=0.0)
    >>> y = stats.t.rvs(df=4, size=1000, random_state=1)
    >>> lwa.sample(model, y, subset_size=100, draws=100, tune=100, seed=1, progress=False).draws
    100
    """

    log_likelihood: Callable[[Any, Any], Array]
    log_prior: Callable[[Any], Array]
    init: Any
    prior_draw: Callable[[Array], Any] | None = None
    constraints: Mapping[str, Any] | None = None
    ordered: bool | str | int = False
    groups: str | int | None = None
    dims: Mapping[str, Sequence[str]] | None = None
    coords: Mapping[str, Sequence[Any]] | None = None
    derived: Callable[[Any], Mapping[str, Array]] | None = None
    predictors: Predictors | None = None
    recursion: Recursion | None = None
    host: ClassVar[bool] = False  # whether a function is not JAX: `OnHost`

    def __post_init__(self) -> None:
        """Refuse what cannot be a model before any data is read."""
        for name in ("log_likelihood", "log_prior"):
            if not callable(getattr(self, name)):
                raise ModelError(f"{name}={getattr(self, name)!r} is not a function. Pass a function of theta.")
        if self.derived is not None and not callable(self.derived):
            raise ModelError(f"derived={self.derived!r} is not a function. Pass theta -> dict, or leave it out.")
        if self.prior_draw is not None and not callable(self.prior_draw):
            raise ModelError(f"prior_draw={self.prior_draw!r} is not a function. Pass key -> theta, or leave it out.")
        if self.recursion is not None and not isinstance(self.recursion, Recursion):
            raise ModelError(f"recursion={self.recursion!r} is no recursion. Pass lwa.models.Recursion(start, step).")
        for name in ("ordered", "groups"):
            column = getattr(self, name)
            if not isinstance(column, bool | str | int | None) or (name == "groups" and isinstance(column, bool)):
                raise ModelError(f"{name}={column!r} is no column. Pass its name, or its position.")
        if self.dimension == 0:
            raise ModelError(f"init={self.init!r} holds no parameter. Pass a theta such as {{'beta': jnp.zeros(3)}}.")
        if self.constrained:
            self.ravel(self.init, "init")

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters by name, in the order of the flat vector."""
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
        """Where each parameter lives, by name."""
        return supports_of(self.shapes, self.constraints)

    @cached_property
    def constrained(self) -> bool:
        """Whether any parameter may not be any real number."""
        return any(support.transform is not None for support in self.supports.values())

    @cached_property
    def scalar_names(self) -> list[str]:
        """A name for each entry of the flat vector: `mu`, `beta[3]`; `log(sigma)` where σ is positive."""
        return [entry for name, support in self.supports.items() for entry in support.scalar_names(name)]

    @cached_property
    def dimension(self) -> int:
        """d, the length of the flat vector."""
        return sum(support.size for support in self.supports.values())

    @cached_property
    def places(self) -> list[tuple[slice, tuple[int, ...]]]:
        """Where each parameter lies in the flat vector, and its unconstrained shape."""
        ends = np.cumsum([support.size for support in self.supports.values()]).tolist()
        return [
            (slice(end - support.size, end), support.free_shape)
            for end, support in zip(ends, self.supports.values(), strict=True)
        ]

    def ravel(self, theta: Any, source: str = "theta") -> np.ndarray:
        """θ as a flat, unconstrained float64 vector; refuses what is not built like `init` or violates a constraint.

        `source` is what the error calls it.
        """
        leaves, parts = self.leaves(theta), []
        for (name, support), leaf in zip(self.supports.items(), leaves, strict=True):
            free, inside = support.free(leaf)
            if not inside:
                raise outside(name, leaf, support, source)
            parts.append(free)
        return np.concatenate(parts)

    def leaves(self, theta: Any) -> list[np.ndarray]:
        """θ's arrays in float64; refuses another structure or other shapes than `init`'s."""
        if not self.fits(theta):
            came, expected = jax.tree.structure(theta), jax.tree.structure(self.init)
            raise ModelError(f"theta has the structure {came}, but init has {expected}.")
        leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(theta)]
        for (name, shape), leaf in zip(self.shapes.items(), leaves, strict=True):
            if leaf.shape != shape:
                raise ModelError(f"theta[{name!r}] has shape {leaf.shape}, but init has {shape}.")
        return leaves

    def fits(self, theta: Any) -> bool:
        """Whether it is built like `init`."""
        return bool(jax.tree.structure(theta) == jax.tree.structure(self.init))  # type: ignore[operator]

    def unravel(self, vector: Array) -> Any:
        """θ as the user wrote it, from the flat vector the kernels move."""
        leaves = [support.constrain(free) for support, free in self._parts(vector)]
        return jax.tree.unflatten(jax.tree.structure(self.init), leaves)

    def _parts(self, vector: Array) -> Iterator[tuple[Support, Array]]:
        for support, (place, shape) in zip(self.supports.values(), self.places, strict=True):
            yield support, vector[place].reshape(shape)

    def by_name(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Flat vectors `(..., d)` as one array `(..., *shape)` a parameter, constrained."""
        free = self.free_by_name(draws)
        if self.constrained:
            with jax.enable_x64(True):
                found = in_batches(partial(constrain, self), draws.reshape(-1, self.dimension))
            free = dict(zip(self.shapes, found, strict=True))
        return {name: free[name].reshape((*draws.shape[:-1], *shape)) for name, shape in self.shapes.items()}

    def free_by_name(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Flat vectors `(..., d)` as one array `(..., size)` a parameter, unconstrained."""
        return {name: draws[..., place] for name, (place, _) in zip(self.supports, self.places, strict=True)}

    def with_derived(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """`by_name`, and what is derived of each draw."""
        named = self.by_name(draws)
        if self.derived is None:
            return named
        with jax.enable_x64(True):
            found = in_batches(partial(derive, self), draws.reshape(-1, self.dimension))
        return named | {name: array.reshape((*draws.shape[:-1], *array.shape[1:])) for name, array in found.items()}

    @cached_property
    def of_units(self) -> "Model":
        """The same posterior with units in the place of rows, each of which adds the terms of its scored rows."""
        over_units: Callable[..., Any] = sums_one_by_one if self.host else sums_over_units
        return replace(
            self,
            log_likelihood=partial(over_units, self.log_likelihood),
            ordered=False,
            groups=None,
            predictors=None,
        )

    def log_prior_at(self, vector: Array) -> Array:
        """log p at a flat θ, as a density of that vector: where θ is constrained, log |∂θ/∂vector| is added."""
        log_prior = jnp.asarray(self.log_prior(self.unravel(vector)))
        return log_prior + self.log_jacobian_at(vector) if self.constrained else log_prior

    def log_jacobian_at(self, vector: Array) -> Array:
        """log |∂θ/∂vector| of the constrained parameters."""
        mapped = [(support, free) for support, free in self._parts(vector) if support.transform is not None]
        return sum((support.log_jacobian(free) for support, free in mapped), start=jnp.zeros((), vector.dtype))

    def log_likelihood_at(self, vector: Array, columns: Columns) -> Array:
        """log f(Y_k|θ) at a flat θ, for rows with their slots on the last axis."""
        return self.log_likelihood(self.unravel(vector), to_rows(columns))


def sums_over_units(log_likelihood: Callable[[Any, Any], Array], theta: Any, units: Stretch) -> Array:
    """Σ over the scored rows of each unit, in float64: a window's sum is a large number of which differences matter."""

    def one(rows: Any, scored: Array) -> Array:
        return jnp.where(scored, log_likelihood(theta, rows), 0.0).sum(dtype=jnp.float64)

    return jax.vmap(one)(units.rows, units.scored)


def sums_one_by_one(log_likelihood: Callable[[Any, Any], Any], theta: Any, units: Stretch) -> np.ndarray:
    """The same in Python; rows that only fill a unit up are left out."""

    def one(i: int) -> float:
        stop = int(np.flatnonzero(units.scored[i])[-1]) + 1
        rows = jax.tree.map(lambda leaf: leaf[i, :stop], units.rows)
        return float(as_terms(ask(log_likelihood, theta, rows), stop)[units.scored[i, :stop]].sum())

    return np.array([one(i) for i in range(len(units.scored))])


BATCH = 256
"""Vectors that are mapped at once."""


def in_batches(function: Callable[[np.ndarray], Any], vectors: np.ndarray) -> Any:
    """A function of a batch of vectors, of all of them: one program, whose bits do not depend on how many there are.

    Draws that are streamed to disk come in numbers of all sizes, each of which would be compiled anew and kept.
    """
    count = len(vectors)
    padded = np.zeros((max(1, -(-count // BATCH)) * BATCH, vectors.shape[1]))
    padded[:count] = vectors
    parts = [function(padded[first : first + BATCH]) for first in range(0, len(padded), BATCH)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)


@partial(jax.jit, static_argnames=("model",))
def constrain(model: Model, vectors: Array) -> list[Array]:
    """The parameters at many flat vectors."""
    return jax.vmap(lambda vector: jax.tree.leaves(model.unravel(vector)))(vectors)


@partial(jax.jit, static_argnames=("model",))
def derive(model: Model, vectors: Array) -> Mapping[str, Array]:
    """What is derived of θ at many flat vectors."""
    assert model.derived is not None
    return jax.vmap(lambda vector: model.derived(model.unravel(vector)))(vectors)  # type: ignore[misc]
