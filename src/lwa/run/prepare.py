"""The stages before the first move: survey, reference, plan of subsets, problem, run."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax
import numpy as np

from lwa.data.data import Data
from lwa.engine.cohort import group_chains, warm_up_beside
from lwa.engine.problem import Problem, Wishes, build_problem, choose_kernel, choose_kernel_of_all_rows
from lwa.errors import (
    CollapsedError,
    InputError,
    LwaWarning,
    ModelError,
    NoModeError,
    NotSmoothError,
    describe_arguments,
    warn,
)
from lwa.rows import Survey, survey
from lwa.run.begin import Run, Starts, begin_run, flatten_theta
from lwa.run.design import Design, prefers_second_order
from lwa.run.plan import SMALLEST_SIZE, build_subset_chain, build_target, plan_subsets, require_room, warn_of_error
from lwa.run.python_cost import time_python_model
from lwa.run.settings import Settings
from lwa.run.statistic import gather_statistic
from lwa.run.windows import SequenceFacts, learn_sequence, warn_of_long_memory
from lwa.summaries.summary import NO_STATISTIC, SubsetStatistic
from lwa.targets.reference import Reference, expand_at, find_reference, require_derivatives, require_gradients
from lwa.user.progress import Display


def prepare(data: Data, settings: Settings, starts: Starts | None, display: Display) -> Run:
    """Return the run at its start. If `target="auto"` cannot be calibrated, it is powered, with the reason why."""
    display.say(data.described)
    settings = settings.fit_to(data.available, ordered=data.ordered, rows=len(data))
    data.require_fits(settings.subset_size)
    settings.require_move_fits()
    with jax.enable_x64(True), display.stages("planning"):
        try:
            return pass_stages(data, settings, starts, display, remarks=[])
        except ModelError as error:
            if not settings.falls_back:
                raise add_advice(error, data) from None
            reason = error
        powered = settings.fall_back(data.available, ordered=data.ordered)
        remark = describe_fallback(reason, powered, data)
        run = pass_stages(data, powered, starts, display, remarks=[str(remark)])
        warn(str(remark), remark.advice)
        return run


def advise_all_rows(data: Data) -> tuple[str, dict[str, Any]]:
    """Return how to draw from the full posterior without derivatives, and the arguments for that."""
    rival = "lwa.rivals.sample('metropolis', model, data)"
    if data.ordered and len(data.series) > 1:  # no window holds them all
        return f"{rival} draws from the full posterior without derivatives.", {}
    advice = {"target": "powered", "subset_size": data.available}
    return (
        f"Pass {describe_arguments(advice)}, which needs no derivatives: each step reads all {len(data):,} rows, and "
        f"the draws are of the full posterior. So are those of {rival} and, if the support does not depend on theta, "
        "of target='powered', exact=True, which is slow unless subsets hold much of the rows. With smaller subsets "
        "alone, 'powered' and 'subposterior' are not the full posterior."
    ), advice


def add_advice(error: ModelError, data: Data) -> ModelError:
    """Return the error with what to pass if the model is meant to be as it is."""
    if isinstance(error, NotSmoothError):
        text, advice = advise_all_rows(data)
        return NotSmoothError(f"{error} If the model is meant so: {text}", advice=advice)
    if not isinstance(error, NoModeError) or data.ordered:
        return error
    advice = {"target": "powered", "subset_size": data.available}
    every = f"each step reads all {len(data):,} rows, and the draws are of the full posterior."
    if isinstance(error, CollapsedError):
        text = f"Then pass {describe_arguments(advice)}, kernel=lwa.kernels.NUTS(), which needs no mode: {every}"
        return CollapsedError(f"{error} {text}")
    call = describe_arguments(advice)
    if not data.model.in_python and (kernel := choose_kernel_of_all_rows(data.model.dimension)):
        call, advice = f"{call}, kernel=lwa.kernels.NUTS()", advice | {"kernel": kernel}
    return NoModeError(f"{error} If the posterior is proper, {call} needs no mode: {every}", advice=advice)


def describe_fallback(reason: ModelError, powered: Settings, data: Data) -> LwaWarning:
    """Return the warning that the target is the powered one, and whether that is the full posterior."""
    fell = "target='auto' fell back to 'powered'"
    why = f"since the calibrated target cannot be used here. {reason}"
    if powered.subset_size == data.available and not (data.ordered and len(data.series) > 1):
        return LwaWarning(f"{fell} with all rows at each step, which is the full posterior, {why}")
    text, advice = advise_all_rows(data)
    return LwaWarning(f"{fell}, whose draws are not those of the full posterior, {why} {text}", advice=advice)


def pass_stages(data: Data, settings: Settings, starts: Starts | None, display: Display, remarks: Sequence[str]) -> Run:
    """Return the run, by stages each of which is given what those before it found."""
    settings = settings.hold_all(data.available, ordered=data.ordered)
    python_call = time_python_model(data, settings, starts, display) if data.model.in_python else None
    require_kernel(data, settings)
    began, cohorts = time.monotonic(), group_chains(settings.chains, ordered=data.ordered)
    with display.stages("survey"):
        surveyed, statistic = survey_rows(data, settings, display)
    require_calibration(data, settings)
    warming = compile_ahead(data, settings, len(cohorts[0]))
    data, reference, facts, warned = locate(data, settings, starts, display)
    plan = plan_subsets(
        data, settings, statistic, reference=reference, facts=facts, cohorts=cohorts,
        rows_per_second=len(data) / max(1e-3, time.monotonic() - began),
    )  # fmt: skip
    wishes = Wishes(settings.kernel, settings.precision, settings.refresh_steps, settings.tune, settings.chains)
    problem = build_problem(
        data, plan.target, wishes, subsets=plan.subsets, first=plan.firsts[0][1], reference=reference,
        start=starts[0] if starts else None,
    )  # fmt: skip
    run = begin_run(
        data, settings, surveyed, plan, problem, starts=starts,
        warming=warming or (None if data.runs_remotely else warm_up_beside(problem, len(cohorts[0]))),
        python_call=python_call, warned=[*remarks, *warned, *warn_of_error(plan, settings)],
    )  # fmt: skip
    display.say(run.in_words)
    return run


def survey_rows(data: Data, settings: Settings, display: Display) -> tuple[Survey, SubsetStatistic]:
    """Check that all rows are finite, compute their fingerprint and gather S, if there is one, in one pass."""

    def progress(done: int) -> None:
        display.show("all rows", done, len(data))

    if settings.summary is None:
        return survey(data.rows, progress=progress), NO_STATISTIC
    return gather_statistic(data, settings, settings.summary, progress)


def require_kernel(data: Data, settings: Settings) -> None:
    """Raise, before any pass over the rows, if the kernel does not fit the model."""
    if settings.kernel is None:
        return
    kernel = settings.kernel.bind(data.model)
    if kernel.needs_gradients:
        require_gradients(data.model, data.full.take(np.zeros(1, np.int64)), type(kernel).__name__)


class Location(NamedTuple):
    """What passes over all rows have found at θ̂."""

    data: Data  # of a sequence, with segments that look back as far as the model remembers
    reference: Reference | None  # θ̂, for the calibrated target
    facts: SequenceFacts | None  # of a sequence, at θ̂
    warned: list[str]


def locate(data: Data, settings: Settings, starts: Starts | None, display: Display) -> Location:
    """Find θ̂ and what all rows say there, for the calibrated target; for a sequence also how long it remembers."""
    options = settings.calibration
    if options is None:
        return Location(data, None, None, [])
    model = data.model
    with display.stages("mode"):
        if options.reference is not None:
            reference = expand_at(model, data.full, flatten_theta(model, options.reference, "reference"))
        else:
            start = starts[0] if starts else model.ravel(model.init)
            reference = find_reference(
                model, data.full, start, settings.seed,
                lambda passes: display.show("mode", passes, passes, "passes over all rows"),
            )  # fmt: skip
            display.say(f"Found the posterior mode in {reference.passes} passes over all rows.")
        if not data.ordered:
            return Location(data, reference, None, [])
        data, reference, facts = learn_sequence(data, reference, settings, options, display)
        warned = warn_of_long_memory(facts, data, settings, settings.subset_size or SMALLEST_SIZE)
        return Location(data, reference, facts, warned)


def require_calibration(data: Data, settings: Settings) -> None:
    """Raise, before any costly pass, if there is no calibrated target for the model or its size."""
    if (options := settings.calibration) is None:
        return
    if options.transport == "second_order" and (data.ordered or data.model.in_python):
        what = "ordered rows" if data.ordered else "a model that is not JAX"
        raise InputError(f"transport='second_order' is not available for {what}. Leave it out, or pass transport=True.")
    if not data.model.in_python:
        require_derivatives(data.model, data.full.take(np.zeros(1, np.int64)))
    require_room(data, settings)


def compile_ahead(data: Data, settings: Settings, chains: int) -> Future[None] | None:
    """Compile the programs that the run will most likely need during the search for θ̂: only shapes matter."""
    if settings.calibration is None or settings.subset_size is None or settings.summary is not None:
        return None
    if data.ordered or data.runs_remotely or data.stratified:  # slots per stratum are not known yet
        return None
    d, n = data.model.dimension, settings.subset_size
    design = Design(n, second_order=n < len(data.full) and prefers_second_order(data, settings))
    nowhere = Reference(np.zeros(d), np.zeros(d), np.eye(d), np.zeros((d, d)), 0)
    subsets = build_subset_chain(data, settings, design, NO_STATISTIC, reference=nowhere)
    guess = Problem(
        subsets=subsets, target=build_target(data, settings, design, nowhere),
        kernel=(settings.kernel or choose_kernel(d, calibrated=True)).bind(data.model),
        refresh_steps=settings.refresh_steps, tune=settings.tune,
        dtype=np.float64 if settings.precision == "float64" else np.float32, full=data.full, reads=0, reference=nowhere,
    )  # fmt: skip
    return warm_up_beside(guess, chains)
