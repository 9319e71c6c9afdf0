"""The verb: prepare, run, return a Result."""

import platform
import time
import warnings
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lwa import __version__
from lwa.algorithm import Subset
from lwa.blocks import Outcome, Run, carry_out
from lwa.errors import InputError, LwaWarning
from lwa.models.check import check_model
from lwa.models.model import Model
from lwa.pipeline import Cohort, Problem, evaluate, page_length
from lwa.progress import Display
from lwa.randomness import Purpose, generator
from lwa.reference import Reference, find_reference, reference_at
from lwa.result import Result
from lwa.rows import Rows, as_rows, survey
from lwa.rows.slots import to_columns
from lwa.settings import Settings
from lwa.starts import find_starts, flat, given_starts
from lwa.subsets.bandwidth import find_epsilon
from lwa.subsets.chain import SubsetChain
from lwa.subsets.leverage import NEEDED, Leverage, find_leverage
from lwa.summaries import Curvature, Statistic
from lwa.summaries.curvature import scores
from lwa.target import Expansion, Target, power

LARGEST_COHORT = 16
"""Chains in one program: past this a larger batch is no faster on a CPU core, and fewer cores would have work."""
ROUNDING = 0.1
"""Noise in the log acceptance ratio that float32 may bring. Its effect is of second order, 0.1²/2 = 0.5 %."""


def sample(
    model: Model,
    data: Any,
    *,
    subset_size: int = 1000,
    target: str = "powered",
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
    reference: Any = None,
    precision: str = "auto",
) -> Result:
    """Draw θ by Algorithm 1, reading `subset_size` rows a step whatever the number of rows.

    Parameters
    ----------
    model
        What is to be inferred, a `lwa.Model`.
    data
        An array or a dict of arrays sharing their first axis, a pandas or polars DataFrame, an Arrow table, the path
        of a `.npy` file, or a `lwa.Rows`.
    subset_size
        n, the rows of a subset U.
    target
        What θ is scored by given U: `"powered"` (log p + N/n Σ_U ℓ_k), `"subposterior"` (log p + Σ_U ℓ_k), or
        `"calibrated"` (log p + ⟨g_N, δ⟩ + N/n Σ_U R_k(δ)): the linear term from all rows, only the remainder from U.
    exact
        Correct the draws by the full posterior: after every `thinning` moves given U, one pass over all rows accepts or
        refuses where they led. No error is left but Monte Carlo; each draw costs a pass, shared by all chains.
    summary
        S, by which subsets are compared with all rows: `"auto"` (the mean of every column in units of its spread),
        `lwa.summaries.PerRow(function)` or `lwa.summaries.Counts(column)`. For `"calibrated"`, `"auto"` is
        `lwa.summaries.Curvature()`.
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
        R: `lwa.subsets.Swap(k)` (default, k = 1), `lwa.subsets.Free()` or `lwa.subsets.Fixed()`.
    subset_weight
        Φ: `"gaussian"`, `"laplace"` or `"epanechnikov"`.
    kernel
        Q: `"auto"`, `lwa.parameters.RandomWalk(...)` or, for `"calibrated"`, `lwa.parameters.Autoregressive(...)`.
    refresh_steps
        L, the θ moves after a refresh of U. θ's law is the mixture Σ_U ν(U) π(θ|Y_U) only as L grows.
    initvals
        A θ for all chains or a list of one a chain. Else each chain starts at its own `prior_draw`, or at `init`.
    leverage
        For `"calibrated"`: draw rows by their share of the curvature, and weigh them accordingly. `"auto"` does so
        where single rows matter, as with rare dummies or heavy tails.
    reference
        For `"calibrated"`: a θ in the bulk of the posterior. Else the mode, found in a few passes over all rows.
    progress
        Show what is going on. Ctrl-C ends the run and returns what is there.
    precision
        `"float32"`, `"float64"` or `"auto"`: float32 unless its rounding would be felt in the acceptance ratio.

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
        subset_size=subset_size, target=target, exact=exact, summary=summary, epsilon=epsilon, draws=draws, tune=tune,
        chains=chains, thinning=thinning, seed=seed, budget=budget, subset_move=subset_move,
        subset_weight=subset_weight, kernel=kernel, refresh_steps=refresh_steps, leverage=leverage,
        reference=reference, precision=precision,
    )  # fmt: skip
    began = time.monotonic()
    with Display(progress) as display:
        rows = as_rows(data)
        settings.fit(len(rows))
        with jax.enable_x64(True):
            run = prepare(model, rows, settings, given_starts(model, initvals, chains), display)
        try:
            outcome = carry_out(run, display)
        finally:
            for cohort in run.cohorts:
                cohort.close()
    return conclude(run, outcome, time.monotonic() - began)


def prepare(
    model: Model, rows: Rows, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display
) -> Run:
    """Check the model, survey the rows, settle ε, burn U in, find starts and a precision."""
    N, n = len(rows), settings.subset_size
    one = rows.take(np.zeros(1, np.int64))
    check_model(model, one, np.float32)
    summary = settings.summary
    informed = settings.target == "calibrated" and isinstance(summary, Curvature)  # the reference's passes gather it
    gathering = None if informed else summary.gather()
    visitors = [] if gathering is None else [gathering.visit]
    surveyed = survey(rows, visitors, progress=lambda done: display.show("all rows", done, N))
    expanded = expand(model, rows, settings, given, display) if settings.target == "calibrated" else None
    subsets = subset_chain(model, rows, settings, gathering.finish() if gathering else None, expanded, one)
    scored = Target(model, power(settings.target, n, N))
    if expanded is not None:
        scored = replace(scored, expansion=Expansion(jnp.asarray(expanded.theta), jnp.asarray(expanded.gradient)))
    plans: list[tuple[list[int], Subset, Any]] = []
    for chains in cohorts_of(settings.chains):
        U = subsets.burn_in(subsets.start(chains), chains)
        if informed:
            require_definite(np.asarray(U.distance), n, N)
        plans.append((chains, U, subsets.take(U)))
    around = [expanded.theta] if expanded is not None else given
    dtype = choose_precision(settings.precision, scored, plans[0][2], settings.seed, around)
    problem = Problem(subsets, scored, settings.kernel, settings.refresh_steps, settings.tune, dtype, expanded)
    begun = []
    for chains, U, batch in plans:
        columns = to_columns(batch, dtype, axis=1)
        counts = subsets.counts(U)
        theta = find_starts(scored, (columns, U.tilt, counts), settings.seed, chains, given, expanded, dtype)
        begun.append((chains, U, columns, counts, theta))
    cohorts = [Cohort(problem, *start) for start in begun]
    display.say(
        f"{settings.chains} chains: {settings.tune} moves of tune, then {settings.draws} draws. "
        f"Each move reads {n:,} of {N:,} rows; epsilon {subsets.epsilon:.3g}, {np.dtype(dtype).name}."
    )
    return Run(settings, problem, cohorts, surveyed)


def expand(
    model: Model, rows: Rows, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display
) -> Reference:
    """θ̂, found or as given, and what all rows say there."""
    if settings.reference is not None:
        return reference_at(model, rows, flat(model, settings.reference, "reference"))
    start = given[0] if given else model.ravel(model.init)
    found = find_reference(
        model, rows, start, settings.seed, lambda passes: display.show("mode", passes, passes, "passes over all rows")
    )
    display.say(f"Reference point found in {found.passes} passes over all rows.")
    return found


def subset_chain(
    model: Model,
    rows: Rows,
    settings: Settings,
    statistic: Statistic | None,
    expanded: Reference | None,
    one: Any,
) -> SubsetChain:
    """The U chain with its ε settled."""
    n, move = settings.subset_size, settings.subset_move
    carry = None if expanded is None else scores(model, expanded)
    if statistic is None:
        assert expanded is not None
        statistic = Curvature().at(model, expanded, len(rows))
    page = page_length(entry_bytes(model, one, statistic, move.replaced(n)))
    epsilon = settings.epsilon or 1.0
    leverage = None if expanded is None else choose_leverage(model, rows, settings, expanded)
    chain = SubsetChain(rows, statistic, move, settings.subset_weight, epsilon, n, settings.seed, page, carry, leverage)
    return chain if settings.epsilon is not None else chain.at(find_epsilon(chain))


def choose_leverage(model: Model, rows: Rows, settings: Settings, expanded: Reference) -> Leverage | None:
    """q where it is asked for, or where one row would hold much of a direction's curvature in a uniform subset."""
    if settings.leverage is False:
        return None
    found = find_leverage(model, rows, expanded)
    needed = found.largest * model.dimension**0.5 / settings.subset_size > NEEDED
    return found if settings.leverage is True or needed else None


