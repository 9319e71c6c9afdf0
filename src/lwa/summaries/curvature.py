"""The curvature of each row at the reference point, as a statistic of subsets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.models.likelihood import compute_in_parts, find_likelihood
from lwa.models.model import Model
from lwa.rows import Batch
from lwa.summaries.summary import Gathering, Statistic, Summary
from lwa.targets.reference import Reference


@dataclass(frozen=True)
class Curvature(Summary):
    """Per-row curvature at θ̂, whitened: a subset is representative if its curvature is that of all rows.

    S(Y_k) = N F^T (-∇²ℓ_k(θ̂)) F with F Fᵀ the inverse of the full curvature, so that s_N is the identity (less the
    prior's share); off-diagonal entries times √2, so that ‖·‖ is the Frobenius norm. A distance below 1 keeps the
    subset's own curvature positive definite.
    """

    def gather(self) -> Gathering:
        """Refuse to gather: the statistic is computed from the reference, which has made its passes already."""
        raise InputError(
            "summary=Curvature() needs a reference point. Pass target='calibrated' with it.",
            advice={"target": "calibrated"},
        )

    def at(self, model: Model, reference: Reference, N: int) -> Statistic:
        """Return the statistic at a reference point."""
        factor = reference.factor
        rows, columns = np.triu_indices(len(factor))
        weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
        full = (factor.T @ reference.curvature @ factor)[rows, columns] * weight

        likelihood = find_likelihood(model)

        def whitened(part: Batch) -> NDArray[np.float64]:
            return N * likelihood.whiten_curvatures(reference.theta, part, factor)[:, rows, columns] * weight

        def per_row(batch: Batch) -> NDArray[np.float64]:
            return compute_in_parts(whitened, batch, len(full), likelihood)

        return Statistic(per_row, full, np.ones_like(full))
