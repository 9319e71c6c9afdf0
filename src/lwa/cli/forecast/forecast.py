"""The forecast: what a run will do and cost, from a few seconds of measurements, and what to change about the run."""

import math
import shutil
from dataclasses import asdict, dataclass, replace

from lwa.backend.random import as_seed
from lwa.cli.fitting import silence_warnings
from lwa.cli.forecast import work as cost_model
from lwa.cli.forecast.passes import count_newton_passes, find_last_subset
from lwa.cli.forecast.row_sample import RowSample, open_sample
from lwa.cli.forecast.trial import Trial, run_trial
from lwa.cli.forecast.work import PASS_PURPOSES, Costs, Workload, estimate_move, estimate_phases, estimate_total
from lwa.cli.options import DEFAULT_SUBSET_SIZE, SampleOptions
from lwa.cli.quantities import format_bytes, format_seconds, round_budget
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
FEWEST_SUBSET_ROWS, ACCURATE_ROWS_PER_PARAMETER = 100, 10
"""Rows of a subset, and rows per parameter, with which the calibrated target is accurate (docs/accuracy.md)."""
EXPENSIVE, AFFORDABLE = 10.0, 1.5
"""If --exact makes a run EXPENSIVE times as long, the advice is to leave it out; up to AFFORDABLE, to use it."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a run will do and cost."""

    source: Source
    options: SampleOptions
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

    @property
    def workers(self) -> int:
        """The number of workers beyond which more save less than a tenth of the time."""
        return cost_model.find_worthwhile_workers(self.work, self.costs)

    @property
    def advice(self) -> list[str]:
        """What to change, one sentence per choice."""
        sides = (advise_on_size, advise_on_exact, advise_on_conversion, advise_on_workers, advise_on_budget)
        return [sentence for advise in sides if (sentence := advise(self))]

    def as_dict(self) -> dict[str, object]:
        """Return everything that `lwa plan --json` prints."""
        return asdict(self.work) | {
            "rows_counted": self.counted, "sample_rows": self.sample_rows, "parameters": self.parameters,
            "subset_size": self.subset_size, "draws": self.draws, "thinning": self.thinning,
            "effective_draws": self.efficiency * self.draws * self.work.chains, "bytes_read": self.work.bytes_read,
            "gathered_rows": self.work.gathered_rows, "memory_bytes": self.memory, "seconds": self.seconds,
            "seconds_in_all": self.total, "move_microseconds": 1e6 * self.move, "workers": self.workers,
            "costs": asdict(self.costs), "advice": self.advice, "warnings": self.warnings,
        }  # fmt: skip


def make_forecast(source: Source, options: SampleOptions, *, certify: bool) -> Forecast:
    """Forecast `lwa fit` with these options of `lwa.sample`, without a pass over all rows."""
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
    if size is None and len(some.rows) < N:  # a sample asks for larger subsets than all rows would
        size = min(DEFAULT_SUBSET_SIZE, N)
    if isinstance(size, int) and size > N:
        raise InputError(f"subset_size={size} exceeds the {N} rows of the data. Pass subset_size <= {N}.")
    asked: SampleOptions = {**options, "seed": as_seed(options["seed"]), "subset_size": size}
    trial = run_trial(model, some, asked)
    facts, subsets, d = trial.fit.attributes, trial.problem.subsets, trial.data.model.dimension
    n = size if isinstance(size, int) else int(facts["subset_size"])
    costs = replace(trial.costs, move=trial.costs.move * max(1.0, n / subsets.size))  # it may read more than the trial
    gathered = subsets.move.replaced(subsets.n) * n / subsets.size / subsets.move.every
    passes = count_passes(trial, some, asked, certify=certify)
    work = Workload(
        N, some.row_bytes, passes, moves=0, chains=asked["chains"], gathered=gathered, source_bytes=some.source_bytes
    )
    draws, work = plan_draws(work, costs, asked, facts["thinning"])  # which also counts the moves
    return Forecast(
        source, asked, work, costs, counted=some.counted, sample_rows=len(some.rows), parameters=d, subset_size=n,
        draws=draws, thinning=facts["thinning"], efficiency=trial.efficiency,
        memory=bound_memory(trial, work, draws, d),
        warnings=[warning for warning in facts["warnings"] if not warning.startswith("Stopped early")],
    )  # fmt: skip


