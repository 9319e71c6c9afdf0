"""Proposition 1: the paper's bound of KL(π‖π_U), and one that is finite where Θ is not compact.

Writing ℓ_N = Σ_k log f(Y_k|θ) and ξ_U = S̄(Y_U) - S̄_N, the rows of U have Σ_U log f = (n/N) ℓ_N + n g ξ_U, and

    KL(π‖π_U) = (1 - n/N) E_π ℓ_N - n ξ_U E_π g + log Z_U - log Z.

The bounds differ in what they put in the place of log Z_U. All of it is done in logs: E_π exp(N |g - E_π g| |ξ_U|) is
far too large to be written as a number.
"""

import warnings

import numpy as np
from scipy.special import logsumexp

from experiments.proposition.quadrature import Array, Problem


def paper_bound(problem: Problem, n: int, xi: float) -> float:
    """Ψ + B, the right-hand side of (i); infinite, with a warning, unless Θ is compact."""
    return psi(problem, n) + paper_B(problem, n, xi)


def psi(problem: Problem, n: int) -> float:
    """Ψ = (1 - n/N) (E_π ℓ_N - log inf_Θ Π f), the paper's two terms in one."""
    if problem.Theta is None and n < problem.N:
        warnings.warn(
            f"The likelihood of the {problem.family.name} model has infimum 0 over the real line, so that the paper's "
            "Ψ is infinite and its bound says nothing. Give a compact Theta, such as Theta=(-3, 5).",
            stacklevel=2,
        )
        return np.inf
    log_likelihood = problem.log_likelihood(problem.N, problem.mean)
    return (1 - n / problem.N) * (problem.full.expect(log_likelihood) - float(log_likelihood.min()))


def paper_B(problem: Problem, n: int, xi: float) -> float:
    """B = log E_π exp(n |g - E_π g| |ξ_U|)."""
    return log_expected_exp(problem, n * abs(xi) * np.abs(centred(problem)))


def finite_bound(problem: Problem, n: int, xi: float) -> float:
    """(1 - n/N) KL(π‖p) + (n/N) log E_π exp(N |g - E_π g| |ξ_U|).

    By Jensen's inequality Z_U = E_p exp{(n/N) (ℓ_N + N g ξ_U)} ≤ {E_p exp(ℓ_N + N g ξ_U)}^(n/N).
    """
    return offset(problem, n) + finite_B(problem, n, xi)


def offset(problem: Problem, n: int) -> float:
    """(1 - n/N) KL(π‖p), with KL(π‖p) = E_π ℓ_N - log Z: what stands in the place of Ψ."""
    log_likelihood = problem.log_likelihood(problem.N, problem.mean)
    return (1 - n / problem.N) * (problem.full.expect(log_likelihood) - problem.full.log_Z)


def finite_B(problem: Problem, n: int, xi: float) -> float:
    """(n/N) log E_π exp(N |g - E_π g| |ξ_U|), zero where ξ_U is."""
    return n / problem.N * log_expected_exp(problem, problem.N * abs(xi) * np.abs(centred(problem)))


def signed_bound(problem: Problem, n: int, xi: float) -> float:
    """(1 - n/N) KL(π‖p) + (n/N) log E_π exp(N (g - E_π g) ξ_U): before Cauchy and Schwarz, so never above the other.

    What is expected is, up to a constant, the likelihood of N rows with U's mean, so it is finite wherever that is
    bounded.
    """
    return offset(problem, n) + n / problem.N * log_expected_exp(problem, problem.N * xi * centred(problem))


def centred(problem: Problem) -> Array:
    """g - E_π g."""
    return problem.g - problem.full.expect(problem.g)


def log_expected_exp(problem: Problem, exponent: Array) -> float:
    """log E_π exp(exponent); infinite where the integrand still rises at an end of the real line."""
    log = problem.full.log_density + exponent
    if problem.Theta is None and (log[0] > log[1] or log[-1] > log[-2]):
        return np.inf
    return float(logsumexp(log + problem.log_weights))
