"""The result of a finished run: draws by name, attributes that record how they were made, and warnings."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.some_rows import Known
from lwa.diagnostics.table import name_scalars
from lwa.engine.problem import Problem
from lwa.engine.recorder import Kept
from lwa.errors import warn
from lwa.models.model import Model
from lwa.result.polish import Polisher
from lwa.result.result import UNCONSTRAINED_GROUP, Origin, Result, name_free_axis, split_groups
from lwa.run.begin import Run
from lwa.run.loop import Outcome, Spent, shift_clock
from lwa.run.remarks import find_remarks


def conclude(run: Run, outcome: Outcome, seconds: float, stages: Mapping[str, float], remarks: Sequence[str]) -> Result:
    """Return the result: name the draws, record how they were made, and warn of what a user should know."""
    settings, problem, model = run.settings, run.problem, run.data.given
    stored = outcome.stored
    if stored is None:
        assert outcome.kept is not None
        stored = name_variables(run, outcome.kept)
    draws = split_groups(stored)
    posterior, stats = draws["posterior"], draws["sample_stats"]
    warmup, warmup_stats = (None, None) if outcome.warmup is None else name_draws(run, outcome.warmup)
    dims, coords = label_axes(model)
    found = find_remarks(run, outcome, draws, name_scalars(posterior, dims, coords))
    summarised = None if outcome.running is None else int(outcome.running.moments.count)
    attributes = {
        **record_versions(), "seed": settings.seed, "model": run.data.described or None, "target": settings.target.name,
        "exact": settings.exact, "subset_size": run.subset_size, "rows": run.survey.length,
        "units": "steps" if run.data.ordered else run.data.units_in_words,
        "units_in_all": len(run.data) if run.data.ordered else run.data.available,
        "fingerprint": run.survey.fingerprint, **record_subsets(run), "precision": np.dtype(problem.dtype).name,
        "host": run.python_call, "kernel": problem.kernel.describe(outcome.tuning),
        "proposal_variances": problem.kernel.proposal_variances(outcome.tuning),
        "gaussian_acceptance": run.problem.gaussian_acceptance, "page_moves": problem.page,
        "cohort_chains": len(run.cohorts[0].chains), **record_costs(outcome, seconds),
        "infeasible_moves": outcome.infeasible, "stages": dict(stages),  # seconds of each
        "moves_a_second": round(outcome.rate, 1), "keep": "all" if summarised is None else "summary",
        "draws_summarised": summarised, "draws_kept": stats["lp"].shape[1], "superchains": run.superchains,
        "warnings": [*remarks, *run.warned, *map(str, found)], "settings": run.record(),
    }  # fmt: skip
    for remark in found:
        warn(str(remark), remark.advice)
    return Result(
        posterior=posterior, sample_stats=stats, attributes=attributes, dims=dims, coords=coords,
        origin=Origin(model, run.data, Polisher(problem, outcome.tuning), find_known(run)),
        unconstrained=draws.get(UNCONSTRAINED_GROUP),
        warmup=warmup, warmup_stats=warmup_stats, running=outcome.running,
    )  # fmt: skip


def find_known(run: Run) -> Known | None:
    """Return what a certificate can take over: all rows at θ̂, and how rows were drawn if they were not alike."""
    reference = run.problem.reference
    if reference is None or run.data.ordered:
        return None
    drawing = run.problem.subsets.leverage
    return Known(reference, drawing)


def record_versions() -> dict[str, Any]:
    """Return the attributes that name lwa and the libraries that draws depend on."""
    libraries = {name: version(name) for name in ("jax", "jaxlib", "numpy")}
    return {
        "inference_library": "lwa",
        "inference_library_version": version("lwa"),
        "versions": libraries | {"python": platform.python_version()},
    }


def record_subsets(run: Run) -> dict[str, Any]:
    """Return the attributes that say how subsets were drawn, and what the plan predicted."""
    subsets, plan = run.problem.subsets, run.plan
    return {
        "epsilon": subsets.epsilon if np.isfinite(subsets.epsilon) else "inf", "leverage": subsets.by_leverage,
        "transport": find_transport(run.problem), "informed": subsets.statistic.dimension > 0,
        "predicted_sd_error": plan.predicted, "random_subset_distance": plan.random_distance,
        "subset_refresh_rate": plan.refresh_rate,
        "subset_renewal_moves": plan.renewal if np.isfinite(plan.renewal) else None,
    }  # fmt: skip


def record_costs(spent: Spent, seconds: float) -> dict[str, Any]:
    """Return the attributes that say what a run cost; `seconds` is the duration of the whole call."""
    before = seconds - spent.seconds
    return {
        "thinning": spent.thinning, "moves": spent.moves, "tune_moves": spent.tuned, "rows_read": spent.rows_read,
        "nonfinite_proposals": spent.invalid, "seconds": round(seconds, 3), "sampling_seconds": round(spent.seconds, 3),
        "clock": shift_clock(spent.clock, before), "tune_clock": shift_clock(spent.tune_clock, before),
        "stopped": spent.stopped,
    }  # fmt: skip


def attach_result(fault: BaseException, fit: Result, of_draws: str = "draws") -> BaseException:
    """Return what the user's function raised, with the draws made before as its attribute `lwa_result`."""
    fault.lwa_result = fit  # type: ignore[attr-defined]
    fault.add_note(f"lwa kept {fit.draws} {of_draws}: they are error.lwa_result")
    return fault


def label_axes(model: Model) -> tuple[dict[str, list[str]], dict[str, list[Any]]]:
    """Return the names of the parameters' axes, and the labels along them."""
    dims = {name: list(axes) for name, axes in (model.dims or {}).items()}
    coords: dict[str, list[Any]] = {name: list(labels) for name, labels in (model.coords or {}).items()}
    if model.constrained:
        coords |= {name_free_axis(name): entries for name, entries in model.entry_names.items()}
    return dims, coords


def name_variables(run: Run, kept: Kept) -> dict[str, NDArray[Any]]:
    """Return draws and their statistics by "group/name"."""
    posterior, stats = name_draws(run, kept)
    groups = {"posterior": posterior, "sample_stats": stats}
    if run.data.given.constrained:
        groups[UNCONSTRAINED_GROUP] = run.data.given.free_by_name(kept.theta)
    return {f"{group}/{name}": values for group, held in groups.items() for name, values in held.items()}


def name_draws(run: Run, kept: Kept) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Return draws by parameter, and their statistics by name."""
    stats = {name: values for name, values in kept._asdict().items() if name not in ("theta", "extra")} | kept.extra
    if run.problem.subsets.statistic.dimension == 0:
        stats["subset_distance"] = np.full_like(stats["subset_distance"], np.nan)
    return run.data.given.with_derived(kept.theta), stats


def find_transport(problem: Problem) -> bool | str:
    """Return how U's curvature was corrected to that of all rows; False if it was not."""
    if problem.target.expansion is not None and problem.target.expansion.share is not None:
        return "second_order"
    return problem.subsets.calibration is not None and problem.subsets.calibration.frame is not None
