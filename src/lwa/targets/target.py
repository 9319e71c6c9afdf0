"""The ladder of targets: the log density of θ given a subset U.

| name             | log target given U    | what differs from the full posterior           |
|------------------|-----------------------|------------------------------------------------|
| `"subposterior"` | log p + Σ_U ℓ_k       | the paper as written: as wide as n rows' own   |
| `"powered"`      | log p + (N/n) Σ_U ℓ_k | right spread, centred on the subset's own mode |
| `"calibrated"`   | log p + ⟨g_N, δ⟩ + (N/n) Σ_U R_k(A_U δ) | third order in δ; with A_U = I, U's own curvature |
| ... of many θ    | log p + ⟨g_N, δ⟩ - ½ δᵀ H_N δ + (N/n) Σ_U T_k(δ) | third order in δ, and no A_U to find |
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree
from numpy.typing import DTypeLike, NDArray

from lwa.errors import InputError, one_of
from lwa.models.model import Model
from lwa.rows.slots import put
from lwa.user.validate import is_real, require_bool

LARGEST_REMAINDER = 0.9
"""Share of the Gaussian's exponent that remainders of second order may outweigh. Log-concave likelihoods, those of all
rows, stay below it within the target's reach."""
WRITTEN_OUT = 16
"""Up to this many parameters, a product with a matrix takes less time than a call of a library for it."""


class TargetChoice(ABC):
    """The target that a user chooses: `Calibrated(...)`, `Powered()` or `Subposterior()`."""

    name: ClassVar[str]

    @abstractmethod
    def power(self, n: int, N: int) -> float:
        """Return w, the weight of each of n rows out of N."""


@dataclass(frozen=True)
class Calibrated(TargetChoice):
    """The posterior of all N rows: value, gradient and curvature at θ̂ from all rows, the remainder from the subset.

    Parameters
    ----------
    transport
        How the subset's curvature becomes that of all rows. True evaluates the subset's rows at θ̂ + A_U δ, with A_U
        such that the curvatures agree. `"second_order"` takes the curvature from all rows and only remainders of
        third order from the subset. False leaves curvature as it is, so draws are too wide unless subsets are chosen
        by `summary=lwa.summaries.Curvature()`. `"auto"` is `"second_order"` for more than 12 parameters and on a GPU,
        else True.
    leverage
        Whether rows are drawn by their share of the curvature, with weights to match. `"auto"` does so if single rows
        matter, as with rare dummies or heavy tails.
    reference
        A θ in the bulk of the posterior. By default lwa finds the mode in a few passes over all rows.
    tolerance
        Relative error of sds that `subset_size="auto"` may leave.

    Examples
    --------
    >>> import lwa
    >>> lwa.targets.Calibrated(leverage=True)
    Calibrated(transport='auto', leverage=True, reference=None, tolerance=0.02)
    """

    transport: bool | Literal["auto", "second_order"] = "auto"
    leverage: bool | Literal["auto"] = "auto"
    reference: PyTree = None
    tolerance: float = 0.02

    name: ClassVar[str] = "calibrated"

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.transport not in ("auto", "second_order"):
            require_bool("transport", self.transport, also=", 'auto' or 'second_order'")
        if self.leverage != "auto":
            require_bool("leverage", self.leverage, also=" or 'auto'")
        if not is_real(self.tolerance) or not 0.0 < self.tolerance < 1.0:
            raise InputError(
                f"tolerance={self.tolerance!r} must lie between 0 and 1. Pass tolerance=0.02, for sds right to 2 %."
            )

    def power(self, n: int, N: int) -> float:
        """Return N/n."""
        return N / n


@dataclass(frozen=True)
class Powered(TargetChoice):
    """Right spread, centred on each subset's own mode: the likelihood of the subset to the power N/n."""

    name: ClassVar[str] = "powered"

    def power(self, n: int, N: int) -> float:
        """Return N/n."""
        return N / n


@dataclass(frozen=True)
class Subposterior(TargetChoice):
    """The paper as written: the posterior of the n rows of the subset."""

    name: ClassVar[str] = "subposterior"

    def power(self, n: int, N: int) -> float:
        """Return 1."""
        return 1.0


SHORTHAND: dict[str, type[TargetChoice]] = {kind.name: kind for kind in (Calibrated, Powered, Subposterior)}
"""Names for the targets with their defaults."""