def count_passes(trial: Trial, some: RowSample, options: SampleOptions, *, certify: bool) -> dict[str, int]:
    """Return the number of passes over all rows, by phase."""
    reference, seed = trial.problem.reference, options["seed"]
    assert seed is not None
    counts = {
        "convert": int(some.source_bytes > 0),
        "bind": trial.binding,
        "survey": 1,
        "mode": 0 if reference is None else count_newton_passes(trial.data, reference, some.length, seed),
        "reach": int(trial.fit.attributes["predicted_sd_error"] is not None),
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


def advise_on_size(found: Forecast) -> str:
    """Advise on the rows per subset."""
    least = math.ceil(max(FEWEST_SUBSET_ROWS, ACCURATE_ROWS_PER_PARAMETER * found.parameters) / 100) * 100
    n, N = found.subset_size, found.work.rows
    if found.options["target"] not in ("calibrated", "auto"):
        wanted = f"--target calibrated needs only {least:,} rows per subset."
        return f"--target {found.options['target']} needs subsets as large as time allows; {wanted}"
    if n < min(least, N):
        return (
            f"Pass --subset-size {min(least, N)}: accurate draws of {found.parameters} parameters need ten rows per "
            "parameter, and at least 100."
        )
    if n > 10 * least:
        return f"--subset-size {least} is enough for {found.parameters} parameters, and steps would take less time."
    return f"--subset-size {n} is enough for {found.parameters} parameters."


def advise_on_exact(found: Forecast) -> str:
    """Advise on correcting every draw by all rows."""
    one = cost_model.estimate_pass(found.work, found.costs, "exact", cold=False)
    without = sum(seconds for phase, seconds in found.seconds.items() if phase != "exact")
    corrected = without + (found.draws + 1) * one
    if found.options["exact"]:
        if corrected > EXPENSIVE * without:
            return (
                f"Leave --exact out: the fit takes {format_seconds(without)} instead of {format_seconds(corrected)}. "
                "The certificate measures the error that remains, and fit.polish() corrects it in a few passes."
            )
        return f"--exact takes {format_seconds(one)} per draw: affordable here."
    if corrected <= AFFORDABLE * without:
        return (
            f"Pass --exact: it leaves no error but Monte Carlo error, in {format_seconds(corrected)} instead of "
            f"{format_seconds(without)}."
        )
    return f"--exact would take {format_seconds(corrected)}. Without it, the certificate measures the remaining error."


def advise_on_conversion(found: Forecast) -> str:
    """Advise on converting the table first."""
    if not found.work.passes["convert"]:
        return "There is nothing to convert: the rows can be read at random as they are."
    took, size, cache = found.seconds["convert"], found.work.pass_bytes, find_rows_cache()
    room = shutil.disk_usage(next(path for path in (cache, *cache.parents) if path.exists())).free
    if size > room:
        return (
            f"The converted rows take {format_bytes(size)}, but the disk of the cache has only {format_bytes(room)} "
            "left. Set LWA_CACHE to a folder on another disk, or convert to one: lwa convert SOURCE FOLDER."
        )
    return (
        f"The first fit converts {found.source.table!r}, which takes {format_seconds(took)} and {format_bytes(size)} "
        "in the cache; later fits with the same columns reuse it. If formulas will change, convert all columns once: "
        "lwa convert SOURCE FOLDER."
    )


def advise_on_workers(found: Forecast) -> str:
    """Advise on the number of Dask workers."""
    if found.workers == 1:
        return "More workers (--dask) would save less than a tenth of the time."
    faster = estimate_total(found.work, found.costs, found.workers)
    return (
        f"Up to {found.workers} workers (--dask) are worth it: {format_seconds(faster)} instead of "
        f"{format_seconds(found.total)}."
    )


def advise_on_budget(found: Forecast) -> str:
    """Advise on the time for tuning and sampling."""
    if found.options["budget"] is not None:
        return ""
    needed = found.seconds["moves"] + found.seconds.get("exact", 0.0)
    return f"--budget '{round_budget(2 * needed)}' is a safe time limit: twice what sampling should take, or more."
