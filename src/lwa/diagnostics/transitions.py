"""How exact moves, started at some draws, change them: a second opinion that assumes nothing of π's shape.

Let G be the Gaussian with the mean and covariance of the draws. From a draw θ propose θ' ~ G and accept it with

    α(θ, θ') = min(1, π(θ') G(θ) / (π(θ) G(θ'))).

This Metropolis-Hastings move leaves π invariant. So if the draws come from π, E[α D] = 0 with D = f(θ') - f(θ), for
every f; if they do not, the move takes them nearer to π, and the means of some f move. The probability 1 - E[α] of
staying is TV(π⊗G, G⊗π) for draws of π, which is at least TV(π, G).

α needs π only at the draws and at the proposals, and each of the former may move to each of the latter: M² moves for
the price of M. Also, G and the draws agree in mean and variance, so that E[D] = 0 for f = θ_j and f = (θ_j - mean)² but
for the Monte Carlo error of all draws, which are many more than M. So E[α D] / E[α], the mean over accepted moves, is
estimated by the mean of (α/ᾱ - 1) D, whose noise vanishes if all moves are accepted.

In all functions the draws have mean 0 and covariance I.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from lwa.diagnostics.autocorrelation import standard_error_of_mean

PROPOSAL_SEED = 1503_04178
"""Seed of the proposals, fixed so that a certificate can be repeated. No user is likely to choose it: draws made with
the same seed might be these proposals."""
MOST_PROPOSALS = 1000
"""Enough for any number of starts: beyond it the noise is that of the starts. It bounds the memory of all pairs."""


class ExactMoves(NamedTuple):
    """Moves from each of M draws to each of K proposals."""

    starts: Float64[np.ndarray, "M d"]
    ends: Float64[np.ndarray, "K d"]
    accepted: Float64[np.ndarray, "M K"]  # α


class Transition(NamedTuple):
    """By how much an accepted move changes the draws along each contrast, with standard errors."""

    moved: Float64[np.ndarray, " k"]  # change of the mean, in the units of the contrasts
    moved_error: Float64[np.ndarray, " k"]
    widened: Float64[np.ndarray, " k"]  # change of the mean square around the draws' own mean, over their variance
    widened_error: Float64[np.ndarray, " k"]
    rejected: float  # 1 - ᾱ
    rejected_error: float


def draw_proposals(starts: int, dimension: int) -> Float64[np.ndarray, "K d"]:
    """Return the ends of moves from so many starts: about as many draws of G, the same in every call.

    Each coordinate takes one value of each of K equally probable intervals, in an order of its own (a Latin hypercube):
    every draw has the law G, and means over all are nearer to those of G than for independent draws.
    """
    count = min(starts, MOST_PROPOSALS)
    rng = np.random.default_rng(PROPOSAL_SEED)
    order = rng.permuted(np.tile(np.arange(count), (dimension, 1)), axis=1).T
    return np.vectorize(NormalDist().inv_cdf)((order + rng.random((count, dimension))) / count)


def score_moves(
    starts: Float64[np.ndarray, "M d"],
    ends: Float64[np.ndarray, "K d"],
    log_density_at_starts: Float64[np.ndarray, " M"],
    log_density_at_ends: Float64[np.ndarray, " K"],
) -> ExactMoves:
    """Return all moves with their acceptance probabilities; 0 for a move to where π is zero or NaN."""
    from_weight = log_density_at_starts + 0.5 * (starts**2).sum(1)  # log π/G
    to_weight = log_density_at_ends + 0.5 * (ends**2).sum(1)
    log_ratio = np.where(np.isnan(to_weight), -np.inf, to_weight) - from_weight[:, None]
    return ExactMoves(starts, ends, np.exp(np.minimum(log_ratio, 0.0)))


def measure_transition(
    tried: ExactMoves, draws: Float64[np.ndarray, "chains draws d"], contrasts: Float64[np.ndarray, "d k"]
) -> Transition:
    """Return what the moves change along each contrast; `draws` are all draws, not only the starts."""
    starts, ends, everywhere = (places @ contrasts for places in (tried.starts, tried.ends, draws))
    moved, moved_error = measure_change(tried.accepted, starts, ends, everywhere)
    variance = (contrasts**2).sum(0)
    squares = (values**2 / variance for values in (starts, ends, everywhere))
    widened, widened_error = measure_change(tried.accepted, *squares)
    rejected = 1.0 - tried.accepted
    error = standard_error_over_pairs(rejected.mean(1)[:, None], rejected.mean(0)[:, None])
    return Transition(
        moved=moved, moved_error=moved_error, widened=widened, widened_error=widened_error,
        rejected=float(rejected.mean()), rejected_error=float(error[0]),
    )  # fmt: skip


def measure_change(
    accepted: Float64[np.ndarray, "M K"],
    starts: Float64[np.ndarray, "M k"],
    ends: Float64[np.ndarray, "K k"],
    everywhere: Float64[np.ndarray, "chains draws k"],
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Return E[α D] / E[α] and its standard error, for k functions f with equal means over G and over all draws.

    `accepted` holds α of each move; `starts`, `ends` and `everywhere` hold f at the starts, the ends and all draws.
    """
    M, K = accepted.shape
    share = accepted / max(accepted.mean(), 1.0 / M)  # α/ᾱ; if hardly any move is accepted, as if one in M were
    leaving, arriving = share.mean(1)[:, None], share.mean(0)[:, None]
    found = ((arriving - 1.0) * ends).mean(0) - ((leaving - 1.0) * starts).mean(0)
    # How each start and each end moves the estimate: (α/ᾱ) (D - found) - D, averaged over its pairs.
    of_starts = share @ ends / K - leaving * (starts + found) + starts
    of_ends = arriving * (ends - found) - share.T @ starts / M - ends
    return found, np.hypot(standard_error_over_pairs(of_starts, of_ends), standard_error_of_mean(everywhere))


def standard_error_over_pairs(
    of_starts: Float64[np.ndarray, "M k"], of_ends: Float64[np.ndarray, "K k"]
) -> Float64[np.ndarray, " k"]:
    """Return the standard error of a mean over all pairs, from what each start and each end contributes to it.

    Starts are in the order of chains and draws, so that neighbours may be alike. Ends are as good as independent.
    """
    return np.hypot(standard_error_of_mean(of_starts[None]), of_ends.std(0) / np.sqrt(len(of_ends)))
