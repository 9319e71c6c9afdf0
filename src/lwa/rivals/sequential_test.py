"""Decide by a growing sample: read rows without replacement, look whether they suffice, read more.

Both the confidence sampler and Austerity ask whether the mean of ℓ_k over all N rows exceeds a threshold ψ; they
differ in what they take for enough.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from lwa.kernels.kernel import choose
from lwa.rivals.drawing import permuted
from lwa.rivals.problem import Problem
from lwa.rivals.rival import Info, Walker


class Seen(NamedTuple):
    """Sums over the rows read so far."""

    read: Array  # t
    total: Array  # Σ (ℓ_k - a), a being the first row's: variances are then not differences of large numbers
    squares: Array
    lowest: Array
    highest: Array
    around: Array  # a

    @property
    def mean(self) -> Array:
        """Λ."""
        return self.around + self.total / self.read

    @property
    def variance(self) -> Array:
        """σ̂², of the rows seen."""
        away = self.total / self.read
        return jnp.maximum(self.squares / self.read - away**2, 0.0)


class Verdict(NamedTuple):
    """The decision, and what it took."""

    accept: Array
    invalid: Array
    drawn: Array  # rows, each once
    looks: Array


def concluded(found: Verdict, proposed: Array, state: Walker, reads: int) -> tuple[Walker, Info]:
    """The state after a decision, and what it took: each row drawn was read so many times."""
    accept = found.accept
    info = Info(
        accept.astype(jnp.float64), accept, found.invalid, reads * found.drawn, jnp.asarray(jnp.nan),
        {"looks": found.looks},
    )  # fmt: skip
    return Walker(choose(accept, proposed, state.theta), state.walk), info


def decide(
    key: Array,
    terms: Callable[[Any], Array],
    threshold: Array,
    enough: Callable[[Seen, Array], Array],
    grown: Callable[[Array, Array], Array],
    batch: int,
    problem: Problem,
) -> Verdict:
    """Whether the mean of `terms` over all rows exceeds the threshold, as far as `enough(seen, look)` wants to know.

    `grown(t, look)` is the number of rows after the next look; they are read `batch` at a time. A term that is not
    finite ends it: the mean then is not finite either.
    """
    N = problem.length

    def read_on(seen: Seen, until: Array) -> Seen:
        def more(i: Array, seen: Seen) -> Seen:
            places = seen_before + i * batch + jnp.arange(batch)
            new = places < until
            values = terms(problem.take(permuted(key, jnp.minimum(places, N - 1), N)))
            around = jnp.where(seen.read == 0, values[0], seen.around)
            away = jnp.where(new, values - around, 0.0)
            return Seen(
                seen.read + new.sum(),
                seen.total + away.sum(),
                seen.squares + (away**2).sum(),
                jnp.minimum(seen.lowest, jnp.where(new, values, jnp.inf).min()),
                jnp.maximum(seen.highest, jnp.where(new, values, -jnp.inf).max()),
                around,
            )

        seen_before = seen.read
        return lax.fori_loop(0, -(-(until - seen_before) // batch), more, seen)

    def undecided(carry: tuple[Seen, Array, Array]) -> Array:
        return ~carry[2]

    def look(carry: tuple[Seen, Array, Array]) -> tuple[Seen, Array, Array]:
        seen, looks, _ = carry
        seen, looks = read_on(seen, jnp.minimum(grown(seen.read, looks), N)), looks + 1
        finite = jnp.isfinite(seen.mean)
        return seen, looks, enough(seen, looks) | (seen.read == N) | ~finite

    none = jnp.zeros((), jnp.int64)
    start = Seen(none, *(jnp.asarray(x) for x in (0.0, 0.0, jnp.inf, -jnp.inf, 0.0)))
    seen, looks, _ = lax.while_loop(undecided, look, (start, none, jnp.asarray(False)))
    return Verdict(seen.mean > threshold, ~(seen.mean < jnp.inf), seen.read, looks)
