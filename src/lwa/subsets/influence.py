"""q by influence: rows drawn by what they add beyond second order within the posterior's reach, T_k(δ).

A row far from the others may add nothing at θ̂ and all that matters two sds away: a count of zero where the model will
soon expect thousands, an outlier, a censored time. With q_k = α/N + (1-α) b_k / Σb, b_k the root mean square of T_k(δ)
over some δ, such rows come as often as they matter. Strata are the directions in which rows bend most at θ̂, so that a
level of a factor is in every subset by as much as it matters.

Few δ may all miss what a row does: along some direction it matters, and they hardly reach there. Its curvature h_k does
not, and T_k is of the order of h_k^(3/2) if rows differ by how far out they are. Half of b_k is that.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.models.likelihood import find_likelihood, map_strata
from lwa.models.model import Model
from lwa.rows import Batch, Rows
from lwa.subsets.pieces import Pieces, lay_out_pieces, make_mapped_zeros, scale_sizes
from lwa.targets.reference import Points, Reference, draw_reach

DECISIVE = 50.0
"""Nats by which a row may count at most: one that excludes a θ would leave nothing of q for the others."""


class Within(NamedTuple):
    """Where rows are compared, and the frame whose columns are the strata; none if there is one stratum alone."""

    points: Points
    frame: NDArray[np.float64] | None  # (d, d)


def find_influence(model: Model, rows: Rows, reference: Reference, seed: int, *, strata: bool = True) -> Pieces:
    """Compute q in one pass over all rows."""
    N, start = len(rows), 0
    size, bend = make_mapped_zeros(np.float32, N), make_mapped_zeros(np.float32, N)
    stratum = make_mapped_zeros(np.uint16, N)
    within = Within(draw_reach(reference, seed), reference.factor if strata else None)
    for found, curved, most in map_strata(model, rows, measure_piece, within):
        part = slice(start, start + len(found))
        size[part], bend[part], stratum[part] = found, curved, most
        start += len(found)
    scale_sizes(size, bend)
    return lay_out_pieces(size, stratum, len(reference.theta) if strata else 1)


def measure_piece(
    model: Model, within: Within, together: int, start: int, blocks: Iterable[Batch]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint16]]:
    """Return the root mean square of T_k, h_k^(3/2) and the stratum of the rows of a piece."""
    likelihood, found = find_likelihood(model), list[tuple[NDArray[Any], ...]]()
    for batch in blocks:
        terms = np.abs(likelihood.expand_rows(*within.points, batch, together))
        decisive = np.where(terms < DECISIVE, terms, DECISIVE)  # NaN too
        size = np.sqrt((decisive**2).mean(0))
        if within.frame is None:
            found.append((size, np.zeros_like(size), np.zeros(len(size))))
        else:
            bend, most = likelihood.measure_rows(within.points.theta, batch, within.frame, together)
            found.append((size, bend**1.5, most))
    sizes, bends, strata = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return sizes.astype(np.float32), bends.astype(np.float32), strata.astype(np.uint16)
