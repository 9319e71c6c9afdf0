"""The reference point and the derivatives of all rows there: θ̂, g_N = Σ ∇ℓ_k(θ̂) and H_N = -Σ ∇²ℓ_k(θ̂).

Newton's method maximises log p(θ) + Σ ℓ_k(θ), first on growing subsets, where steps are cheap, then on all rows, with
float64 sums over a stream. It stops when the next step is small compared with the posterior's width, so a few passes
are enough to bring θ̂ into the bulk.

What is left beyond second order, T_k(δ) with δ = θ - θ̂, the calibrated target takes from the subset. It estimates their
sum over all rows with a variance v(δ), and its draws follow π(θ) exp(v(δ)/2), to first order in v: where v is small
within the posterior's reach, they are right. One pass over all rows measures it there.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Float64
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator
from lwa.errors import CollapsedError, ModelError, NoModeError, NotSmoothError
from lwa.models.check import describe_theta, label_entries
from lwa.models.likelihood import NumpySums, Sums, block_size, find_likelihood, map_strata, split_into_blocks
from lwa.models.model import Model, Vectors
from lwa.rows import Rows
from lwa.rows.passes import count_unit_rows, floor_power_of_two
from lwa.rows.units import AnyBatch

POSTERIOR_EVALUATIONS = 2**20
"""The largest number of rows × θ in one compiled evaluation: 8 MiB per temporary array."""
FIRST_MODE_ROWS = 2_000
"""Rows of the first subset; each next one has ten times as many."""
MOST_MODE_ROWS = 2**18
"""Rows of the largest subset: it is held in memory, which must not grow with N, and larger ones save no pass."""
FEWEST_UNITS = 8
"""The smallest number of units in the first subset."""
CLOSE_ENOUGH = 0.01
"""Newton decrement, in posterior sds, at which θ̂ is safely in the bulk."""
MOST_STEPS = 100
MOST_HALVINGS = 40
"""Steps along the gradient that are halved this often, in all, are short beyond what a smooth function asks for."""
COLLAPSED = -12.0
"""Logarithm of a positive parameter below which Newton's method has followed it towards zero."""
SLOW_STEPS = 5
"""Near a mode each Newton step squares the distance. This many steps in a row that only shorten it by a constant factor
run towards a mode at infinity, as in perfect separation, even if they are short compared with a posterior sd that grows
with them."""
PAIRS, REACH = 8, 2.5
"""Pairs θ̂ ± δ at which all rows are expanded, and the sds of these δ along any direction: single rows see points up to
five sds out."""
ALONG_AXES, AXIS_REACH = 4, 4.0
"""Of these pairs, those along the axes of single parameters, and their sds: a skewed posterior may lie along one."""
CUBIC = 160.0
"""If T_k is cubic along a direction, v = c z⁶ has mean 15·2.5⁶ c over random points, about 4⁶ c, and exp(v/2) makes the
sd larger by 22 c, a factor of 160 less."""
LARGEST_LOG = 50.0
"""The largest log ratio of densities that is told apart."""
THETAS_AT_ONCE = 2048
"""θ whose distances are computed together, within a processor's cache."""


@dataclass(frozen=True)
class Reference:
    """θ̂ and the expansion of the log posterior there, in float64."""

    theta: NDArray[np.float64]  # θ̂
    gradient: NDArray[np.float64]  # g_N, of the log-likelihood alone
    curvature: NDArray[np.float64]  # H_N, of the log-likelihood alone
    prior_curvature: NDArray[np.float64]
    passes: int  # over all rows

    @property
    def precision(self) -> NDArray[np.float64]:
        """H_N plus the prior's curvature: the inverse covariance of the Gaussian approximation."""
        return self.curvature + self.prior_curvature

    @cached_property
    def factor(self) -> NDArray[np.float64]:
        """F with F Fᵀ = precision⁻¹."""
        return np.linalg.inv(np.linalg.cholesky(self.precision)).T

    @cached_property
    def whitening(self) -> NDArray[np.float64]:
        """F⁻¹: F⁻¹ (θ - θ̂) is standard normal if the posterior is Gaussian."""
        return np.linalg.cholesky(self.precision).T

    def furthest(self, theta: Float[np.ndarray, "... d"]) -> float:
        """Return the largest distance from θ̂ among many θ, in posterior sds, computed in θ's precision."""
        flat, worst = theta.reshape(-1, theta.shape[-1]), 0.0
        centre, across = self.theta.astype(theta.dtype), self.whitening.T.astype(theta.dtype)
        for start in range(0, len(flat), THETAS_AT_ONCE):
            away = (flat[start : start + THETAS_AT_ONCE] - centre) @ across
            worst = max(worst, float(np.einsum("ij,ij->i", away, away).max()))
        return float(np.sqrt(worst))


