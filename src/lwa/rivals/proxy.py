"""Control variates: each row's second-order Taylor expansion at the mode, whose sum over all rows is known."""

import jax
from jax import Array
from jaxtyping import Float64, PyTree

from lwa.rivals.problem import RivalProblem
from lwa.rivals.rival import Rival

READS_PER_REMAINDER = 2
"""Evaluations that a remainder costs: the row at θ, and with its derivatives at θ̂."""


def sum_expansions(theta: Float64[Array, " d"], problem: RivalProblem) -> Float64[Array, ""]:
    """Return Σ q_k(θ) over all rows, up to a constant: ⟨g_N, δ⟩ - ½ δᵀ H_N δ with δ = θ - θ̂."""
    away = theta - problem.mode.theta
    return problem.mode.gradient @ away - 0.5 * away @ (problem.mode.curvature @ away)


def find_remainders(theta: Float64[Array, " d"], rows: PyTree, problem: RivalProblem) -> Float64[Array, " m"]:
    """Return ℓ_k(θ) - ℓ_k(θ̂) - ⟨∇ℓ_k(θ̂), δ⟩ - ½ δᵀ ∇²ℓ_k(θ̂) δ of some rows: third order in δ.

    Derivatives are taken along δ alone, forwards: O(d) per row, and nothing is stored per row.
    """
    mode, away = problem.mode.theta, theta - problem.mode.theta

    def along(at: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda x: problem.terms(x, rows), (at,), (away,))

    (value, slope), (_, bend) = jax.jvp(along, (mode,), (away,))
    return problem.terms(theta, rows) - value - slope - 0.5 * bend


class ProxyRival(Rival):
    """A rival that may subtract each row's expansion at the mode from its term."""

    proxy: bool
    labelled_apart = ("proxy",)

    @property
    def label(self) -> str:
        """Its name, with or without proxy, and the hyperparameters that are not the default."""
        return ", ".join([f"{self.name}, proxy" if self.proxy else self.name, *self.list_changes()])

    @property
    def needs_mode(self) -> bool:  # type: ignore[override]
        """Whether it has a proxy, which is an expansion at the mode."""
        return self.proxy

    @property
    def reads_per_term(self) -> int:
        """Evaluations that the term of a row costs."""
        return READS_PER_REMAINDER if self.proxy else 1

    def terms(self, theta: Float64[Array, " d"], rows: PyTree, problem: RivalProblem) -> Float64[Array, " m"]:
        """Return log f(Y_k|θ) of some rows, or what their expansions leave of it."""
        return find_remainders(theta, rows, problem) if self.proxy else problem.terms(theta, rows)
