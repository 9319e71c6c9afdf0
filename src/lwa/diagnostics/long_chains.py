"""Whether few long chains agree, and how many independent draws they are worth (Vehtari et al., 2021).

Draws are replaced by normal scores of their ranks, so that heavy tails do not matter, nor how a parameter is expressed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.special import ndtri

from lwa.diagnostics.autocorrelation import LONG_CHAIN, effective_draws
from lwa.diagnostics.running import NUMBERS_AT_ONCE

ENOUGH_PER_CHAIN = 100.0
"""Effective draws per chain with which the mean of four chains is known to 0.05 sd, as Stan asks for."""
MOST_COUNTED = 4
"""Chains of which so much is asked; 400 effective draws are enough for any number of them."""
POOR_SHARE = 0.1
"""Shorter runs are short by choice: chains are slow only if a draw is worth less than this share of an independent one.
Of 50 runs of 4 x 1000 draws of 20 parameters none was called slow if draws were worth a sixth, 33 if an eighth."""
TAILS = (0.05, 0.95)
"""Quantiles that must be known as well as the mean: a chain may cross the bulk often and a long tail seldom."""
FEWEST_FOR_TAILS = 500
"""Draws per chain with which tails are judged."""
FEWEST_PER_CHAIN = 50
"""Draws per chain with which chains are judged at all."""
MOST_JUDGED = 32
"""Scalars that are judged, those whose batches of draws differ most: 4 x 1000 draws of each take about 1 ms."""
BATCHES = 10
"""Batches of a chain by whose means scalars are compared first."""


class SlowChains(NamedTuple):
    """The scalar that mixed worst."""

    name: str
    worth: float  # effective draws of all chains
    rhat: float
    agree: bool  # whether it is below 1.1, or what corresponds to that in a short run: chains are slow but do not part
    lacking: float  # how many times as many draws are enough, with as many to spare: of slow chains it is a rough guess


def find_slow_chains(posterior: Mapping[str, NDArray[Any]], names: Sequence[str], count: int) -> SlowChains | None:
    """Return what mixed worst if chains, of which each made `count` draws, are worth too little or disagree."""
    chains, kept = next(iter(posterior.values())).shape[:2]
    if kept < FEWEST_PER_CHAIN:
        return None
    some, values = select_slowest(posterior)
    if not some:
        return None
    worth, rhat = effective_draws(rank_normalise(values)), compute_rhat(values)
    if kept >= FEWEST_FOR_TAILS:
        tails = [(values <= np.quantile(values, p, axis=(0, 1))).astype(np.float64) for p in TAILS]
        worth = np.fmin.reduce([worth, *map(effective_draws, tails)])  # NaN if nothing is in the tail
    worth = worth * count / kept
    each = min(ENOUGH_PER_CHAIN, POOR_SHARE * count)
    # Means of halves of chains that are worth `each` have 2 / each of the variance of draws; this is ten times that.
    agree = bool(rhat.max() <= np.sqrt(1 + 20 / each))
    worst = int(np.argmin(worth) if agree else np.argmax(rhat))
    if agree and worth[worst] >= min(MOST_COUNTED, chains) * each:
        return None
    lacking = 2.0 * min(MOST_COUNTED, chains) * ENOUGH_PER_CHAIN / worth[worst]
    return SlowChains(names[some[worst]], float(worth[worst]), float(rhat[worst]), agree, float(lacking))


def select_slowest(posterior: Mapping[str, NDArray[Any]]) -> tuple[list[int], Float64[np.ndarray, "chains draws k"]]:
    """Return which scalars vary most between batches of draws, and their draws; those that do not vary are left out."""
    found = list[tuple[float, int, NDArray[np.float64]]]()
    for first, some in split_scalars(posterior):
        size = some.shape[1] // BATCHES
        means = some[:, -size * BATCHES :].reshape(len(some), BATCHES, size, -1).mean(2)
        with np.errstate(invalid="ignore", divide="ignore"):
            score = means.var((0, 1)) / some.var((0, 1))
        usual = np.isfinite(some).all((0, 1)) & (np.ptp(some, axis=(0, 1)) > 0)
        worst = sorted(np.flatnonzero(usual), key=lambda i: -score[i])[:MOST_JUDGED]
        found += [(score[i], first + int(i), some[..., i].copy()) for i in worst]  # a view would keep all of `some`
        found = sorted(found, key=lambda one: -one[0])[:MOST_JUDGED]
    return [place for _, place, _ in found], np.stack([draws for *_, draws in found], -1) if found else np.empty(0)


def split_scalars(posterior: Mapping[str, NDArray[Any]]) -> Iterator[tuple[int, Float64[np.ndarray, "chains draws k"]]]:
    """Yield the draws of some scalars at a time, and the number of the first; of long chains, every so many draws."""
    first = 0
    for array in posterior.values():
        thinned = array[:, :: -(-array.shape[1] // LONG_CHAIN)]
        flat = thinned.reshape(*thinned.shape[:2], -1)
        step = max(1, NUMBERS_AT_ONCE // (flat.shape[0] * flat.shape[1]))
        for start in range(0, flat.shape[2], step):
            yield first + start, np.asarray(flat[..., start : start + step], np.float64)
        first += flat.shape[2]


def rank_normalise(values: Float64[np.ndarray, "chains draws k"]) -> Float64[np.ndarray, "chains draws k"]:
    """Return the normal scores of ranks among the draws of all chains; equal draws are ranked at random."""
    flat = values.reshape(-1, values.shape[2])
    shuffled = np.random.default_rng(0).permutation(len(flat))
    order = shuffled[np.argsort(flat[shuffled], axis=0)]
    scores = np.empty_like(flat)
    np.put_along_axis(scores, order, ndtri((np.arange(len(flat)) + 0.625) / (len(flat) + 0.25))[:, None], axis=0)
    return scores.reshape(values.shape)


def compute_rhat(values: Float64[np.ndarray, "chains draws k"]) -> Float64[np.ndarray, " k"]:
    """Return the larger of the R-hats of halves of chains, by their ranks and by their distances from the median."""
    folded = np.abs(values - np.median(values, axis=(0, 1)))
    return np.maximum(*(split_rhat(rank_normalise(one)) for one in (values, folded)))


def split_rhat(values: Float64[np.ndarray, "chains draws k"]) -> Float64[np.ndarray, " k"]:
    """Return √((n-1)/n + B/W): the variance of the means of halves over the variance inside them."""
    half = values.shape[1] // 2
    parts = np.concatenate([values[:, :half], values[:, -half:]])
    return np.sqrt((half - 1) / half + parts.mean(1).var(0, ddof=1) / parts.var(1, ddof=1).mean(0))
