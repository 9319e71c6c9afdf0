"""The verb: prepare, run, return a Result."""

import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.blocks import Outcome, Run, carry_out
from lwa.calibration import expansion_of
from lwa.conclusion import conclude
from lwa.errors import InputError, LwaWarning, ModelError
from lwa.layout import SEGMENT, Layout, lay_out
from lwa.memory import PASS_SHIFT, measured
from lwa.models.model import Model
from lwa.models.on_host import OnHost, row_terms
from lwa.parameters.choice import choose_kernel
from lwa.parameters.gradient import Gradient
from lwa.parameters.kernel import Kernel, Metropolis
from lwa.pipeline import Cohort, Problem, as_held, evaluate, warm_up
from lwa.planning import NO_STATISTIC, SMALLEST, Plan, Steps, WindowColumn, plan, require_room, subset_chain
from lwa.progress import Display
from lwa.randomness import Purpose, generator
from lwa.reference import Reference, find_reference, reference_at, require_derivatives, require_gradients
from lwa.result import Result
from lwa.rows import survey
from lwa.rows.column import whole_column
from lwa.rows.slots import to_columns
from lwa.rows.units import Units, unit_length
from lwa.settings import Settings
from lwa.starts import find_starts, flat, given_starts
from lwa.subsets.moves import Window
from lwa.subsets.windows import WindowChain
from lwa.summaries import Curvature, Gathering, WindowSummary
from lwa.summaries.groups import OverGroups
from lwa.summaries.running import room_for, running_sums, running_width
from lwa.target import Target

LARGEST_COHORT = 16
"""Chains in one program: past this a larger batch is no faster on a CPU core, and fewer cores would have work."""
LARGEST_COHORT_OF_WINDOWS = 64
"""A recursion goes from step to step for all chains of a program side by side: 100 chains of ARMA(1,1), n = 100, cost
1.8 µs a move with S₀ in two cohorts, 2.4 in seven of at most 16 (`benchmarks/step_cost.py`)."""
ACCEPTABLE = 0.05
"""Predicted error of sds past which a user is warned before sampling."""
TIMED_CALLS, TIMED_SECONDS = 5, 0.1
"""Calls of a model in Python that are timed, at the most, and for how long."""
OWN_SECONDS = 2e-4
"""What lwa itself takes for a move of such a model, a chain (two cores, calibrated, n = 100, four chains)."""
PASSES_TO_THE_MODE = 4
"""Passes over all rows that the calibrated target takes at first, to say what a model in Python will cost."""
ROUNDING = 0.1
"""Noise in the log acceptance ratio that float32 may bring. Its effect is of second order, 0.1²/2 = 0.5 %."""


