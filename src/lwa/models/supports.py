"""Constraints of parameters, and the maps between constrained values and the real numbers that kernels move.

The maps and their Jacobians are NumPyro's, which is loaded only if a model has constraints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from lwa.errors import ModelError

if TYPE_CHECKING:
    from numpyro.distributions.constraints import Constraint
    from numpyro.distributions.transforms import Transform

CONSTRAINTS = {
    "real": ("real", "any real numbers"),
    "positive": ("positive", "numbers > 0"),
    "unit_interval": ("unit_interval", "numbers strictly between 0 and 1"),
    "simplex": ("simplex", "positive numbers that sum to 1 along the last axis"),
    "ordered": ("ordered_vector", "numbers that increase strictly along the last axis"),
    "positive_ordered": ("positive_ordered_vector", "positive numbers that increase strictly along the last axis"),
    "covariance": ("positive_definite", "a symmetric positive definite matrix"),
    "correlation": ("corr_matrix", "a symmetric positive definite matrix with ones on its diagonal"),
    "lower_cholesky": ("lower_cholesky", "a lower triangular matrix with a positive diagonal"),
    "correlation_cholesky": ("corr_cholesky", "a lower triangular matrix with positive diagonal and rows of length 1"),
}
"""The names that a model may use: NumPyro's name, and what the values are."""
SYNONYMS = {
    "reals": "real", "nonnegative": "positive", "probability": "unit_interval", "ordered_vector": "ordered",
    "positive_ordered_vector": "positive_ordered", "positive_definite": "covariance", "corr_matrix": "correlation",
    "cholesky": "lower_cholesky", "corr_cholesky": "correlation_cholesky",
}  # fmt: skip
SHAPE_HINTS = {
    1: "Its last axis must be a vector of at least two entries. ",
    2: "Its last two axes must be a square matrix, larger than 1 x 1 for correlations. ",
}
"""Which shapes a constraint needs, by its number of axes."""
SUPPORT_ROUNDING = 1e-5
"""How far values may be from their support, as a share of the event's size: draws may come in float32."""


