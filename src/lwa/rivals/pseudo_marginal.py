"""Pseudo-marginal M-H on few rows: an estimate replaces the likelihood (Quiroz, Tran, Villani, Kohn, Dang)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.kernels.kernel import Tuning, choose
from lwa.rivals.problem import RivalProblem
from lwa.rivals.proxy import READS_PER_REMAINDER, find_remainders, sum_expansions
from lwa.rivals.rival import Info, Rival, accept_or_reject, init_walk, propose_theta
from lwa.user.validate import is_real, require_one_of, require_whole

POISSON = np.cumsum([np.exp(-1.0) / math.factorial(k) for k in range(19)])
"""Distribution function of Poisson(1), by which it is drawn; what lies beyond, 3·10⁻¹⁸, is less than one uniform."""
ROWS_AT_A_TIME = 64
"""Rows in one evaluation: more save little time per row, and waste more of the last evaluation."""
MOST_NOISE = 2.4
"""√2 · 1.7, sd of log Ẑ(θ′)/Ẑ(θ) that chains bear: sd(log Ẑ) is best between 1 and 1.7 (Doucet et al. 2015)."""
MANY_NEGATIVE = 0.05
"""Share of negative signs p beyond which more rows pay: p = 0.05 already takes 1 - (1 - 2p)² = 19 % of the draws."""


class LikelihoodEstimate(NamedTuple):
    """Ẑ of the likelihood at a θ, up to a constant."""

    log: Float64[Array, ""]  # log |Ẑ|
    sign: Int64[Array, ""]  # ±1
    variance: Float64[Array, ""]  # of log |Ẑ|, itself an estimate
    minibatches: Int64[Array, ""]


class State(NamedTuple):
    """θ, its estimate and the randomness behind it, which are all kept until a proposal is accepted."""

    theta: Float64[Array, " d"]
    lp: Float64[Array, ""]  # log p(θ) + log |Ẑ|
    sign: Int64[Array, ""]
    variance: Float64[Array, ""]
    keys: Array  # (blocks,)
    walk: Tuning


@dataclass(frozen=True)
class PseudoMarginal(Rival):
    """Accept θ′ with probability min(1, |Ẑ′| p(θ′) / |Ẑ| p(θ)), Ẑ being an estimate of the likelihood from some rows.

    With q_N(θ) the sum over all rows of their second-order Taylor expansions at the mode, known in closed form, and
    d(θ) the sum of what these leave, the likelihood is exp(q_N + d) up to a constant.

    `"block_poisson"`, exact: from X_l ~ Poisson(1) minibatches for each of λ = `blocks` blocks,

        Ẑ = exp(q_N) ∏_{l=1…λ} ∏_{h=1…X_l} (1 + d̂_{hl} / λ),   E[Ẑ] = exp(q_N + d),

    where d̂ is N times the mean over `minibatch` rows drawn with replacement. It is the paper's with the lower bound
    a = -λ. Ẑ may be negative. The draws are then those of |Ẑ|: weighted by `sample_stats["sign"]` they are exact, as
    Σ s θ / Σ s is for the mean; unweighted they are not.

    `"difference"`, approximate: from m = `blocks` · `minibatch` rows drawn with replacement,

        log Ẑ = q_N + N mean(d_k) - N²/(2m) var(d_k),

    which is unbiased if the mean of d_k over m rows is Gaussian with this variance.

    The randomness of Ẑ consists of blocks, of which each proposal redraws some: the noise of Ẑ′ and Ẑ then largely
    cancels. `sample_stats["log_noise"]` estimates sd(log |Ẑ|).

    Parameters
    ----------
    estimator
        `"block_poisson"` or `"difference"`.
    minibatch
        Rows of one minibatch.
    blocks
        λ: blocks of randomness, and of minibatches on average. Signs become negative unless λ is many times the sd of
        d̂: of all ways to read so many rows, one row per minibatch has the fewest of them.
    refreshed
        The share of the blocks that a proposal redraws, at random; 1 draws all rows anew. A small share lets chains
        move if sd(log Ẑ) is above 1; a large one lets them forget the noise sooner if it is small.

    References
    ----------
    Andrieu and Roberts (2009), The pseudo-marginal approach for efficient Monte Carlo computations; Quiroz, Tran,
    Villani, Kohn and Dang (2021), The block-Poisson estimator for optimally tuned exact subsampling MCMC; Quiroz, Kohn,
    Villani and Tran (2019), Speeding up MCMC by efficient data subsampling, for the difference estimator.
    """

    estimator: str = "block_poisson"
    minibatch: int = 1
    blocks: int = 100
    refreshed: float = 0.1
    name = "pseudo_marginal"
    labelled_apart = ("estimator",)
    paper = "Andrieu and Roberts 2009; Quiroz et al. 2019, 2021"
    reads_singly = "estimates the likelihood from single rows drawn at random"
    needs_mode = True

    def __post_init__(self) -> None:
        """Check the estimator, the numbers of rows and the share."""
        require_one_of("estimator", self.estimator, ["block_poisson", "difference"])
        require_whole("minibatch", self.minibatch, least=1, example=1)
        require_whole("blocks", self.blocks, least=1, example=100)
        if self.minibatch * self.blocks < 2 and self.estimator == "difference":
            raise InputError("minibatch=1 and blocks=1 leave one row, which has no variance. Pass minibatch=10.")
        if not is_real(self.refreshed) or not 0.0 < self.refreshed <= 1.0:
            raise InputError(f"refreshed={self.refreshed!r} must lie in (0, 1]. Pass refreshed=0.1.")

    @property
    def label(self) -> str:
        """Its name, with the estimator."""
        return ", ".join([f"pseudo-marginal, {self.estimator.replace('_p', '-P')}", *self.list_changes()])

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether the estimate is unbiased: only then do draws converge to the posterior."""
        return self.estimator == "block_poisson"

    @property
    def redrawn(self) -> int:
        """Blocks that a proposal redraws."""
        return max(1, round(self.refreshed * self.blocks))

    def noise_between(self, noise: float) -> float:
        """Return the sd of log |Ẑ′| - log |Ẑ| at one θ, from that of log |Ẑ|: only redrawn blocks differ."""
        return noise * (2.0 * self.redrawn / self.blocks) ** 0.5

    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> State:
        """Return the start, with an estimate from all blocks."""
        keys = jax.random.split(key, self.blocks)
        found = self.estimate(theta, keys, problem)
        lp, walk = problem.log_prior(theta) + found.log, init_walk(theta, problem)
        lp = jnp.where(jnp.isnan(lp), -jnp.inf, lp)  # so that the chain can leave
        return State(theta=theta, lp=lp, sign=found.sign, variance=found.variance, keys=keys, walk=walk)

    def step(self, key: Array, state: State, problem: RivalProblem) -> tuple[State, Info]:
        """Propose θ and some of the randomness, estimate, accept or reject."""
        placing, refreshing = jax.random.split(key)
        proposed, log_u, log_hastings = propose_theta(key, state, problem)
        # Which blocks are redrawn does not depend on the state, so that the law of the keys is left as it is.
        first = jax.random.randint(placing, (), 0, self.blocks)
        anew = (jnp.arange(self.blocks) - first) % self.blocks < self.redrawn
        keys = jnp.where(anew, jax.random.split(refreshing, self.blocks), state.keys)
        found = self.estimate(proposed, keys, problem)
        new = problem.log_prior(proposed) + found.log
        decision = accept_or_reject(log_u, new - state.lp + log_hastings, new)
        there = State(theta=proposed, lp=new, sign=found.sign, variance=found.variance, keys=keys, walk=state.walk)
        after = choose(decision.accepted, there, state)
        rows = found.minibatches * self.minibatch * READS_PER_REMAINDER
        extra = {"log_noise": jnp.sqrt(after.variance)} | ({"sign": after.sign} if self.exact else {})
        return after, Info(*decision, rows=rows, lp=jnp.asarray(jnp.nan), extra=extra)

    def estimate(self, theta: Float64[Array, " d"], keys: Array, problem: RivalProblem) -> LikelihoodEstimate:
        """Return Ẑ(θ) by these keys."""
        by = estimate_block_poisson if self.estimator == "block_poisson" else estimate_difference
        return by(theta, keys, self.minibatch, problem)

    def collect_warnings(self, stats: Mapping[str, NDArray[Any]]) -> list[str]:
        """Warn of negative signs, and of an estimate that is too noisy for chains to move."""
        warned, sign, noise = [], stats.get("sign"), stats.get("log_noise")
        if sign is not None and (negative := float(np.mean(sign < 0))):
            more = f" Pass blocks={2 * self.blocks} for fewer of them." if negative > MANY_NEGATIVE else ""
            warned.append(
                f"{100 * negative:.2g} % of the draws have a negative sign, and only weighted draws are exact: weight "
                f"them by sample_stats['sign'], as in (sign * theta).sum() / sign.sum().{more}"
            )
        if noise is not None and not (between := self.noise_between(float(np.median(noise)))) < MOST_NOISE:
            warned.append(
                f"The estimated log ratio has a noise of sd {between:.2g}, and beyond {MOST_NOISE} chains stick. "
                f"Pass blocks={4 * self.blocks}, or a smaller share than refreshed={self.refreshed:g}."
            )
        return warned


