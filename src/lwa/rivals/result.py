"""A rival's run as a Result: draws by name, and how they came about."""

from collections.abc import Mapping
from typing import Any, NoReturn

import jax
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.models.model import Model
from lwa.result.result import Origin, Result
from lwa.rivals.engine import RivalOutcome, RivalRun
from lwa.rivals.record import Steps
from lwa.run.conclude import label_axes, record_costs, record_versions
from lwa.run.settings import as_plain


def build_result(run: RivalRun, outcome: RivalOutcome, seconds: float) -> Result:
    """Return the draws of a run that took so many seconds, with warnings among its attributes."""
    rival, plan, model, kernel = run.rival, run.plan, run.data.given, run.problem.kernel
    chains = len(run.starts)
    theta, stats = name_stats(outcome.kept, outcome.thinning, chains, model)
    warmup: dict[str, NDArray[Any]] | None = None
    warmup_stats: dict[str, NDArray[Any]] | None = None
    if plan.keep_tune:
        path, warmup_stats = name_stats(outcome.warmup, plan.thinning, chains, model)
        warmup = model.with_derived(path)
    attributes = {
        **record_versions(),
        "method": rival.name,
        "paper": rival.paper,
        "exact": rival.exact,
        "rows": len(run.data),
        "fingerprint": run.fingerprint,
        "seed": plan.seed,
        **record_costs(outcome, seconds),
        "warnings": collect_warnings(run, outcome, stats),
        "kernel": as_plain(kernel),
        "proposal_variances": kernel.proposal_variances(outcome.walk) if rival.walks else [],
        "settings": {"method": as_plain(rival)} | {name: as_plain(value) for name, value in vars(plan).items()},
    }
    dims, coords = label_axes(model)
    return Result(
        model.with_derived(theta), stats, attributes, dims, coords, origin=Origin(model, run.data, refuse_polish),
        unconstrained=model.free_by_name(theta) if model.constrained else None, warmup=warmup,
        warmup_stats=warmup_stats,
    )  # fmt: skip


def name_stats(
    kept: Steps | None, thinning: int, chains: int, model: Model
) -> tuple[Float64[np.ndarray, "chains draws d"], dict[str, NDArray[Any]]]:
    """Return the flat draws and `sample_stats` of kept steps."""
    if kept is None:
        return np.empty((chains, 0, model.dimension)), {"lp": np.empty((chains, 0))}
    theta, info = jax.tree.map(np.asarray, kept)
    stats = {
        "lp": info.lp,
        "acceptance_rate": np.diff(info.acceptance, axis=1, prepend=0.0) / thinning,
        "accepted": info.accepted,
        "n_rows_read": np.diff(info.rows, axis=1, prepend=0),
    }
    return theta, stats | info.extra


def collect_warnings(run: RivalRun, outcome: RivalOutcome, stats: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return what a user should know of a run and its draws."""
    warned = [*run.warned, *([f"Stopped early: {outcome.stopped}."] if outcome.stopped else [])]
    warned += run.rival.collect_warnings(stats)
    if outcome.invalid:
        warned.append(f"{outcome.invalid} proposals had a log density that was NaN or +inf and were rejected.")
    return warned


def refuse_polish(*_: object) -> NoReturn:
    """Refuse to polish: a rival has no subsets to polish by."""
    raise InputError("Only draws of lwa.sample can be polished. Pass exact=True to lwa.sample, or certify these draws.")