def sample(
    model: Model,
    data: Any,
    *,
    subset_size: int | str = 1000,
    target: str = "calibrated",
    exact: bool = False,
    summary: Any = "auto",
    epsilon: float | str = "auto",
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    thinning: int | str = "auto",
    seed: int | None = None,
    budget: Any = None,
    subset_move: Any = None,
    subset_weight: Any = "gaussian",
    kernel: Any = "auto",
    refresh_steps: int = 1,
    initvals: Any = None,
    progress: bool = True,
    leverage: bool | str = "auto",
    transport: bool | str = "auto",
    tolerance: float = 0.02,
    reference: Any = None,
    precision: str = "auto",
) -> Result:
    """Draw θ by Algorithm 1, reading `subset_size` rows a step whatever the number of rows.

    Parameters
    ----------
    model
        What is to be inferred, a `lwa.Model`. Where its functions are not JAX they are called from Python; what they
        raise surfaces untouched, with the draws kept so far, if any, as its attribute `lwa_result`.
    data
        An array or a dict of arrays sharing their first axis, a pandas or polars DataFrame, an Arrow table, the path
        of a `.npy` file, or a `lwa.Rows`; for ordered data also a list of such series.
    subset_size
        n, the rows of a subset U (its groups, or the scored steps of its window); or `"auto"`: the fewest with which
        sds are predicted to be right to `tolerance`, as far as the budget goes.
    target
        What θ is scored by given U: `"calibrated"` (log p + ⟨g_N, δ⟩ + N/n Σ_U R_k(A_U δ), δ = θ - θ̂): the linear term
        from all rows, only the remainder from U; `"powered"` (log p + N/n Σ_U ℓ_k); `"subposterior"` (log p + Σ_U ℓ_k).
        `"auto"` is calibrated where the model can be differentiated and has a mode, else powered, and says so.
    exact
        Correct the draws by the full posterior: after every `thinning` moves given U, one pass over all rows accepts or
        refuses where they led. No error is left but Monte Carlo; each draw costs a pass, shared by all chains.
    summary
        S, by which subsets are compared with all rows: `"auto"` (the mean of every column in units of its spread),
        `lwa.summaries.PerRow(function)` or `lwa.summaries.Counts(column)`. For `"calibrated"`, `"auto"` is
        nothing: U is transported instead. `lwa.summaries.Curvature()` chooses subsets by their curvature. For ordered
        data `"auto"` is nothing too; windows have summaries of their own, `Quantiles(0.2, 0.5, 0.8)`,
        `Autocorrelations(5)`, `MinMax()`, `Moments(2)`, `Custom(function)` and `Combine` of these.
    epsilon
        ε of ν(U) ∝ Φ(‖S̄(Y_U) - s_N‖/ε), or `"auto"`: the tightest at which a quarter of U's proposals are accepted.
    draws, tune, chains
        Kept draws a chain; θ moves that adapt the kernel and are dropped; chains.
    thinning
        Transitions a kept draw, or `"auto"`: as many as a chain needs to forget, judged from tune and U's renewal.
    seed
        A whole number; the same one gives the same draws. Fresh, and recorded, where None.
    budget
        Seconds, a time such as `"10 min"`, or `lwa.RowReads(10**9)`: tune and sampling stop at whichever comes first.
    subset_move
        R: `lwa.subsets.Swap(k)` (default, k = 1), `lwa.subsets.Free()` or `lwa.subsets.Fixed()`; for ordered data
        `lwa.subsets.Window(local, rate)` in place of the first.
    subset_weight
        Φ: `"gaussian"`, `"laplace"` or `"epanechnikov"`.
    kernel
        Q, of `lwa.parameters`: `RandomWalk(...)`, adaptive; `Blockwise([["mu"], ["sigma", "beta"]])`, one block of
        parameters at a time; `MALA(...)`, `HMC(steps=8)` and `NUTS(...)`, along the gradient, for models in JAX; for
        `"calibrated"` also `Autoregressive(...)` and `Independence(df=8)`, from the Gaussian or Student's t at θ̂.
        `"auto"` is autoregressive for `"calibrated"`, else the random walk.
    refresh_steps
        L, the θ moves after a refresh of U. θ's law is the mixture Σ_U ν(U) π(θ|Y_U) only as L grows.
    initvals
        A θ for all chains or a list of one a chain, inside the model's constraints. Else each chain starts at its own
        `prior_draw`, or at `init`.
    leverage
        For `"calibrated"`: draw rows by their share of the curvature, and weigh them accordingly. `"auto"` does so
        where single rows matter, as with rare dummies or heavy tails.
    transport
        For `"calibrated"`: evaluate U's rows at θ̂ + A_U δ, with A_U such that U's curvature is that of all rows.
        Without it curvature varies with U and draws are too wide, unless `summary=lwa.summaries.Curvature()`.
    tolerance
        Error of sds, as a share of them, that `subset_size="auto"` may leave.
    reference
        For `"calibrated"`: a θ in the bulk of the posterior. Else the mode, found in a few passes over all rows.
    progress
        Show what is going on. Ctrl-C ends the run and returns what is there.
    precision
        `"float32"`, `"float64"` or `"auto"`: float32 unless its rounding would be felt in the acceptance ratio. A model
        that is not JAX works in float64.

    Returns
    -------
    Result
        `fit.idata` for ArviZ, `fit.summary()`, `fit.save(folder)`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, lwa
    >>> y = np.random.default_rng(0).normal(3.0, 1.0, 10_000)
    >>> model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * (mu / 10) ** 2, init=0.0)
    >>> fit = lwa.sample(model, y, subset_size=100, draws=100, tune=500, seed=1, progress=False)
    >>> fit.posterior["theta"].shape
    (4, 100)
    """
    if not isinstance(model, Model):
        raise InputError(f"model is of type {type(model).__name__}. Pass a lwa.Model(log_likelihood, log_prior, init).")
    settings = Settings.check(
        ordered=model.ordered is not False, subset_size=subset_size, target=target, exact=exact, summary=summary,
        epsilon=epsilon, draws=draws, tune=tune,
        chains=chains, thinning=thinning, seed=seed, budget=budget, subset_move=subset_move,
        subset_weight=subset_weight, kernel=kernel, refresh_steps=refresh_steps, leverage=leverage,
        transport=transport, tolerance=tolerance, reference=reference, precision=precision,
    )  # fmt: skip
    began = time.monotonic()
    with Display(progress) as display:
        layout = lay_out(model, data)
        layout.fit(settings.subset_size)
        settings.fit()
        starts = given_starts(model, initvals, settings.chains)
        with jax.enable_x64(True):
            layout = layout.checked(np.float32)
            settings, microseconds = in_python(layout, settings, starts, display)
            run = replace(prepare_or_fall_back(layout, settings, starts, display), microseconds=microseconds)
        try:
            outcome = carry_out(run, display)
        finally:
            for cohort in run.cohorts:
                cohort.close()
    if outcome.fault is not None:
        raise with_result(outcome.fault, run, outcome, time.monotonic() - began)
    return conclude(run, outcome, time.monotonic() - began)