def estimate_block_poisson(
    theta: Float64[Array, " d"], keys: Array, minibatch: int, problem: RivalProblem
) -> LikelihoodEstimate:
    """Return exp(q_N) ∏ (1 + d̂/λ) over Poisson(1) minibatches for each of the λ keys.

    E ∏_{h=1…X} (1 + d̂_h/λ) = E (1 + d/λ)^X = exp(d/λ) for each key. As a sum of Poisson(λ) terms, log |Ẑ| has a
    variance that the sum of their squares estimates.
    """
    both = jax.vmap(jax.random.split)(keys)  # of each block: for the number of its minibatches, and for their rows
    counting, drawing = both[:, 0], both[:, 1]
    u = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float64))(counting)
    counts = jnp.searchsorted(jnp.asarray(POISSON), u, side="right", method="compare_all").astype(jnp.int64)
    blocks = len(keys)

    def add(sums: tuple[Array, Array, Array], found: Array, new: Array) -> tuple[Array, Array, Array]:
        factors = jnp.where(new, 1.0 + problem.length * found.mean(1) / blocks, 1.0)
        logs = jnp.log(jnp.abs(factors))
        return sums[0] + logs.sum(), sums[1] + (logs**2).sum(), sums[2] + (factors < 0.0).sum()

    start = (jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int64))
    total, squares, negative = sum_minibatches(
        add, start, problem, theta=theta, keys=drawing, counts=counts, size=minibatch
    )
    log = sum_expansions(theta, problem) + total
    return LikelihoodEstimate(log, sign=1 - 2 * (negative % 2), variance=squares, minibatches=counts.sum())


