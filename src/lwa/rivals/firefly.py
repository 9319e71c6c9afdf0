"""Firefly Monte Carlo: exact steps that read the bright rows only (Maclaurin and Adams)."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from lwa.errors import InputError
from lwa.kernels.kernel import accepts, choose, acceptance_probability
from lwa.kernels.random_walk import Tuning
from lwa.rivals.bounds import Bound, Collapsed, collapse, expected_gap, gaps, log_bound_of_all, require_bound
from lwa.rivals.hyperparameters import require_share
from lwa.rivals.problem import Problem
from lwa.rivals.rival import Info, Rival, Setting, first_walk, proposal

CHUNK = 128
"""Rows in one evaluation; the last one of a loop is masked."""
FEWEST_PROPOSED = 0.1
"""Rows proposed a step at the least, on average: where bounds are all but tight, hardly a row is ever bright."""
MOST_PROPOSED = 0.5
"""The share of all rows proposed a step at the most."""


class Own(NamedTuple):
    """What all rows say at the mode."""

    collapsed: Collapsed
    log_q: Array


class State(NamedTuple):
    """θ, which rows are bright, and their log odds of being so at θ, which are kept.

    The rooms have a chunk to spare, so that whole chunks can be written at the end.
    """

    theta: Array
    dark: Array  # log p(θ) + Σ log B_k(θ) over all rows
    bright: Array  # Σ log (L_k/B_k - 1) over bright rows
    n_bright: Array
    rows: Array  # (N + CHUNK,)  the bright rows, then what does not matter
    log_odds: Array  # (2, N + CHUNK)  theirs at θ, and room for those at θ′
    side: Array  # which of the two is θ's
    lit: Array  # (N,)  whether a row is bright
    walk: Tuning


class Glow(NamedTuple):
    """The bright rows while they change."""

    n_bright: Array
    rows: Array
    log_odds: Array
    lit: Array
    reads: Array
    broken: Array  # rows whose bound was seen above their likelihood
    bright: Array  # Σ log odds


@dataclass(frozen=True)
class Firefly(Rival):
    """Metropolis-Hastings on θ and a light for each row, of which only rows that are lit are read.

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
        `lwa.rivals.JaakkolaJordan()` for a logistic regression, `lwa.rivals.StudentT(df=4, scale=1)` for a linear one
        with heavy tails, or your own.
    q
        The chance that a dark row is proposed in a step; `"auto"` for the share of rows that is lit on average. Far
        below it, rows that are often lit hardly change; far above it, most rows are read in vain.

    References
    ----------
    Maclaurin and Adams (2014), Firefly Monte Carlo: exact MCMC with subsets of data.
    """

    bound: Bound | None = None
    q: float | str = "auto"
    name = "firefly"
    paper = "Maclaurin and Adams 2014"
    exact = True
    independent = "switches single rows on and off"
    expands = True

    def __post_init__(self) -> None:
        """Refuse what is no bound and no probability."""
        if self.bound is not None and not (callable(self.bound) and isinstance(self.bound, Hashable)):
            raise InputError(
                f"bound={self.bound!r} is not a function. Pass (theta, rows, mode) -> (n,), or "
                "lwa.rivals.JaakkolaJordan() for a logistic regression."
            )
        if self.q != "auto":
            require_share("q", self.q, 0.01)

    def excluded(self, setting: Setting) -> str:
        """Without a bound too."""
        reason = super().excluded(setting)
        if not reason and self.bound is None:
            return (
                "needs a lower bound of each row's likelihood whose product over rows is known: pass "
                "bound=lwa.rivals.JaakkolaJordan() for a logistic regression, lwa.rivals.StudentT(df=4, scale=1) for a "
                "linear one with Student's t errors, or a function (theta, rows, mode) -> (n,)"
            )
        return reason

    def prepare(self, key: Array, problem: Problem) -> tuple[Own, list[str]]:
        """Try the bound, then one pass at the mode."""
        assert self.bound is not None
        require_bound(key, self.bound, problem)
        collapsed = collapse(self.bound, problem)
        if isinstance(self.q, str):
            proposed = jnp.maximum(expected_gap(collapsed, problem), FEWEST_PROPOSED)
            q = jnp.minimum(proposed / problem.length, MOST_PROPOSED)
        else:
            q = jnp.asarray(self.q)
        return Own(collapsed, jnp.log(q)), []

    def init(self, key: Array, theta: Array, problem: Problem) -> State:
        """One pass: lights given θ."""
        N, size = problem.length, problem.block

        def look(i: Array, found: Array) -> Array:
            first = jnp.minimum(i * size, N - size)
            value, _ = self.log_odds(theta, first + jnp.arange(size), problem)
            return lax.dynamic_update_slice(found, value, (first,))

        value = lax.fori_loop(0, -(-N // size), look, jnp.zeros(N))
        log_u = jnp.log(jax.random.uniform(key, (N,)))
        lit = accepts(log_u, jax.nn.log_sigmoid(value))
        first = jnp.argsort(~lit, stable=True)
        room = jnp.pad(value[first], (0, CHUNK))
        return State(
            theta, self.dark(theta, problem), jnp.where(lit, value, 0.0).sum(), lit.sum(),
            jnp.pad(first, (0, CHUNK)).astype(jnp.int32), jnp.stack([room, room]), jnp.zeros((), jnp.int64), lit,
            first_walk(theta, problem),
        )  # fmt: skip

    def step(self, key: Array, state: State, problem: Problem) -> tuple[State, Info]:
        """θ given the lights, then the lights given θ."""
        state, info = self.move(key, state, problem)
        state, reads, broken = self.relight(key, state, problem)
        extra = {"n_bright": state.n_bright, "broken_bounds": info.extra["broken_bounds"] + broken}
        return state, info._replace(rows=info.rows + reads, extra=extra)

    def move(self, key: Array, state: State, problem: Problem) -> tuple[State, Info]:
        """Propose, read the bright rows, accept or leave."""
        proposed, log_u, log_hastings = proposal(key, state, problem)
        other = 1 - state.side

        def read(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            log_odds, total, broken = carry
            start = i * CHUNK
            own = start + jnp.arange(CHUNK) < state.n_bright
            value, wrong = self.log_odds(proposed, lax.dynamic_slice(state.rows, (start,), (CHUNK,)), problem)
            log_odds = lax.dynamic_update_slice(log_odds, value[None], (other, start))
            return log_odds, total + jnp.where(own, value, 0.0).sum(), broken + (own & wrong).sum()

        none = (state.log_odds, jnp.zeros(()), jnp.zeros((), jnp.int64))
        log_odds, bright, broken = lax.fori_loop(0, chunks(state.n_bright), read, none)
        dark = self.dark(proposed, problem)
        new = dark + bright
        invalid = ~(new < jnp.inf)
        log_ratio = jnp.where(invalid, -jnp.inf, new - state.dark - state.bright + log_hastings)
        accept = accepts(log_u, log_ratio)
        theta, dark, bright, side = choose(
            accept, (proposed, dark, bright, other), (state.theta, state.dark, state.bright, state.side)
        )
        state = state._replace(theta=theta, dark=dark, bright=bright, side=side, log_odds=log_odds)
        info = Info(
            acceptance_probability(log_ratio), accept, invalid, state.n_bright, jnp.asarray(jnp.nan), {"broken_bounds": broken}
        )
        return state, info

    def relight(self, key: Array, state: State, problem: Problem) -> tuple[State, Array, Array]:
        """Dark rows that light up, then bright ones that go out, those that have just come apart; rows read; broken."""
        joining, leaving = jax.random.split(key)
        none = jnp.zeros((), jnp.int64)
        glow = Glow(state.n_bright, state.rows, state.log_odds, state.lit, none, none, state.bright)
        glow = self.join(joining, glow, state, problem)
        glow = self.leave(leaving, glow, state, problem)
        state = state._replace(
            n_bright=glow.n_bright, rows=glow.rows, log_odds=glow.log_odds, lit=glow.lit, bright=glow.bright
        )
        return state, glow.reads, glow.broken

    def join(self, key: Array, glow: Glow, state: State, problem: Problem) -> Glow:
        """Each dark row is proposed with probability q: of the rows that geometric gaps lead to, those that are dark.

        So their number is binomial, and no row between two of them is looked at.
        """
        choosing, deciding = jax.random.split(key)
        N, log_q = problem.length, problem.own.log_q
        log_passed_by = jnp.log1p(-jnp.exp(log_q))

        def on(carry: tuple[Array, Array, Glow]) -> Array:
            return carry[1] < N - 1

        def more(carry: tuple[Array, Array, Glow]) -> tuple[Array, Array, Glow]:
            i, last, glow = carry
            u = jax.random.uniform(jax.random.fold_in(choosing, i), (CHUNK,))
            gaps = jnp.minimum(jnp.floor(jnp.log1p(-u) / log_passed_by), N).astype(jnp.int64)
            places = last + jnp.cumsum(gaps + 1)
            rows = jnp.minimum(places, N - 1).astype(jnp.int32)
            dark = (places < N) & ~glow.lit[rows]
            value, wrong = self.log_odds(state.theta, rows, problem)
            log_u = jnp.log(jax.random.uniform(jax.random.fold_in(deciding, i), (CHUNK,)))
            accept = dark & accepts(log_u, value - log_q)
            glow = glow._replace(
                **written(accept, rows, value, glow, state.side, glow.n_bright),
                n_bright=glow.n_bright + accept.sum(),
                lit=glow.lit.at[jnp.where(accept, rows, N)].set(True, mode="drop"),
                reads=glow.reads + dark.sum(),
                broken=glow.broken + (dark & wrong).sum(),
            )
            return i + 1, places[-1], glow

        none = jnp.zeros((), jnp.int64)
        return lax.while_loop(on, more, (none, none - 1, glow))[2]

    def leave(self, key: Array, glow: Glow, state: State, problem: Problem) -> Glow:
        """Each row that was bright before this step is proposed to go dark; the others move up into the gaps."""
        N, log_q, everyone = problem.length, problem.own.log_q, glow.n_bright

        def more(i: Array, glow: Glow) -> Glow:
            start = i * CHUNK
            places = start + jnp.arange(CHUNK)
            rows = lax.dynamic_slice(glow.rows, (start,), (CHUNK,))
            value = lax.dynamic_slice(glow.log_odds, (state.side, start), (1, CHUNK))[0]
            # Read before it is written, or XLA copies all N entries.
            rows, value = lax.optimization_barrier((rows, value))  # type: ignore[no-untyped-call]
            log_u = jnp.log(jax.random.uniform(jax.random.fold_in(key, i), (CHUNK,)))
            leaves = (places < state.n_bright) & accepts(log_u, log_q - value)
            stays = (places < everyone) & ~leaves
            return glow._replace(
                **written(stays, rows, value, glow, state.side, glow.n_bright),
                n_bright=glow.n_bright + stays.sum(),
                lit=glow.lit.at[jnp.where(leaves, rows, N)].set(False, mode="drop"),
                bright=glow.bright + jnp.where(stays, value, 0.0).sum(),
            )

        anew = glow._replace(n_bright=jnp.zeros_like(everyone), bright=jnp.zeros(()))
        return lax.fori_loop(0, chunks(everyone), more, anew)

    def dark(self, theta: Array, problem: Problem) -> Array:
        """log p(θ) + Σ log B_k(θ) over all rows, up to a constant."""
        return problem.log_prior(theta) + log_bound_of_all(theta, problem.own.collapsed, problem)

    def log_odds(self, theta: Array, rows: Array, problem: Problem) -> tuple[Array, Array]:
        """log (L_k/B_k - 1) of these rows, and whether a bound is none."""
        assert self.bound is not None
        gap, broken = gaps(self.bound, theta, rows, problem.own.collapsed, problem)
        return log_expm1(jnp.maximum(gap, 0.0)), broken

    def tell(self, extra: dict[str, Any]) -> list[str]:
        """Bounds that were seen not to be any."""
        if not (broken := int(extra["broken_bounds"].sum()) if "broken_bounds" in extra else 0):
            return []
        return [
            f"bound exceeded the log-likelihood of {broken} rows that were read, or one of the two was NaN there: "
            "these draws are not exact. Pass a bound that lies below everywhere."
        ]


def chunks(rows: Array) -> Array:
    """How many hold so many rows."""
    return -(-rows // CHUNK)


def written(chosen: Array, rows: Array, value: Array, glow: Glow, side: Array, at: Array) -> dict[str, Array]:
    """The chosen ones of a chunk, and their log odds, one after the other from `at` on; what follows is junk."""
    first = jnp.searchsorted(jnp.cumsum(chosen), jnp.arange(1, CHUNK + 1), method="scan_unrolled")
    first = jnp.minimum(first, CHUNK - 1)
    return {
        "rows": lax.dynamic_update_slice(glow.rows, rows[first], (at,)),
        "log_odds": lax.dynamic_update_slice(glow.log_odds, value[first][None], (side, at)),
    }


def log_expm1(gap: Array) -> Array:
    """log(exp(gap) - 1) without overflow; -inf at 0."""
    small = jnp.minimum(gap, 1.0)
    return jnp.where(gap > 1.0, gap + jnp.log1p(-jnp.exp(-gap)), jnp.log(jnp.expm1(small)))
