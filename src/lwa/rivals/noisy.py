"""Noisy Metropolis-Hastings: the ratio from a fresh subset at every step (Alquier, Friel, Everitt and Boland)."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float64

from lwa.errors import InputError
from lwa.kernels.kernel import choose
from lwa.rivals.permutation import permute
from lwa.rivals.problem import RivalProblem
from lwa.rivals.proxy import ProxyRival, sum_expansions
from lwa.rivals.rival import Info, Walker, accept_or_reject, init_walk, propose_theta
from lwa.user.validate import is_real, require_positive, require_share, require_whole


@dataclass(frozen=True)
class Noisy(ProxyRival):
    """Accept θ′ with probability min(1, r̂), log r̂ being estimated from n rows that are drawn anew at every step.

    With ℓ_k = log f(Y_k|·) and a set U of n rows drawn without replacement,

        log r̂ = log p(θ′)/p(θ) + N/n Σ_{k∈U} (ℓ_k(θ′) - ℓ_k(θ)).

    With `proxy`, the second-order Taylor expansion at the mode, whose sum over all rows is known, is first subtracted
    from ℓ_k: the noise is then of third order. Approximate: the noise of log r̂ acts like signal, and widens the
    posterior unless its sd is well below 1. `total_variation_bound` bounds the error.

    Parameters
    ----------
    subset_size
        n.
    proxy
        Whether Taylor expansions at the mode stand in for the rows.

    References
    ----------
    Alquier, Friel, Everitt and Boland (2016), Noisy Monte Carlo: convergence of Markov chains with approximate
    transition kernels.
    """

    subset_size: int = 1000
    proxy: bool = False
    name = "noisy"
    paper = "Alquier, Friel, Everitt and Boland 2016"
    exact = False
    reads_singly = "estimates the acceptance ratio from single rows drawn at random"

    def __post_init__(self) -> None:
        """Check the number of rows."""
        require_whole("subset_size", self.subset_size, least=1, example=1000)

    def prepare(self, key: Array, problem: RivalProblem) -> tuple[None, list[str]]:
        """Refuse subsets that are larger than the data."""
        if self.subset_size > problem.length:
            raise InputError(
                f"subset_size={self.subset_size} exceeds the {problem.length} rows of the data. "
                f"Pass subset_size <= {problem.length}."
            )
        return None, []

    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> Walker:
        """Return the start; nothing is computed."""
        return Walker(theta, init_walk(theta, problem))

    def step(self, key: Array, state: Walker, problem: RivalProblem) -> tuple[Walker, Info]:
        """Propose, read a subset, accept or reject."""
        proposed, log_u, log_hastings = propose_theta(key, state, problem)
        old, new = self.log_posteriors(key, (state.theta, proposed), problem)
        decision = accept_or_reject(log_u, new - old + log_hastings, new)
        reads = 2 * self.subset_size * self.reads_per_term
        info = Info(*decision, rows=jnp.asarray(reads, jnp.int64), lp=jnp.asarray(jnp.nan), extra={})
        return Walker(choose(decision.accepted, proposed, state.theta), state.walk), info

    def log_posteriors(self, key: Array, thetas: tuple[Array, ...], problem: RivalProblem) -> tuple[Array, ...]:
        """Return log p + N/n Σ ℓ_k over the rows that belong to the key, at each θ."""
        n, N = self.subset_size, problem.length
        size = min(n, problem.block)

        def add(i: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
            places = i * size + jnp.arange(size)
            rows = problem.take(permute(key, jnp.minimum(places, n - 1), N))

            def total(theta: Array) -> Array:
                return jnp.where(places < n, self.terms(theta, rows, problem), 0.0).sum()

            return tuple(before + total(theta) for before, theta in zip(sums, thetas, strict=True))

        sums = lax.fori_loop(0, -(-n // size), add, tuple(jnp.zeros(()) for _ in thetas))

        def known(theta: Array) -> Array:
            prior = problem.log_prior(theta)
            return prior + sum_expansions(theta, problem) if self.proxy else prior

        return tuple(known(theta) + N / n * one for theta, one in zip(thetas, sums, strict=True))


def total_variation_bound(C: float, rho: float, error: float) -> float:
    """Bound how far the law of a noisy chain is from the posterior, in total variation, in the limit of many steps.

    It is (λ + C ρ^λ / (1 - ρ)) · error with λ = ⌈log(1/C) / log ρ⌉, and at least 1: that is Σ_n min(1, C ρⁿ) · error.
    The same number bounds the distance between the exact and the noisy chain after any number of steps from one start.
    From 1 on the bound says nothing.

    It applies if every step has a fresh subset, as in `Noisy`. It does not apply to LWA, whose subsets are a Markov
    chain: there the error of one step depends on those before.

    Parameters
    ----------
    C, rho
        Of the exact kernel P, which must be uniformly ergodic: ∫ |Pⁿ(θ, dx) - π(dx)| ≤ C ρⁿ for all θ and n. This is
        twice the distance in total variation: if that is at most c ρⁿ, C = 2c.
    error
        sup over θ of ∫ q(θ, θ′) E|α̂(θ, θ′) - α(θ, θ′)| dθ′, the mean error of the acceptance probability.

    References
    ----------
    Alquier, Friel, Everitt and Boland (2016); Mitrophanov (2005), Sensitivity and convergence of
    uniformly ergodic Markov chains.

    Examples
    --------
    >>> from lwa.rivals import total_variation_bound
    >>> total_variation_bound(C=2.0, rho=0.5, error=0.01)
    0.03
    """
    require_positive("C", C, example=2.0)
    require_share("rho", rho, example=0.5)
    if not is_real(error) or not 0.0 <= error <= 1.0:
        raise InputError(
            f"error={error!r} is a mean distance between probabilities: it lies in [0, 1]. Pass error=0.01."
        )
    steps = max(1, math.ceil(math.log(1.0 / C) / math.log(rho)))
    return (steps + C * rho**steps / (1.0 - rho)) * error
