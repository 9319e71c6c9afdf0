"""A short run on some rows, as `lwa.sample` would run them, and short passes: what things cost here."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.backend.machine import Peak, disk_speed, free_memory
from lwa.backend.random import Purpose, generator
from lwa.cli.forecast.sampled import Sampled
from lwa.cli.forecast.work import Costs
from lwa.data.data import Data, lay_out
from lwa.diagnostics.draws import POINTS, POINTS_A_PARAMETER
from lwa.diagnostics.monte_carlo_error import effective_draws
from lwa.engine.problem import Problem
from lwa.errors import LwaError
from lwa.models.glm import Glm
from lwa.result.polish import Polisher
from lwa.result.result import Result
from lwa.rows import Rows, StoreRows, survey
from lwa.run.pilot import PILOT_PAIRS
from lwa.run.sample import sample
from lwa.subsets.leverage import find_leverage
from lwa.targets.reference import (
    CLOSE_ENOUGH,
    FIRST_ROWS,
    MOST_ROWS,
    Reference,
    Sums,
    log_posterior,
    newton,
    sums_over_all,
)

SECONDS = 2.0
"""Of tune and sampling."""
GATHERED_ROWS = 2**12
"""That are read at random, to time it."""
STARTS = 5
"""From which Newton's method is tried, to tell how many passes it will take."""


@dataclass(frozen=True, eq=False)
class Trial:
    """What a short run showed."""

    layout: Data
    fit: Result
    binding: int  # passes that binding the model to the data takes
    costs: Costs
    peak: float  # bytes of anonymous memory

    @property
    def problem(self) -> Problem:
        """What its chains shared."""
        return problem_of(self.fit)

    @property
    def efficiency(self) -> float:
        """Effective draws a draw, of the worst parameter."""
        draws = np.concatenate(
            [np.asarray(values).reshape(*values.shape[:2], -1) for values in self.fit.posterior.values()], axis=2
        )
        if draws.shape[1] < 8:
            return float("nan")
        return float(np.nanmin(effective_draws(draws.astype(np.float64)))) / (draws.shape[0] * draws.shape[1])

    @property
    def row_bytes(self) -> int:
        """Of a row as the model reads it."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.layout.full.take(np.zeros(1, np.int64))))


def problem_of(fit: Result) -> Problem:
    """What the chains of a run shared."""
    assert fit.origin is not None
    assert isinstance(fit.origin.polish, Polisher)
    return fit.origin.polish.problem


def timed[Found](work: Callable[[], Found]) -> tuple[float, Found]:
    """Seconds, and what came of it."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def try_out(model: Any, some: Sampled, options: Mapping[str, Any]) -> Trial:
    """Bind, sample, pass and certify on the rows of the sample; gathers are from all rows where these can be read."""
    with Peak() as peak:
        M, binding = len(some.rows), 0
        bound_in, layout = 0.0, None
        if isinstance(model, Glm):
            bound_in, bound = timed(lambda: model.bind(some.rows))
            layout, binding = lay_out(bound.model, bound.rows), bound.passes
        layout = layout or lay_out(model, some.rows)
        asked = dict(options) | {"exact": False, "draws": "auto", "budget": SECONDS, "tune": min(options["tune"], 1000)}
        if isinstance(asked["subset_size"], int):
            asked["subset_size"] = min(asked["subset_size"], layout.available)
        fit = sample(layout.given, layout, **asked, progress=False)
        row = {"bind": bound_in / (M * max(1, binding)), "convert": some.converted_in}
        row |= pass_costs(layout, fit, options["chains"])
        told = fit.attributes
        start = told["seconds"] - told["sampling_seconds"] - M * (row["survey"] + 2 * row["mode"])
        gather = 0.0 if some.everything is None else gather_cost(some.everything)
        let_go(some.everything)
        costs = Costs(row, move_cost(fit), gather, disk_speed(some.files), max(0.5, start), free_memory())
    return Trial(layout, fit, binding, costs, peak.bytes)


