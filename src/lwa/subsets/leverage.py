"""q by curvature: rows drawn by their share of it, for data in which a few rows carry a direction by themselves.

A dummy that is true in 200 of 10⁶ rows is absent from most uniform subsets, which then hold no information on its
coefficient. With q_k = α/N + (1-α) h_k / Σh, h_k the trace of a row's whitened curvature at θ̂, rows come as often as
they matter, and count 1/(N q_k) of a uniform row, which is at most 1/α. Strata are the directions in which rows bend
most.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lwa.models.likelihood import find_likelihood, map_strata
from lwa.models.model import Model
from lwa.rows import Batch, Rows
from lwa.rows.passes import count_unit_rows, floor_power_of_two
from lwa.subsets.pieces import PART, Pieces, lay_out_pieces, make_mapped_zeros, scale_sizes
from lwa.targets.reference import Reference


def find_leverage(model: Model, rows: Rows, reference: Reference) -> Pieces:
    """Compute q in one pass over all rows."""
    N, start = len(rows), 0
    size, stratum = make_mapped_zeros(np.float32, N), make_mapped_zeros(np.uint16, N)

    def choose(stratum: Rows) -> int:
        return floor_power_of_two(PART // count_unit_rows(stratum))

    for found, most in map_strata(model, rows, find_sizes_in_piece, reference, choose=choose):
        size[start : start + len(found)], stratum[start : start + len(found)] = found, most
        start += len(found)
    scale_sizes(size)
    return lay_out_pieces(size, stratum, len(reference.theta))


def find_sizes_in_piece(
    model: Model, reference: Reference, together: int, start: int, blocks: Iterable[Batch]
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return h_k and stratum of the rows of a piece."""
    measure = find_likelihood(model).measure_rows
    found = [measure(reference.theta, batch, reference.factor, together) for batch in blocks]
    sizes, strata = zip(*found, strict=True)
    return np.concatenate(sizes).astype(np.float32), np.concatenate(strata).astype(np.uint16)
