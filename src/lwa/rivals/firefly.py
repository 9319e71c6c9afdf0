"""Firefly Monte Carlo: exact steps that read the bright rows only (Maclaurin and Adams)."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float64, Int, Int64
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.kernels.kernel import Tuning, accepts, choose
from lwa.rivals.bounds import CollapsedBounds, RowBound, collapse, expected_gap, find_gaps, require_bound, sum_bounds
from lwa.rivals.problem import RivalProblem
from lwa.rivals.rival import Info, Rival, Setting, accept_or_reject, init_walk, propose_theta
from lwa.user.validate import require_share

ROWS_PER_CHUNK = 128
"""Rows in one evaluation; the last chunk of a loop is masked."""
FEWEST_PROPOSED = 0.1
"""Rows proposed per step at least, on average: if bounds are all but tight, hardly a row is ever bright."""
MOST_PROPOSED = 0.5
"""The share of all rows proposed per step at most."""


class Own(NamedTuple):
    """What is known before the first step: the bounds of all rows, and log q."""

    collapsed: CollapsedBounds
    log_q: Float64[Array, ""]


class State(NamedTuple):
    """θ, which rows are bright, and their log odds of being so at θ, which are not computed again.

    The arrays of bright rows have a chunk to spare, so that whole chunks can be written at the end.
    """

    theta: Float64[Array, " d"]
    dark: Float64[Array, ""]  # log p(θ) + Σ log B_k(θ) over all rows
    bright: Float64[Array, ""]  # Σ log (L_k/B_k - 1) over bright rows
    n_bright: Int64[Array, ""]
    rows: Int[Array, " N+chunk"]  # the bright rows first; the rest is arbitrary
    log_odds: Float64[Array, "2 N+chunk"]  # theirs at θ, and room for those at θ′
    side: Int64[Array, ""]  # which of the two is θ's
    lit: Bool[Array, " N"]  # whether a row is bright
    walk: Tuning


class Glow(NamedTuple):
    """The bright rows while they change."""

    n_bright: Int64[Array, ""]
    rows: Int[Array, " N+chunk"]
    log_odds: Float64[Array, "2 N+chunk"]
    lit: Bool[Array, " N"]
    reads: Int64[Array, ""]
    broken: Int64[Array, ""]  # rows whose bound was seen above their likelihood
    bright: Float64[Array, ""]  # Σ log odds


@dataclass(frozen=True)
class Firefly(Rival):
    """Metropolis-Hastings on θ and a light for each row; only rows that are lit are read.

    With B_k ≤ L_k = f(Y_k|θ), row k is lit with probability 1 - B_k/L_k given θ. Jointly

        π(θ, z) ∝ p(θ) ∏ B_k(θ) ∏_{lit} (L_k(θ)/B_k(θ) - 1),

    whose marginal is the posterior of all rows, and whose product of bounds is known in closed form. After a step of θ
    each dark row is proposed to be lit with probability q, accepted with min(1, r_k/q) for r_k = L_k/B_k - 1, and each
    lit one to go dark, accepted with min(1, q/r_k). Both are decided by the lights as they were. Exact.

    To second order ½ tr[(J_N - H_N) Σ] rows are lit on average, J_N being the curvature at the mode of all bounds, H_N
    of the log-likelihood and Σ the posterior covariance: a number that does not grow with N. Looser bounds leave more
    rows lit, and θ less room to move. The likelihood and bound of a row at one θ count as one read.

    Parameters
    ----------
    bound
        `(theta, rows, mode) -> (n,)`, log B_k(θ) up to a constant of each row, quadratic in the unconstrained θ.
        It is taken relative to its value at the mode, where it must touch the log-likelihood.
        Pass `lwa.rivals.JaakkolaJordan()` for a logistic regression, `lwa.rivals.StudentT(df=4, scale=1)` for a linear
        one with heavy tails, or your own.
    q
        The chance that a dark row is proposed in a step; `"auto"` for the share of rows that is lit on average. If it
        is far smaller, rows that are often lit hardly change; if it is far larger, most rows are read in vain.

    References
    ----------
    Maclaurin and Adams (2014), Firefly Monte Carlo: exact MCMC with subsets of data.
    """

    bound: RowBound | None = None
    q: float | str = "auto"
    name = "firefly"
    paper = "Maclaurin and Adams 2014"
    exact = True
    reads_singly = "switches single rows on and off"
    needs_mode = True

    def __post_init__(self) -> None:
        """Check the bound and the probability."""
        if self.bound is not None and not (callable(self.bound) and isinstance(self.bound, Hashable)):
            raise InputError(
                f"bound={self.bound!r} is not a function. Pass (theta, rows, mode) -> (n,), or "
                "lwa.rivals.JaakkolaJordan() for a logistic regression."
            )
        if self.q != "auto":
            require_share("q", self.q, example=0.01)

    def explain_exclusion(self, setting: Setting) -> str:
        """Return why the method does not apply: it also needs a bound."""
        reason = super().explain_exclusion(setting)
        if not reason and self.bound is None:
            return (
                "needs a lower bound of each row's likelihood whose product over rows is known: pass "
                "bound=lwa.rivals.JaakkolaJordan() for a logistic regression, lwa.rivals.StudentT(df=4, scale=1) for a "
                "linear one with Student's t errors, or a function (theta, rows, mode) -> (n,)"
            )
        return reason

    def prepare(self, key: Array, problem: RivalProblem) -> tuple[Own, list[str]]:
        """Try the bound, then collapse those of all rows in one pass at the mode."""
        assert self.bound is not None
        require_bound(key, self.bound, problem)
        collapsed = collapse(self.bound, problem)
        if not isinstance(self.q, str):
            return Own(collapsed, jnp.log(jnp.asarray(self.q))), []
        proposed = jnp.maximum(expected_gap(collapsed, problem), FEWEST_PROPOSED)
        q = jnp.minimum(proposed / problem.length, MOST_PROPOSED)
        return Own(collapsed, jnp.log(q)), []

    def init(self, key: Array, theta: Float64[Array, " d"], problem: RivalProblem) -> State:
        """Draw the lights given θ, in one pass over all rows."""
        N, size = problem.length, problem.block

        def look(i: Array, found: Array) -> Array:
            first = jnp.minimum(i * size, N - size)
            value, _ = self.log_odds(theta, first + jnp.arange(size), problem)
            return lax.dynamic_update_slice(found, value, (first,))

        value = lax.fori_loop(0, -(-N // size), look, jnp.zeros(N))
        log_u = jnp.log(jax.random.uniform(key, (N,)))
        lit = accepts(log_u, jax.nn.log_sigmoid(value))
        first = jnp.argsort(~lit, stable=True)
        room = jnp.pad(value[first], (0, ROWS_PER_CHUNK))
        return State(
            theta=theta, dark=self.dark(theta, problem), bright=jnp.where(lit, value, 0.0).sum(), n_bright=lit.sum(),
            rows=jnp.pad(first, (0, ROWS_PER_CHUNK)).astype(jnp.int32), log_odds=jnp.stack([room, room]),
            side=jnp.zeros((), jnp.int64), lit=lit, walk=init_walk(theta, problem),
        )  # fmt: skip

    def step(self, key: Array, state: State, problem: RivalProblem) -> tuple[State, Info]:
        """Move θ given the lights, then the lights given θ."""
        state, info = self.move(key, state, problem)
        state, reads, broken = self.relight(key, state, problem)
        extra = {"n_bright": state.n_bright, "broken_bounds": info.extra["broken_bounds"] + broken}
        return state, info._replace(rows=info.rows + reads, extra=extra)

    def move(self, key: Array, state: State, problem: RivalProblem) -> tuple[State, Info]:
        """Propose, read the bright rows, accept or reject."""
        proposed, log_u, log_hastings = propose_theta(key, state, problem)
        other = 1 - state.side

        def read(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            log_odds, total, broken = carry
            start = i * ROWS_PER_CHUNK
            own = start + jnp.arange(ROWS_PER_CHUNK) < state.n_bright
            value, wrong = self.log_odds(proposed, lax.dynamic_slice(state.rows, (start,), (ROWS_PER_CHUNK,)), problem)
            log_odds = lax.dynamic_update_slice(log_odds, value[None], (other, start))
            return log_odds, total + jnp.where(own, value, 0.0).sum(), broken + (own & wrong).sum()

        none = (state.log_odds, jnp.zeros(()), jnp.zeros((), jnp.int64))
        log_odds, bright, broken = lax.fori_loop(0, count_chunks(state.n_bright), read, none)
        dark = self.dark(proposed, problem)
        new = dark + bright
        decision = accept_or_reject(log_u, new - state.dark - state.bright + log_hastings, new)
        here = (state.theta, state.dark, state.bright, state.side)
        theta, dark, bright, side = choose(decision.accepted, (proposed, dark, bright, other), here)
        state = state._replace(theta=theta, dark=dark, bright=bright, side=side, log_odds=log_odds)
        info = Info(*decision, rows=state.n_bright, lp=jnp.asarray(jnp.nan), extra={"broken_bounds": broken})
        return state, info

    def relight(self, key: Array, state: State, problem: RivalProblem) -> tuple[State, Array, Array]:
        """Light dark rows, then darken bright ones except those just lit; return also rows read and broken bounds."""
        joining, leaving = jax.random.split(key)
        none = jnp.zeros((), jnp.int64)
        glow = Glow(
            n_bright=state.n_bright, rows=state.rows, log_odds=state.log_odds, lit=state.lit, reads=none, broken=none,
            bright=state.bright,
        )  # fmt: skip
        glow = self.leave(leaving, self.join(joining, glow, state, problem), state, problem)
        state = state._replace(
            n_bright=glow.n_bright, rows=glow.rows, log_odds=glow.log_odds, lit=glow.lit, bright=glow.bright
        )
        return state, glow.reads, glow.broken

    def join(self, key: Array, glow: Glow, state: State, problem: RivalProblem) -> Glow:
        """Propose each dark row with probability q: of the rows that geometric gaps lead to, those that are dark.

        So their number is binomial, and no row between two of them is looked at.
        """
        choosing, deciding = jax.random.split(key)
        N, log_q = problem.length, problem.own.log_q
        log_passed_by = jnp.log1p(-jnp.exp(log_q))

        def more(carry: tuple[Array, Array, Glow]) -> tuple[Array, Array, Glow]:
            i, last, glow = carry
            u = jax.random.uniform(jax.random.fold_in(choosing, i), (ROWS_PER_CHUNK,))
            gaps = jnp.minimum(jnp.floor(jnp.log1p(-u) / log_passed_by), N).astype(jnp.int64)
            places = last + jnp.cumsum(gaps + 1)
            rows = jnp.minimum(places, N - 1).astype(jnp.int32)
            dark = (places < N) & ~glow.lit[rows]
            value, wrong = self.log_odds(state.theta, rows, problem)
            log_u = jnp.log(jax.random.uniform(jax.random.fold_in(deciding, i), (ROWS_PER_CHUNK,)))
            accept = dark & accepts(log_u, value - log_q)
            glow = glow._replace(
                **write_chosen(accept, rows, value, glow, side=state.side),
                n_bright=glow.n_bright + accept.sum(),
                lit=glow.lit.at[jnp.where(accept, rows, N)].set(True, mode="drop"),
                reads=glow.reads + dark.sum(),
                broken=glow.broken + (dark & wrong).sum(),
            )
            return i + 1, places[-1], glow

        none = jnp.zeros((), jnp.int64)
        return lax.while_loop(lambda carry: carry[1] < N - 1, more, (none, none - 1, glow))[2]

    def leave(self, key: Array, glow: Glow, state: State, problem: RivalProblem) -> Glow:
        """Propose each row that was bright before this step to go dark; the others move up into the gaps."""
        N, log_q, everyone = problem.length, problem.own.log_q, glow.n_bright

        def more(i: Array, glow: Glow) -> Glow:
            start = i * ROWS_PER_CHUNK
            places = start + jnp.arange(ROWS_PER_CHUNK)
            rows = lax.dynamic_slice(glow.rows, (start,), (ROWS_PER_CHUNK,))
            value = lax.dynamic_slice(glow.log_odds, (state.side, start), (1, ROWS_PER_CHUNK))[0]
            # Read before it is written, or XLA copies all N entries.
            rows, value = lax.optimization_barrier((rows, value))  # type: ignore[no-untyped-call]
            log_u = jnp.log(jax.random.uniform(jax.random.fold_in(key, i), (ROWS_PER_CHUNK,)))
            leaves = (places < state.n_bright) & accepts(log_u, log_q - value)
            stays = (places < everyone) & ~leaves
            return glow._replace(
                **write_chosen(stays, rows, value, glow, side=state.side),
                n_bright=glow.n_bright + stays.sum(),
                lit=glow.lit.at[jnp.where(leaves, rows, N)].set(False, mode="drop"),
                bright=glow.bright + jnp.where(stays, value, 0.0).sum(),
            )

        anew = glow._replace(n_bright=jnp.zeros_like(everyone), bright=jnp.zeros(()))
        return lax.fori_loop(0, count_chunks(everyone), more, anew)

    def dark(self, theta: Array, problem: RivalProblem) -> Array:
        """Return log p(θ) + Σ log B_k(θ) over all rows, up to a constant."""
        return problem.log_prior(theta) + sum_bounds(theta, problem.own.collapsed, problem)

    def log_odds(self, theta: Array, rows: Array, problem: RivalProblem) -> tuple[Array, Array]:
        """Return log (L_k/B_k - 1) of these rows, and whether their bounds are broken."""
        assert self.bound is not None
        gap, broken = find_gaps(self.bound, theta, rows, problem.own.collapsed, problem)
        return log_expm1(jnp.maximum(gap, 0.0)), broken

    def collect_warnings(self, stats: Mapping[str, NDArray[Any]]) -> list[str]:
        """Warn of bounds that were seen above the likelihood."""
        if not (broken := int(stats.get("broken_bounds", np.zeros(0)).sum())):
            return []
        return [
            f"bound exceeded the log-likelihood of {broken} rows that were read, or one of the two was NaN there: "
            "these draws are not exact. Pass a bound that lies below everywhere."
        ]


def count_chunks(rows: Array) -> Array:
    """Return how many chunks hold so many rows."""
    return -(-rows // ROWS_PER_CHUNK)


def write_chosen(chosen: Array, rows: Array, value: Array, glow: Glow, *, side: Array) -> dict[str, Array]:
    """Write the chosen rows of a chunk and their log odds after the bright ones; what follows them is arbitrary."""
    at = glow.n_bright
    first = jnp.searchsorted(jnp.cumsum(chosen), jnp.arange(1, ROWS_PER_CHUNK + 1), method="scan_unrolled")
    first = jnp.minimum(first, ROWS_PER_CHUNK - 1)
    return {
        "rows": lax.dynamic_update_slice(glow.rows, rows[first], (at,)),
        "log_odds": lax.dynamic_update_slice(glow.log_odds, value[first][None], (side, at)),
    }


def log_expm1(gap: Array) -> Array:
    """Return log(exp(gap) - 1) without overflow; -inf at 0."""
    small = jnp.minimum(gap, 1.0)
    return jnp.where(gap > 1.0, gap + jnp.log1p(-jnp.exp(-gap)), jnp.log(jnp.expm1(small)))