def require_definite(distance: NDArray[np.float64], n: int, N: int) -> None:
    """Refuse subsets whose curvature is so far from that of all rows that it need not be positive definite.

    Distances fall like 1/√n, so this tells which n would do.
    """
    if (worst := float(distance.max())) >= 1.0:
        enough = min(N, int(np.ceil(n * (worst / 0.5) ** 2)))
        raise InputError(
            f"subset_size={n} is too small for the calibrated target: a subset's curvature differs from that of all "
            f"rows by {worst:.2g} of it, and must differ by less than 1. Pass subset_size={enough}, or less epsilon."
        )


def cohorts_of(chains: int) -> list[list[int]]:
    """Chains by cohort: two at least, for two cores, all of one size. The last is filled up with chains to discard."""
    if jax.default_backend() != "cpu":
        return [list(range(chains))]
    size = min(-(-chains // 2), LARGEST_COHORT)
    return [list(range(first, first + size)) for first in range(0, chains, size)]


def entry_bytes(model: Model, one: Any, statistic: Statistic, k: int) -> int:
    """What one move of one chain takes on the tape and among the draws."""
    row = sum(leaf.nbytes for leaf in jax.tree.leaves(one))
    return k * (row + 8 * statistic.dimension + 12) + 16 * model.dimension


def choose_precision(asked: str, target: Target, batch: Any, seed: int, given: list[NDArray[np.float64]] | None) -> Any:
    """float32 unless it is asked otherwise or its rounding would disturb the acceptance ratio.

    The noise is measured: w √(2 Σ_U (ℓ32 - ℓ64)²) near the start, over the first cohort's subsets.
    """
    if asked != "auto":
        return np.dtype(asked).type
    rng = generator(seed, Purpose.PRECISION, 0)
    start = given[0] if given else target.model.ravel(target.model.init)
    theta = start + 0.1 * rng.normal(size=(jax.tree.leaves(batch)[0].shape[0], len(start)))
    single, double = (
        np.asarray(evaluate(target, theta.astype(dtype), to_columns(batch, dtype, axis=1)).rows, np.float64)
        for dtype in (np.float32, np.float64)
    )
    with np.errstate(invalid="ignore"):  # inf - inf, where the model is not finite: the starts are checked next
        noise = target.power * np.sqrt(2 * ((single - double) ** 2).sum(-1))
    noise = noise[np.isfinite(noise)]
    return np.float64 if len(noise) and noise.max() > ROUNDING else np.float32


def conclude(run: Run, outcome: Outcome, seconds: float) -> Result:
    """Name the draws, record how they came about, and say what a user should know."""
    settings, problem, kept = run.settings, run.problem, outcome.kept
    model = problem.target.model
    posterior, start = {}, 0
    for name, shape in model.shapes.items():
        size = int(np.prod(shape))
        posterior[name] = kept.theta[..., start : start + size].reshape(*kept.theta.shape[:2], *shape)
        start += size
    stats = {name: values for name, values in kept._asdict().items() if name != "theta"}
    if problem.subsets.statistic.dimension == 0:
        stats["subset_distance"] = np.full_like(stats["subset_distance"], np.nan)
    told = remarks(run, outcome)
    attributes = {
        "inference_library": "lwa",
        "inference_library_version": __version__,
        "versions": {name: version(name) for name in ("jax", "jaxlib", "numpy")}
        | {"python": platform.python_version()},
        "seed": settings.seed,
        "target": settings.target,
        "exact": settings.exact,
        "subset_size": settings.subset_size,
        "rows": run.survey.length,
        "fingerprint": run.survey.fingerprint,
        "epsilon": problem.subsets.epsilon if np.isfinite(problem.subsets.epsilon) else "inf",
        "thinning": outcome.thinning,
        "precision": np.dtype(problem.dtype).name,
        "leverage": problem.subsets.leverage is not None,
        "page_moves": problem.page,
        "cohort_chains": len(run.cohorts[0].chains),
        "moves": outcome.moves,
        "tune_moves": outcome.tuned,
        "rows_read": outcome.rows_read,
        "nonfinite_proposals": outcome.invalid,
        "seconds": round(seconds, 3),
        "sampling_seconds": round(outcome.seconds, 3),
        "stopped": outcome.stopped,
        "warnings": told,
        "settings": settings.record(),
    }
    for remark in told:
        warnings.warn(remark, LwaWarning, stacklevel=3)
    dims = {name: list(axes) for name, axes in (model.dims or {}).items()}
    coords = {name: list(labels) for name, labels in (model.coords or {}).items()}
    return Result(posterior, stats, attributes, dims, coords, (model, problem.subsets.rows))


def step_of_the_mode(run: Run) -> float:
    """How far the mode of the powered target moves when k of n rows are exchanged, in sds of the N-row posterior.

    To first order the mode moves by H_N⁻¹ (N/n) Σ (g_in - g_out), and rows' gradients have variance H_N / N where the
    model is right: √(2 k N) / n along any direction, whatever the model.
    """
    settings, N = run.settings, run.survey.length
    if settings.target != "powered" or settings.exact or settings.subset_size == N:
        return 0.0
    return float(np.sqrt(2 * settings.subset_move.replaced(settings.subset_size) * N) / settings.subset_size)


def remarks(run: Run, outcome: Outcome) -> list[str]:
    """What a user should know before they trust the draws."""
    told = []
    if outcome.stopped:
        told.append(f"Stopped early: {outcome.stopped.removesuffix('.')}.")
    if outcome.invalid:
        share = outcome.invalid / max(1, outcome.moves * run.settings.chains)
        told.append(
            f"{outcome.invalid} proposals ({share:.1%}) had a log target that was NaN or +inf and were rejected. "
            "Mend the model there, or give those values log density -inf."
        )
    lag, size = step_of_the_mode(run), run.settings.subset_size
    if lag > 2.0 * run.settings.refresh_steps**0.5:
        enough = "" if run.settings.subset_move.replaced(size) == size else f"subset_size={int(lag * size / 2) + 1}, "
        told.append(
            f"Each refresh of U moves the subset's own mode by about {lag:.0f} posterior sds, faster than theta "
            f"follows, so the draws lag behind. Pass {enough}refresh_steps={int(lag**2 / 4) + 1} or "
            "target='subposterior'."
        )
    if outcome.kept.lp.size and (rate := float(outcome.kept.acceptance_rate.mean())) < 0.05:
        told.append(f"Only {rate:.1%} of the moves were accepted: the kernel did not adapt. Pass a longer tune.")
    return told
