"""The confidence sampler, MHSubLhd: read rows until a concentration bound is sure (Bardenet, Doucet and Holmes)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from lwa.rivals.hyperparameters import require_positive, require_share, require_whole
from lwa.rivals.looks import Seen, concluded, decide
from lwa.rivals.problem import Problem
from lwa.rivals.proxy import READS, remainders, sum_of_expansions
from lwa.rivals.rival import Info, Rival, Walker, first_walk, proposal

POWER = 2.0
"""p of δ_look = (p-1)/(p look^p) δ: errors of all looks add up to δ at the most."""
TRIED = 8
"""Values of θ at which remainders of all rows are measured where their range must be estimated."""


class Ranges(NamedTuple):
    """How far terms of single rows reach, a posterior sd (plain) or its cube (proxy) away."""

    most: Array


@dataclass(frozen=True)
class Confidence(Rival):
    """Accept θ′ where the mean Λ of ℓ_k over the rows read exceeds ψ, once |Λ - ψ| exceeds a Bernstein bound.

    After the look at t rows drawn without replacement the bound is

        c = σ̂ √(2 log(3/δ_look) / t) + 3 R log(3/δ_look) / t,

    R being the range of ℓ_k over all rows. Decisions are those of Metropolis-Hastings with probability 1 - δ at least.
    With `proxy`, ℓ_k is first freed of its second-order Taylor expansion at the mode, whose sum over all rows is known:
    what is left varies so little that few rows tell. Approximate.

    Parameters
    ----------
    delta
        δ, the chance of a wrong decision that a step may leave.
    proxy
        Whether Taylor expansions at the mode stand in for the rows.
    batch
        Rows of the first look; 1000, or 100 with a proxy, when not given.
    growth
        Rows after a look, as a multiple of those before; or `"linear"`, the paper's: at the k-th postponement k batches
        more.
    range_bound
        `(theta, theta_new) -> R`, a bound on the range (largest minus smallest) over all rows of ℓ_k, or with a proxy
        of its remainder. Where there is none it is estimated, which costs a pass and is said.

    References
    ----------
    Bardenet, Doucet and Holmes (2014), Towards scaling up Markov chain Monte Carlo: an adaptive subsampling approach;
    (2017), On Markov chain Monte Carlo methods for tall data, for the proxy.
    """

    delta: float = 0.1
    proxy: bool = False
    batch: int | None = None
    growth: float | str = 2.0
    range_bound: Callable[[Any, Any], Any] | None = None
    name = "confidence"
    in_words = ("proxy",)
    paper = "Bardenet, Doucet and Holmes 2014, 2017"
    exact = False
    independent = "reads single rows in random order until it is sure"

    def __post_init__(self) -> None:
        """Refuse what is no error rate, no number of rows and no way to grow."""
        require_share("delta", self.delta, 0.1)
        if self.batch is not None:
            require_whole("batch", self.batch, 2, 1000)
        if self.growth != "linear":
            require_positive("growth", self.growth, 2.0)
            require_positive("growth - 1", self.growth - 1, 1.0)  # type: ignore[operator]

    @property
    def label(self) -> str:
        """With or without."""
        return ", ".join(["confidence, proxy" if self.proxy else "confidence", *self.unusual()])

    @property
    def expands(self) -> bool:  # type: ignore[override]
        """A proxy is an expansion at the mode."""
        return self.proxy

    @property
    def first(self) -> int:
        """Rows of the first look."""
        return self.batch or (100 if self.proxy else 1000)

    def prepare(self, key: Array, problem: Problem) -> tuple[Ranges | None, list[str]]:
        """One pass for R, where no bound was given."""
        if self.range_bound is not None:
            return None, []
        if problem.gaussian is None:
            return None, [
                "The range of log f(Y_k|theta')/f(Y_k|theta) over all rows is unknown, and taken from the rows read: "
                "decisions may be wrong more often than delta says. Pass range_bound=(theta, theta_new) -> R."
            ]
        found = largest_remainder(key, problem) if self.proxy else largest_gradient(problem)
        return Ranges(found), [
            "The range of log f(Y_k|theta')/f(Y_k|theta) over all rows is estimated from a pass at the mode, not "
            "bounded. Pass range_bound=(theta, theta_new) -> R for the guarantee."
        ]

    def init(self, key: Array, theta: Array, problem: Problem) -> Walker:
        """Nothing to compute."""
        return Walker(theta, first_walk(theta, problem))

    def step(self, key: Array, state: Walker, problem: Problem) -> tuple[Walker, Info]:
        """Propose, read until it is sure."""
        proposed, log_u, log_hastings = proposal(key, state, problem)
        N = problem.length
        threshold = (log_u - log_hastings + problem.log_prior(state.theta) - problem.log_prior(proposed)) / N  # ψ
        if self.proxy:
            threshold += (sum_of_expansions(state.theta, problem) - sum_of_expansions(proposed, problem)) / N
        known = self.range_between(state.theta, proposed, problem)

        def terms(rows: Any) -> Array:
            of = remainders if self.proxy else plain
            return of(proposed, rows, problem) - of(state.theta, rows, problem)

        def sure(seen: Seen, look: Array) -> Array:
            log = jnp.log(3.0 * POWER * look**POWER / ((POWER - 1.0) * self.delta))
            reach = seen.highest - seen.lowest if known is None else known
            bound = jnp.sqrt(2.0 * seen.variance * log / seen.read) + 3.0 * reach * log / seen.read
            return jnp.abs(seen.mean - threshold) >= bound

        found = decide(key, terms, threshold, sure, self.grown, min(self.first, N), problem)
        return concluded(found, proposed, state, reads=2 * READS if self.proxy else 2)

    def grown(self, count: Array, looks: Array) -> Array:
        """Rows after the next look."""
        if isinstance(self.growth, str):
            return count + self.first * jnp.maximum(looks, 1)
        return jnp.maximum(self.first, jnp.ceil(count * self.growth).astype(jnp.int64))

    def range_between(self, theta: Array, proposed: Array, problem: Problem) -> Array | None:
        """R; None where it is taken from the rows read."""
        if self.range_bound is not None:
            given = self.range_bound(problem.model.unravel(theta), problem.model.unravel(proposed))
            return jnp.asarray(given, jnp.float64)
        if problem.gaussian is None:
            return None

        def sds(away: Array) -> Array:
            assert problem.gaussian is not None
            return jnp.linalg.norm(problem.gaussian.whitening @ away)

        if self.proxy:
            cubes = sum(sds(x - problem.gaussian.theta) ** 3 for x in (theta, proposed))
            return 2.0 * problem.own.most * cubes
        return 2.0 * problem.own.most * sds(proposed - theta)


def plain(theta: Array, rows: Any, problem: Problem) -> Array:
    """ℓ_k(θ) itself."""
    return problem.terms(theta, rows)


def over_all_rows(of: Callable[[Any], Array], problem: Problem) -> Array:
    """The largest of a number that each row has, from one pass."""
    size = problem.block

    def more(i: Array, most: Array) -> Array:
        first = jnp.minimum(i * size, problem.length - size)
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, size), problem.rows)
        return jnp.maximum(most, of(rows).max())

    return lax.fori_loop(0, -(-problem.length // size), more, jnp.zeros(()))


@jax.jit
def largest_gradient(problem: Problem) -> Array:
    """max_k ‖Fᵀ ∇ℓ_k(θ̂)‖: how far a row's ℓ_k goes in a posterior sd, to first order."""
    gaussian = problem.gaussian
    assert gaussian is not None

    def lengths(rows: Any) -> Array:
        along = jax.vmap(
            lambda direction: jax.jvp(lambda x: problem.terms(x, rows), (gaussian.theta,), (direction,))[1]
        )(gaussian.factor.T)
        return jnp.sqrt((along**2).sum(0))

    return over_all_rows(lengths, problem)


@jax.jit
def largest_remainder(key: Array, problem: Problem) -> Array:
    """max |remainder of row k at θ̂ + F z| / ‖z‖³ over rows and some z: a row's third derivative, to leading order."""
    gaussian = problem.gaussian
    assert gaussian is not None
    tried = jax.random.normal(key, (TRIED, len(gaussian.theta)))

    def heights(rows: Any) -> Array:
        def one(z: Array) -> Array:
            return jnp.abs(remainders(gaussian.theta + gaussian.factor @ z, rows, problem)) / jnp.linalg.norm(z) ** 3

        return jax.vmap(one)(tried).max(0)

    return over_all_rows(heights, problem)
