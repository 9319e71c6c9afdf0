"""Autoregressive proposals around θ̂: nearly independent draws where the posterior is nearly Gaussian."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.errors import InputError
from lwa.kernels import random_walk
from lwa.kernels.decision import choose
from lwa.kernels.independence import log_density_of, log_student, student
from lwa.kernels.kernel import Info, Metropolis, Step, log_uniform
from lwa.kernels.random_walk import RandomWalk, is_real, optimal_scale
from lwa.targets.reference import Reference

WALK = RandomWalk()
"""What moves θ where the Gaussian does not."""
FALLEN_BACK = 0.95
"""The share of random walks where the Gaussian is of little use: the rest keeps measuring, so that it can recover."""
ENOUGH = 64
"""Autoregressive proposals before their acceptance is judged, and over which it is averaged from then on. Were they
independent, the average's sd would be 1/16 at the most, √(1/4 / 64), and later 1/22, √(1/4 / 127)."""
REMEMBERED = 16
"""What was measured before a chain falls back counts for so many: it may have been the way from a far start. One in
twenty proposals measures from then on, so where these are accepted d = 3 recovers within 16 · 20 = 320 moves."""


def threshold(d: int) -> float:
    """The acceptance of autoregressive proposals under which to walk instead.

    Measured as by `benchmarks/fallback.py` (a finer grid, and a fifth of walks where it is now a tenth): the acceptance
    at which both give as many effective draws a move, by what is wrong with the Gaussian:

    |  d | too wide | θ̂ off | too narrow | skewed target | heavy tails | banana | 3/(3+d) |
    |----|----------|-------|------------|---------------|-------------|--------|---------|
    |  1 |  < 0.40  |  0.55 |       0.81 |          0.87 |        0.93 |        |    0.75 |
    |  2 |    0.26  |  0.54 |       0.73 |          0.80 |        0.88 |   0.80 |    0.60 |
    |  5 |  < 0.15  |       |       0.49 |          0.58 |        0.70 |   0.76 |    0.38 |
    | 10 |    0.08  |  0.30 |       0.35 |          0.37 |        0.52 |   0.66 |    0.23 |
    | 20 |  < 0.08  |  0.23 |       0.24 |          0.31 |        0.39 |   0.68 |    0.13 |

    3/(3+d) balances what the wrong choice costs: at that acceptance the mixture is 2.2 to 2.9 times as good for a
    Gaussian that is too wide, the walk 2 to 3 times as good for heavy tails, in every d. It misses single directions:
    where F is three times too narrow in one of ten, 0.35 are accepted, and a walk would be 11 times as good.
    """
    return 3.0 / (3.0 + d)


class Tuning(NamedTuple):
    """The Gaussian approximation Normal(θ̂, F Fᵀ), how it is received, and the walk beside it."""

    centre: Array  # θ̂
    factor: Array  # F
    whitening: Array  # F⁻¹
    walk: random_walk.Tuning
    share: Array  # ()  of random-walk moves
    acceptance: Array  # ()  of autoregressive proposals, averaged
    proposals: Array  # ()  that it is averaged over, `ENOUGH` at the most


class Noise(NamedTuple):
    """The randomness of one move: NumPy's as it is drawn, JAX's as it is used."""

    direction: Any  # (d,)  standard normal
    log_u: Any
    kind: Any  # ()    uniform: a random walk where it is less than the share of these


