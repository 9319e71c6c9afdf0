"""Whether a model that another library wrote for all rows can be asked about some of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import jax
import numpy as np
from jax import Array

from lwa.errors import ModelError
from lwa.rows import Batch, Rows

FEW_ROWS = 5
"""Rows with which a model is tried; it is tried with one, too."""
ROUNDING = 1e-9
"""By how much a row's term may change with the rows that it comes with, in float64."""


class Adapter(Protocol):
    """A model of another library: its three functions of θ, asked with any rows."""

    def log_likelihood(self, theta: Any, rows: Any) -> Array:
        """One term a row."""

    def log_prior(self, theta: Any, rows: Any) -> Array:
        """All else; the rows must not matter."""

    def deterministic(self, theta: Any, rows: Any) -> dict[str, Array]:
        """What the model computes of θ, and maybe of rows, by name."""


def few_and_one(rows: Rows) -> tuple[Batch, Batch]:
    """The first few rows, and the last."""
    return rows.take(np.arange(min(FEW_ROWS, len(rows)))), rows.take(np.array([len(rows) - 1]))


def count_of(rows: Any) -> int:
    """How many rows they are."""
    return int(jax.tree.leaves(rows)[0].shape[0])


def of_no_row(
    model: Adapter, init: Any, few: Any, last: Any, users_model: Callable[[str], AbstractContextManager[None]]
) -> list[str]:
    """Names of what is deterministic and no row's; refuses rows' terms or a prior that lean on other rows."""

    @jax.jit  # as a whole: one by one, JAX compiles every operation of the model
    def compare(theta: Any) -> Any:
        alone = jax.vmap(lambda row: model.log_likelihood(theta, row))(jax.tree.map(lambda leaf: leaf[:, None], few))
        terms = model.log_likelihood(theta, few), alone[:, 0]
        others = ((model.log_prior(theta, rows), model.deterministic(theta, rows)) for rows in (few, last))
        return terms, *others

    with users_model("some rows of data"):
        terms, (prior, one), (prior_of_another, other) = compare(init)
    if not same(*terms):
        raise ModelError(
            "The log-likelihood of a row changes with the rows that it comes with, as where the model takes a mean of "
            "a column. lwa reads some rows at a time: compute what all rows share first, and pass it as a constant, "
            "or as a column."
        )
    if not same(prior, prior_of_another):
        raise ModelError(
            "The log density of what is no observation of a row changes with the rows: a prior, a factor or a "
            "potential depends on data. Pass what it needs of them as a constant."
        )
    return [name for name in one if same(one[name], other[name])]


def same(one: Any, other: Any) -> bool:
    """Whether they are the same up to rounding."""
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and np.allclose(one, other, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)


def quoted(names: Any) -> str:
    """Names as messages have them."""
    return ", ".join(map(repr, names)) or "none"
