"""All that is decided before the first move: θ̂, how U moves, which kernel and precision, where chains start."""

import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.algorithm import Subset
from lwa.backend import xla
from lwa.backend.random import Purpose, generator
from lwa.data.data import Layout
from lwa.diagnostics.running import assign_superchains
from lwa.engine.cohort import Cohort, Problem, evaluate, first_state, warm_up
from lwa.engine.device.choice import choose_cohort_kind
from lwa.engine.remote_cohort import CohortAway, Playing
from lwa.errors import InputError, LwaWarning, ModelError
from lwa.kernels.choice import choose_kernel
from lwa.kernels.gradient import GradientKernel
from lwa.kernels.kernel import Kernel
from lwa.rows import Survey, survey
from lwa.rows.column import load_column
from lwa.rows.passes import count_unit_rows, visit_rows
from lwa.rows.slots import to_columns
from lwa.run.lead_in import forgetting, remember
from lwa.run.loop import Run
from lwa.run.pilot import predicted_acceptance
from lwa.run.plan import Plan, Steps, WindowColumn, plan, require_room, subset_chain, target_of
from lwa.run.settings import Settings
from lwa.run.starts import find_starts, flat, superchains_of
from lwa.subsets.chain import Chain
from lwa.subsets.windows.chain import WindowChain
from lwa.summaries import Curvature, Gathering, WindowSummary
from lwa.summaries.groups import OverGroups
from lwa.summaries.summary import NO_STATISTIC, Summary, start_gathering
from lwa.targets.reference import Reference, expand_at, find_reference, require_derivatives, require_gradients
from lwa.targets.target import Target, as_held
from lwa.user.progress import Display

LARGEST_COHORT = 16
"""Chains in one program: past this a larger batch is no faster on a CPU core, and fewer cores would have work."""
LARGEST_COHORT_OF_WINDOWS = 64
"""A recursion goes from step to step for all chains of a program side by side, so that more of them share its loop."""
ACCEPTABLE = 0.05
"""Predicted error of sds past which a user is warned before sampling."""
ROUNDING = 0.25
"""Noise in the log acceptance ratio that float32 may bring. It is a function of θ that changes from one float to the
next, of which a posterior sd holds thousands, so that moments do not feel it; moves do: one in ten is refused for it,
2 Φ(-0.25/2) = 0.9, where float64 costs a fourth of the time or more."""


def prepare_or_fall_back(
    layout: Layout, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display
) -> Run:
    """`target="auto"`: calibrated where the model allows it, else powered, and the reason why."""
    if settings.target != "auto":
        return prepare(layout, settings, given, display)
    try:
        return prepare(layout, replace(settings, target="calibrated"), given, display)
    except ModelError as error:
        run = prepare(layout, settings.without_reference(layout.available, ordered=layout.ordered), given, display)
        remark = f"target='auto' fell back to 'powered', since the calibrated target cannot be used here. {error}"
        warnings.warn(remark, LwaWarning, stacklevel=3)
        return replace(run, warned=[remark, *run.warned])