@dataclass(frozen=True)
class Autoregressive(Metropolis):
    """θ' = θ̂ + ρ (θ - θ̂) + √(1-ρ²) F z, now and then a move of the adaptive random walk instead.

    The first is reversible for Normal(θ̂, F Fᵀ), so only what the target is more than that Gaussian decides on it. The
    second keeps the chain moving where the Gaussian has lighter tails than the target. Either leaves the target
    invariant, and which of them it is does not depend on θ: so does their mixture, once tune has settled its share.

    During tune each chain measures how often its autoregressive proposals are accepted, and where that is too rare
    walks 19 times out of 20, by the covariance of its own path in place of F Fᵀ, until they are accepted again.

    Parameters
    ----------
    rho
        ρ in [0, 1): 0 proposes independently of where the chain is.
    walk
        The share of random-walk moves.
    fallback
        Whether the share may grow where the posterior turns out not to be near Gaussian.
    df
        Degrees of freedom: finite, with ρ = 0, z is a multivariate Student's t, for tails heavier than the Gaussian's.
    """

    rho: float = 0.0
    walk: float = 0.1
    fallback: bool = True
    df: float = float("inf")

    def __post_init__(self) -> None:
        """Refuse what is no correlation, no share or no choice."""
        for name, example in (("rho", 0.0), ("walk", 0.1)):
            value = getattr(self, name)
            if not is_real(value) or not 0.0 <= value < 1.0:
                raise InputError(f"{name}={value!r} must lie in [0, 1). Pass {name}={example}.")
        if not is_real(self.df) or not self.df > 0.0 or (self.rho > 0.0 and np.isfinite(self.df)):
            raise InputError(
                f"df={self.df!r} must be positive, and infinite unless rho=0. Pass df=8.0, or df=float('inf') for a "
                "Gaussian."
            )
        if not isinstance(self.fallback, bool):
            raise InputError(f"fallback={self.fallback!r} must be True or False. Pass fallback=True.")

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Any) -> Noise:
        """Directions, uniforms and kinds of a page."""
        directions = student(rng, moves, d, dtype, self.df)
        return Noise(directions, log_uniform(rng, moves), rng.random(moves, np.float32))

    def init(self, theta: Array, reference: Reference | None) -> Tuning:
        """The reference's Gaussian, without which there is nothing to propose around, and a walk of its shape."""
        if reference is None:
            raise InputError("kernel=Autoregressive(...) needs a reference point. Pass target='calibrated' with it.")
        gaussian = (reference.theta, reference.factor, reference.whitening)
        centre, factor, whitening, share, none = (jnp.asarray(x, theta.dtype) for x in (*gaussian, self.walk, 0.0))
        return Tuning(centre, factor, whitening, WALK.init(theta, reference), share, none, none)

    def propose(self, noise: Noise, tuning: Tuning, theta: Array) -> tuple[Array, Array]:
        """Either proposal; Q(θ', θ)/Q(θ, θ') is the ratio of densities of z for the first, 1 for the second."""
        walks = noise.kind < tuning.share
        keep, move = self.rho, (1.0 - self.rho**2) ** 0.5
        away = theta - tuning.centre
        towards = tuning.centre + keep * away + move * (tuning.factor @ noise.direction)
        proposed = jnp.where(walks, WALK.propose(noise, tuning.walk, theta)[0], towards)
        old = tuning.whitening @ away  # z that leads here; in these coordinates θ' needs no product
        ratio = log_student(old, self.df) - log_student(keep * old + move * noise.direction, self.df)
        return proposed, jnp.where(walks, 0.0, ratio)

    def ahead(self, noise: Noise, tuning: Tuning) -> Step | None:
        """With ρ = 0."""
        if self.rho:
            return None
        walks = noise.kind < tuning.share
        towards = tuning.centre + tuning.factor @ noise.direction
        return Step(jnp.where(walks, WALK.ahead(noise, tuning.walk).by, towards), walks)

    def log_q(self, square: Array, d: int) -> Array:
        """That of the Gaussian, or of the Student's t."""
        return log_density_of(square, d, self.df)

    def steer(self, tuning: Tuning, noise: Noise, info: Info, gain: Array) -> Tuning:
        """A walk steers the walk's scale; an autoregressive proposal adds to the average of their acceptance."""
        walks = noise.kind < tuning.share
        walk = WALK.steer(tuning.walk, noise, info, jnp.where(walks, gain, 0.0))
        proposals = jnp.minimum(tuning.proposals + 1.0, ENOUGH)
        surprise = info.acceptance.astype(tuning.acceptance.dtype) - tuning.acceptance
        acceptance, proposals = choose(
            (gain > 0) & ~walks,
            (tuning.acceptance + surprise / proposals, proposals),
            (tuning.acceptance, tuning.proposals),
        )
        return tuning._replace(walk=walk, acceptance=acceptance, proposals=proposals)

    def adapt(self, tuning: Tuning, path: Array, moves: Array) -> Tuning:
        """Settle which proposal leads, and the walk's shape with it: the path's, or else F.

        With another shape the walk starts again from the step size that suits it.
        """
        d, led = path.shape[-1], tuning.walk.shaped
        rare = self.fallback & (tuning.acceptance < threshold(d)) & (~led | (tuning.proposals >= ENOUGH))
        walk = WALK.adapt(tuning.walk._replace(shaped=~rare), path, moves)
        suits = jnp.log(optimal_scale(d)).astype(walk.log_scale.dtype)
        walk = walk._replace(
            log_scale=jnp.where(walk.learnt & ~rare, suits, walk.log_scale),
            factor=jnp.where(rare, walk.factor, tuning.factor),
            learnt=walk.learnt & rare,
        )
        share = jnp.where(rare, max(self.walk, FALLEN_BACK), self.walk).astype(tuning.share.dtype)
        proposals = jnp.where(led & rare, REMEMBERED, tuning.proposals).astype(tuning.proposals.dtype)
        return tuning._replace(walk=walk, share=share, proposals=proposals)

    def describe(self, tuning: Tuning) -> str:
        """Which proposal led in how many chains, and the acceptance that decided it."""
        walking = ~np.asarray(tuning.walk.shaped)
        if not walking.any():
            measured = f", {percent(tuning.acceptance)} accepted" if np.all(tuning.proposals) else ""
            tails = "" if np.isinf(self.df) else f", Student's t with {self.df:g} degrees of freedom"
            return f"autoregressive proposals around the reference{tails}{measured}"
        where = "" if walking.all() else f" in {walking.sum()} of {len(walking)} chains"
        limit = percent(threshold(tuning.centre.shape[-1]))
        return (
            f"random walk{where}: {percent(tuning.acceptance[walking])} of the autoregressive proposals were accepted, "
            f"too few (under {limit}): the posterior is not near Gaussian"
        )


def percent(acceptance: Array | float) -> str:
    """A mean over chains, in words."""
    mean = 100 * float(np.mean(acceptance))
    return f"{mean:.0f} %" if mean >= 1 else "less than 1 %"
