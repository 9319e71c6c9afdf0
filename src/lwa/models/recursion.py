"""A log-likelihood of ordered rows as one step after the other."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree

from lwa.errors import ModelError

RECURSION_TOLERANCE = 1e-6
"""How close log-likelihoods must be, in float64, to be the same."""

type Past = tuple[Array, ...]
"""What is carried from row to row."""


class Recursion(NamedTuple):
    """The log-likelihood of a sequence, one row at a time: the same numbers as `log_likelihood`.

    What is carried from row to row is a tuple of numbers.

    Examples
    --------
    An autoregression, Y_k = a Y_{k-1} + Z_k, which carries the row before:

    >>> import jax.numpy as jnp, lwa
    >>> def log_likelihood(a, y):
    ...     return -0.5 * (y - a * jnp.concatenate([y[:1], y[:-1]])) ** 2
    >>> def step(a, past, y):
    ...     return (y,), -0.5 * (y - a * past[0]) ** 2
    >>> recursion = lwa.models.Recursion(lambda a, y: (y,), step)
    >>> model = lwa.Model(log_likelihood, lambda a: -0.5 * a**2, init=0.0, ordered=True, recursion=recursion)
    >>> recursion.along(0.5, jnp.array([1.0, 2.0, 0.0])).tolist()
    [-0.125, -1.125, -0.5]
    """

    start: Callable[[PyTree, PyTree], Past]  # θ, the first row -> what is remembered before it
    step: Callable[[PyTree, Past, PyTree], tuple[Past, Array]]  # θ, that, a row -> that, log f

    def along(self, theta: PyTree, rows: PyTree) -> Array:
        """Return log f(Y_k | Y_1, …, Y_{k-1}) of each row."""
        first = jax.tree.map(lambda leaf: leaf[0], rows)

        def step(past: Past, row: PyTree) -> tuple[Past, Array]:
            return self.step(theta, past, row)

        return jax.lax.scan(step, self.start(theta, first), rows)[1]


def require_agreement(recursion: Recursion, terms: Callable[..., Array], theta: PyTree, rows: PyTree) -> None:
    """Refuse a recursion that differs from the log-likelihood, `terms`, on a few rows."""
    try:  # so short a program is compiled soonest on the CPU
        where = jax.devices("cpu")[0]
    except RuntimeError:
        where = jax.devices()[0]
    with jax.default_device(where), jax.enable_x64(True):
        theta, rows = jax.tree.map(jnp.asarray, (theta, rows))
        expected, found = np.asarray(terms(theta, rows)), np.asarray(jax.jit(recursion.along)(theta, rows))
    close = np.isclose(found, expected, rtol=RECURSION_TOLERANCE, atol=RECURSION_TOLERANCE, equal_nan=True)
    if not close.all():
        k = int(np.argmin(close))
        raise ModelError(
            f"recursion gives {found[k]:.6g} for the log-likelihood of row {k}, but log_likelihood gives "
            f"{expected[k]:.6g}. Correct one of them, or leave recursion out."
        )
