"""What passes over the rows and random reads cost here, and how many passes Newton's method will need.

Both are measured on the sample.
"""

import time
from collections.abc import Callable

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator
from lwa.data.data import Data
from lwa.diagnostics.draws import GRADIENT_POINTS, POINTS_PER_PARAMETER
from lwa.diagnostics.some_rows import GUARDS, is_worthwhile
from lwa.engine.problem import Problem
from lwa.errors import LwaError
from lwa.models.likelihood import NumpySums
from lwa.result.result import Result
from lwa.rows import Rows, StoreRows, survey
from lwa.run.pilot import PILOT_PAIRS
from lwa.subsets.influence import find_influence
from lwa.subsets.leverage import find_leverage
from lwa.targets import reference as modes
from lwa.targets.reference import Reference, compute_log_posterior, sum_all_rows, sum_remainders

GATHERED_ROWS = 2**12
"""Rows that are read at random, to time it."""
NEWTON_STARTS = 5
"""Starts from which Newton's method is tried."""


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
        found["leverage"] = found["reach"] = found["exact"]
        if reference is not None:
            found["mode"] = measure(lambda: sum_all_rows(model, full, reference.theta))[0] / M
            if problem.subsets.n < len(full):
                sum_remainders(model, full, reference, problem.seed)  # compile
                found["reach"] = measure(lambda: sum_remainders(model, full, reference, problem.seed))[0] / M
            if problem.subsets.leverage is not None:
                found["leverage"] = measure(lambda: find_drawing(data, problem, reference))[0] / M
    value = found["exact"] / chains
    return found | {"size": 2 * PILOT_PAIRS * value, "certificate": measure_certificate(fit, data, value)}


def find_drawing(data: Data, problem: Problem, reference: Reference) -> object:
    """Return how rows are drawn, found as the run found it."""
    expansion = problem.target.expansion
    if expansion is not None and expansion.share is not None:
        return find_influence(data.model, data.full, reference, problem.seed)
    return find_leverage(data.model, data.full, reference)


def measure_certificate(fit: Result, data: Data, value: float) -> float:
    """Return the seconds per row of a certificate; if there are too few draws for one, from the cost of one value."""
    if is_worthwhile(data):  # some rows stand for all, but for those of a few gradients
        return 2 * GUARDS * value
    points = max(GRADIENT_POINTS, POINTS_PER_PARAMETER * data.model.dimension)  # given, so that there is only one pass
    try:
        fit.certify(points=points, progress=False)  # compile
        return measure(lambda: fit.certify(points=points, progress=False))[0] / len(data.rows)
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


def count_newton_passes(data: Data, reference: Reference, N: int, seed: int) -> int:
    """Return the passes over N rows that find θ̂, beginning at the mode of a subset.

    If the sample is all rows, its own run has counted them. Else the M rows of the sample stand for all rows, each
    counted N/M times: the posterior is √(M/N) times as wide as the sample's, and Newton's method starts at the mode of
    a subset of m rows, about √(N/m) sds from that of all rows.
    """
    if len(data.full) == N:
        return reference.passes
    generators = [generator(seed, Purpose.REFERENCE, start) for start in range(NEWTON_STARTS)]
    return int(np.median([count_passes_once(data, reference, N, rng) for rng in generators]))


def find_last_subset(N: int) -> int:
    """Return the rows of the largest subset whose mode Newton's method begins with."""
    m = modes.FIRST_MODE_ROWS
    while 100 * m <= N and 10 * m <= modes.MOST_MODE_ROWS:
        m *= 10
    return m


def count_passes_once(data: Data, reference: Reference, N: int, rng: np.random.Generator) -> int:
    """Return the passes from one random start."""
    M, m, passes = len(data.full), find_last_subset(N), 0
    away = np.sqrt(M * (1 / m - 1 / N)) * rng.normal(size=len(reference.theta))

    def count_and_sum(theta: NDArray[np.float64]) -> NumpySums:
        nonlocal passes
        passes += 1
        return sum_all_rows(data.model, data.full, theta)

    with jax.enable_x64(True):
        start = reference.theta + reference.factor @ away
        modes.climb_to_mode(data.model, count_and_sum, start, modes.CLOSE_ENOUGH * np.sqrt(M / N))
    return passes
