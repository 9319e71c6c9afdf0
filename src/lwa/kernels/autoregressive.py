"""Autoregressive proposals around θ̂: nearly independent draws if the posterior is nearly Gaussian."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.kernels import random_walk
from lwa.kernels.kernel import AnyArray, MetropolisKernel, MoveInfo, Precision, Step, choose, log_uniform
from lwa.kernels.random_walk import RandomWalk, optimal_scale
from lwa.targets.reference import Reference
from lwa.user.validate import is_real, require_bool

WALK = RandomWalk()
"""What moves θ if the Gaussian does not."""
FALLEN_BACK = 0.95
"""The share of random-walk moves if the Gaussian is of little use: the rest keeps measuring, so it can recover."""
ENOUGH_PROPOSALS = 64
"""Autoregressive proposals before their acceptance is judged, and over which it is averaged from then on. If they were
independent, the average's sd would be at most 1/16, √(1/4 / 64), and later 1/22, √(1/4 / 127)."""
REMEMBERED = 16
"""What was measured before a chain falls back counts as this many proposals: it may stem from a far start. One in
twenty moves measures from then on, so if these are accepted d = 3 recovers within 16 · 20 = 320 moves."""


def threshold(d: int) -> float:
    """Return the acceptance of autoregressive proposals below which to walk instead.

    Measured as by `benchmarks/fallback.py` (on a finer grid, with a fifth of walks instead of a tenth): the acceptance
    at which both give equally many effective draws per move, by what is wrong with the Gaussian:

    |  d | too wide | θ̂ off | too narrow | skewed target | heavy tails | banana | 3/(3+d) |
    |----|----------|-------|------------|---------------|-------------|--------|---------|
    |  1 |  < 0.40  |  0.55 |       0.81 |          0.87 |        0.93 |        |    0.75 |
    |  2 |    0.26  |  0.54 |       0.73 |          0.80 |        0.88 |   0.80 |    0.60 |
    |  5 |  < 0.15  |       |       0.49 |          0.58 |        0.70 |   0.76 |    0.38 |
    | 10 |    0.08  |  0.30 |       0.35 |          0.37 |        0.52 |   0.66 |    0.23 |
    | 20 |  < 0.08  |  0.23 |       0.24 |          0.31 |        0.39 |   0.68 |    0.13 |

    3/(3+d) balances what the wrong choice costs: at that acceptance the mixture is 2.2 to 2.9 times as good for a
    Gaussian that is too wide, the walk 2 to 3 times as good for heavy tails, in every d. It misses single directions:
    if F is three times too narrow in one of ten, 0.35 are accepted, and a walk would be 11 times as good.
    """
    return 3.0 / (3.0 + d)


def draw_student(rng: np.random.Generator, moves: int, d: int, dtype: Precision, df: float) -> NDArray[Any]:
    """Draw t = z / √(χ²/df) for a page, `(moves, d)`; standard normal if df is infinite."""
    if np.isinf(df):
        return rng.standard_normal((moves, d), dtype)
    return (rng.standard_normal((moves, d)) / (rng.chisquare(df, (moves, 1)) / df) ** 0.5).astype(dtype)


def log_student(t: AnyArray, df: float) -> Array:
    """Return the log density of Student's t, up to a constant."""
    return log_student_of_square(jnp.sum(t.astype(jnp.float64) ** 2), t.shape[-1], df)


def log_student_of_square(square: Array, d: int, df: float) -> Array:
    """Return -(df + d)/2 log(1 + ‖t‖²/df), from ‖t‖²."""
    return -0.5 * square if np.isinf(df) else -0.5 * (df + d) * jnp.log1p(square / df)


class Tuning(NamedTuple):
    """The Gaussian approximation Normal(θ̂, F Fᵀ), how often it is accepted, and the walk beside it."""

    centre: Float[Array, " d"]  # θ̂
    factor: Float[Array, "d d"]  # F
    whitening: Float[Array, "d d"]  # F⁻¹
    walk: random_walk.Tuning
    share: Float[Array, ""]  # of random-walk moves
    acceptance: Float[Array, ""]  # of autoregressive proposals, averaged
    proposals: Float[Array, ""]  # that it is averaged over, at most `ENOUGH_PROPOSALS`


class Noise(NamedTuple):
    """The randomness of one move."""

    direction: Float[AnyArray, " d"]  # standard normal
    log_u: Float[AnyArray, ""]
    kind: Float[AnyArray, ""]  # uniform: the move is a random walk if it is less than their share

    @property
    def of_walk(self) -> random_walk.Noise:
        """The noise of the move as a random walk."""
        return random_walk.Noise(self.direction, self.log_u)


