"""Whether a model that another library wrote for all rows can be evaluated on some of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from lwa.errors import ModelError
from lwa.rows import Batch, Rows

ROWWISE_ROWS = 5
"""Rows with which a model is tried; it is also tried with one."""
ROWWISE_ROUNDING = 1e-9
"""How much a row's term may change with the rows beside it, in float64."""


class Adapter(ABC):
    """A model of another library as functions of θ and any rows."""

    row: PyTree  # one row, for what does not depend on rows

    @abstractmethod
    def log_likelihood(self, theta: PyTree, rows: PyTree) -> Array:
        """Return one term per row."""

    @abstractmethod
    def log_prior(self, theta: PyTree, rows: PyTree = None) -> Array:
        """Return the log density of all else; the rows must not matter."""

    @abstractmethod
    def deterministic(self, theta: PyTree, rows: PyTree) -> dict[str, Array]:
        """Return what the model computes of θ, and maybe of rows, by name."""

    def derived(self, names: Sequence[str], theta: PyTree) -> dict[str, Array]:
        """Return some of the deterministic values."""
        found = self.deterministic(theta, self.row)
        return {name: found[name] for name in names}


def take_few_and_last(rows: Rows) -> tuple[Batch, Batch]:
    """Return the first few rows, and the last."""
    return rows.take(np.arange(min(ROWWISE_ROWS, len(rows)))), rows.take(np.array([len(rows) - 1]))


type Reporter = Callable[[str], AbstractContextManager[None]]


def find_derived_names(model: Adapter, init: PyTree, few: PyTree, last: PyTree, report_errors: Reporter) -> list[str]:
    """Return the names of deterministic values that depend on no row; refuse terms or priors that other rows change."""

    @jax.jit  # as a whole: one by one, JAX compiles every operation of the model
    def compare(theta: PyTree) -> PyTree:
        # As JAX's arrays: functions with a derivative of their own, such as xlogy, take no NumPy array inside vmap.
        single = jax.tree.map(lambda leaf: jnp.asarray(leaf)[:, None], few)
        alone = jax.vmap(lambda row: model.log_likelihood(theta, row))(single)
        terms = model.log_likelihood(theta, few), alone[:, 0]
        others = ((model.log_prior(theta, rows), model.deterministic(theta, rows)) for rows in (few, last))
        return terms, *others

    with report_errors("some rows of data"):
        terms, (prior, one), (prior_of_another, other) = compare(init)
    if not is_same(*terms):
        raise ModelError(
            "The log-likelihood of a row changes with the rows beside it, as if the model takes the mean of a column. "
            "lwa reads some rows at a time: compute what all rows share first, and pass it as a constant or a column."
        )
    if not is_same(prior, prior_of_another):
        raise ModelError(
            "The log density of what is not an observation of a row changes with the rows: a prior, a factor or a "
            "potential depends on data. Pass what it needs of them as a constant."
        )
    return [name for name in one if is_same(one[name], other[name])]


def is_same(one: ArrayLike, other: ArrayLike) -> bool:
    """Return whether two arrays are the same up to rounding."""
    near = {"rtol": ROWWISE_ROUNDING, "atol": ROWWISE_ROUNDING}
    return np.shape(one) == np.shape(other) and np.allclose(one, other, **near, equal_nan=True)


def quote_names(names: Iterable[object]) -> str:
    """Return names in quotes, for messages."""
    return ", ".join(map(repr, names)) or "none"
