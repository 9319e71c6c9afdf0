"""Control variates: each row's second-order Taylor expansion at the mode, whose sum over all rows is known."""

from typing import Any

import jax
from jax import Array

from lwa.rivals.problem import Problem

READS = 2
"""Evaluations that a remainder costs: the row at θ, and with its derivatives at θ̂."""


def sum_of_expansions(theta: Array, problem: Problem) -> Array:
    """Σ q_k(θ) over all rows, up to a constant: ⟨g_N, δ⟩ - ½ δᵀ H_N δ with δ = θ - θ̂."""
    assert problem.gaussian is not None
    away = theta - problem.gaussian.theta
    return problem.gaussian.gradient @ away - 0.5 * away @ (problem.gaussian.curvature @ away)


def remainders(theta: Array, rows: Any, problem: Problem) -> Array:
    """ℓ_k(θ) - ℓ_k(θ̂) - ⟨∇ℓ_k(θ̂), δ⟩ - ½ δᵀ ∇²ℓ_k(θ̂) δ of some rows: third order in δ.

    Derivatives are along δ alone, forwards: O(d) a row, and nothing is kept of any.
    """
    assert problem.gaussian is not None
    mode, away = problem.gaussian.theta, theta - problem.gaussian.theta

    def along(at: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda x: problem.terms(x, rows), (at,), (away,))

    (value, slope), (_, bend) = jax.jvp(along, (mode,), (away,))
    return problem.terms(theta, rows) - value - slope - 0.5 * bend