def prepare(layout: Layout, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display) -> Run:
    """Survey the rows, find θ̂, settle how U and θ move, find starts and a precision."""
    began, calibrated = time.monotonic(), settings.target == "calibrated"
    kernel = first_choice(layout, settings)
    with display.stages("survey"):
        surveyed, gathering = look_through(layout, gathered(settings, layout), display)
    known, warming = Known(layout), None
    if calibrated:
        require_calibration(layout, settings)
        warming = None if layout.plays_away else warm_up_beside(rehearsal(layout, settings, kernel), settings)
        with display.stages("mode"):
            known = at_the_reference(layout, settings, given, display)
    layout, expanded, steps, warned = known
    most = rows_within(settings, layout.available, len(layout) / max(1e-3, time.monotonic() - began))
    statistic = statistic_of(gathering, settings, layout)
    cohorts = cohorts_of(settings.chains, ordered=layout.ordered)
    away = layout.executor if layout.plays_away else None
    planned = plan(layout, settings, statistic, expanded, cohorts, most, steps)
    problem, n, lead_in = problem_of(layout, planned.subsets, settings, kernel, expanded)
    warming = warming or (None if away is not None else warm_up_beside(problem, settings))
    some = known_of(problem, few(planned.firsts[0][1]))
    around = [expanded.theta] if expanded is not None else given
    dtype = choose_precision(settings.precision, problem.target, some, settings.seed, around)
    problem = replace(problem, dtype=dtype)
    accepted = None
    if settings.kernel is None and expanded is not None and not layout.model.host:  # of a model in Python it costs
        accepted = predicted_acceptance(problem.target, some, expanded, settings.seed)
        kernel = choose_kernel(layout.model.dimension, calibrated=True, accepted=accepted).bind(layout.model)
        problem = replace(problem, kernel=kernel)
    superchains = superchains_of(layout.model, settings.chains, given, expanded)
    together = None if superchains is None else assign_superchains(settings.chains, superchains)
    begun: list[Playing] = []
    start = partial(find_starts, layout.model, seed=settings.seed, given=given, reference=expanded, dtype=dtype,
                    together=together)  # fmt: skip
    kind = choose_cohort_kind(problem, settings.chains)
    if kind is not None:
        problem = replace(problem, subsets=replace(problem.subsets, page=kind.page_for(problem, settings.chains)))
    for chains, U in planned.firsts:
        if kind is not None:
            here = kind(problem, chains, U)
            here.begin(start(here.score, chains=chains))
            begun.append(here)
            continue
        batch, given_U, counts = known_of(problem, U)
        columns = to_columns(batch, dtype, axis=1)
        theta = start(
            partial(evaluate, problem.target, rows=columns, given=as_held(given_U, dtype), counts=counts), chains=chains
        )
        with jax.enable_x64(True):
            state = first_state(problem, columns, theta, problem.subsets.given(U), counts)
        holds = settings.checkpoint is not None or away is not None
        cohort = Cohort(problem, chains, U, state, [warming] if warming else [], holds=holds)
        begun.append(CohortAway(cohort, away, len(begun) / len(planned.firsts)) if away is not None else cohort)
    asked = "as many draws as the budget allows" if settings.filling else f"{settings.draws:,} draws per chain"
    display.say(
        f"{settings.chains} chains: {settings.tune:,} tuning steps, then {asked}. "
        f"{reading(layout, n, lead_in)}, in {np.dtype(dtype).name}. {in_words(planned, problem.target)}"
    )
    settings = replace(settings, subset_size=n, kernel=problem.kernel)
    told = [*warned, *warn_of(planned, settings)]
    return Run(settings, problem, begun, surveyed, planned, told, layout, accepted, superchains=superchains)


class Known(NamedTuple):
    """What passes over all rows have found."""

    layout: Layout
    expanded: Reference | None = None  # θ̂, for the calibrated target
    steps: Steps | None = None  # of a sequence, there
    warned: tuple[str, ...] = ()


def first_choice(layout: Layout, settings: Settings) -> Kernel:
    """The kernel that was asked for, or the one that will most likely do."""
    kernel = settings.kernel or choose_kernel(layout.model.dimension, calibrated=settings.target == "calibrated")
    kernel = kernel.bind(layout.model)
    if isinstance(kernel, GradientKernel):
        require_gradients(layout.model, layout.full.take(np.zeros(1, np.int64)), type(kernel).__name__)
    return kernel


def look_through(layout: Layout, summary: Summary | None, display: Display) -> tuple[Survey, Gathering | None]:
    """One pass over all rows as they came, and S on its way through them."""
    N = len(layout)

    def progress(done: int) -> None:
        display.show("all rows", done, N)

    if summary is None:
        return survey(layout.rows, progress=progress), None
    return visit_rows(layout.rows, start_gathering, own=(summary,), here=True, progress=progress)


def require_calibration(layout: Layout, settings: Settings) -> None:
    """Refuse, before any costly pass, a model or a size for which there is no calibrated target."""
    if settings.transport == "second_order" and (layout.ordered or layout.model.host):
        what = "ordered rows" if layout.ordered else "a model that is not JAX"
        raise InputError(f"transport='second_order' is not there for {what}. Leave it out, or pass transport=True.")
    if not layout.model.host:
        require_derivatives(layout.model, layout.full.take(np.zeros(1, np.int64)))
    require_room(layout, settings)


