"""Predict the error of sds with subsets of n rows from pilot subsets, before θ moves."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.algorithm import Subset
from lwa.backend.random import Purpose, generator
from lwa.engine.host_loop import evaluate_on_host
from lwa.models.model import Model
from lwa.rows import Rows
from lwa.rows.slots import to_columns
from lwa.subsets.chain import Chain
from lwa.targets.reference import Reference, compute_log_posterior
from lwa.targets.target import Target

PILOT_PAIRS = 64


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
        log = log_density - gaussian
        weight = np.exp(log - log.max(-1, keepdims=True))
        return weight / weight.sum(-1, keepdims=True)

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