@dataclass(frozen=True)
class Autoregressive(MetropolisKernel):
    """θ' = θ̂ + ρ (θ - θ̂) + √(1-ρ²) F z, and for a share of the moves the adaptive random walk instead.

    The first is reversible for Normal(θ̂, F Fᵀ), so only the target's difference from that Gaussian decides on it. The
    second keeps the chain moving if the Gaussian has lighter tails than the target. Either leaves the target
    invariant, and the choice between them does not depend on θ: so does their mixture, once tune has fixed its share.

    During tune each chain measures how often its autoregressive proposals are accepted. If that is too rare, the chain
    walks 19 times out of 20, by the covariance of its own path instead of F Fᵀ, until they are accepted again.

    Parameters
    ----------
    rho
        ρ in [0, 1): 0 proposes independently of where the chain is.
    walk
        The share of random-walk moves.
    fallback
        Whether the share may grow if the posterior turns out not to be near Gaussian.
    df
        Degrees of freedom. If finite, which needs ρ = 0, z is a multivariate Student's t with heavier tails.
    """

    rho: float = 0.0
    walk: float = 0.1
    fallback: bool = True
    df: float = float("inf")

    def __post_init__(self) -> None:
        """Check each of the four fields."""
        for name, example in (("rho", 0.0), ("walk", 0.1)):
            value = getattr(self, name)
            if not is_real(value) or not 0.0 <= value < 1.0:
                raise InputError(f"{name}={value!r} must lie in [0, 1). Pass {name}={example}.")
        if not is_real(self.df) or not self.df > 0.0 or (self.rho > 0.0 and np.isfinite(self.df)):
            raise InputError(
                f"df={self.df!r} must be positive, and infinite unless rho=0. Pass df=8.0, or df=float('inf') for a "
                "Gaussian."
            )
        require_bool("fallback", self.fallback, example=True)

    @classmethod
    def for_heavy_tails(cls, d: int) -> Self:
        """Return Student-t proposals with more walks, the more the fewer parameters.

        A walk leaves a tail in which proposals from afar are refused, the sooner the smaller d.
        """
        return cls(df=8.0, walk=threshold(d))

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Precision) -> Noise:
        """Draw the directions, uniforms and kinds of a page."""
        directions = draw_student(rng, moves, d, dtype, self.df)
        return Noise(directions, log_uniform(rng, moves), rng.random(moves, np.float32))

    def init(self, theta: Array, reference: Reference | None) -> Tuning:
        """Return the reference's Gaussian and a walk of its shape; raise if there is no reference."""
        if reference is None:
            raise InputError(
                "kernel=Autoregressive(...) needs a reference point. Pass target='calibrated' with it.",
                advice={"target": "calibrated"},
            )
        gaussian = (reference.theta, reference.factor, reference.whitening)
        centre, factor, whitening, share, none = (jnp.asarray(x, theta.dtype) for x in (*gaussian, self.walk, 0.0))
        walk = WALK.init(theta, reference)
        return Tuning(centre, factor, whitening, walk, share=share, acceptance=none, proposals=none)

    def propose(self, noise: Noise, tuning: Tuning, theta: Array) -> tuple[Array, Array]:
        """Return either proposal; Q(θ', θ)/Q(θ, θ') is the ratio of densities of z for the first, 1 for the second."""
        walks = noise.kind < tuning.share
        keep, move = self.rho, (1.0 - self.rho**2) ** 0.5
        away = theta - tuning.centre
        towards = tuning.centre + keep * away + move * (tuning.factor @ noise.direction)
        proposed = jnp.where(walks, WALK.propose(noise.of_walk, tuning.walk, theta)[0], towards)
        old = tuning.whitening @ away  # z that leads here; in these coordinates θ' needs no product
        ratio = log_student(old, self.df) - log_student(keep * old + move * noise.direction, self.df)
        return proposed, jnp.where(walks, 0.0, ratio)

    def plan_step(self, noise: Noise, tuning: Tuning) -> Step | None:
        """Return the step if ρ = 0."""
        if self.rho:
            return None
        walks = jnp.asarray(noise.kind < tuning.share)
        towards = tuning.centre + tuning.factor @ noise.direction
        return Step(jnp.where(walks, WALK.plan_step(noise.of_walk, tuning.walk).by, towards), walks)

    def log_q(self, square: Array, d: int) -> Array:
        """Return the log density of the Gaussian, or of Student's t."""
        return log_student_of_square(square, d, self.df)

    def steer(self, tuning: Tuning, noise: Noise, info: MoveInfo, gain: Array) -> Tuning:
        """Steer the walk's scale by a walk; average the acceptance of autoregressive proposals."""
        walks = noise.kind < tuning.share
        walk = WALK.steer(tuning.walk, noise.of_walk, info, jnp.where(walks, gain, 0.0))
        proposals = jnp.minimum(tuning.proposals + 1.0, ENOUGH_PROPOSALS)
        surprise = info.acceptance.astype(tuning.acceptance.dtype) - tuning.acceptance
        new, old = (tuning.acceptance + surprise / proposals, proposals), (tuning.acceptance, tuning.proposals)
        acceptance, proposals = choose((gain > 0) & ~walks, new, old)
        return tuning._replace(walk=walk, acceptance=acceptance, proposals=proposals)

    def adapt(self, tuning: Tuning, path: Array, moves: Array) -> Tuning:
        """Decide which proposal leads, and with it the walk's shape: the path's, or else F.

        With a new shape the walk starts again from the step size suited to it.
        """
        d, led = path.shape[-1], tuning.walk.shaped
        rare = self.fallback & (tuning.acceptance < threshold(d)) & (~led | (tuning.proposals >= ENOUGH_PROPOSALS))
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
        """Report which proposal led in how many chains, and the acceptance that decided it."""
        walking = ~np.asarray(tuning.walk.shaped)
        if not walking.any():
            measured = f", {format_percent(tuning.acceptance)} accepted" if np.all(tuning.proposals) else ""
            tails = "" if np.isinf(self.df) else f", Student's t with {self.df:g} degrees of freedom"
            return f"autoregressive proposals around the reference{tails}{measured}"
        where = "" if walking.all() else f" in {walking.sum()} of {len(walking)} chains"
        limit = format_percent(threshold(tuning.centre.shape[-1]))
        accepted = format_percent(tuning.acceptance[walking])
        return (
            f"random walk{where}: {accepted} of the autoregressive proposals were accepted, too few (under {limit}): "
            "the posterior is not near Gaussian"
        )


def format_percent(acceptance: Array | float) -> str:
    """Return the mean over chains, as text."""
    mean = 100 * float(np.mean(acceptance))
    return f"{mean:.0f} %" if mean >= 1 else "less than 1 %"
