"""ARMA: autoregressive moving-average models of a series, with drift, regressors or neither.

    Y_k = γ + x_kᵀ b + Σ α_i Y_{k-i} + Σ β_j Z_{k-j} + Z_k,   Z_k ~ N(0, σ²)

is `regression="direct"`, the paper's model if there is no x. In a regression with ARMA errors, `regression="errors"`,
what the regression leaves unexplained has memory:

    Y_k = γ + x_kᵀ b + η_k,   η_k = Σ α_i η_{k-i} + Σ β_j Z_{k-j} + Z_k.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree
from numpy.typing import ArrayLike, NDArray

from lwa.errors import InputError, ModelError
from lwa.models.model import Model
from lwa.models.recursion import Past, Recursion
from lwa.user.validate import is_real, is_whole, require_bool, require_one_of

PRIOR_SDS = {"ar": 10.0, "ma": 10.0, "drift": 100.0, "beta": 100.0, "sigma": 5.0}
"""Wide, in units of the data if a parameter has one. That of σ is the sd of log σ: 5 is a factor of 150."""
STEPS_PER_TURN = 16
"""Steps of the recursion per turn of the loop: fewer cost time in the loop, more only take longer to compile."""


def arma(
    p: int,
    q: int,
    *,
    drift: bool = True,
    regressors: int | Sequence[str] = 0,
    regression: str = "errors",
    sigma: float | None = None,
    stationary: bool = False,
    prior_sd: float | Mapping[str, float] | None = None,
) -> Model:
    """Return an ARMA(p, q) model of ordered rows, Y_k = γ + Σ α_i Y_{k-i} + Σ β_j Z_{k-j} + Z_k with Z_k ~ N(0, σ²).

    Its log-likelihood returns log f(Y_k | Y_1, …, Y_{k-1}) of each row of a sequence. Before the first row, the series
    is assumed to stand at its first value, and Z at 0. The effect of this assumption fades with the steps, and does not
    depend on the level of the series.

    Parameters
    ----------
    p, q
        Orders: autoregressive terms α, moving-average terms β.
    drift
        Whether the model has a γ.
    regressors
        The number of regressors, then named `x1`, `x2`, …, or their names.
    regression
        `"errors"`: Y_k = γ + x_kᵀ b + η_k, and η is ARMA without drift; so γ is a level. `"direct"`: γ + x_kᵀ b is
        added to the right-hand side above. Without regressors it makes no difference, and is `"direct"`.
    sigma
        A known σ; None makes it a parameter.
    stationary
        Whether α is confined to where the series is stationary and β to where it is invertible. The parameters are then
        `ar_partial` and `ma_partial`, partial autocorrelations between -1 and 1 (Barndorff-Nielsen and Schou, 1973;
        Monahan, 1984), and `lwa.models.arma.coefficients` gives α = coefficients(ar_partial) and
        β = -coefficients(ma_partial), of one θ or of all draws.
    prior_sd
        One number for all of `ar`, `ma`, `drift` and `beta`, or a dict by name. Coefficients are normal around 0, with
        sds of 10 for α and β and 100 for γ and b by default; log σ is normal around 0 with the sd `sigma`, 5. If
        `stationary`, α and β are uniform on their regions instead: (1 + r_k)/2 of the k-th partial autocorrelation
        r_k has the distribution Beta(⌊(k+1)/2⌋, ⌊k/2⌋ + 1) (Jones, 1987).

    Returns
    -------
    Model
        A model of ordered rows: an array of Y, or with regressors a matrix whose first column is Y, or a dict with `y`
        and the regressors by name. Parameters are `ar` (p,), `ma` (q,), `drift`, `beta` and `sigma`, as far as the
        model has them.

    Examples
    --------
    >>> import numpy as np, lwa
    >>> model = lwa.arma(1, 1)
    >>> model.scalar_names
    ['ar[0]', 'drift', 'ma[0]', 'log(sigma)']
    >>> theta = {"ar": np.array([0.5]), "ma": np.array([0.7]), "drift": 0.1, "sigma": 1.0}
    >>> model.log_likelihood(theta, np.array([0.2, 1.0])).shape
    (2,)
    """
    for name, order in (("p", p), ("q", q)):
        if not is_whole(order, least=0):
            raise InputError(f"{name}={order!r} must be a whole number >= 0. Pass lwa.arma(1, 1), for example.")
    require_bool("drift", drift, example=True)
    require_bool("stationary", stationary, example=True)
    names = name_regressors(regressors)
    if not (p or q or drift or names):
        raise InputError("p=0, q=0, no drift and no regressors leave nothing to model. Pass lwa.arma(1, 0).")
    require_one_of("regression", regression, ["errors", "direct"])
    if sigma is not None and not is_positive_number(sigma):
        raise InputError(f"sigma={sigma!r} must be a positive number. Pass sigma=1.0, or leave it out to infer it.")
    return Arma(
        p=int(p), q=int(q), drift=drift, regressors=names, direct=regression == "direct" or not names,
        sigma=None if sigma is None else float(sigma), stationary=stationary, prior_sd=read_prior_sds(prior_sd),
    ).build_model()  # fmt: skip


type ArmaTheta = Mapping[str, Array]


@dataclass(frozen=True)
class Arma:
    """The orders, regressors and priors of an ARMA model."""

    p: int
    q: int
    drift: bool
    regressors: tuple[str, ...]
    direct: bool
    sigma: float | None
    stationary: bool
    prior_sd: Mapping[str, float]

    def build_model(self) -> Model:
        """Return the model of such a series."""
        partial = "_partial" if self.stationary else ""
        init: dict[str, float | NDArray[np.float64]] = {}
        dims: dict[str, list[str]] = {}
        coords: dict[str, Sequence[object]] = {}
        for name, order in (("ar", self.p), ("ma", self.q)):
            if order:
                init[name + partial], dims[name + partial] = np.zeros(order), [f"{name}_lag"]
                coords[f"{name}_lag"] = list(range(1, order + 1))
        if self.drift:
            init["drift"] = 0.0
        if self.regressors:
            init["beta"], dims["beta"] = np.zeros(len(self.regressors)), ["regressor"]
            coords["regressor"] = list(self.regressors)
        constraints: dict[str, object] = {}
        if self.stationary and (self.p or self.q):
            from numpyro.distributions.constraints import interval

            constraints = {name: interval(-1, 1) for name in ("ar_partial", "ma_partial") if name in init}
        if self.sigma is None:
            init["sigma"], constraints["sigma"] = 1.0, "positive"
        return Model(
            self.log_likelihood, self.log_prior, init, constraints=constraints, ordered=True, dims=dims, coords=coords,
            recursion=Recursion(self.start, self.step),
        )  # fmt: skip

    def log_likelihood(self, theta: ArmaTheta, rows: PyTree) -> Array:
        """Return log f(Y_k | Y_1, …, Y_{k-1}) of each row."""
        y, x = self.columns(rows)
        held = jnp.result_type(y, *jax.tree.leaves(theta))
        y = y.astype(held)
        explained = theta.get("drift", 0.0)
        if x is not None:
            explained = explained + x.astype(held) @ theta["beta"]
        series = y if self.direct else y - explained
        w = series - explained if self.direct else series
        ar = self.ar(theta) if self.p else ()
        for i in range(self.p):
            w = w - ar[i] * lag(series, i + 1)
        z = w if self.q == 0 else find_innovations(w, self.ma(theta))
        return self.log_density(theta, z).astype(held)

    def log_density(self, theta: ArmaTheta, z: Array) -> Array:
        """Return the log density of innovations."""
        sigma = theta["sigma"] if self.sigma is None else self.sigma
        log_density = -0.5 * (z / sigma) ** 2 - jnp.log(sigma) - 0.5 * math.log(2 * math.pi)
        # If β is far from invertible, the recursion outgrows every float: such a θ has no density, rather than NaN.
        return jnp.where(jnp.isfinite(z), log_density, -jnp.inf)

    def start(self, theta: ArmaTheta, row: PyTree) -> Past:
        """Return the past of the first row: the series stood where it begins, and Z was 0."""
        series, _ = self.levels(theta, row)
        return (*[series] * self.p, *[jnp.zeros_like(series)] * self.q)

    def step(self, theta: ArmaTheta, past: Past, row: PyTree) -> tuple[Past, Array]:
        """Return log f of one row, given the series and Z of the rows before it, the last one first."""
        series, z = self.levels(theta, row)
        ar, ma = self.ar(theta) if self.p else (), self.ma(theta) if self.q else ()
        before, shocks = past[: self.p], past[self.p :]
        for i in range(self.p):
            z = z - ar[i] * before[i]
        for j in range(self.q):
            z = z - ma[j] * shocks[j]
        held = (*(series, *before)[: self.p], *(z, *shocks)[: self.q])
        return held, self.log_density(theta, z).astype(series.dtype)

    def levels(self, theta: ArmaTheta, row: PyTree) -> tuple[Array, Array]:
        """Return what has memory in one row, and the row before its memory is subtracted."""
        y, x = self.columns(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], row))
        held = jnp.result_type(y, *jax.tree.leaves(theta))
        y = y[0].astype(held)
        explained = theta.get("drift", 0.0)
        if x is not None:
            explained = explained + x[0].astype(held) @ theta["beta"]
        return (y, y - explained) if self.direct else (y - explained, y - explained)

    def log_prior(self, theta: ArmaTheta) -> Array:
        """Return log p: normal coefficients and log σ, or uniform ones on the stationary and invertible regions."""
        total: Array | float = 0.0
        for name, values in theta.items():
            if name == "sigma":
                total = total - 0.5 * (jnp.log(values) / self.prior_sd[name]) ** 2 - jnp.log(values)
            elif name.endswith("_partial"):
                k = np.arange(1, len(values) + 1)
                total = total + jnp.sum(k // 2 * jnp.log1p(-values) + (k - 1) // 2 * jnp.log1p(values))
            else:
                total = total - 0.5 * jnp.sum((values / self.prior_sd[name]) ** 2)
        return jnp.asarray(total)

    def ar(self, theta: ArmaTheta) -> Array:
        """Return the autoregressive coefficients α."""
        return coefficients(theta["ar_partial"]) if self.stationary else theta["ar"]

    def ma(self, theta: ArmaTheta) -> Array:
        """Return β: 1 + Σ β_j Bʲ is invertible if 1 - Σ α_i Bⁱ is stationary with α = -β."""
        return -coefficients(theta["ma_partial"]) if self.stationary else theta["ma"]

    def columns(self, rows: PyTree) -> tuple[Array, Array | None]:
        """Return Y and, if there are regressors, x."""
        names = self.regressors
        if isinstance(rows, Mapping):
            if missing := [name for name in ("y", *names) if name not in rows]:
                raise ModelError(
                    f"The rows have no column {', '.join(map(repr, missing))}; they have {', '.join(map(repr, rows))}. "
                    f"Pass a dict with {', '.join(map(repr, ('y', *names)))}."
                )
            x = jnp.stack([jnp.asarray(rows[name]) for name in names], axis=-1) if names else None
            return jnp.asarray(rows["y"]), x
        rows = jnp.asarray(rows)
        if rows.ndim == 1 and not names:
            return rows, None
        if rows.ndim != 2 or rows.shape[1] != 1 + len(names):
            raise ModelError(
                f"The rows have shape {rows.shape}, for {len(names)} regressors. Pass a matrix of {1 + len(names)} "
                f"columns, Y first, or a dict with {', '.join(map(repr, ('y', *names)))}."
            )
        return rows[:, 0], rows[:, 1:] if names else None


def lag(series: Array, by: int) -> Array:
    """Return the series some steps earlier; before its first row it stood there."""
    before = jnp.broadcast_to(series[:1], (by,))
    return jnp.concatenate([before, series])[: len(series)]


def find_innovations(w: Array, ma: Array) -> Array:
    """Return Z_k = w_k - Σ β_j Z_{k-j}, starting from Z = 0."""
    beta = [ma[j] for j in range(len(ma))]

    def step(past: Past, w: Array) -> tuple[Past, Array]:
        z = w
        for coefficient, before in zip(beta, past, strict=True):
            z = z - coefficient * before
        return (z, *past[:-1]), z

    start = tuple(jnp.zeros((), w.dtype) for _ in beta)
    return jax.lax.scan(step, start, w, unroll=STEPS_PER_TURN)[1]


def coefficients[A: (Array, NDArray[np.float64])](partial: A) -> A:
    """Return coefficients of a stationary autoregression, `(..., p)`, from partial autocorrelations (Durbin, Levinson).

    φ_i^{(k)} = φ_i^{(k-1)} - r_k φ_{k-i}^{(k-1)}, φ_k^{(k)} = r_k: one to one between (-1, 1)^p and all α for which
    1 - Σ α_i Bⁱ has its roots outside the unit circle. A moving average's are β = -coefficients(partial).

    Examples
    --------
    >>> import numpy as np
    >>> from lwa.models.arma import coefficients
    >>> coefficients(np.array([0.5, -0.2])).tolist()
    [0.6, -0.2]
    """
    xp = jnp if isinstance(partial, jax.Array) else np
    partial = xp.asarray(partial)
    found = partial[..., :0]
    for k in range(partial.shape[-1]):
        last = partial[..., k : k + 1]
        found = xp.concatenate([found - last * found[..., ::-1], last], axis=-1)
    return found


def partials(coefficients: ArrayLike) -> NDArray[np.float64]:
    """Return the partial autocorrelations of `coefficients`, all within (-1, 1) only if the series is stationary.

    Examples
    --------
    >>> import numpy as np
    >>> from lwa.models.arma import partials
    >>> partials(np.array([0.6, -0.2])).tolist()
    [0.5, -0.2]
    """
    left = np.asarray(coefficients, np.float64)
    found: list[np.ndarray] = []
    while left.shape[-1]:
        last = left[..., -1:]
        found.insert(0, last)
        left = (left[..., :-1] + last * left[..., -2::-1]) / (1 - last**2)
    return np.concatenate([*found, left], axis=-1)


def name_regressors(regressors: object) -> tuple[str, ...]:
    """Return the names of the regressors."""
    if is_whole(regressors, least=0):
        return tuple(f"x{i + 1}" for i in range(int(regressors)))
    names = tuple(regressors) if isinstance(regressors, list | tuple) else (None,)
    if all(isinstance(name, str) for name in names) and len({"y", *names}) == len(names) + 1:
        return names
    raise InputError(
        f"regressors={regressors!r} must be a whole number >= 0, or a list of names, all different and none of them "
        "'y'. Pass regressors=['price', 'week'], for example."
    )


def read_prior_sds(prior_sd: object) -> dict[str, float]:
    """Return the prior sds by parameter."""
    if prior_sd is None:
        return PRIOR_SDS
    given = prior_sd if isinstance(prior_sd, Mapping) else dict.fromkeys(("ar", "ma", "drift", "beta"), prior_sd)
    sds = {name: float(value) for name, value in given.items() if name in PRIOR_SDS and is_positive_number(value)}
    if len(sds) < len(given):
        raise InputError(
            f"prior_sd={prior_sd!r} must be a positive number, or a dict of them by {', '.join(map(repr, PRIOR_SDS))}. "
            "Pass prior_sd={'drift': 1000.0}, for example."
        )
    return PRIOR_SDS | sds


def is_positive_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a positive, finite number."""
    return is_real(value) and 0 < float(value) < np.inf