def at_the_reference(
    layout: Layout, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display
) -> Known:
    """θ̂, and for a sequence how long its model remembers there."""
    expanded = expand(layout, settings, given, display)
    if not layout.ordered:
        return Known(layout, expanded)
    layout, expanded, steps = remember(layout, expanded, settings, display)
    return Known(layout, expanded, steps, tuple(forgetting(steps, layout, settings)))


def problem_of(
    layout: Layout, subsets: Chain, settings: Settings, kernel: Kernel, expanded: Reference | None
) -> tuple[Problem, int, int]:
    """What chains share; and n, and the steps that lead in."""
    n = subsets.size
    lead_in = count_unit_rows(subsets.rows) - n if layout.ordered else 0
    scored = target_of(layout, settings, n, expanded)
    problem = Problem(
        subsets, scored, kernel, settings.refresh_steps, settings.tune, first_guess(settings), layout.full,
        layout.reads(n, lead_in), expanded,
    )  # fmt: skip
    return problem, n, lead_in


def few(U: Subset) -> Subset:
    """The subsets of some chains."""
    return jax.tree.map(lambda leaf: leaf[:LARGEST_COHORT_OF_WINDOWS], U)


def known_of(problem: Problem, U: Subset) -> tuple[Any, Any, Any]:
    """The rows of each chain's subset, what is given of it, and what its rows count."""
    return problem.subsets.take(U), problem.subsets.given(U), problem.subsets.counts(U)


def gathered(settings: Settings, layout: Layout) -> Summary | None:
    """S, where rows tell what it is; None where it is nothing, comes from the reference, or is of windows."""
    if settings.summary is None or layout.ordered:
        return None
    if settings.target == "calibrated" and isinstance(settings.summary, Curvature):
        return None
    summary: Summary = settings.summary
    return summary


def statistic_of(gathering: Gathering | None, settings: Settings, layout: Layout) -> Any:
    """S once all rows have been seen."""
    if isinstance(settings.summary, WindowSummary):
        column = load_column(layout.rows, settings.summary.column, settings.summary.asked, layout.series.order)
        return WindowColumn(settings.summary.prepare(column, layout.series.offsets[1:]), column)
    if gathering is None:
        return NO_STATISTIC
    return gathering.finish() if layout.parts is None else OverGroups(gathering.finish(), layout.mean_size)


def expand(layout: Layout, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display) -> Reference:
    """θ̂, found or as given, and what all rows say there."""
    model, rows = layout.model, layout.full
    if settings.reference is not None:
        return expand_at(model, rows, flat(model, settings.reference, "reference"))
    start = given[0] if given else model.ravel(model.init)
    found = find_reference(
        model, rows, start, settings.seed, lambda passes: display.show("mode", passes, passes, "passes over all rows")
    )
    display.say(f"Reference point found in {found.passes} passes over all rows.")
    return found


def rows_within(settings: Settings, N: int, rows_a_second: float) -> float:
    """The largest n with which the draws fit half the budget, at the speed of the passes made so far."""
    moves = settings.chains * (settings.tune + 2 * (1000 if settings.filling else settings.draws))
    affordable = min(settings.budget.rows, settings.budget.seconds * rows_a_second) / (2 * moves)
    return max(1.0, min(N, affordable))


def first_guess(settings: Settings) -> Any:
    """The precision that a run will most likely work in."""
    return np.float64 if settings.precision == "float64" else np.float32


def rehearsal(layout: Layout, settings: Settings, kernel: Kernel) -> Problem | None:
    """A problem of the shapes that the default will most likely have, before anything is known but shapes."""
    if settings.subset_size is None or settings.summary is not None or layout.ordered:
        return None
    d = layout.model.dimension
    nowhere = Reference(np.zeros(d), np.zeros(d), np.eye(d), np.zeros((d, d)), 0)
    subsets = subset_chain(layout, settings, settings.subset_size, None, nowhere, None)
    scored = target_of(layout, settings, subsets.n, nowhere)
    return Problem(
        subsets, scored, kernel, settings.refresh_steps, settings.tune, first_guess(settings), layout.full, 0,
        nowhere,
    )  # fmt: skip


