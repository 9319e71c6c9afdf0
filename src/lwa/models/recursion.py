"""A log-likelihood of ordered rows as one step after the other."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array


class Recursion(NamedTuple):
    """The log-likelihood of a sequence, step by step: the same numbers as `log_likelihood`, one row at a time.

    What is remembered is a tuple of numbers.
    """

    start: Callable[[Any, Any], tuple[Array, ...]]  # theta, the first row -> what is remembered before it
    step: Callable[[Any, tuple[Array, ...], Any], tuple[tuple[Array, ...], Array]]  # θ, that, a row -> that, log f

    def along(self, theta: Any, rows: Any) -> Array:
        """log f(Y_k | Y_1, …, Y_{k-1}) of each row."""
        first = jax.tree.map(lambda leaf: leaf[0], rows)

        def step(remembered: Any, row: Any) -> Any:
            return self.step(theta, remembered, row)

        return jax.lax.scan(step, self.start(theta, first), rows)[1]
