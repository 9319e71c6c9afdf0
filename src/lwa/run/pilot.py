"""Predict the error of draws with subsets of n rows, before θ moves."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.algorithm import Subset
from lwa.backend.random import Purpose, generator
from lwa.engine.host_loop import evaluate_on_host
from lwa.models.likelihood import block_size, find_likelihood, split_into_blocks
from lwa.models.model import Model
from lwa.rows import Rows
from lwa.rows.passes import count_unit_rows
from lwa.rows.slots import to_columns
from lwa.subsets.chain import Chain
from lwa.subsets.influence import DECISIVE
from lwa.subsets.strata import Drawing
from lwa.targets.reference import PAIRS, Points, Reference, compute_log_posterior, find_axes
from lwa.targets.target import Target

PILOT_PAIRS = 64
POOLED_ROWS, FEWEST_POOLED = 4096, 256
"""Rows that stand for all rows in a prediction, and the smallest number of units."""
LARGEST_VARIANCE = 50.0
"""The largest v that is told apart: the prediction is then far above any tolerance."""
GRID_AXES, GRID_STEPS, GRID_STEP = 24, 16, 0.6
"""Axes along which the tails are compared, and points on each side of θ̂: up to ten sds out."""
DENSITY = 0.4
"""Density of a Gaussian at its mean, per sd: an error of the distribution function, divided by it, is one in sds."""


def predict_excess_sd(chain: Chain, reference: Reference, subsets: list[Subset]) -> float | None:
    """Return the relative error of the worst sd because U's curvature is not that of all rows but I + D, whitened.

    Given U the posterior has covariance F (I + D)⁻¹ Fᵀ, over all U the mean of these, which is above F Fᵀ. None if U is
    transported, so that D = 0, or not informed by its curvature, so that D is not known.
    """
    if chain.calibration is not None and chain.calibration.frame is not None:
        return None
    away = np.concatenate([np.asarray(U.total) / chain.n for U in subsets])
    factor = reference.factor
    d = len(factor)
    rows, columns = np.triu_indices(d)
    bend = np.zeros((len(away), d, d))
    bend[:, rows, columns] = bend[:, columns, rows] = np.where(rows == columns, 1.0, np.sqrt(0.5)) * away
    spread = np.linalg.inv(np.eye(d) + bend).mean(0)
    ratio = np.sqrt(((factor @ spread) * factor).sum(1) / (factor**2).sum(1))
    return float(np.abs(ratio - 1.0).max())


class Grid(NamedTuple):
    """Points along some axes of the Gaussian at θ̂, on which one parameter takes the others with it."""

    terms: NDArray[np.float64]  # (axes · steps, m)  T_k of the pool's rows
    sds: NDArray[np.float64]  # (steps,)  the same on every axis
    log_density: NDArray[np.float64]  # (axes, steps)  log π, up to a constant


@dataclass(frozen=True)
class Pool:
    """Rows drawn by influence, and T_k of each at points of the Gaussian at θ̂, in antithetic pairs."""

    N: int
    rows: NDArray[np.int64]  # (m,)
    weight: NDArray[np.float64]  # (m,)  rows that each stands for
    terms: NDArray[np.float64]  # (points, m)  T_k(δ)
    away: NDArray[np.float64]  # (points, d)  δ in units of the parameters' own sds at θ̂
    log_ratio: NDArray[np.float64]  # (points,)  log π - log G, up to a constant
    grid: Grid

    def vary_at(self, terms: NDArray[np.float64], n: int, leverage: Drawing | None) -> NDArray[np.float64]:
        """Return the variance of the log target over subsets of n rows, from T_k of the pool's rows at some points."""
        if leverage is None:
            found = (self.N / n - 1.0) * (self.weight * terms**2).sum(1)
        else:
            found = leverage.vary(self.rows, self.weight, terms)
        return np.minimum(found, LARGEST_VARIANCE)

    def predict_error(self, n: int, leverage: Drawing | None) -> float:
        """Return the predicted error of draws: of means in sds, of sds relative, of quantiles in sds, the largest.

        Draws follow π exp(v/2). Both laws are compared at the same points, so that their noise cancels: in the bulk,
        and far out along single axes, where a skewed posterior has mass that the Gaussian at θ̂ has not.
        """
        wider = 0.5 * self.vary_at(self.terms, n, leverage)
        bulk = compare_laws(self.away, normalise(self.log_ratio), normalise(self.log_ratio + wider))
        grid = self.grid
        wider = 0.5 * self.vary_at(grid.terms, n, leverage).reshape(grid.log_density.shape)
        pairs = zip(normalise(grid.log_density), normalise(grid.log_density + wider), strict=True)
        return max(bulk, *(compare_laws(grid.sds[:, None], right, drawn) for right, drawn in pairs))


