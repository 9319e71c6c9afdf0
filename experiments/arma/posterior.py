"""The posterior of the whole series, by one recursion over all of it and by quadrature: nothing of lwa is in it."""

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from experiments.arma.model import PRIOR_SD


class Moments(NamedTuple):
    """Of a law of θ = (α, β, γ)."""

    mean: np.ndarray
    sd: np.ndarray


def log_posterior(y: np.ndarray, theta: np.ndarray) -> float:
    """log p(θ) + log f(Y|θ) up to a constant, by SciPy's recursion; before its first step the series stood there."""
    alpha, beta, gamma = theta
    pushed = y - gamma
    pushed[1:] -= alpha * y[:-1]
    pushed[0] -= alpha * y[0]
    z = lfilter([1.0], [1.0, beta], pushed)
    return float(-0.5 * (z @ z) - 0.5 * (theta @ theta) / PRIOR_SD**2)


def moments(y: np.ndarray, centre: np.ndarray, covariance: np.ndarray, nodes: int = 4) -> Moments:
    """Mean and sd of the posterior by Gauss-Hermite quadrature over a Gaussian near it."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    factor = np.linalg.cholesky(covariance)
    z = np.array(list(product(points, repeat=len(centre))))
    theta = centre + z @ factor.T
    log = np.array([log_posterior(y, one) for one in theta]) + 0.5 * (z**2).sum(1)
    share = np.exp(log - log.max()) * np.prod(list(product(weights, repeat=len(centre))), axis=1)
    share /= share.sum()
    mean = share @ theta
    return Moments(mean, np.sqrt(share @ (theta - mean) ** 2))