def as_target(target: object) -> tuple[TargetChoice, bool]:
    """Return the target as an object, and whether it may fall back to `Powered()`, as `"auto"` does."""
    if isinstance(target, TargetChoice):
        return target, False
    if isinstance(target, str) and target in (*SHORTHAND, "auto"):
        return SHORTHAND.get(target, Calibrated)(), target == "auto"
    raise one_of("target", target, [*SHORTHAND, "auto"])


class Expansion(NamedTuple):
    """Derivatives of all N rows at the reference point θ̂, and how far from it the target reaches."""

    theta: Array  # θ̂
    gradient: Array  # g_N = Σ_{all} ∇ℓ_k(θ̂)
    whitening: Array  # V with Vᵀ V = (F Fᵀ)⁻¹: ‖V δ‖ counts sds
    radius: Array  # beyond this many sds the target is zero: there the linear term would outweigh a logarithmic tail
    share: Array | None = None  # of the rows in each entry of V δ, H_N = Vᵀ share V, if it replaces U's curvature


class Given(NamedTuple):
    """What the calibrated target needs of U besides its rows."""

    slope: Array | NDArray[np.float64]  # (d,)    g_N - w A_Uᵀ Σ_U c_k ∇ℓ_k(θ̂), float64
    transport: Array | NDArray[np.floating] | None = None  # (d, d)  A_U, with A_Uᵀ H_U A_U = H_N; None for the identity
    feasible: Array | NDArray[np.bool_] | None = None  # ()      whether H_U is positive definite; else θ does not move


