"""The verb: what a run will cost and what to change about it, from a few seconds' measurements."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lwa.backend.random import as_seed
from lwa.cli.fit import SUBSET_SIZE, Source, columns_of, quietly
from lwa.cli.forecast.advice import advise
from lwa.cli.forecast.sampled import Sampled, sampled
from lwa.cli.forecast.trial import Trial, last_subset, newton_passes, try_out
from lwa.cli.forecast.work import PHASES, Costs, Work, move_seconds, phase_seconds, total_seconds, worthwhile_workers
from lwa.cli.parsing import own_object
from lwa.diagnostics.gradients import FEWEST_TRIAL_ROWS, MOST_TRIAL_ROWS, TRIAL_POINTS, TRIAL_SHARE
from lwa.errors import InputError
from lwa.models.from_numpyro import from_numpyro
from lwa.rows.store.places import cache_folder
from lwa.run.budget import as_budget

SUMMARY_BYTES = 256 * 2**20
"""Of the libraries that make the table and the page once there are draws."""
STATISTICS = 10
"""Numbers that are kept of a draw besides θ."""
SLACK = 1.1
"""Allocators keep some of what they were given back."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a run will do and cost, and what would be better."""

    work: Work
    costs: Costs
    counted: bool  # whether the number of rows is known, and not estimated
    sample_rows: int
    parameters: int
    subset_size: int
    draws: int
    thinning: int
    efficiency: float  # effective draws a draw
    memory: float  # bytes of anonymous memory, at the most
    workers: int  # past which more gain less than a tenth
    advice: list[str]
    warnings: list[str]

    @property
    def seconds(self) -> dict[str, float]:
        """By phase."""
        return phase_seconds(self.work, self.costs)

    @property
    def total(self) -> float:
        """Seconds in all."""
        return total_seconds(self.work, self.costs)

    @property
    def move(self) -> float:
        """Seconds per move and chain."""
        return move_seconds(self.work, self.costs) / self.work.chains

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
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


def forecast(source: Source, options: Mapping[str, Any], *, certify: bool = True) -> Forecast:
    """What `lwa fit` with these options will do, without doing it.

    Parameters
    ----------
    source
        Of the model and the data.
    options
        Those of `lwa.sample`; `subset_size` may be None.
    certify
        Whether draws will be certified.
    """
    with quietly():
        if source.numpyro is not None:
            function = own_object(source.numpyro)
            with sampled(source.what, columns_of(function), source.missing) as some:
                return of_sample(from_numpyro(function, some.rows), some, source, options, certify)
        if source.data is None:
            raise InputError(
                f"{source.what!r} came alone. Pass the data and a formula: lwa plan DATA --formula 'y ~ x'."
            )
        model = source.regression()
        with sampled(source.data, sorted(set(model.names)), source.missing) as some:
            return of_sample(model, some, source, options, certify)


def of_sample(model: Any, some: Sampled, source: Source, options: Mapping[str, Any], certify: bool) -> Forecast:
    """From some rows of the data."""
    N, seed = some.length, as_seed(options["seed"])
    asked = dict(options) | {"seed": seed, "subset_size": options["subset_size"] or min(SUBSET_SIZE, N)}
    if isinstance(asked["subset_size"], int) and asked["subset_size"] > N:
        size = asked["subset_size"]
        raise InputError(f"subset_size={size} exceeds the {N} rows of the data. Pass subset_size <= {N}.")
    trial = try_out(model, some, asked)
    told, subsets, d = trial.fit.attributes, trial.problem.subsets, trial.layout.model.dimension
    n = told["subset_size"] if options["subset_size"] == "auto" else asked["subset_size"]
    passes = passes_of(trial, some, asked, certify)
    k = subsets.move.replaced(subsets.n) * n / subsets.size
    costs = scaled(trial.costs, n / subsets.size)
    work = Work(
        N,
        some.row_bytes,
        passes,
        moves=0,  # until it is known how many draws there are to be
        chains=asked["chains"],
        gathered=k / subsets.move.every,
        source_bytes=some.source_bytes,
    )
    draws, work = with_draws(work, costs, asked, told["thinning"])
    memory = memory_of(trial, work, draws, d)
    found = Forecast(
        work, costs, some.counted, len(some.rows), d, n, draws, told["thinning"], trial.efficiency, memory,
        worthwhile_workers(work, costs), [], [one for one in told["warnings"] if not one.startswith("Stopped early")],
    )  # fmt: skip
    return replace(found, advice=advise(found, source, asked, room=shutil.disk_usage(existing(cache_folder())).free))


def existing(folder: Path) -> Path:
    """A folder, or the nearest one above it that is there."""
    return folder if folder.exists() else existing(folder.parent)


def scaled(costs: Costs, times: float) -> Costs:
    """A move that reads so many times the rows that it read in the trial."""
    return replace(costs, move=costs.move * times) if times > 1 else costs


def passes_of(trial: Trial, some: Sampled, options: Mapping[str, Any], certify: bool) -> dict[str, int]:
    """Over all rows, by phase."""
    calibrated = trial.problem.reference is not None
    counts = {
        "convert": int(some.source_bytes > 0),
        "bind": trial.binding,
        "survey": 1,
        "mode": newton_passes(trial, some.length, options["seed"]) if calibrated else 0,
        "leverage": int(trial.problem.subsets.leverage is not None),
        "size": int(options["subset_size"] == "auto"),
        "exact": 0,
        "certificate": int(certify),
    }
    return {phase: counts[phase] for phase in PHASES}


def with_draws(work: Work, costs: Costs, options: Mapping[str, Any], thinning: int) -> tuple[int, Work]:
    """Draws a chain, and the moves and the passes that they take."""
    seconds = as_budget(options["budget"]).seconds
    tune, exact = options["tune"], options["exact"]
    scoring = phase_seconds(replace(work, passes={"exact": 1}), costs)["exact"] if exact else 0.0
    a_draw = thinning * move_seconds(work, costs) + scoring
    draws = options["draws"]
    if draws == "auto" or seconds < math.inf:
        spent = min(seconds / 2, tune * move_seconds(work, costs))
        affordable = max(1, int((seconds - spent) / a_draw))
        draws = affordable if draws == "auto" else min(draws, affordable)
    passes = dict(work.passes) | ({"exact": draws + 1} if exact else {})
    return draws, replace(work, passes=passes, moves=tune + draws * thinning)


def memory_of(trial: Trial, work: Work, draws: int, d: int) -> float:
    """Bytes of anonymous memory at the most: what the trial held, and what grows with rows or draws.

    Of these are: the draws, twice while chains are joined; the subset that Newton's method begins with, and the indices
    that it is drawn from; N/4 bytes of leverage; the rows on which the certificate's rounding is tried.
    """
    N = work.rows
    kept = 2 * work.chains * draws * 8 * (d + STATISTICS)
    m = last_subset(N)
    subset = m * (2 * trial.row_bytes + work.row_bytes + 16) + (8 * N if 50 * m > N else 0)
    leverage = N / 4 if work.passes["leverage"] else 0
    T = min(TRIAL_SHARE * N, MOST_TRIAL_ROWS)
    rounding = 5 * 8 * T * 3 * TRIAL_POINTS if work.passes["certificate"] and T >= FEWEST_TRIAL_ROWS else 0
    return SLACK * (trial.peak + kept + subset + leverage + rounding + SUMMARY_BYTES)