def with_result(fault: BaseException, run: Run, outcome: Outcome, seconds: float) -> BaseException:
    """What the user's function raised, with the draws made before; warnings would take its place, so they are not
    given, but they are kept with the draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fault.lwa_result = conclude(run, outcome, seconds)  # type: ignore[attr-defined]
    kept = len(outcome.kept.lp[0])
    fault.add_note(f"lwa kept {kept} of {run.settings.draws} draws: they are error.lwa_result")
    return fault


def in_python(
    layout: Layout, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display
) -> tuple[Settings, float | None]:
    """Where the model is not JAX: what that asks of the settings, and what a call costs, in µs, said up front."""
    model = layout.model
    if not isinstance(model, OnHost):
        return settings, None
    if settings.precision == "float32":
        raise InputError(
            f"precision='float32', but {model.in_words} and is called with float64 arrays. Pass precision='float64', "
            "leave it out, or write the model with jax.numpy."
        )
    if settings.kernel is not None and not isinstance(settings.kernel, Metropolis):
        raise InputError(
            f"kernel={type(settings.kernel).__name__}(...) needs gradients, but {model.in_words}. Pass kernel='auto', "
            "or lwa.parameters.RandomWalk(), which need none, or write the model with jax.numpy."
        )
    n = min(settings.subset_size or SMALLEST, len(layout.rows) if layout.ordered else len(layout.full))
    calibrated, d = settings.target in ("calibrated", "auto"), model.dimension
    theta = given[0] if given else model.ravel(model.init)
    seconds = seconds_a_call(layout, n, theta)
    moves = settings.chains * (settings.tune + settings.draws * (settings.thinning or 1))
    passes = PASSES_TO_THE_MODE * (d**2 + d + 1) if calibrated else 0
    passes += settings.chains * settings.draws if settings.exact else 0
    total = moves * (seconds + OWN_SECONDS) + passes * seconds * len(layout.rows) / layout.reads(n, 0)
    display.say(
        f"{model.in_words}: it runs in Python, one call a chain and move, about {1e6 * seconds:,.0f} µs each, about "
        f"{max(1.0, total):,.0f} s in all."
    )
    return replace(settings, precision="float64"), round(1e6 * seconds, 1)


def seconds_a_call(layout: Layout, n: int, theta: NDArray[np.float64]) -> float:
    """What the log-likelihood of one subset takes: the fastest of some calls."""
    if layout.ordered:
        model, rows = layout.given, layout.series.take(layout.rows, np.arange(min(n, layout.available)))
    else:
        model, rows = layout.model, layout.full.take(np.arange(n))
    taken, began = list[float](), time.monotonic()
    while not taken or (len(taken) < TIMED_CALLS and time.monotonic() - began < TIMED_SECONDS):
        start = time.monotonic()
        row_terms(model, theta, rows)
        taken.append(time.monotonic() - start)
    return min(taken)


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
    """Survey the rows, settle how U moves, find starts and a precision."""
    N, began = len(layout.rows), time.monotonic()
    model, calibrated, warned = layout.model, settings.target == "calibrated", list[str]()
    gathering = gather(settings, layout)
    kernel = settings.kernel or choose_kernel(model.dimension, calibrated)
    settings = replace(settings, kernel=kernel)
    kernel = kernel.bind(model)
    if isinstance(kernel, Gradient):
        require_gradients(model, layout.full.take(np.zeros(1, np.int64)), type(kernel).__name__)
    visitors = [] if gathering is None else [gathering.visit]
    surveyed = survey(layout.rows, visitors, progress=lambda done: display.show("all rows", done, N))
    warming, expanded, steps = None, None, None
    if calibrated:
        if not model.host:
            require_derivatives(model, layout.full.take(np.zeros(1, np.int64)))
        require_room(layout, settings)
        warming = warm_up_beside(rehearsal(layout, settings, kernel), settings)
        expanded = expand(layout, settings, given, display)
        if layout.ordered:
            layout, expanded, steps = remember(layout, expanded, settings, display)
            warned += forgetting(steps, layout, settings)
    most = rows_within(settings, layout.available, N / max(1e-3, time.monotonic() - began))
    statistic = statistic_of(gathering, settings, layout)
    planned = plan(
        layout, settings, statistic, expanded, cohorts_of(settings.chains, ordered=layout.ordered), most, steps
    )
    subsets = planned.subsets
    n = subsets.steps if isinstance(subsets, WindowChain) else subsets.n
    settings = replace(settings, subset_size=n)
    scored = Target(model, layout.power(settings.target, n), None if expanded is None else expansion_of(expanded))
    lead_in = unit_length(subsets.rows) - n if layout.ordered else 0
    problem = Problem(
        subsets, scored, kernel, settings.refresh_steps, settings.tune, first_guess(settings), layout.full,
        layout.reads(n, lead_in), expanded,
    )  # fmt: skip
    warming = warming or warm_up_beside(problem, settings)
    batches = [subsets.take(U) for _, U in planned.firsts]
    around = [expanded.theta] if expanded is not None else given
    first = planned.firsts[0][1]
    known_of_U = (batches[0], subsets.given(first), subsets.counts(first))
    dtype = choose_precision(settings.precision, scored, known_of_U, settings.seed, around)
    problem = replace(problem, dtype=dtype)
    begun = []
    for (chains, U), batch in zip(planned.firsts, batches, strict=True):
        columns, counts = to_columns(batch, dtype, axis=1), subsets.counts(U)
        known = (columns, as_held(subsets.given(U), dtype), counts)
        theta = find_starts(scored, known, settings.seed, chains, given, expanded, dtype)
        begun.append((chains, U, columns, counts, theta))
    cohorts = [Cohort(problem, *start, [warming] if warming else []) for start in begun]
    display.say(
        f"{settings.chains} chains: {settings.tune} moves of tune, then {settings.draws} draws. "
        f"{reading(layout, n, lead_in)}, in {np.dtype(dtype).name}. {in_words(planned)}"
    )
    return Run(settings, problem, cohorts, surveyed, planned, warned + warn_of(planned, settings), layout)


def gather(settings: Settings, layout: Layout) -> Gathering | None:
    """S on its way through the rows; None where it is nothing, comes from the reference, or is of windows."""
    if settings.summary is None or layout.ordered:
        return None
    if settings.target == "calibrated" and isinstance(settings.summary, Curvature):
        return None
    return settings.summary.gather()


def statistic_of(gathering: Gathering | None, settings: Settings, layout: Layout) -> Any:
    """S once all rows have been seen."""
    if isinstance(settings.summary, WindowSummary):
        column = whole_column(layout.rows, settings.summary.column, settings.summary.asked, layout.series.order)
        return WindowColumn(settings.summary.prepare(column, layout.series.offsets[1:]), column)
    if gathering is None:
        return NO_STATISTIC
    return gathering.finish() if layout.parts is None else OverGroups(gathering.finish(), layout.mean_size)


def reading(layout: Layout, n: int, lead_in: int) -> str:
    """What a move reads, in words."""
    N = len(layout.rows)
    if layout.ordered:
        before = f" after {lead_in:,} that lead in" if lead_in else ""
        return f"Each move reads a window of {n:,} of {N:,} steps{before}"
    if layout.parts is not None:
        return f"Each move reads {n:,} of {len(layout.full):,} groups, about {layout.reads(n, 0):,} of {N:,} rows"
    return f"Each move reads {n:,} of {N:,} rows"


def remember(
    layout: Layout, expanded: Reference, settings: Settings, display: Display
) -> tuple[Layout, Reference, Steps]:
    """How long the model of a sequence remembers at θ̂, and running sums of what its steps say there."""
    model, N = layout.model, len(layout.rows)
    looked_back = layout.lead_in
    layout, memory = measured(layout, expanded.theta, expanded.factor)
    if layout.lead_in > looked_back and settings.reference is None:
        expanded = find_reference(model, layout.full, expanded.theta, settings.seed)
    elif layout.lead_in > looked_back:
        expanded = reference_at(model, layout.full, expanded.theta)
    assert isinstance(layout.full, Units)
    curvature = settings.transport is not False
    sums = None
    if settings.subset_move is None or settings.subset_move.replaced(1):
        width = running_width(model.dimension, curvature=curvature)
        if room_for(N, width):
            display.say(f"Running sums of gradients and curvatures: {8e-9 * N * width:.2g} GB in a temporary file.")
            sums = running_sums(
                layout.given, layout.full, expanded, curvature=curvature,
                progress=lambda done: display.show("running sums", done, N),
            )  # fmt: skip
        else:
            display.say("No room on disk for running sums of gradients and curvatures: each window's own are computed.")
    return layout, expanded, Steps(memory, sums)


def forgetting(steps: Steps, layout: Layout, settings: Settings) -> list[str]:
    """What to say of a model that remembers longer than windows, or segments of a pass, look back.

    Where windows are transported their own start does not matter: gradient and curvature are corrected as they are.
    """
    n, N = settings.subset_size or SMALLEST, len(layout.rows)
    asked = settings.subset_move.lead_in if isinstance(settings.subset_move, Window) else "auto"
    told = []
    if not steps.memory.forgets(SEGMENT * layout.lead_in, N, PASS_SHIFT):
        told.append(
            f"After {layout.lead_in:,} steps the model still remembers where it was started, so that sums over all "
            "rows, which are taken over segments, are not those of the whole series. Draws and certificate are of a "
            "posterior that forgets by then: give the parameters that make for so long a memory a prior against it."
        )
    if settings.transport is False and not isinstance(asked, str) and asked < (enough := steps.memory.lead_in(n, N)):
        told.append(
            f"lead_in={asked} is shorter than the model remembers, and with transport=False windows are biased by "
            f"their start. Pass lead_in={enough}, or 'auto'."
        )
    for remark in told:
        warnings.warn(remark, LwaWarning, stacklevel=5)
    return told


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
    scored = Target(layout.model, layout.power(settings.target, subsets.n), expansion_of(nowhere))
    return Problem(
        subsets, scored, kernel, settings.refresh_steps, settings.tune, first_guess(settings), layout.full, 0,
        nowhere,
    )  # fmt: skip


def warm_up_beside(problem: Problem | None, settings: Settings) -> Future[None] | None:
    """Compile on a thread of its own; whatever that raises will be raised again where it can be explained."""
    if problem is None or problem.host:  # Python has nothing to compile
        return None
    pool = ThreadPoolExecutor(1, thread_name_prefix="lwa-warm-up")
    ordered = isinstance(problem.subsets, WindowChain)
    warming = pool.submit(warm_up, problem, len(cohorts_of(settings.chains, ordered=ordered)[0]))
    pool.shutdown(wait=False)  # its thread ends with its one task
    return warming


def rows_within(settings: Settings, N: int, rows_a_second: float) -> float:
    """The largest n with which the draws fit half the budget, at the speed of the passes made so far."""
    moves = settings.chains * (settings.tune + 2 * settings.draws)
    affordable = min(settings.budget.rows, settings.budget.seconds * rows_a_second) / (2 * moves)
    return max(1.0, min(N, affordable))


def in_words(planned: Plan) -> str:
    """How U moves."""
    subsets = planned.subsets
    told = [f"U by its statistics, epsilon {subsets.epsilon:.3g}" if subsets.statistic.dimension else "U uniform"]
    if subsets.leverage is not None:
        told.append("rows drawn by leverage")
    if subsets.calibration is not None and subsets.calibration.frame is not None:
        told.append("curvature transported")
    if planned.predicted is not None:
        told.append(f"sds predicted right to {planned.predicted:.1%}")
    if np.isfinite(planned.renewal):
        told.append(f"U renews its rows in {planned.renewal:,.0f} moves")
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


def expand(layout: Layout, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display) -> Reference:
    """θ̂, found or as given, and what all rows say there."""
    model, rows = layout.model, layout.full
    if settings.reference is not None:
        return reference_at(model, rows, flat(model, settings.reference, "reference"))
    start = given[0] if given else model.ravel(model.init)
    found = find_reference(
        model, rows, start, settings.seed, lambda passes: display.show("mode", passes, passes, "passes over all rows")
    )
    display.say(f"Reference point found in {found.passes} passes over all rows.")
    return found


def cohorts_of(chains: int, *, ordered: bool) -> list[list[int]]:
    """Chains by cohort: two at least, for two cores, all of one size. The last is filled up with chains to discard."""
    if jax.default_backend() != "cpu":
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