def estimate_difference(
    theta: Float64[Array, " d"], keys: Array, minibatch: int, problem: RivalProblem
) -> LikelihoodEstimate:
    """Return log Ẑ = q_N + N mean(d_k) - N²/(2m) var(d_k) from one minibatch per key."""
    counts, m = jnp.ones(len(keys), jnp.int64), len(keys) * minibatch

    def add(sums: tuple[Array, Array], found: Array, new: Array) -> tuple[Array, Array]:
        found = jnp.where(new[:, None], found, 0.0)
        return sums[0] + found.sum(), sums[1] + (found**2).sum()

    start = (jnp.zeros(()), jnp.zeros(()))
    drawing = jax.vmap(jax.random.split)(keys)[:, 1]
    total, squares = sum_minibatches(add, start, problem, theta=theta, keys=drawing, counts=counts, size=minibatch)
    spread = jnp.maximum(squares - total**2 / m, 0.0) / (m - 1)
    variance = problem.length**2 / m * spread
    log = sum_expansions(theta, problem) + problem.length * total / m - 0.5 * variance
    return LikelihoodEstimate(log, sign=jnp.ones((), jnp.int64), variance=variance, minibatches=counts.sum())


def sum_minibatches[S](
    add: Callable[[S, Array, Array], S], start: S, problem: RivalProblem, *, theta: Float64[Array, " d"], keys: Array,
    counts: Int64[Array, " blocks"], size: int,
) -> S:  # fmt: skip
    """Fold `add(sums, d_k of some minibatches, which of these are there)` over `counts` minibatches of each block.

    Several minibatches are evaluated at once, and no more are read than there are.
    """
    ends, blocks = jnp.cumsum(counts), len(keys)
    total, at_once = ends[-1], max(1, min(blocks, ROWS_AT_A_TIME // size))

    def draw(key: Array, place: Array) -> Array:
        return jax.random.randint(jax.random.fold_in(key, place), (size,), 0, problem.length)  # with replacement

    def more(i: Array, sums: S) -> S:
        number = i * at_once + jnp.arange(at_once)
        block = jnp.minimum(jnp.searchsorted(ends, number, side="right"), blocks - 1)
        place = number - ends[block] + counts[block]
        rows = jax.vmap(draw)(keys[block], place)
        found = find_remainders(theta, problem.take(rows.ravel()), problem).reshape(rows.shape)
        return add(sums, found, number < total)

    return lax.fori_loop(0, -(-total // at_once), more, start)