def find_axes(reference: Reference, rng: np.random.Generator, most: int) -> Float64[np.ndarray, "axes d"]:
    """Return a step of one sd of each parameter, on which it takes the others with it; of some if there are many."""
    d = len(reference.theta)
    covariance = reference.factor @ reference.factor.T
    along = covariance / np.sqrt(np.diag(covariance))[:, None]
    return along if d <= most else along[rng.choice(d, most, replace=False)]


def sum_all_rows(model: Model, rows: Rows, theta: NDArray[np.float64]) -> NumpySums:
    """Return the sums over all rows from one pass, which adds those of pieces in order."""
    return reduce(add_sums, map_strata(model, rows, sum_piece, theta))


def sum_piece(model: Model, theta: NDArray[np.float64], size: int, start: int, blocks: Iterable[AnyBatch]) -> NumpySums:
    """Return the sums over the rows of a piece."""
    return sum_batches(model, blocks, theta)


def add_sums(one: NumpySums, other: NumpySums) -> NumpySums:
    """Return the sums of both."""
    return Sums(*(a + b for a, b in zip(one, other, strict=True)))


def sum_batches(
    model: Model, batches: Iterable[AnyBatch], theta: NDArray[np.float64], counts: NDArray[np.float64] | None = None
) -> NumpySums:
    """Return float64 sums over batches of at most `block_size` rows; each row counts once, or `counts` times."""
    likelihood, d, start = find_likelihood(model), len(theta), 0
    total = Sums(np.zeros(()), np.zeros(d), np.zeros((d, d)))
    for batch in batches:
        size = len(jax.tree.leaves(batch)[0])
        weight = np.ones(size) if counts is None else counts[start : start + size]
        total, start = add_sums(total, likelihood.sum_block(theta, batch, weight)), start + size
    return total


def require_derivatives(model: Model, one: AnyBatch) -> None:
    """Raise `NotSmoothError`, before any pass over the rows, if JAX cannot differentiate the model twice."""
    if fault := find_not_differentiable(model, one, lambda function: jax.jacfwd(jax.grad(function))):
        name, reason = fault
        raise NotSmoothError(
            f"target='calibrated' needs derivatives of {name}, and JAX cannot take them: {reason}. "
            "Write it with functions that JAX differentiates twice."
        )


def require_gradients(model: Model, one: AnyBatch, kernel: str) -> None:
    """Raise `ModelError` if JAX cannot differentiate the model once, which some kernels need for every target."""
    if fault := find_not_differentiable(model, one, jax.grad):
        name, reason = fault
        raise ModelError(
            f"kernel={kernel}(...) needs the gradient of {name}, and JAX cannot take it: {reason}. Write it with "
            "functions that JAX differentiates, or pass kernel=lwa.kernels.RandomWalk(), which needs none."
        )


