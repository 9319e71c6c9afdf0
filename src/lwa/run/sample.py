"""The verb: prepare, run, return a Result."""

import inspect
import os
import time
import warnings
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lwa.backend.machine import read_free_memory
from lwa.backend.xla import full_precision
from lwa.data.data import lay_out
from lwa.errors import ExecutorError
from lwa.executors import Executor
from lwa.executors.executor import require_executor
from lwa.models.model import Model, Unbound, require_model
from lwa.result.result import Result
from lwa.run.budget import Budget
from lwa.run.checkpoints.keeper import Folder, nothing
from lwa.run.checkpoints.resume import (
    FRESH,
    Begun,
    Fresh,
    arguments_of,
    closed,
    known,
    opened,
    require_new,
    starts_of,
    taken_up,
)
from lwa.run.conclude import conclude, variables_of
from lwa.run.loop import Outcome, Run, carry_out
from lwa.run.prepare import prepare_or_fall_back
from lwa.run.python_cost import in_python
from lwa.run.retention import Memory, retention_of
from lwa.run.settings import Settings
from lwa.run.starts import given_starts
from lwa.storage.stream import build_record
from lwa.user.progress import Display, Stopwatch, open_display

NO_SETTINGS = ("model", "data", "initvals", "progress", "executor")
"""Arguments of `sample` that no file keeps as they are."""