def pass_costs(layout: Data, fit: Result, chains: int) -> dict[str, float]:
    """Seconds a row, of the passes that a run may make, programs compiled."""
    model, full, M, problem = layout.model, layout.full, len(layout.rows), problem_of(fit)
    reference = problem.reference
    found = {"survey": timed(lambda: survey(layout.rows))[0] / M, "mode": 0.0}
    with jax.enable_x64(True):
        thetas = np.tile(model.ravel(model.init) if reference is None else reference.theta, (chains, 1))
        log_posterior(model, full, thetas)  # compiled
        found["exact"] = timed(lambda: log_posterior(model, full, thetas))[0] / M
        found["leverage"] = found["exact"]
        if reference is not None:
            found["mode"] = timed(lambda: sums_over_all(model, full, reference.theta))[0] / M
            if problem.subsets.leverage is not None:
                found["leverage"] = timed(lambda: find_leverage(model, full, reference))[0] / M
    value = found["exact"] / chains
    return found | {"size": 2 * PILOT_PAIRS * value, "certificate": certificate_cost(fit, M, value)}


def certificate_cost(fit: Result, M: int, value: float) -> float:
    """Seconds a row; from what one value costs, where there are too few draws for a certificate."""
    points = max(
        POINTS, POINTS_A_PARAMETER * problem_of(fit).target.model.dimension
    )  # given, so that there is one pass
    try:
        fit.certify(points=points, progress=False)  # compiled
        return timed(lambda: fit.certify(points=points, progress=False))[0] / M
    except LwaError:
        return 2 * points * value


def move_cost(fit: Result) -> float:
    """Seconds of one move of all chains, by the clock of the run; its first half adapts, and is left out."""
    clock, thinning = fit.attributes["clock"], fit.attributes["thinning"]
    (first, begun), (last, ended) = clock[0], clock[-1]
    if last > first:
        return (ended - begun) / ((last - first) * thinning)
    return 1 / max(fit.attributes["moves_a_second"], 1e-9)


def gather_cost(rows: Rows) -> float:
    """Seconds of a row that is read at random from all."""
    rng = np.random.default_rng(1)
    rows.take(rng.integers(len(rows), size=GATHERED_ROWS))
    return timed(lambda: rows.take(rng.integers(len(rows), size=GATHERED_ROWS)))[0] / GATHERED_ROWS


def let_go(rows: Rows | None) -> None:
    """Of files that this process has mapped: the system keeps what is mapped, and the disk would not be asked."""
    if isinstance(rows, StoreRows):
        for group in rows.groups.values():
            group.let_go(0, len(rows))


def newton_passes(trial: Trial, N: int, seed: int) -> int:
    """Passes over N rows until θ̂ is found, which begins with what a subset of them says.

    Where the sample is everything, its own run has told. Else the sample stands for all rows, each counted N/M times:
    the posterior is √(M/N) as wide as the sample's, and Newton's method starts where subsets of m rows would leave it,
    about √(N/m) sds from its mode.
    """
    reference, layout = trial.problem.reference, trial.layout
    assert reference is not None
    M = len(layout.full)
    if N == M:
        return reference.passes
    last = last_subset(N)
    counts = [passes_from(trial, reference, N, last, generator(seed, Purpose.REFERENCE, i)) for i in range(STARTS)]
    return int(np.median(counts))


def last_subset(N: int) -> int:
    """Rows of the largest subset that Newton's method begins with."""
    m = FIRST_ROWS
    while 100 * m <= N and 10 * m <= MOST_ROWS:
        m *= 10
    return m


def passes_from(trial: Trial, reference: Reference, N: int, m: int, rng: np.random.Generator) -> int:
    """From where m rows would leave it."""
    layout, M = trial.layout, len(trial.layout.full)
    away = np.sqrt(M * (1 / m - 1 / N)) * rng.normal(size=len(reference.theta))
    made = 0

    def over_all(theta: NDArray[np.float64]) -> Sums:
        nonlocal made
        made += 1
        return sums_over_all(layout.model, layout.full, theta)

    with jax.enable_x64(True):
        newton(layout.model, over_all, reference.theta + reference.factor @ away, CLOSE_ENOUGH * np.sqrt(M / N))
    return made