def compare_laws(away: NDArray[np.float64], right: NDArray[np.float64], drawn: NDArray[np.float64]) -> float:
    """Return how far apart two laws on the same points are: means and quantiles in sds, sds relative, the largest."""
    (mean, sd), (far, wide) = (find_moments(away, weight) for weight in (right, drawn))
    order = np.argsort(away, axis=0)
    gap = np.abs(np.cumsum((drawn - right)[order], axis=0)).max()
    sd = np.maximum(sd, 1e-3)
    return float(max((np.abs(far - mean) / sd).max(), np.abs(wide / sd - 1.0).max(), gap / DENSITY))


def normalise(log_weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights that add up to one along the last axis."""
    weight = np.exp(log_weight - log_weight.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def find_moments(away: NDArray[np.float64], weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return weighted means and sds of each parameter."""
    mean = weight @ away
    return mean, np.sqrt(np.maximum(weight @ away**2 - mean**2, 0.0))


def gather_pool(model: Model, rows: Rows, reference: Reference, influence: Drawing, seed: int) -> Pool:
    """Draw rows by influence, and expand them at points of the Gaussian at θ̂."""
    N, d = len(rows), model.dimension
    count = min(N, max(FEWEST_POOLED, POOLED_ROWS // count_unit_rows(rows)))
    if count == N:
        drawn, weight = np.arange(N), np.ones(N)
    else:
        chosen = influence.cut(count)
        drawn = np.sort(chosen.draw(generator(seed, Purpose.PREDICTION, 3), np.arange(count)))
        weight = N / count * chosen.counts(drawn)
    pairs = generator(seed, Purpose.PREDICTION, 4).normal(size=(-(-PILOT_PAIRS // PAIRS) * PAIRS, d))
    away = pairs @ reference.factor.T
    terms = expand_some(model, rows, drawn, Points(reference.theta, away))
    both = np.concatenate([np.concatenate([some, -some]) for some in np.split(away, len(away) // PAIRS)])
    log_ratio = terms @ weight + compute_besides(model, reference, both)
    sds = np.sqrt((reference.factor**2).sum(1))
    grid = lay_grid(model, rows, reference, seed, (drawn, weight))
    return Pool(N, drawn, weight, terms=terms, away=both / sds, log_ratio=log_ratio, grid=grid)


def lay_grid(
    model: Model, rows: Rows, reference: Reference, seed: int, pooled: tuple[NDArray[np.int64], NDArray[np.float64]]
) -> Grid:
    """Expand pooled rows along the axes of the Gaussian at θ̂."""
    drawn, weight = pooled
    axes = find_axes(reference, generator(seed, Purpose.PREDICTION, 5), GRID_AXES)
    steps = GRID_STEP * np.arange(1, GRID_STEPS + 1)
    ahead = (steps[:, None] * axes[:, None]).reshape(-1, axes.shape[1])
    found = expand_some(model, rows, drawn, Points(reference.theta, ahead))
    shape = (len(axes), GRID_STEPS // PAIRS, 2, PAIRS)  # blocks of steps ahead, then behind
    terms = np.moveaxis(found.reshape(*shape, -1), 2, 1).reshape(len(axes), 2, GRID_STEPS, -1)
    lined = np.concatenate([terms[:, 1, ::-1], np.zeros_like(terms[:, 0, :1]), terms[:, 0]], axis=1)
    sds = np.concatenate([-steps[::-1], [0.0], steps])
    places = (sds[:, None] * axes[:, None]).reshape(-1, axes.shape[1])
    flat = lined.reshape(len(places), -1)
    log = flat @ weight + compute_besides(model, reference, places) - 0.5 * np.tile(sds**2, len(axes))
    return Grid(flat, sds, log.reshape(len(axes), -1))


def compute_besides(model: Model, reference: Reference, away: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log π - log G - Σ T_k at θ̂ + `away`, up to a constant: what the prior adds beyond second order."""
    prior = find_likelihood(model).compute_log_priors(reference.theta + away) + away @ reference.gradient
    found = prior + 0.5 * np.einsum("pi,ij,pj->p", away, reference.prior_curvature, away)
    return np.where(np.isfinite(found), found, -np.inf)


def expand_some(model: Model, rows: Rows, drawn: NDArray[np.int64], points: Points) -> NDArray[np.float64]:
    """Return T_k of some rows, PAIRS pairs of points at a time, as the program for all rows takes them."""
    likelihood, blocks, terms = find_likelihood(model), split_into_blocks(rows.take(drawn)), list[NDArray[np.float64]]()
    for away in np.split(points.away, len(points.away) // PAIRS):
        found = [likelihood.expand_rows(points.theta, away, block, block_size(block)) for block in blocks]
        terms.append(np.concatenate(found, axis=1))
    remainders = np.concatenate(terms)
    return np.where(np.isfinite(remainders), remainders, -DECISIVE)


class Scored(NamedTuple):
    """Points drawn from the Gaussian at θ̂, in antithetic pairs, and the log posterior of all rows there."""

    z: NDArray[np.float64]  # (m, d)  θ = θ̂ + F z
    log_posterior: NDArray[np.float64]


def score_points(model: Model, rows: Rows, reference: Reference, seed: int, *, pairs: int = PILOT_PAIRS) -> Scored:
    """Draw points from the Gaussian at θ̂ and find their log posterior, in one pass over all rows."""
    z = generator(seed, Purpose.PREDICTION, 0).normal(size=(pairs, model.dimension))
    z = np.concatenate([z, -z])
    return Scored(z, compute_log_posterior(model, rows, reference.theta + z @ reference.factor.T))


def predict_error(chain: Chain, target: Target, U: Subset, reference: Reference, scored: Scored) -> float:
    """Return the predicted relative error of the worst sd: moments under the mixture of targets given U against π's.

    Both are means over the same points with weights π/G and π_U/G, G the Gaussian they were drawn from, so that most of
    their noise is the same and cancels.
    """
    columns = to_columns(chain.take(U), np.float64, axis=1)
    thetas = jnp.asarray(reference.theta + scored.z @ reference.factor.T)
    given_U = np.asarray(evaluate_targets(target, thetas, columns, chain.given(U), chain.counts(U)))  # (subsets, m)
    gaussian = -0.5 * (scored.z**2).sum(1)

    def weights(log_density: NDArray[np.float64]) -> NDArray[np.float64]:
        return normalise(log_density - gaussian)

    def sd(weight: NDArray[np.float64]) -> NDArray[np.float64]:
        away = scored.z @ reference.factor.T
        return np.sqrt(weight @ away**2 - (weight @ away) ** 2)

    return float(np.abs(sd(weights(given_U).mean(0)) / sd(weights(scored.log_posterior)) - 1.0).max())


def evaluate_targets(target: Target, thetas: Array, columns: Any, given: Any, counts: Any) -> Any:
    """Return the log target at many θ, given each of several subsets: (subsets, thetas)."""
    if not target.model.in_python:
        return evaluate_targets_on_device(target, thetas, columns, given, counts)

    def evaluate_subset(subset: int) -> NDArray[np.float64]:
        known = jax.tree.map(
            lambda leaf: np.broadcast_to(leaf[subset], (len(thetas), *leaf.shape[1:])), (columns, given, counts)
        )
        return np.asarray(evaluate_on_host(target, thetas, *known).total)

    return np.stack([evaluate_subset(subset) for subset in range(len(jax.tree.leaves(columns)[0]))])


@jax.jit
def evaluate_targets_on_device(target: Target, thetas: Array, columns: Any, given: Any, counts: Any) -> Array:
    """Return what `evaluate_targets` does, for a model in JAX, from one program."""

    def evaluate(theta: Array, columns: Any, given: Any, counts: Any) -> Array:
        return target.evaluate(theta, columns, given, counts).total

    return jax.vmap(jax.vmap(evaluate, (0, None, None, None)), (None, 0, 0, 0))(thetas, columns, given, counts)
