"""KL(π‖π_U) from two runs' draws alone.

With unnormalised densities q = p Π_k f(Y_k|·) and q_U = p Π_U f(Y_k|·), of the same prior,

    KL(π‖π_U) = E_π log(q/q_U) - log(Z/Z_U),    Z/Z_U = E_{π_U} (q/q_U).

The first mean is over draws of π, the second over draws of π_U. The second is importance sampling from the wider law to
the narrower one: q/q_U is the likelihood of the rows outside U, which is bounded, so that its variance is finite.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

import lwa
from experiments.probit.model import MODEL
from experiments.proposition.quadrature import Array, Problem


def draw(y: np.ndarray, chains: int, draws: int, seed: int) -> Array:
    """Draws of θ given all rows of y, a row a chain: U is everything, so that this is Metropolis-Hastings."""
    fit = lwa.sample(
        MODEL, y, subset_size=len(y), target="subposterior", subset_move=lwa.subsets.Fixed(), chains=chains,
        draws=draws, seed=seed, progress=False,
    )  # fmt: skip
    return np.asarray(fit.posterior["theta"], np.float64)


@dataclass(frozen=True)
class Estimate:
    """What each chain gives for KL(π‖π_U): the mean of log(q/q_U) over π's draws, log of that of q/q_U over π_U's."""

    under_full: Array
    under_sub: Array

    def kl(self, without: int | None = None) -> float:
        """Over all chains, or all but one of each run."""
        kept = np.arange(len(self.under_full)) != (-1 if without is None else without)
        return float(self.under_full[kept].mean() - logsumexp(self.under_sub[kept]) + np.log(kept.sum()))


def estimate(problem: Problem, n: int, xi: float, full: Array, sub: Array) -> Estimate:
    """From draws of π and of π_U."""

    def log_ratio(theta: Array) -> Array:
        """log(q/q_U), the prior cancelling."""
        g, log_L = problem.family.g(theta), problem.family.log_L(theta)
        return problem.N * (g * problem.mean - log_L) - n * (g * (problem.mean + xi) - log_L)

    return Estimate(log_ratio(full).mean(1), logsumexp(log_ratio(sub), axis=1) - np.log(sub.shape[1]))


def ratio(of: Estimate, to: Estimate) -> tuple[float, float]:
    """KL/KL* and its standard error: the jackknife, a chain of every run left out at a time, since π's are shared."""
    chains = len(of.under_full)
    without = np.array([of.kl(chain) / to.kl(chain) for chain in range(chains)])
    return of.kl() / to.kl(), float(np.sqrt((chains - 1) * without.var()))