def sample(
    model: Model | Unbound,
    data: Any,
    *,
    subset_size: int | str = 1000,
    target: str = "calibrated",
    exact: bool = False,
    summary: Any = "auto",
    epsilon: float | str = "auto",
    draws: int | str = 1000,
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
    keep_tune: bool = False,
    keep: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
) -> Result:
    """Draw θ by Algorithm 1, reading `subset_size` rows a step whatever the number of rows.

    Parameters
    ----------
    model
        What is to be inferred: a `lwa.Model`, or what becomes one on seeing the data, such as `lwa.glm("y ~ x")`. Where
        its functions are not JAX they are called from Python; what they raise surfaces untouched, with the draws kept
        so far, if any, as its attribute `lwa_result`.
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
        Kept draws a chain, or with a budget `"auto"`: as many moves as it allows, thinned to what 64 MiB hold; θ moves
        that adapt the kernel and are dropped; chains.
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
        Q, of `lwa.kernels`: `RandomWalk(...)`, adaptive; `Blockwise([["mu"], ["sigma", "beta"]])`, one block of
        parameters at a time; `MALA(...)`, `HMC(steps=8)` and `NUTS(...)`, along the gradient, for models in JAX; for
        `"calibrated"` also `Autoregressive(...)` and `Independence(df=8)`, from the Gaussian or Student's t at θ̂.
        `"auto"` is autoregressive for `"calibrated"`, else the random walk.
    refresh_steps
        L, the θ moves after a refresh of U. θ's law is the mixture Σ_U ν(U) π(θ|Y_U) only as L grows.
    initvals
        A θ for all chains or a list of one a chain, inside the model's constraints. Else each chain starts at a draw
        of its own, from the Gaussian at θ̂ for `"calibrated"`, else `prior_draw`; or at `init` where there is neither.
        More than 64 chains share such starts: 16 superchains, neighbours together, from 2 sds around θ̂ or from the
        prior, so that `fit.nested_rhat()` can tell whether they have forgotten them.
    leverage
        For `"calibrated"`: draw rows by their share of the curvature, and weigh them accordingly. `"auto"` does so
        where single rows matter, as with rare dummies or heavy tails.
    transport
        For `"calibrated"`: evaluate U's rows at θ̂ + A_U δ, with A_U such that U's curvature is that of all rows.
        Without it curvature varies with U and draws are too wide, unless `summary=lwa.summaries.Curvature()`.
        `"second_order"`, which `"auto"` is for more than 12 parameters, and on a GPU: the curvature of all rows, and
        only remainders of third order from U.
    tolerance
        Error of sds, as a share of them, that `subset_size="auto"` may leave.
    reference
        For `"calibrated"`: a θ in the bulk of the posterior. Else the mode, found in a few passes over all rows.
    progress
        Show what is going on. Ctrl-C ends the run and returns what is there.
    precision
        `"float32"`, `"float64"` or `"auto"`: float32 unless its rounding would be felt in the acceptance ratio. A model
        that is not JAX works in float64.
    keep_tune
        Keep the path of tune too, thinned as the draws are where `thinning` is a number: `fit.warmup`, which ArviZ
        calls `warmup_posterior`. These are no draws of the posterior.
    keep
        `"all"` draws; or a `"summary"` of all of them, made while they come, and of the draws themselves the last of
        each chain, as many as 64 MiB hold: `fit.summary()` and `fit.nested_rhat()` are then those of all draws, and
        anything else has the last ones. `"auto"` is the former where they fit a quarter of the memory that is free, or
        go to a checkpoint. It changes no draw.
    checkpoint
        A new folder: draws are streamed to it as they come, and the state of all chains is kept there every few
        seconds, so that `lwa.resume(folder, model, data)` can go on to the same draws whatever ends the process.
    executor
        Who computes passes over all rows, and plays the chains: `lwa.executors.Dask(client)`, a cluster;
        `lwa.executors.Processes(4)`, processes of this machine; this process where None. Draws are the same.

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
    asked = {name: value for name, value in locals().items() if name not in NO_SETTINGS}
    return drawn(model, data, asked, initvals, progress=progress, executor=executor)


@full_precision()
def drawn(
    model: Model | Unbound,
    data: Any,
    asked: dict[str, Any],
    initvals: Any,
    *,
    progress: bool | Display,
    executor: Executor | None = None,
    begun: Begun | None = None,
    fresh: Fresh = FRESH,
) -> Result:
    """Prepare, run, conclude; from where an earlier process left it, if one did."""
    require_model(model)
    require_executor(executor)
    settings = Settings.check(ordered=model.ordered is not False, **asked)
    if settings.checkpoint is not None and begun is None:
        require_new(settings.checkpoint, fresh)
    began = time.monotonic()
    with open_display(progress) as display:
        stages = display.stages
        with stages("layout"):
            layout = lay_out(model, data, display, executor)
        if layout.described:
            display.say(layout.described)
        layout.fit(settings.subset_size)
        settings.fit()
        starts = given_starts(layout.given, initvals, settings.chains) if begun is None else starts_of(begun)
        with jax.enable_x64(True), stages("planning"):
            layout = layout.checked(np.float32)
            settings, microseconds = in_python(layout, settings, starts, display)
            run = replace(prepare_or_fall_back(layout, settings, starts, display), microseconds=microseconds)
        try:
            run = known(replace(run, memory=memory_for(run)), begun)
            if run.settings.budget == Budget():  # else it depends on how far that goes
                display.say(retention_of(run.settings, run.memory, run.settings.draws)[1])
            with stages("saving"), opened(run, asked, starts, begun, fresh) as keeper:
                outcome = carry_out(run, display, keeper)
        except ExecutorError as error:
            raise noted(error, run) from error.__cause__
        finally:
            for cohort in run.cohorts:
                cohort.close()
    if outcome.fault is not None:
        raise with_result(outcome.fault, run, outcome, keeper, time.monotonic() - began, stages)
    fit = conclude(run, outcome, time.monotonic() - began, stages.record)
    with stages("saving"):
        return fit if keeper is None else closed(keeper, fit)


def memory_for(run: Run) -> Memory:
    """What a draw of a chain takes, in memory and on disk alike, and what is free."""
    return Memory(build_record(variables_of(run, nothing(run))).itemsize, read_free_memory())


def resume(
    folder: str | os.PathLike[str],
    model: Model | Unbound,
    data: Any,
    *,
    draws: int | None = None,
    budget: Any = None,
    progress: bool | Display = True,
    executor: Executor | None = None,
    **given: Any,
) -> Result:
    """Go on with a run that `lwa.sample(..., checkpoint=folder)` began, to the draws it would have made.

    They are the same bit for bit, with the same versions on a processor of the same kind. What draws depend on (data,
    model, settings, versions) is compared with what it was, and a run that would not be the same is refused.

    Parameters
    ----------
    folder
        What was passed as `checkpoint`.
    model, data
        As they were: a file keeps no functions and no rows.
    draws, budget
        In all, where more is wanted than was asked for then.
    progress
        Show what is going on.
    executor
        Who computes; draws do not depend on it.
    given
        Settings that a file cannot hold, such as `summary=lwa.summaries.PerRow(function)`, as they were.

    Returns
    -------
    Result
        All draws, those made before among them.
    """
    begun, names = taken_up(folder), set(inspect.signature(sample).parameters) - {*NO_SETTINGS, "checkpoint"}
    asked = arguments_of(begun, given, draws, budget, names) | {"checkpoint": folder}
    return drawn(model, data, asked, None, progress=progress, executor=executor, begun=begun)


def with_result(
    fault: BaseException, run: Run, outcome: Outcome, keeper: Folder | None, seconds: float, stages: Stopwatch
) -> BaseException:
    """What the user's function raised, with the draws made before; warnings would take its place, so they are not
    given, but they are kept with the draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = conclude(run, outcome, seconds, stages.record)
        kept = kept if keeper is None else closed(keeper, kept)
    fault.lwa_result = kept  # type: ignore[attr-defined]
    fault.add_note(f"lwa kept {kept.draws} {run.settings.of_draws}: they are error.lwa_result")
    return noted(fault, run)


def noted(fault: BaseException, run: Run) -> BaseException:
    """An error, with how to go on from its checkpoint."""
    if run.settings.checkpoint is not None:
        fault.add_note(f"lwa.resume({str(run.settings.checkpoint)!r}, model, data) goes on from where it was")
    return fault
