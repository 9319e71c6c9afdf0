"""Tiny data on which everything can be enumerated: 8 rows, subsets of 3, conjugate Gaussian."""

from itertools import combinations

import numpy as np

import lwa
from experiments.law_of_theta.exact import PRIOR_SD, SUBSETS, N, Y, n
from lwa.rows import as_rows
from lwa.rows.passes import visit_rows
from lwa.subsets.chain import SubsetChain
from lwa.subsets.moves import Move
from lwa.subsets.weights import Weight

NUMBER = {subset: i for i, subset in enumerate(SUBSETS)}


def log_likelihood(theta, y):
    """Normal(θ, 1)."""
    return -0.5 * (y - theta) ** 2


def log_prior(theta):
    """Normal(0, PRIOR_SD²)."""
    return -0.5 * (theta / PRIOR_SD) ** 2


MODEL = lwa.Model(log_likelihood, log_prior, init=0.0)
MEAN = lwa.summaries.PerRow(lambda y: y)


def subset_chain(
    move: Move, weight: Weight, epsilon: float, page: int = 64, seed: int = 1, data=Y, size=n
) -> SubsetChain:
    rows = as_rows(data)
    gathering = visit_rows(rows, MEAN.gather)[1]
    return SubsetChain(rows, gathering.finish(), move, weight, epsilon, size, seed, page)


def every_subset() -> np.ndarray:
    """All 56, in the order of `SUBSETS`, each (3,)."""
    return np.array(list(combinations(range(N), n)))


def number_of(indices: np.ndarray) -> np.ndarray:
    """Which of the 56 each subset is."""
    return np.array([NUMBER[frozenset(row)] for row in np.asarray(indices).tolist()])
