"""Decide by a growing sample: read rows without replacement, look whether they suffice, read more.

The confidence sampler and Austerity both ask whether the mean of ℓ_k over all N rows exceeds a threshold ψ. They differ
in when the rows read are enough to decide.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float64, Int64, PyTree

from lwa.kernels.kernel import choose
from lwa.rivals.permutation import permute
from lwa.rivals.problem import RivalProblem
from lwa.rivals.rival import Decision, Info, Walker


class RowSums(NamedTuple):
    """Sums over the rows read so far."""

    read: Int64[Array, ""]  # t
    total: Float64[Array, ""]  # Σ (ℓ_k - a), a being the first row's: variances are no differences of large numbers
    squares: Float64[Array, ""]
    lowest: Float64[Array, ""]
    highest: Float64[Array, ""]
    around: Float64[Array, ""]  # a

    @property
    def mean(self) -> Float64[Array, ""]:
        """Λ, the mean of the rows read."""
        return self.around + self.total / self.read

    @property
    def variance(self) -> Float64[Array, ""]:
        """σ̂², the variance of the rows read."""
        away = self.total / self.read
        return jnp.maximum(self.squares / self.read - away**2, 0.0)


class MeanTest(NamedTuple):
    """What is tested: whether the mean of `terms` over all rows exceeds `threshold`, and when rows read are enough."""

    terms: Callable[[PyTree], Array]  # ℓ_k of some rows
    threshold: Float64[Array, ""]  # ψ
    is_enough: Callable[[RowSums, Array], Array]  # from the rows read, and the number of looks
    grow: Callable[[Array, Array], Array]  # rows after the next look, from those read and the number of looks
    batch: int  # rows in one evaluation
    reads: int  # evaluations that a row's term costs


def decide_by_rows(
    key: Array, test: MeanTest, proposed: Array, state: Walker, problem: RivalProblem
) -> tuple[Walker, Info]:
    """Accept θ′ if the mean of the terms over all rows exceeds the threshold, as far as the test wants to know.

    A term that is not finite ends it: the mean then is not finite either.
    """
    N, batch = problem.length, test.batch

    def read_on(seen: RowSums, until: Array) -> RowSums:
        def more(i: Array, seen: RowSums) -> RowSums:
            places = seen_before + i * batch + jnp.arange(batch)
            new = places < until
            values = test.terms(problem.take(permute(key, jnp.minimum(places, N - 1), N)))
            around = jnp.where(seen.read == 0, values[0], seen.around)
            away = jnp.where(new, values - around, 0.0)
            return RowSums(
                read=seen.read + new.sum(), total=seen.total + away.sum(), squares=seen.squares + (away**2).sum(),
                lowest=jnp.minimum(seen.lowest, jnp.where(new, values, jnp.inf).min()),
                highest=jnp.maximum(seen.highest, jnp.where(new, values, -jnp.inf).max()), around=around,
            )  # fmt: skip

        seen_before = seen.read
        return lax.fori_loop(0, -(-(until - seen_before) // batch), more, seen)

    def look(carry: tuple[RowSums, Array, Array]) -> tuple[RowSums, Array, Array]:
        seen, looks, _ = carry
        seen, looks = read_on(seen, jnp.minimum(test.grow(seen.read, looks), N)), looks + 1
        finite = jnp.isfinite(seen.mean)
        return seen, looks, test.is_enough(seen, looks) | (seen.read == N) | ~finite

    none = jnp.zeros((), jnp.int64)
    start = RowSums(none, *(jnp.asarray(x) for x in (0.0, 0.0, jnp.inf, -jnp.inf, 0.0)))
    seen, looks, _ = lax.while_loop(lambda carry: ~carry[2], look, (start, none, jnp.asarray(False)))
    accept = seen.mean > test.threshold
    decision = Decision(accept.astype(jnp.float64), accept, ~(seen.mean < jnp.inf))
    info = Info(*decision, rows=test.reads * seen.read, lp=jnp.asarray(jnp.nan), extra={"looks": looks})
    return Walker(choose(accept, proposed, state.theta), state.walk), info