def warm_up_beside(problem: Problem | None, settings: Settings) -> Future[None] | None:
    """Compile on a thread of its own; whatever that raises will be raised again where it can be explained."""
    if problem is None or problem.host or xla.accelerated():  # Python has nothing to compile, a device another program
        return None
    pool = ThreadPoolExecutor(1, thread_name_prefix="lwa-warm-up")
    ordered = isinstance(problem.subsets, WindowChain)
    warming = pool.submit(warm_up, problem, len(cohorts_of(settings.chains, ordered=ordered)[0]))
    pool.shutdown(wait=False)  # its thread ends with its one task
    return warming


def cohorts_of(chains: int, *, ordered: bool) -> list[list[int]]:
    """Chains by cohort: two at least, for two cores, all of one size. The last is filled up with chains to discard."""
    if xla.accelerated():
        return [list(range(chains))]
    size = min(-(-chains // 2), LARGEST_COHORT_OF_WINDOWS if ordered else LARGEST_COHORT)
    return [list(range(first, first + size)) for first in range(0, chains, size)]


def choose_precision(
    asked: str, target: Target, known_of_U: tuple[Any, Any, Any], seed: int, given: list[NDArray[np.float64]] | None
) -> Any:
    """float32 unless it is asked otherwise or its rounding would disturb the acceptance ratio.

    The noise is measured: w √(2 Σ_U (ℓ32 - ℓ64)²) near the start, over the first cohort's subsets.
    """
    if asked != "auto":
        return np.dtype(asked).type
    rng = generator(seed, Purpose.PRECISION, 0)
    start = given[0] if given else target.model.ravel(target.model.init)
    batch, tilt, counts = known_of_U
    theta = start + 0.1 * rng.normal(size=(jax.tree.leaves(batch)[0].shape[0], len(start)))

    def terms(dtype: Any) -> NDArray[np.float64]:
        columns = to_columns(batch, dtype, axis=1)
        return np.asarray(evaluate(target, theta.astype(dtype), columns, as_held(tilt, dtype), counts).rows, np.float64)

    single, double = terms(np.float32), terms(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf, where the model is not finite: the starts are checked next
        noise = target.power * np.sqrt(2 * ((single - double) ** 2).sum(-1))
    noise = noise[np.isfinite(noise)]
    return np.float64 if len(noise) and noise.max() > ROUNDING else np.float32


def reading(layout: Layout, n: int, lead_in: int) -> str:
    """What a move reads, in words."""
    N = len(layout.rows)
    if layout.ordered:
        before = f", and {lead_in:,} before it to start from" if lead_in else ""
        return f"Each step reads a window of {n:,} of {N:,} observations{before}"
    if layout.parts is not None:
        return f"Each step reads {n:,} of {len(layout.full):,} groups, about {layout.reads(n, 0):,} of {N:,} rows"
    return f"Each step reads {n:,} of {N:,} rows"


def in_words(planned: Plan, target: Target) -> str:
    """How U moves."""
    subsets = planned.subsets
    by_statistics = f"Subsets drawn by their statistics, epsilon {subsets.epsilon:.3g}"
    told = [by_statistics if subsets.statistic.dimension else "Subsets drawn uniformly"]
    if subsets.leverage is not None:
        told.append("rows drawn by leverage")
    if subsets.calibration is not None and subsets.calibration.frame is not None:
        told.append("curvature corrected to that of all rows")
    if target.expansion is not None and target.expansion.share is not None:
        told.append("rows expanded to second order")
    if planned.predicted is not None:
        told.append(f"sds predicted to be right to {planned.predicted:.1%}")
    if np.isfinite(planned.renewal):
        told.append(f"all rows of a subset replaced in {planned.renewal:,.0f} steps")
    return ", ".join(told) + "."


def warn_of(planned: Plan, settings: Settings) -> list[str]:
    """What must be said before the first move."""
    told = []
    if planned.predicted is not None and planned.predicted > ACCEPTABLE:
        n, N = planned.subsets.n, len(planned.subsets.rows)
        enough = min(N, int(np.ceil(n * planned.predicted / settings.tolerance)))
        told.append(
            f"With subset_size={n} sds are predicted to be off by {planned.predicted:.0%}: curvature still varies from "
            f"subset to subset. Pass subset_size={enough}, transport=True or exact=True."
        )
    for remark in told:
        warnings.warn(remark, LwaWarning, stacklevel=4)
    return told
