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
from lwa.targets.reference import PAIRS, Reference, compute_log_posterior
from lwa.targets.target import Target

PILOT_PAIRS = 64
POOLED_ROWS, FEWEST_POOLED = 4096, 256
"""Rows that stand for all rows in a prediction, and the smallest number of units."""
LARGEST_VARIANCE = 50.0
"""The largest v that is told apart: the prediction is then far above any tolerance."""
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


@dataclass(frozen=True)
class Pool:
    """Rows drawn by influence, and T_k of each at points of the Gaussian at θ̂, in antithetic pairs."""

    N: int
    rows: NDArray[np.int64]  # (m,)
    weight: NDArray[np.float64]  # (m,)  rows that each stands for
    terms: NDArray[np.float64]  # (points, m)  T_k(δ)
    away: NDArray[np.float64]  # (points, d)  δ in units of the parameters' own sds at θ̂
    log_ratio: NDArray[np.float64]  # (points,)  log π - log G, up to a constant

    def vary(self, n: int, leverage: Drawing | None) -> NDArray[np.float64]:
        """Return v(δ), the variance of the log target over subsets of n rows."""
        stands_for = self.N / n * (np.ones(len(self.rows)) if leverage is None else leverage.counts(self.rows))
        return (self.weight * np.maximum(0.0, stands_for - 1.0) * self.terms**2).sum(1)

    def predict_error(self, n: int, leverage: Drawing | None) -> float:
        """Return the predicted error of draws: of means in sds, of sds relative, of quantiles in sds, the largest.

        Draws follow π exp(v/2); moments of both are means over the same points, so that their noise cancels.
        """
        right = normalise(self.log_ratio)
        drawn = normalise(self.log_ratio + 0.5 * np.minimum(self.vary(n, leverage), LARGEST_VARIANCE))
        (mean, sd), (far, wide) = (find_moments(self.away, weight) for weight in (right, drawn))
        order = np.argsort(self.away, axis=0)
        gap = np.abs(np.cumsum((drawn - right)[order], axis=0)).max()
        errors = (np.abs(far - mean) / sd, np.abs(wide / sd - 1.0), np.array([gap / DENSITY]))
        return float(max(one.max() for one in errors))


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
    likelihood = find_likelihood(model)
    blocks = [(block, block_size(block)) for block in split_into_blocks(rows.take(drawn))]
    terms, z = list[NDArray[np.float64]](), list[NDArray[np.float64]]()
    for some in pairs.reshape(-1, PAIRS, d):  # as many as the program for all rows takes
        away = some @ reference.factor.T
        found = [likelihood.expand_rows(reference.theta, away, block, size) for block, size in blocks]
        terms.append(np.concatenate(found, axis=1))
        z += [some, -some]
    points, remainders = np.concatenate(z), np.concatenate(terms)
    remainders = np.where(np.isfinite(remainders), remainders, -DECISIVE)
    away = points @ reference.factor.T
    prior = likelihood.compute_log_priors(reference.theta + away) + away @ reference.gradient
    bend = 0.5 * np.einsum("pi,ij,pj->p", away, reference.prior_curvature, away)
    log_ratio = remainders @ weight + prior + bend
    sds = np.sqrt((reference.factor**2).sum(1))
    log_ratio = np.where(np.isfinite(log_ratio), log_ratio, -np.inf)
    return Pool(N, drawn, weight, terms=remainders, away=away / sds, log_ratio=log_ratio)


class Scored(NamedTuple):
    """Points drawn from the Gaussian at θ̂, in antithetic pairs, and the log posterior of all rows there."""

    z: NDArray[np.float64]  # (m, d)  θ = θ̂ + F z
    log_posterior: NDArray[np.float64]


def score_points(model: Model, rows: Rows, reference: Reference, seed: int) -> Scored:
    """Draw points from the Gaussian at θ̂ and find their log posterior, in one pass over all rows."""
    z = generator(seed, Purpose.PREDICTION, 0).normal(size=(PILOT_PAIRS, model.dimension))
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
