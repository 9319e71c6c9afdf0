"""What exact moves, started at some draws, do to them: a second opinion that assumes nothing of π's shape.

Let G be the Gaussian with the mean and covariance of the draws. From a draw θ propose θ' ~ G and accept it with

    α(θ, θ') = min(1, π(θ') G(θ) / (π(θ) G(θ'))).

This Metropolis-Hastings move leaves π invariant. So if the draws come from π, E[α D] = 0 with D = f(θ') - f(θ), for
every f; if they do not, the move takes them nearer to π, and the means of some f move. The probability 1 - E[α] of
staying is TV(π⊗G, G⊗π) for draws of π, which is at least TV(π, G).

α needs π at the draws and at the proposals only, and each of the former may move to each of the latter: M² moves for
the price of M. Also, G and the draws agree in mean and variance, so that E[D] = 0 for f = θ_j and f = (θ_j - mean)² but
for the Monte Carlo error of all draws, which are many more than M. So E[α D] / E[α], the mean over accepted moves, is
estimated by the mean of (α/ᾱ - 1) D, whose noise vanishes where all moves are accepted.

All is written in coordinates in which the draws have mean 0 and covariance I.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.monte_carlo_error import standard_error_of_mean

type Vector = NDArray[np.float64]
type Matrix = NDArray[np.float64]

SEED = 1503_04178
"""Of the proposals, so that a certificate can be repeated. Not one that users choose: what they draw with the seed of
the proposals might be these."""
MOST_PROPOSALS = 1000
"""Enough for any number of starts: by then the noise is that of these. It bounds the memory of all pairs."""


class Moves(NamedTuple):
    """From each of M draws to each of K proposals."""

    starts: Matrix  # (M, d)
    ends: Matrix  # (K, d)
    accepted: Matrix  # α, one row a start, one column an end


class Transition(NamedTuple):
    """What an accepted move changes along each contrast, with standard errors."""

    moved: Vector  # the mean, in the units of the contrasts
    moved_error: Vector
    widened: Vector  # the mean square around the draws' own mean, as a share of their variance
    widened_error: Vector
    rejected: float  # 1 - ᾱ
    rejected_error: float


def proposals(starts: int, dimension: int) -> Matrix:
    """Ends of moves from so many starts: about as many draws of G, the same in every call.

    Each coordinate takes one value of each of K equally probable intervals, in an order of its own (a Latin hypercube):
    every draw has the law G, and means over all are nearer to those of G than for independent draws.
    """
    count = min(starts, MOST_PROPOSALS)
    rng = np.random.default_rng(SEED)
    order = rng.permuted(np.tile(np.arange(count), (dimension, 1)), axis=1).T
    return np.vectorize(NormalDist().inv_cdf)((order + rng.random((count, dimension))) / count)


def moves(starts: Matrix, ends: Matrix, log_density_at_starts: Vector, log_density_at_ends: Vector) -> Moves:
    """All moves with their acceptance probabilities; one to where π is zero or not a number is never accepted."""
    from_weight = log_density_at_starts + 0.5 * (starts**2).sum(1)  # log π/G
    to_weight = log_density_at_ends + 0.5 * (ends**2).sum(1)
    log_ratio = np.where(np.isnan(to_weight), -np.inf, to_weight) - from_weight[:, None]
    return Moves(starts, ends, np.exp(np.minimum(log_ratio, 0.0)))


def transition(tried: Moves, draws: NDArray[np.float64], contrasts: Matrix) -> Transition:
    """What the moves change along each column of `contrasts` (d, k); `draws` are all, `(chains, draws, d)`."""
    starts, ends, everywhere = (places @ contrasts for places in (tried.starts, tried.ends, draws))
    moved, moved_error = change(tried.accepted, starts, ends, everywhere)
    variance = (contrasts**2).sum(0)
    widened, widened_error = change(tried.accepted, *(values**2 / variance for values in (starts, ends, everywhere)))
    rejected = 1.0 - tried.accepted
    error = error_over_pairs(rejected.mean(1)[:, None], rejected.mean(0)[:, None])
    return Transition(moved, moved_error, widened, widened_error, float(rejected.mean()), float(error[0]))


def change(accepted: Matrix, starts: Matrix, ends: Matrix, everywhere: NDArray[np.float64]) -> tuple[Vector, Vector]:
    """E[α D] / E[α] and its standard error, for f with the same mean over G and over all draws.

    Parameters
    ----------
    accepted
        α of each move, one row a start, one column an end.
    starts, ends, everywhere
        f there, one column for each f; everywhere: at all draws, `(chains, draws, k)`.
    """
    M, K = accepted.shape
    share = accepted / max(accepted.mean(), 1.0 / M)  # α/ᾱ; where hardly any move is accepted, as if one in M were
    leaving, arriving = share.mean(1)[:, None], share.mean(0)[:, None]
    found = ((arriving - 1.0) * ends).mean(0) - ((leaving - 1.0) * starts).mean(0)
    # How each start and each end moves the estimate: (α/ᾱ) (D - found) - D, averaged over what it was paired with.
    of_starts = share @ ends / K - leaving * (starts + found) + starts
    of_ends = arriving * (ends - found) - share.T @ starts / M - ends
    return found, np.hypot(error_over_pairs(of_starts, of_ends), standard_error_of_mean(everywhere))


def error_over_pairs(of_starts: Matrix, of_ends: Matrix) -> Vector:
    """The standard error of a mean over all pairs, from what each start and each end contributes to it.

    Starts are in the order of chains and draws, so that neighbours may be alike. Ends are as good as independent.
    """
    return np.hypot(standard_error_of_mean(of_starts[None]), of_ends.std(0) / np.sqrt(len(of_ends)))
