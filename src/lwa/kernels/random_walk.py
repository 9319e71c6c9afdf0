"""Adaptive random walk: Q(θ, ·) = Normal(θ, scale² Σ), both learnt during tune and then frozen."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from lwa.kernels.kernel import AnyArray, MetropolisKernel, MoveInfo, Precision, Step, log_uniform
from lwa.targets.reference import Reference
from lwa.user.validate import require_positive, require_share


class Tuning(NamedTuple):
    """What the walk has learnt of its target."""

    log_scale: Float[Array, ""]
    factor: Float[Array, "d d"]  # Cholesky factor of Σ
    mean: Float[Array, " d"]  # running moments of the path
    covariance: Float[Array, "d d"]
    shaped: Bool[Array, ""]  # whether a reference gave the shape, which is then kept
    learnt: Bool[Array, ""]  # whether the shape is that of the path


class Noise(NamedTuple):
    """The randomness of one move."""

    direction: Float[AnyArray, " d"]  # standard normal
    log_u: Float[AnyArray, ""]


def optimal_scale(d: int | NDArray[np.int32]) -> Array:
    """Return 2.38 / √d, the best scale on a Gaussian target of covariance Σ (Roberts, Gelman and Gilks, 1997)."""
    return jnp.asarray(2.38 / d**0.5)


def blend_moments(
    mean: Float[Array, " d"], covariance: Float[Array, "d d"], path: Float[Array, "m d"], moves: Array,
    forgets: float = 2.0,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the running moments of a path with those of its last m moves blended in.

    The i-th batch has the weight f/(i+f-1), f being `forgets`: moments then forget the start like i^-f.
    """
    m, d = path.shape
    rho = forgets / (moves / m + forgets - 1.0)
    shift = path.mean(0) - mean
    within = jnp.cov(path, rowvar=False, bias=True).reshape(d, d)
    blend = (1 - rho) * covariance + rho * (within + (1 - rho) * jnp.outer(shift, shift))
    return mean + rho * shift, blend


def shrink_factor(covariance: Array, moves: Array, d: float | Array) -> Array:
    """Return the Cholesky factor; while moves are few compared with d², correlations are shrunk towards zero."""
    shrink = d / (d + moves / 10.0)
    return jnp.linalg.cholesky((1 - shrink) * covariance + shrink * jnp.diag(jnp.diag(covariance)))


def learn_shape(tuning: Tuning, path: Array, moves: Array, suitable: Array, forgets: float = 2.0) -> Tuning:
    """Blend the last moves into the running moments and take their shape, unless a reference gave one.

    With the first shape learnt from the path, the scale starts again from `suitable`, the one for a correct shape.
    """
    mean, covariance = blend_moments(tuning.mean, tuning.covariance, path.astype(jnp.float64), moves, forgets)
    factor = shrink_factor(covariance, moves, path.shape[-1])
    usable = jnp.all(jnp.isfinite(factor)) & jnp.all(jnp.diag(covariance) > 0) & ~tuning.shaped
    log_scale = jnp.where(usable & ~tuning.learnt, jnp.log(suitable), tuning.log_scale)
    factor = jnp.where(usable, factor, tuning.factor)
    dtype = tuning.factor.dtype
    return tuning._replace(
        log_scale=log_scale.astype(dtype), factor=factor.astype(dtype), mean=mean.astype(dtype),
        covariance=covariance.astype(dtype), learnt=tuning.learnt | usable,
    )  # fmt: skip


def begin_tuning(theta: Array, reference: Reference | None, scale: float, suitable: Array) -> Tuning:
    """Return a round walk of the first scale; with a reference, a walk of its shape and the scale `suitable` for it."""
    d, dtype = theta.shape[-1], theta.dtype
    if reference is None:
        first, factor, covariance = jnp.asarray(scale), jnp.eye(d), jnp.zeros((d, d))
    else:
        factor = jnp.asarray(reference.factor)
        first, covariance = suitable, factor @ factor.T
    return Tuning(
        log_scale=jnp.log(first).astype(dtype), factor=factor.astype(dtype), mean=theta,
        covariance=covariance.astype(dtype), shaped=jnp.asarray(reference is not None), learnt=jnp.asarray(False),
    )  # fmt: skip


@dataclass(frozen=True)
class RandomWalk(MetropolisKernel):
    """Gaussian random walk, shaped by the covariance of its own path and scaled to an acceptance rate.

    The covariance is Haario's, with weights that grow with time so that the path from the start is forgotten; the
    scale follows Robbins-Monro steps on the acceptance probability. Neither changes after tune.

    Parameters
    ----------
    target_accept
        The acceptance rate to aim for. The paper's experiments keep 0.25 to 0.40.
    scale
        The first step size; tune corrects it within tens of moves.

    References
    ----------
    Haario, Saksman, Tamminen (2001), An adaptive Metropolis algorithm.
    """

    target_accept: float = 0.3
    scale: float = 0.1

    def __post_init__(self) -> None:
        """Check the rate and the scale."""
        require_share("target_accept", self.target_accept, example=0.3)
        require_positive("scale", self.scale, example=0.1)

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Precision) -> Noise:
        """Draw the directions and uniforms of a page."""
        return Noise(rng.standard_normal((moves, d), dtype), log_uniform(rng, moves))

    def init(self, theta: Array, reference: Reference | None) -> Tuning:
        """Return a round walk of the first step size; with a reference, its shape and the step size suited to it."""
        return begin_tuning(theta, reference, self.scale, optimal_scale(theta.shape[-1]))

    def propose(self, noise: Noise, tuning: Tuning, theta: Array) -> tuple[Array, float]:
        """Return θ' = θ + scale · factor · z, which is symmetric."""
        return theta + self.plan_step(noise, tuning).by, 0.0

    def plan_step(self, noise: Noise, tuning: Tuning) -> Step:
        """Return scale · factor · z, from θ."""
        return Step(jnp.exp(tuning.log_scale) * (tuning.factor @ noise.direction), jnp.ones((), bool))

    def steer(self, tuning: Tuning, noise: Noise, info: MoveInfo, gain: Array) -> Tuning:
        """log scale ← log scale + gain (acceptance - target)."""
        surprise = (info.acceptance - self.target_accept).astype(tuning.log_scale.dtype)
        return tuning._replace(log_scale=tuning.log_scale + gain * surprise)

    def adapt(self, tuning: Tuning, path: Array, moves: Array) -> Tuning:
        """Take the shape of the path."""
        return learn_shape(tuning, path, moves, optimal_scale(path.shape[-1]))

    def proposal_variances(self, tuning: Tuning) -> list[float]:
        """Return scale² times the mean of Σ's diagonal."""
        entries = np.square(tuning.factor).sum(-1)
        return [float(np.mean(np.exp(2 * np.asarray(tuning.log_scale))[:, None] * entries))]

    def describe(self, tuning: Tuning) -> str:
        """Report the step size in units of the shape, averaged over chains."""
        return f"adaptive random walk, step size {np.exp(np.mean(tuning.log_scale)):.2g}"