@dataclass(frozen=True, eq=False)
class Support:
    """The support of one parameter; `transform` maps real numbers in an array of `free_shape` onto it."""

    shape: tuple[int, ...]
    free_shape: tuple[int, ...]
    words: str
    constraint: "Constraint | None" = None  # None for real numbers, which nothing maps
    transform: "Transform | None" = None

    @property
    def is_mapped(self) -> bool:
        """Whether the parameter is constrained."""
        return self.transform is not None

    @property
    def size(self) -> int:
        """Entries in the flat vector: a simplex of K has K - 1, a K × K covariance K (K + 1) / 2."""
        return int(np.prod(self.free_shape))

    def constrain(self, free: Array) -> Array:
        """Return the parameter's value at `free`, in its precision."""
        if self.transform is None:
            return free
        free = jnp.asarray(free)
        return self.transform(self._in_default_precision(free)).astype(free.dtype)

    def log_jacobian(self, free: Array) -> Array:
        """Return log |∂ value / ∂ free| of all entries together."""
        assert self.transform is not None
        free = jnp.asarray(free)
        held = self._in_default_precision(free)
        return self.transform.log_abs_det_jacobian(held, self.transform(held)).sum().astype(free.dtype)

    def _in_default_precision(self, free: Array) -> Array:
        # NumPyro's maps of vectors and matrices mix in constants of JAX's default precision, and some refuse another.
        # Those of single numbers keep the precision that they are given, and stay inside the support as it rounds.
        assert self.constraint is not None
        return free if self.constraint.event_dim == 0 else free.astype(jnp.result_type(float))

    def free(self, values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return values `(..., *shape)` as `(..., size)` float64, and which lie in the support; boundaries do not."""
        values = np.asarray(values, np.float64)
        lead = values.shape[: values.ndim - len(self.shape)]
        if self.transform is None or self.constraint is None:
            return values.reshape(*lead, self.size), np.ones(lead, bool)
        with jax.enable_x64(True):
            found = invert(self.transform, jnp.asarray(values))
            free, back = np.asarray(found).reshape(*lead, self.size), np.asarray(self.transform(found))
        inside = np.isfinite(free).all(-1)
        if events := self.constraint.event_dim:  # a matrix that is not symmetric has an inverse, that of another one
            axes = tuple(range(-events, 0))
            with np.errstate(invalid="ignore"):
                slack = SUPPORT_ROUNDING * np.abs(values).sum(axes, keepdims=True) + 1e-12
                inside &= (np.abs(back - values) <= slack).reshape(*lead, -1).all(-1)
        return free, inside

    @property
    def form(self) -> str:
        """How an entry of the flat vector is called, by name and index: `beta[3]`, `log(sigma)`, `w~[1]`."""
        kind = type(self.transform).__name__
        return {"NoneType": "{}{}", "ExpTransform": "log({}{})", "SigmoidTransform": "logit({}{})"}.get(kind, "{}~{}")

    def outside_error(self, name: str, value: NDArray[np.float64], source: str) -> ModelError:
        """Return the error for a value that violates the constraint."""
        with jax.enable_x64(True):
            example = np.round(np.asarray(self.constrain(jnp.zeros(self.free_shape))), 3).tolist()
        return ModelError(
            f"{source} gave {name!r} the value {value.tolist()}, which lies outside its support: {self.words}, "
            f"boundaries excluded. Pass {name}={example}, for example."
        )


def invert(transform: "Transform", values: Array) -> Array:
    """Return the real numbers that a transform maps to these values."""
    from numpyro.distributions.transforms import StickBreakingTransform

    if isinstance(transform, StickBreakingTransform):
        # NumPyro takes what is left of the stick as 1 - cumsum, which loses small shares to rounding.
        left = jnp.cumsum(values[..., :0:-1], axis=-1)[..., ::-1]
        return jnp.log(values[..., :-1] / left) + jnp.log(jnp.arange(left.shape[-1], 0, -1))
    return transform.inv(values)


def find_supports(shapes: Mapping[str, tuple[int, ...]], constraints: object) -> dict[str, Support]:
    """Return each parameter's support, in the order of the flat vector; refuse constraints that fit no parameter."""
    constraints = {} if constraints is None else constraints
    if not isinstance(constraints, Mapping):
        raise ModelError(
            f"constraints={constraints!r} is not a dict. Pass constraints by the parameters' names, such as "
            "{'sigma': 'positive'}; a theta that is one bare array is named 'theta'."
        )
    for name in constraints:
        if name not in shapes:
            raise ModelError(
                f"constraints names {name!r}, which is not a parameter. Valid: {', '.join(map(repr, shapes))}. Pass "
                "constraints={'" + next(iter(shapes), "sigma") + "': 'positive'}, for example."
            )
    return {name: build_support(name, shape, constraints.get(name, "real")) for name, shape in shapes.items()}


def build_support(name: str, shape: tuple[int, ...], constraint: object) -> Support:
    """Return the support of one parameter; `constraint` is a name or a NumPyro constraint."""
    known = SYNONYMS.get(constraint, constraint) if isinstance(constraint, str) else None
    if known == "real":
        return Support(shape, shape, CONSTRAINTS["real"][1])
    from numpyro.distributions import biject_to, constraints

    if known in CONSTRAINTS:
        attribute, words = CONSTRAINTS[known]
        words, meant = f"{words} ({known!r})", getattr(constraints, attribute)
    else:
        words, meant = f"values of NumPyro's {constraint!r}", constraint
    if not isinstance(meant, constraints.Constraint):
        names = ", ".join(map(repr, [*CONSTRAINTS, *SYNONYMS]))
        raise ModelError(
            f"constraints[{name!r}]={constraint!r} is not known. Valid: {names}, or a constraint of NumPyro. Pass "
            f"constraints={{{name!r}: 'positive'}}, or numpyro.distributions.constraints.interval(0, 2), for example."
        )
    if meant in (constraints.real, constraints.real_vector, constraints.real_matrix):
        return Support(shape, shape, CONSTRAINTS["real"][1])
    try:
        transform = biject_to(meant)
    except NotImplementedError:
        raise ModelError(
            f"constraints[{name!r}]={constraint!r} has no map from real numbers: kernels move real parameters. Sum "
            "discrete ones out of the model, and pass a continuous constraint, such as 'positive' or 'simplex'."
        ) from None
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"constraints[{name!r}]={constraint!r} cannot be used: {error}. Pass its bounds as numbers or arrays."
        ) from None
    fits = len(shape) >= meant.event_dim
    try:
        free = tuple(transform.inverse_shape(shape)) if fits else ()
        fits = fits and min(free, default=1) > 0 and tuple(transform.forward_shape(free)) == shape
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ModelError(
            f"init[{name!r}] has shape {shape}, which cannot hold {words}. {SHAPE_HINTS.get(meant.event_dim, '')}"
            f"Pass an init[{name!r}] of another shape, or another constraint."
        )
    return Support(shape, free, words, meant, transform)