def find_not_differentiable(
    model: Model, one: AnyBatch, derivative: Callable[[Callable[[Array], Array]], Callable[[Array], Array]]
) -> tuple[str, str] | None:
    """Return the name of the model's function that has no such derivative, and JAX's reason; None if both have one."""
    theta = jnp.asarray(model.ravel(model.init))
    functions: dict[str, Callable[[Array], Array]] = {
        "log_likelihood": lambda theta: model.log_likelihood(model.unravel(theta), one).sum(),
        "log_prior": model.log_prior_at,
    }
    for name, function in functions.items():
        try:
            jax.eval_shape(derivative(function), theta)
        except Exception as error:
            return name, (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return None


def require_curved(model: Model, found: NumpySums) -> None:
    """Raise `NotSmoothError` if the log-likelihood depends on a parameter but has no second derivative in it."""
    flat = (np.diag(found.curvature) == 0) & (np.asarray(found.gradient) != 0)
    if flat.any():
        names = ", ".join(name for name, is_flat in zip(model.scalar_names, flat, strict=True) if is_flat)
        raise NotSmoothError(
            f"The second derivative of log_likelihood in {names} is zero for all rows though the first is not: it has "
            "kinks or steps (an absolute value, a maximum, a rounding), so there is no curvature to calibrate by."
        )


def require_finite_derivatives(model: Model, theta: NDArray[np.float64], found: NumpySums, prior: NumpySums) -> None:
    """Raise `NotSmoothError` if derivatives are NaN or infinite at a θ with a finite log posterior."""
    if np.isfinite(found.value + prior.value):
        for name, sums in (("log_likelihood", found), ("log_prior", prior)):
            if not (np.isfinite(sums.gradient).all() and np.isfinite(sums.curvature).all()):
                raise NotSmoothError(
                    f"The derivatives of {name} are not finite at theta = {describe_theta(model, theta)}, though its "
                    "value is: the mode may lie at a boundary. Pass constraints, such as {'sigma': 'positive'}."
                )


def find_reference(
    model: Model, rows: Rows, start: NDArray[np.float64], seed: int, progress: Callable[[int], None] = lambda _: None
) -> Reference:
    """Find θ̂ by Newton's method, on subsets first, then on all rows.

    Raise `ModelError` if the method does not converge, or if the data do not identify a direction.
    """
    N, theta = len(rows), start
    size = max(FEWEST_UNITS, FIRST_MODE_ROWS // count_unit_rows(rows))
    while 10 * size <= N and size * count_unit_rows(rows) <= MOST_MODE_ROWS:
        drawn = np.sort(generator(seed, Purpose.REFERENCE, size).choice(N, size, replace=False))
        few = split_into_blocks(rows.take(drawn))
        with suppress(ModelError):  # a few rows may be separated although all are not: then keep the same start
            theta = climb_to_mode(model, partial(sum_batches, model, few), theta, enough=0.3)[0]
        size *= 10
    passes = 0

    def over_all(theta: NDArray[np.float64]) -> NumpySums:
        nonlocal passes
        passes += 1
        progress(passes)
        return sum_all_rows(model, rows, theta)

    theta, found, prior = climb_to_mode(model, over_all, theta, enough=CLOSE_ENOUGH)
    require_identified(model, theta, found.curvature + prior.curvature)
    return Reference(theta, found.gradient, found.curvature, prior.curvature, passes)


def expand_at(model: Model, rows: Rows, theta: NDArray[np.float64]) -> Reference:
    """Return the expansion at a point in the bulk that the user gave, from one pass."""
    found = sum_all_rows(model, rows, theta)
    prior = find_likelihood(model).sum_prior(theta)
    if not np.isfinite(found.value + prior.value):
        raise ModelError(
            f"The log posterior is not finite at reference theta = {describe_theta(model, theta)}. Pass another."
        )
    require_identified(model, theta, found.curvature + prior.curvature)
    return Reference(theta, found.gradient, found.curvature, prior.curvature, 1)


def climb_to_mode(
    model: Model, sums: Callable[[NDArray[np.float64]], NumpySums], theta: NDArray[np.float64], enough: float
) -> tuple[NDArray[np.float64], NumpySums, NumpySums]:
    """Maximise log p + Σ ℓ_k, given by `sums`, until the next Newton step is shorter than `enough` posterior sds.

    Steps that do not increase the log target are halved. Negative curvature is taken as positive: far from the mode
    that is as good a guess as any.
    """
    best, step, here, decrement, slow = -np.inf, np.zeros_like(theta), theta, np.inf, 0
    sds, halved = np.zeros_like(theta), 0  # the last step in units of the parameters' own sds; halvings in all
    for _ in range(MOST_STEPS):
        found, prior = sums(here), find_likelihood(model).sum_prior(here)
        value = float(prior.value + found.value)
        if not value >= best - 1e-9 * abs(best):  # NaN too
            step, halved = step / 2, halved + 1
            if np.abs(step).max() <= 1e-14 * (1 + np.abs(theta).max()):
                break
            here = theta + step
            continue
        require_curved(model, found)
        require_finite_derivatives(model, here, found, prior)
        theta, best = here, value
        slope = prior.gradient + found.gradient
        curvature = prior.curvature + found.curvature
        # In units of each parameter's own sd: a year and a distance differ by 10⁶ in curvature, and more when squared.
        scale = np.sqrt(np.abs(np.diag(curvature)))
        scale = np.where(scale > 0, scale, 1.0)
        bend, axes = np.linalg.eigh(curvature / np.outer(scale, scale))
        along = axes.T @ (slope / scale)
        bend = np.maximum(np.abs(bend), 1e-12 * np.abs(bend).max())
        sds = axes @ (along / bend)
        step = sds / scale
        before, decrement = decrement, float(np.sqrt((along**2 / bend).sum()))
        slow = slow + 1 if 0.3 * before < decrement < 0.5 else 0
        if slow == SLOW_STEPS:
            break
        if decrement < enough and not slow:
            return theta, found, prior
        here = theta + step
    entries = label_entries(model)
    collapsed = [name for name, at in zip(entries, theta, strict=True) if name.startswith("log(") and at < COLLAPSED]
    if collapsed:
        raise CollapsedError(
            f"The posterior has no mode: its density grows without end as {', '.join(collapsed[:3])} falls, here to "
            f"{theta.min():.0f}. So it is with the scale of group effects that are parameters themselves: all effects "
            "shrink to their mean with it. Integrate the effects out in a model with groups=..., or write them as "
            "mean + scale * z with z ~ Normal(0, 1)."
        )
    if halved > MOST_HALVINGS:
        raise NotSmoothError(
            f"No mode of the posterior was found: at theta = {describe_theta(model, theta)} only the shortest steps "
            "increase the log posterior, if any do. It may have kinks or jumps: an absolute value, a maximum, a "
            "support that depends on theta."
        )
    moving = [name for name, by in zip(entries, sds, strict=True) if abs(by) >= 0.3 * np.abs(sds).max()]
    raise NoModeError(
        f"No mode of the posterior was found: Newton's method reached theta = {describe_theta(model, theta)} and did "
        f"not converge: {', '.join(moving[:6])} kept changing. If values keep growing, the data may be perfectly "
        "separated or a direction unidentified: give those parameters a proper prior, or pass "
        "target=lwa.targets.Calibrated(reference=...) with a point in the bulk."
    )


def require_identified(model: Model, theta: NDArray[np.float64], precision: NDArray[np.float64]) -> None:
    """Raise `ModelError` if the curvature is not positive definite; it names the direction along which it is not."""
    scale = np.sqrt(np.abs(np.diag(precision)))
    scale = np.where(scale > 0, scale, 1.0)
    bend, axes = np.linalg.eigh(precision / np.outer(scale, scale))
    if bend[0] > 1e-9 * bend[-1]:
        return
    direction = axes[:, 0] / scale
    share = np.abs(axes[:, 0])
    names = [name for name, used in zip(label_entries(model), share, strict=True) if used > 0.3 * share.max()]
    kind = "does not change" if bend[0] > -1e-9 * bend[-1] else "has no maximum"
    raise ModelError(
        f"The posterior {kind} along a direction that mixes {', '.join(names)} (at theta = "
        f"{describe_theta(model, theta)}, direction {np.round(direction / np.abs(direction).max(), 3).tolist()}). Drop "
        "one of these parameters or columns, or give them a proper prior."
    )


def compute_log_posterior(model: Model, rows: Rows, thetas: Float[np.ndarray, "M d"]) -> Float64[np.ndarray, " M"]:
    """Return log π of each θ up to a constant, from one pass in float64; -inf instead of NaN and infinity."""
    thetas = thetas.astype(np.float64)
    total = find_likelihood(model).compute_log_priors(thetas)

    def choose(stratum: Rows) -> int:
        length = count_unit_rows(stratum)
        most = min(block_size(stratum), POSTERIOR_EVALUATIONS // (len(thetas) * length))
        return floor_power_of_two(max(1, 64 // length, most))

    for part in map_strata(model, rows, sum_values_in_piece, thetas, choose=choose):
        total = total + part
    return np.where(total < np.inf, total, -np.inf)


def sum_values_in_piece(
    model: Model, thetas: Vectors, size: int, start: int, blocks: Iterable[AnyBatch]
) -> Float64[np.ndarray, " M"]:
    """Return Σ ℓ_k(θ) over the rows of a piece, for each θ."""
    likelihood, total = find_likelihood(model), np.zeros(len(thetas))
    for batch in blocks:
        total = total + likelihood.sum_values(thetas, batch, size)
    return total


class Remainders(NamedTuple):
    """Sums over all rows at points within the posterior's reach, δ first, then -δ."""

    rows: int  # N
    total: NDArray[np.float64]  # (2 PAIRS,)  S(δ)
    squares: NDArray[np.float64]  # (2 PAIRS,)  Σ T_k(δ)²
    largest: NDArray[np.float64]  # (2 PAIRS,)  max T_k(δ)

    def vary(self, n: int) -> NDArray[np.float64]:
        """Return v(δ) for uniform subsets of n rows; infinite where a row has no density."""
        N = self.rows
        with np.errstate(invalid="ignore", over="ignore"):
            found = (N - n) * N / n * (self.squares / N - (self.total / N) ** 2)
        return np.where(np.isfinite(found), np.maximum(found, 0.0), np.inf)

    def vary_along_axes(self, n: int) -> float:
        """Return the largest v(δ) at the points along axes, which a mean over all points would hide."""
        return float(self.vary(n).reshape(2, -1)[:, :ALONG_AXES].max())

    def raise_by_one_row(self, n: int) -> float:
        """Return by what share one row raises the mean density over uniform subsets, at the worst of these points.

        n/N of the subsets hold it, and their density there is exp(N/n T_k) times as large: where that is rare, v is
        small, and yet chains stay long with such a subset.
        """
        share = n / self.rows
        return float(share * np.expm1(min(self.largest.max() / share, LARGEST_LOG)))

    @property
    def furthest(self) -> float:
        """The largest difference between the log-likelihood and its second order at these points."""
        return float(np.nan_to_num(np.abs(self.total), nan=np.inf).max())

    def predict_error(self, n: int) -> float:
        """Return a rough relative error of sds with uniform subsets of n rows, on the safe side."""
        return float(self.vary(n).mean() / CUBIC)


class Points(NamedTuple):
    """θ̂ and some δ: rows are expanded at θ̂ and compared at θ̂ ± δ."""

    theta: NDArray[np.float64]  # (d,)
    away: NDArray[np.float64]  # (P, d)


def draw_reach(reference: Reference, seed: int) -> Points:
    """Return the points at which all rows are expanded: far along some axes, and in random directions."""
    rng, d = generator(seed, Purpose.PREDICTION, 2), len(reference.theta)
    axes = np.resize(find_axes(reference, rng, ALONG_AXES), (ALONG_AXES, d))
    z = rng.normal(size=(PAIRS - ALONG_AXES, d))
    return Points(reference.theta, np.concatenate([AXIS_REACH * axes, REACH * z @ reference.factor.T]))


def sum_remainders(model: Model, rows: Rows, reference: Reference, seed: int) -> Remainders:
    """Return the sums of T_k and T_k² over all rows within the posterior's reach, and the largest, from one pass."""
    return sum_remainders_at(model, rows, draw_reach(reference, seed))


def sum_remainders_at(model: Model, rows: Rows, points: Points) -> Remainders:
    """Return the sums over all rows at PAIRS points and their mirror images."""
    total, squares, largest = np.zeros((3, 2 * PAIRS))
    for one in map_strata(model, rows, sum_remainders_in_piece, points):
        total, squares, largest = total + one[0], squares + one[1], np.maximum(largest, one[2])
    return Remainders(len(rows), total, squares, largest)


def sum_remainders_in_piece(
    model: Model, points: Points, size: int, start: int, blocks: Iterable[AnyBatch]
) -> NDArray[np.float64]:
    """Return both sums over the rows of a piece, and the largest of them, `(3, 2 PAIRS)`."""
    likelihood, found = find_likelihood(model), np.zeros((3, 2 * len(points.away)))
    for batch in blocks:
        terms = likelihood.expand_rows(*points, batch, size)
        with np.errstate(over="ignore", invalid="ignore"):
            found[:2] += terms.sum(1), (terms**2).sum(1)
        found[2] = np.fmax(found[2], np.fmax.reduce(terms, axis=1))
    return found
