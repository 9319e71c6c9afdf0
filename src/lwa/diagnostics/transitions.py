"""How exact moves, started at some draws, change them: a second opinion that assumes nothing of π's shape.

Let G be the Gaussian with the mean and covariance of the draws. From a draw θ propose θ' ~ G and accept it with

    α(θ, θ') = min(1, π(θ') G(θ) / (π(θ) G(θ'))).

This Metropolis-Hastings move leaves π invariant. So if the draws come from π, E[α D] = 0 with D = f(θ') - f(θ), for
every f; if they do not, the move takes them nearer to π, and the means of some f move. The probability 1 - E[α] of
staying is TV(π⊗G, G⊗π) for draws of π, which is at least TV(π, G).

α needs π only at the draws and at the proposals, and each of the former may move to each of the latter: M² moves for
the price of M. Also, E[D] is known, the mean of f under G less that over all draws, which are many more than M. So
E[α D] / E[α], the mean over accepted moves, is estimated by E[D] plus the mean of (α/ᾱ - 1) D, whose noise vanishes if
all moves are accepted. The f are those of `shapes`, whose mean under G is 0.

In all functions the draws have mean 0 and covariance I.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from lwa.diagnostics.autocorrelation import standard_error_of_mean
from lwa.diagnostics.shapes import QUANTITIES, evaluate_tests, find_ends

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
    """By how much an accepted move changes the mean of each f along each contrast, with standard errors."""

    change: Float64[np.ndarray, "k 5"]
    error: Float64[np.ndarray, "k 5"]
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
    scale = np.sqrt((contrasts**2).sum(0))
    starts, ends, everywhere = (places @ contrasts / scale for places in (tried.starts, tried.ends, draws))
    change, error = np.zeros((2, len(scale), len(QUANTITIES)))
    for j in range(len(scale)):
        limits = find_ends(everywhere[..., j].ravel(), bounded=True)
        here, there, all_over = (evaluate_tests(values[..., j], limits) for values in (starts, ends, everywhere))
        change[j], error[j] = measure_change(tried.accepted, here, there, all_over)
    rejected = 1.0 - tried.accepted
    of_rejected = standard_error_over_pairs(rejected.mean(1)[:, None], rejected.mean(0)[:, None])
    return Transition(change, error, float(rejected.mean()), float(of_rejected[0]))


def measure_change(
    accepted: Float64[np.ndarray, "M K"],
    starts: Float64[np.ndarray, "M k"],
    ends: Float64[np.ndarray, "K k"],
    everywhere: Float64[np.ndarray, "chains draws k"],
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Return E[α D] / E[α] and its standard error, for k functions f whose mean under G is 0.

    `accepted` holds α of each move; `starts`, `ends` and `everywhere` hold f at the starts, the ends and all draws.
    """
    M, K = accepted.shape
    share = accepted / max(accepted.mean(), 1.0 / M)  # α/ᾱ; if hardly any move is accepted, as if one in M were
    leaving, arriving = share.mean(1)[:, None], share.mean(0)[:, None]
    found = ((arriving - 1.0) * ends).mean(0) - ((leaving - 1.0) * starts).mean(0) - everywhere.mean((0, 1))
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
