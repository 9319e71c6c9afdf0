"""The confidence sampler, MHSubLhd: read rows until a concentration bound is sure (Bardenet, Doucet and Holmes)."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float64, PyTree

from lwa.rivals.problem import RivalProblem
from lwa.rivals.proxy import ProxyRival, find_remainders, sum_expansions
from lwa.rivals.rival import Info, Walker, init_walk, propose_theta
from lwa.rivals.sequential_test import MeanTest, RowSums, decide_by_rows
from lwa.user.validate import require_positive, require_share, require_whole

POWER = 2.0
"""p of δ_look = (p-1)/(p look^p) δ: errors of all looks add up to δ at most."""
TRIED_DIRECTIONS = 8
"""Directions from the mode in which remainders of all rows are measured, if their range must be estimated."""


@dataclass(frozen=True)
class Confidence(ProxyRival):
    """Accept θ′ if the mean Λ of ℓ_k over the rows read exceeds ψ, once |Λ - ψ| exceeds a Bernstein bound.

    After a look at t rows drawn without replacement the bound is

        c = σ̂ √(2 log(3/δ_look) / t) + 3 R log(3/δ_look) / t,

    R being the range of ℓ_k over all rows. Decisions are those of Metropolis-Hastings with probability 1 - δ at least.
    With `proxy`, the second-order Taylor expansion at the mode, whose sum over all rows is known, is first subtracted
    from ℓ_k: what is left varies so little that few rows decide. Approximate.

    Parameters
    ----------
    delta
        δ, the chance of a wrong decision that a step may leave.
    proxy
        Whether Taylor expansions at the mode stand in for the rows.
    batch
        Rows of the first look; by default 1000, or 100 with a proxy.
    growth
        Rows after a look, as a multiple of those before; or `"linear"`, the paper's: at the k-th postponement k batches
        more.
    range_bound
        `(theta, theta_new) -> R`, a bound on the range (largest minus smallest) over all rows of ℓ_k, or with a proxy
        of its remainder. By default the range is estimated, which costs a pass and gives a warning.

    References
    ----------
    Bardenet, Doucet and Holmes (2014), Towards scaling up Markov chain Monte Carlo: an adaptive subsampling approach;
    (2017), On Markov chain Monte Carlo methods for tall data, for the proxy.
    """

    delta: float = 0.1
    proxy: bool = False
    batch: int | None = None
    growth: float | str = 2.0
    range_bound: Callable[[PyTree, PyTree], float | Array] | None = None
    name = "confidence"
    paper = "Bardenet, Doucet and Holmes 2014, 2017"
    exact = False
    reads_singly = "reads single rows in random order until it is sure"

    def __post_init__(self) -> None:
        """Check the error rate, the number of rows and how it grows."""
        require_share("delta", self.delta, example=0.1)
        if self.batch is not None:
            require_whole("batch", self.batch, least=2, example=1000)
        if self.growth != "linear":
            growth = require_positive("growth", self.growth, example=2.0)
            require_positive("growth - 1", growth - 1, example=1.0)

    @property
    def first(self) -> int:
        """Rows of the first look."""
        return self.batch or (100 if self.proxy else 1000)

    def prepare(self, key: Array, problem: RivalProblem) -> tuple[Float64[Array, ""] | None, list[str]]:
        """Estimate from a pass how far terms of rows reach at one posterior sd, or with a proxy at its cube."""
        if self.range_bound is not None:
            return None, []
        if problem.gaussian is None:
            return None, [
                "The range of log f(Y_k|theta')/f(Y_k|theta) over all rows is unknown, and taken from the rows read: "
                "decisions may be wrong more often than delta says. Pass range_bound=(theta, theta_new) -> R."
            ]
        found = find_largest_remainder(key, problem) if self.proxy else find_largest_gradient(problem)
        return found, [
            "The range of log f(Y_k|theta')/f(Y_k|theta) over all rows is estimated from a pass at the mode, not "
            "bounded. Pass range_bound=(theta, theta_new) -> R for the guarantee."
        ]

    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> Walker:
        """Return the start; nothing is computed."""
        return Walker(theta, init_walk(theta, problem))

    def step(self, key: Array, state: Walker, problem: RivalProblem) -> tuple[Walker, Info]:
        """Propose, read rows until the bound is sure."""
        proposed, log_u, log_hastings = propose_theta(key, state, problem)
        N = problem.length
        threshold = (log_u - log_hastings + problem.log_prior(state.theta) - problem.log_prior(proposed)) / N  # ψ
        if self.proxy:
            threshold += (sum_expansions(state.theta, problem) - sum_expansions(proposed, problem)) / N
        known = self.range_between(state.theta, proposed, problem)

        def is_enough(seen: RowSums, look: Array) -> Array:
            log = jnp.log(3.0 * POWER * look**POWER / ((POWER - 1.0) * self.delta))
            reach = seen.highest - seen.lowest if known is None else known
            bound = jnp.sqrt(2.0 * seen.variance * log / seen.read) + 3.0 * reach * log / seen.read
            return jnp.abs(seen.mean - threshold) >= bound

        test = MeanTest(
            terms=lambda rows: self.terms(proposed, rows, problem) - self.terms(state.theta, rows, problem),
            threshold=threshold, is_enough=is_enough, grow=self.grow, batch=min(self.first, N),
            reads=2 * self.reads_per_term,
        )  # fmt: skip
        return decide_by_rows(key, test, proposed, state, problem)

    def grow(self, count: Array, looks: Array) -> Array:
        """Return the number of rows after the next look."""
        if isinstance(self.growth, str):
            return count + self.first * jnp.maximum(looks, 1)
        return jnp.maximum(self.first, jnp.ceil(count * self.growth).astype(jnp.int64))

    def range_between(self, theta: Array, proposed: Array, problem: RivalProblem) -> Array | None:
        """Return R; None if it is taken from the rows read."""
        if self.range_bound is not None:
            given = self.range_bound(problem.model.unravel(theta), problem.model.unravel(proposed))
            return jnp.asarray(given, jnp.float64)
        if problem.gaussian is None:
            return None

        def sds(away: Array) -> Array:
            return jnp.linalg.norm(problem.mode.whitening @ away)

        if self.proxy:
            cubes = sum(sds(x - problem.mode.theta) ** 3 for x in (theta, proposed))
            return 2.0 * problem.own * cubes
        return 2.0 * problem.own * sds(proposed - theta)


def find_largest(measure: Callable[[PyTree], Array], problem: RivalProblem) -> Float64[Array, ""]:
    """Return the largest of a number that each row has, from one pass."""
    size = problem.block

    def more(i: Array, most: Array) -> Array:
        first = jnp.minimum(i * size, problem.length - size)
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), problem.rows)
        return jnp.maximum(most, measure(rows).max())

    return lax.fori_loop(0, -(-problem.length // size), more, jnp.zeros(()))


@jax.jit
def find_largest_gradient(problem: RivalProblem) -> Float64[Array, ""]:
    """Return max_k ‖Fᵀ ∇ℓ_k(θ̂)‖: how far ℓ_k of a row reaches within one posterior sd, to first order."""
    mode = problem.mode

    def lengths(rows: PyTree) -> Array:
        def along(direction: Array) -> Array:
            return jax.jvp(lambda x: problem.terms(x, rows), (mode.theta,), (direction,))[1]

        return jnp.sqrt((jax.vmap(along)(mode.factor.T) ** 2).sum(0))

    return find_largest(lengths, problem)


@jax.jit
def find_largest_remainder(key: Array, problem: RivalProblem) -> Float64[Array, ""]:
    """Return max |remainder of row k at θ̂ + F z| / ‖z‖³ over rows and some z: third derivatives, to leading order."""
    mode = problem.mode
    tried = jax.random.normal(key, (TRIED_DIRECTIONS, len(mode.theta)))

    def heights(rows: PyTree) -> Array:
        def one(z: Array) -> Array:
            return jnp.abs(find_remainders(mode.theta + mode.factor @ z, rows, problem)) / jnp.linalg.norm(z) ** 3

        return jax.vmap(one)(tried).max(0)

    return find_largest(heights, problem)
