"""What passes over the rows and random reads cost here, measured on the sample."""

import time
from collections.abc import Callable

import jax
import numpy as np

from lwa.data.data import Data
from lwa.diagnostics.draws import GRADIENT_POINTS, POINTS_PER_PARAMETER
from lwa.engine.problem import Problem
from lwa.errors import LwaError
from lwa.result.result import Result
from lwa.rows import Rows, StoreRows, survey
from lwa.run.pilot import PILOT_PAIRS
from lwa.subsets.leverage import find_leverage
from lwa.targets.reference import compute_log_posterior, sum_all_rows

GATHERED_ROWS = 2**12
"""Rows that are read at random, to time it."""


def measure[Found](work: Callable[[], Found]) -> tuple[float, Found]:
    """Return the seconds that a call takes, and what it returns."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def measure_passes(data: Data, problem: Problem, fit: Result, chains: int) -> dict[str, float]:
    """Return the seconds per row of each pass that a run may make, compilation apart."""
    model, full, M = data.model, data.full, len(data.rows)
    reference = problem.reference
    found = {"survey": measure(lambda: survey(data.rows))[0] / M, "mode": 0.0}
    with jax.enable_x64(True):
        thetas = np.tile(model.ravel(model.init) if reference is None else reference.theta, (chains, 1))
        compute_log_posterior(model, full, thetas)  # compile
        found["exact"] = measure(lambda: compute_log_posterior(model, full, thetas))[0] / M
        found["leverage"] = found["exact"]
        if reference is not None:
            found["mode"] = measure(lambda: sum_all_rows(model, full, reference.theta))[0] / M
            if problem.subsets.leverage is not None:
                found["leverage"] = measure(lambda: find_leverage(model, full, reference))[0] / M
    value = found["exact"] / chains
    return found | {"size": 2 * PILOT_PAIRS * value, "certificate": measure_certificate(fit, model.dimension, M, value)}


def measure_certificate(fit: Result, d: int, M: int, value: float) -> float:
    """Return the seconds per row of a certificate; if there are too few draws for one, from the cost of one value."""
    points = max(GRADIENT_POINTS, POINTS_PER_PARAMETER * d)  # given, so that there is only one pass
    try:
        fit.certify(points=points, progress=False)  # compile
        return measure(lambda: fit.certify(points=points, progress=False))[0] / M
    except LwaError:
        return 2 * points * value


def measure_gather(rows: Rows) -> float:
    """Return the seconds per row read at random."""
    rng = np.random.default_rng(1)
    rows.take(rng.integers(len(rows), size=GATHERED_ROWS))
    return measure(lambda: rows.take(rng.integers(len(rows), size=GATHERED_ROWS)))[0] / GATHERED_ROWS


def release_pages(rows: Rows | None) -> None:
    """Unmap the files of a store: the system caches mapped pages, and the disk could not be measured."""
    if isinstance(rows, StoreRows):
        for group in rows.groups.values():
            group.release(0, len(rows))
