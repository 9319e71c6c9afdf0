"""The forecast: what a run will do and cost, and what to change about it, from a few seconds of measurements."""

import math
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lwa.backend.random import as_seed
from lwa.cli.fitting import silence_warnings
from lwa.cli.forecast.advice import advise
from lwa.cli.forecast.newton_passes import count_newton_passes, find_last_subset
from lwa.cli.forecast.row_sample import RowSample, open_sample
from lwa.cli.forecast.trial import Trial, run_trial
from lwa.cli.forecast.work import (
    PASS_PURPOSES,
    Costs,
    Workload,
    estimate_move,
    estimate_phases,
    estimate_total,
    find_worthwhile_workers,
)
from lwa.cli.options import DEFAULT_SUBSET_SIZE, SampleOptions
from lwa.cli.source import Source
from lwa.diagnostics.gradients import FEWEST_TRIAL_ROWS, MOST_TRIAL_ROWS, TRIAL_POINTS, TRIAL_SHARE
from lwa.errors import InputError
from lwa.models.glm import Glm
from lwa.models.model import Model
from lwa.rows.store.places import find_rows_cache
from lwa.run.budget import as_budget

SUMMARY_BYTES = 256 * 2**20
"""Bytes of the libraries that make the table and the report."""
NUMBERS_PER_DRAW = 10
"""Numbers that a run keeps per draw besides θ."""
ALLOCATOR_SLACK = 1.1
"""Factor for memory that allocators hold after it was freed."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a run will do and cost, and advice on what to change."""

    work: Workload
    costs: Costs
    counted: bool  # whether the number of rows is known rather than estimated
    sample_rows: int
    parameters: int
    subset_size: int
    draws: int
    thinning: int
    efficiency: float  # effective draws per draw
    memory: float  # bytes of anonymous memory, an upper bound
    workers: int  # beyond which more save less than a tenth of the time
    advice: list[str]
    warnings: list[str]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase."""
        return estimate_phases(self.work, self.costs)

    @property
    def total(self) -> float:
        """Seconds of the whole run."""
        return estimate_total(self.work, self.costs)

    @property
    def move(self) -> float:
        """Seconds per move and chain."""
        return estimate_move(self.work, self.costs) / self.work.chains

    def as_dict(self) -> dict[str, object]:
        """Return everything that `lwa plan --json` prints."""
        work = {name: value for name, value in asdict(self.work).items() if name != "passes"}
        return {
            **work,
            "rows_counted": self.counted,
            "sample_rows": self.sample_rows,
            "parameters": self.parameters,
            "subset_size": self.subset_size,
            "draws": self.draws,
            "thinning": self.thinning,
            "effective_draws": self.efficiency * self.draws * self.work.chains,
            "passes": dict(self.work.passes),
            "bytes_read": self.work.bytes_read,
            "gathered_rows": self.work.gathered_rows,
            "memory_bytes": self.memory,
            "seconds": self.seconds,
            "seconds_in_all": self.total,
            "move_microseconds": 1e6 * self.move,
            "workers": self.workers,
            "costs": asdict(self.costs),
            "advice": self.advice,
            "warnings": self.warnings,
        }


def make_forecast(source: Source, options: SampleOptions, *, certify: bool) -> Forecast:
    """Forecast `lwa fit` with these options, without a pass over all rows.

    Parameters
    ----------
    source
        The model and the data.
    options
        Options of `lwa.sample`.
    certify
        Whether the draws will be certified.
    """
    source.require_one_model()
    columns = source.find_columns()
    wanted = None if columns is None else sorted(set(columns))
    with silence_warnings(), open_sample(source.table, wanted, source.missing) as some:
        return forecast_from_sample(source.build_model(some.rows), some, source, options, certify=certify)


def forecast_from_sample(
    model: Model | Glm, some: RowSample, source: Source, options: SampleOptions, *, certify: bool
) -> Forecast:
    """Forecast from a sample of the rows."""
    N, size = some.length, options["subset_size"]
    size = min(DEFAULT_SUBSET_SIZE, N) if size is None else size
    if isinstance(size, int) and size > N:
        raise InputError(f"subset_size={size} exceeds the {N} rows of the data. Pass subset_size <= {N}.")
    asked: SampleOptions = {**options, "seed": as_seed(options["seed"]), "subset_size": size}
    trial = run_trial(model, some, asked)
    facts, subsets, d = trial.fit.attributes, trial.problem.subsets, trial.data.model.dimension
    n = size if isinstance(size, int) else int(facts["subset_size"])
    costs = scale_move_cost(trial.costs, n / subsets.size)
    work = Workload(
        rows=N,
        row_bytes=some.row_bytes,
        passes=count_passes(trial, some, asked, certify=certify),
        moves=0,  # until the number of draws is known
        chains=asked["chains"],
        gathered=subsets.move.replaced(subsets.n) * n / subsets.size / subsets.move.every,
        source_bytes=some.source_bytes,
    )
    draws, work = plan_draws(work, costs, asked, facts["thinning"])
    found = Forecast(
        work=work,
        costs=costs,
        counted=some.counted,
        sample_rows=len(some.rows),
        parameters=d,
        subset_size=n,
        draws=draws,
        thinning=facts["thinning"],
        efficiency=trial.efficiency,
        memory=bound_memory(trial, work, draws, d),
        workers=find_worthwhile_workers(work, costs),
        advice=[],
        warnings=[warning for warning in facts["warnings"] if not warning.startswith("Stopped early")],
    )
    room = shutil.disk_usage(find_existing_folder(find_rows_cache())).free
    return replace(found, advice=advise(found, source, asked, room=room))


def find_existing_folder(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return folder if folder.exists() else find_existing_folder(folder.parent)


def scale_move_cost(costs: Costs, times: float) -> Costs:
    """Return the costs if a move reads more rows than in the trial."""
    return replace(costs, move=costs.move * times) if times > 1 else costs


def count_passes(trial: Trial, some: RowSample, options: SampleOptions, *, certify: bool) -> dict[str, int]:
    """Return the number of passes over all rows, by phase."""
    reference, seed = trial.problem.reference, options["seed"]
    assert seed is not None
    counts = {
        "convert": int(some.source_bytes > 0),
        "bind": trial.binding,
        "survey": 1,
        "mode": 0 if reference is None else count_newton_passes(trial.data, reference, some.length, seed),
        "leverage": int(trial.problem.subsets.leverage is not None),
        "size": int(options["subset_size"] == "auto"),
        "exact": 0,
        "certificate": int(certify),
    }
    return {phase: counts[phase] for phase in PASS_PURPOSES}


def plan_draws(work: Workload, costs: Costs, options: SampleOptions, thinning: int) -> tuple[int, Workload]:
    """Return the draws per chain, and the workload with the moves and passes that they take."""
    seconds = as_budget(options["budget"]).seconds
    tune, exact, draws = options["tune"], options["exact"], options["draws"]
    correction = estimate_phases(replace(work, passes={"exact": 1}), costs)["exact"] if exact else 0.0
    seconds_per_draw = thinning * estimate_move(work, costs) + correction
    if draws == "auto" or seconds < math.inf:
        spent = min(seconds / 2, tune * estimate_move(work, costs))
        affordable = max(1, int((seconds - spent) / seconds_per_draw))
        draws = affordable if draws == "auto" else min(int(draws), affordable)
    passes = dict(work.passes) | ({"exact": int(draws) + 1} if exact else {})
    return int(draws), replace(work, passes=passes, moves=tune + int(draws) * thinning)


def bound_memory(trial: Trial, work: Workload, draws: int, d: int) -> float:
    """Return the most bytes of anonymous memory: those of the trial, and what grows with rows or draws.

    These are: the draws, twice while chains are joined; the subset that Newton's method begins with, and the indices
    from which it is drawn; N/4 bytes of leverage; the rows on which the certificate checks its rounding.
    """
    N = work.rows
    kept = 2 * work.chains * draws * 8 * (d + NUMBERS_PER_DRAW)
    m = find_last_subset(N)
    subset = m * (2 * trial.row_bytes + work.row_bytes + 16) + (8 * N if 50 * m > N else 0)
    leverage = N / 4 if work.passes["leverage"] else 0
    T = min(TRIAL_SHARE * N, MOST_TRIAL_ROWS)
    rounding = 5 * 8 * T * 3 * TRIAL_POINTS if work.passes["certificate"] and T >= FEWEST_TRIAL_ROWS else 0
    return ALLOCATOR_SLACK * (trial.peak + kept + subset + leverage + rounding + SUMMARY_BYTES)