class Terms(NamedTuple):
    """The log target given U at one θ, term by term, so that a refresh evaluates only the rows that changed."""

    prior: Array  # ()    log p(θ)
    rows: Array  # (n,)  log f(Y_k|θ)
    total: Array  # ()    their weighted sum in float64

    @property
    def invalid(self) -> Array:
        """Whether the log target is NaN or +inf, which no density is."""
        return ~(self.total < jnp.inf)

    @property
    def log_density(self) -> Array:
        """The log target; -inf if it is invalid, so that a chain never enters such a θ and always leaves it."""
        return jnp.where(self.invalid, -jnp.inf, self.total)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Target:
    """log p(θ) + w Σ_{k∈U} log f(Y_k|θ); `"calibrated"` replaces U's linear term by that of all rows.

    With δ = θ - θ̂ and a remainder R_k(δ) = ℓ_k(θ̂+δ) - ℓ_k(θ̂) - ⟨∇ℓ_k(θ̂), δ⟩ from the subset alone, it is

        log p + ⟨g_N, δ⟩ + w Σ_U R_k(A δ)
            =  log p + w Σ_U ℓ_k(θ̂ + A δ) + ⟨g_N - w Aᵀ Σ_U ∇ℓ_k(θ̂), δ⟩ + a constant given U:

    the powered target, transported by A and tilted. A and the tilt depend on U alone, so the U chain computes them.

    With many parameters A costs more than a move of θ. Then rows are expanded to second order instead, with remainders
    T_k(δ) = R_k(δ) - ½ δᵀ ∇²ℓ_k(θ̂) δ from two derivatives along δ alone, and the U chain computes nothing for θ:

        log p + ⟨g_N, δ⟩ - ½ δᵀ H_N δ + min(w Σ_U T_k(δ), 0.45 δᵀ H_N δ).

    If rows are drawn with probabilities q_k, every sum over U counts them c_k = 1/(N q_k) times.
    """

    model: Model = field(metadata={"static": True})
    power: float | Array  # w
    expansion: Expansion | None = None

    def evaluate(self, theta: Array, rows: PyTree, given: Given | None = None, counts: Array | None = None) -> Terms:
        """Return all n terms at θ; `rows` has its slots on the last axis, `counts` are the c_k."""
        return self.sum_terms(theta, self.model.log_prior_at(theta), self.row_terms(theta, rows, given), given, counts)

    def refresh(
        self, terms: Terms, theta: Array, slots: Array, incoming: PyTree, rows: PyTree, given: Given | None = None,
        counts: Array | None = None
    ) -> Terms:  # fmt: skip
        """Return the terms at the same θ after `incoming` took `slots` of U, now `rows`: those cached there are stale.

        If U transports θ, a new U transports it elsewhere, so all cached terms are stale.
        """
        if slots.shape[-1] == 0:
            return terms
        if given is not None and given.transport is not None:
            return self.evaluate(theta, rows, given, counts)
        values = put(slots, self.row_terms(theta, incoming, given), terms.rows)
        return self.sum_terms(theta, terms.prior, values, given, counts)

    def row_terms(self, theta: Array, rows: PyTree, given: Given | None) -> Array:
        """Return ℓ_k(θ̂ + A_U δ) of each row, or T_k(δ)."""
        if self.expansion is None or self.expansion.share is None:
            return self.model.log_likelihood_at(self.transport(theta, given), rows)
        here = self.expansion.theta.astype(theta.dtype)
        away = (theta - self.expansion.theta).astype(theta.dtype)

        def terms(theta: Array) -> Array:
            return self.model.log_likelihood_at(theta, rows)

        def with_slope(theta: Array) -> tuple[Array, Array]:
            return jax.jvp(terms, (theta,), (away,))

        (value, slope), (_, bend) = jax.jvp(with_slope, (here,), (away,))
        return terms(here + away) - value - slope - bend / 2

    def transport(self, theta: Array, given: Given | None) -> Array:
        """Return θ̂ + A_U δ, or θ if nothing transports it."""
        if self.expansion is None or given is None or given.transport is None:
            return theta
        away = (theta - self.expansion.theta).astype(theta.dtype)
        return (self.expansion.theta + given.transport @ away).astype(theta.dtype)

    def sum_terms(self, theta: Array, prior: Array, rows: Array, given: Given | None, counts: Array | None) -> Terms:
        """Return the log target from its terms, in float64."""
        double = rows.astype(jnp.float64)
        likelihood = (double if counts is None else counts * double).sum(-1)
        sds = self.sds(theta)
        total = self.limit(self.power * likelihood, sds) + self.besides_rows(theta, prior, sds, given)
        return Terms(prior, rows, total)

    def limit(self, remainder: Array, sds: Array | None) -> Array:
        """Return the sum of remainders of second order, but never so much that the target stops falling outwards.

        If U has more curvature than all rows, its remainders grow where its terms level off. What is left of the
        Gaussian, a tenth of its exponent, keeps the target proper whatever U is.
        """
        if self.expansion is None or self.expansion.share is None or sds is None:
            return remainder
        share = self.expansion.share.astype(sds.dtype)
        most = (0.5 * LARGEST_REMAINDER * jnp.sum(share * sds**2)).astype(remainder.dtype)
        return jnp.where(remainder > most, most, remainder)

    def sds(self, theta: Array) -> Array | None:
        """Return V δ, how far θ is from θ̂ in posterior sds; None if there is no θ̂."""
        if self.expansion is None:
            return None
        short = (theta - self.expansion.theta).astype(theta.dtype)
        return multiply(self.expansion.whitening.astype(theta.dtype), short)

    def besides_rows(self, theta: Array, prior: Array, sds: Array | None, given: Given | None = None) -> Array:
        """Return the log target without the terms of U's rows: prior and what all N rows add; -inf past the edge."""
        total = prior.astype(jnp.float64)
        if self.expansion is None or sds is None:
            return total
        scored = jnp.sum(sds**2) <= self.expansion.radius**2
        if given is not None and given.feasible is not None:
            scored &= given.feasible
        away = theta - self.expansion.theta
        if given is not None:  # in float64: it cancels against the terms of rows
            total = total + given.slope @ away
        elif self.expansion.share is None:
            total = total + self.expansion.gradient @ away
        else:  # as small as the log ratio itself, so the working precision is enough
            slope, share = (leaf.astype(theta.dtype) for leaf in (self.expansion.gradient, self.expansion.share))
            second_order = jnp.sum(slope * away.astype(theta.dtype)) - 0.5 * jnp.sum(share * sds**2)
            total = total + second_order.astype(jnp.float64)
        return jnp.where(scored, total, -jnp.inf)


def as_held(given: Given | None, dtype: DTypeLike) -> Given | None:
    """Return A_U in the working precision of θ; the slope stays in float64, since its terms cancel."""
    if given is None or given.transport is None or given.transport.dtype == dtype:
        return given
    return given._replace(transport=given.transport.astype(np.dtype(dtype)))


def multiply(matrix: Array, vector: Array) -> Array:
    """Return matrix @ vector; if it is small, written out, so that XLA fuses it with what surrounds it."""
    return (matrix * vector).sum(-1) if len(vector) <= WRITTEN_OUT else matrix @ vector
