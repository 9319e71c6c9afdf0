"""What is added up over rows, where it is taken, and how many rows are evaluated together."""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.rows import Rows
from lwa.rows.passes import count_unit_rows, floor_power_of_two
from lwa.rows.units import AnyBatch

type Vector = Float64[np.ndarray, " d"]
"""A flat θ, or one number per parameter."""
type Vectors = Float64[np.ndarray, "M d"]
"""Many flat θ."""
type Matrix = Float64[np.ndarray, "d d"]
type FloatType = type[np.floating]
type RowNumbers = Float64[np.ndarray, " m"]
"""One number per row, or per θ."""

BLOCK_ROWS = 16_384
"""Rows in one compiled evaluation; a last block that is shorter is filled up and masked."""
UNIT_ROWS = 2**16
"""Rows in one compiled evaluation of units of several rows. A recursion over the steps of a unit runs for all units of
a block side by side, so a block should hold some tens of units."""


class Sums[A](NamedTuple):
    """Log-likelihood (or log prior), gradient and negative Hessian, summed over rows."""

    value: A  # ()
    gradient: A  # (d,)
    curvature: A  # (d, d)


type NumpySums = Sums[NDArray[np.float64]]
"""Sums in NumPy's float64."""


class Places[A: Array | NDArray[np.float64]](NamedTuple):
    """Where to take gradients and values."""

    points: A  # (M, d)
    starts: A  # (K', d)  of moves; if there are none, values are taken at all points
    proposals: A  # (K, d)  ends of moves

    @property
    def begun(self) -> A:
        """The places where moves start."""
        return self.starts if len(self.starts) else self.points

    @property
    def number(self) -> int:
        """The number of points, starts and proposals together."""
        return len(self.points) + len(self.starts) + len(self.proposals)

    def cast(self, precision: FloatType) -> "Places[A]":
        """Return the places in another precision."""
        return jax.tree.map(lambda part: part.astype(precision), self)


class ScoreSums[A](NamedTuple):
    """Log density and gradient at some places, summed over rows in float64; on the device if JAX computes them."""

    log_density: A  # (M,), or one per start
    gradient: A  # (M, d)
    proposed: A  # (K,)


type NumpyPlaces = Places[NDArray[np.float64]]
type NumpyScores = ScoreSums[NDArray[np.float64]]
type AnyScores = ScoreSums[Array] | NumpyScores


def block_size(of: Rows | AnyBatch) -> int:
    """Return how many rows, or units of several rows, one compiled evaluation takes."""
    length = count_unit_rows(of)
    return BLOCK_ROWS if length == 1 else floor_power_of_two(UNIT_ROWS // length)


def split_into_blocks(batch: PyTree) -> list[PyTree]:
    """Return rows in memory as batches of at most `block_size`."""
    count, size = len(jax.tree.leaves(batch)[0]), block_size(batch)
    return [jax.tree.map(lambda leaf, at=at: leaf[at : at + size], batch) for at in range(0, count, size)]
