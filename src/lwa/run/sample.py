"""`lwa.sample` and `lwa.resume`: check the settings, lay out the data, prepare, run, conclude."""

import inspect
import os
import time
import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
from jaxtyping import PyTree

from lwa.backend.xla import full_precision
from lwa.data.data import lay_out
from lwa.errors import ExecutorError
from lwa.executors import Executor
from lwa.executors.executor import require_executor
from lwa.models.model import Model, Unbound, require_model
from lwa.result.result import Result
from lwa.run import settings as options
from lwa.run.begin import Run, read_starts
from lwa.run.checkpoints import kept_runs
from lwa.run.conclude import attach_result, conclude
from lwa.run.loop import carry_out
from lwa.run.prepare import prepare
from lwa.user.progress import Display, open_display

NOT_KEPT = ("model", "data", "initvals", "progress", "executor")
"""Arguments of `sample` that a checkpoint does not store."""


def sample(
    model: Model | Unbound,
    data: object,
    *,
    subset_size: int | str | None = None,
    target: options.TargetOption = "calibrated",
    exact: bool = False,
    summary: options.SummaryOption = "auto",
    epsilon: float | str = "auto",
    draws: int | str = 1000,
    tune: int = 1000,
    chains: int = 4,
    thinning: int | str = "auto",
    seed: int | None = None,
    budget: options.BudgetOption = None,
    subset_move: options.MoveOption = None,
    subset_weight: options.WeightOption = "gaussian",
    kernel: options.KernelOption = "auto",
    refresh_steps: int = 1,
    initvals: PyTree[Any] = None,
    progress: bool = True,
    precision: str = "auto",
    keep_tune: bool = False,
    keep: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
) -> Result:
    """Draw θ by Algorithm 1, reading `subset_size` rows per step whatever the number of rows.

    Parameters
    ----------
    model
        A `lwa.Model`, or what becomes one on seeing the data, such as `lwa.glm("y ~ x")`. If its functions are not
        JAX, lwa calls them from Python. Exceptions that they raise surface unchanged, with the draws made so far, if
        any, as the attribute `lwa_result`.
    data
        An array or a dict of arrays that share their first axis, a pandas or polars DataFrame, an Arrow table, the path
        of a `.npy` file, or a `lwa.Rows`; for ordered data also a list of such series.
    subset_size
        n, the rows of a subset U (its groups, or the scored steps of its window). If None, it is 1000, more if draws
        are predicted to be off by more than the target's `tolerance`, and all rows if there are no more than 5000.
        `"auto"`: the fewest with which sds are predicted to be that right, as far as the budget goes.
    target
        The log density of θ given U. `"calibrated"`, or `lwa.targets.Calibrated(...)` with its options:
        log p + ⟨g_N, δ⟩ + N/n Σ_U R_k(A_U δ), δ = θ - θ̂, the linear term from all rows and only the remainder from U.
        `"powered"`: log p + N/n Σ_U ℓ_k. `"subposterior"`: log p + Σ_U ℓ_k. `"auto"` is calibrated if the model can be
        differentiated and has a mode, else powered with a warning.
    exact
        Correct the draws by the full posterior: after every `thinning` moves given U, one pass over all rows accepts or
        rejects where they led. Only Monte Carlo error is left; each draw costs a pass, shared by all chains.
    summary
        S, by which subsets are compared with all rows: `"auto"` (the mean of every column in units of its spread),
        `lwa.summaries.PerRow(function)` or `lwa.summaries.Counts(column)`. For the calibrated target `"auto"` is
        nothing, and `lwa.summaries.Curvature()` chooses subsets by their curvature. For ordered data `"auto"` is
        nothing too; windows have summaries of their own: `Quantiles(0.2, 0.5, 0.8)`, `Autocorrelations(5)`,
        `MinMax()`, `Moments(2)`, `Custom(function)` and `Combine` of these.
    epsilon
        ε of ν(U) ∝ Φ(‖S̄(Y_U) - s_N‖/ε), or `"auto"`: the tightest at which a quarter of U's proposals are accepted.
    draws, tune, chains
        Kept draws per chain, or `"auto"`: as many moves as the budget allows, thinned to what 64 MiB hold. Moves of θ
        that adapt the kernel and are dropped. The number of chains.
    thinning
        Transitions per kept draw, or `"auto"`: as many as a chain needs to forget, estimated from tune and from how
        fast subsets replace their rows.
    seed
        A whole number; the same one gives the same draws. If None, a fresh one is drawn and recorded.
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
        the calibrated target also `Autoregressive(...)` and `Independence(df=8)`, from the Gaussian or Student's t at
        θ̂. `"auto"` chooses by how many proposals from the Gaussian at θ̂ would be accepted.
    refresh_steps
        L, the moves of θ after a refresh of U. θ's law is the mixture Σ_U ν(U) π(θ|Y_U) only as L grows.
    initvals
        A θ for all chains or a list of one per chain, inside the model's constraints. By default each chain starts at
        its own draw: from the Gaussian at θ̂ for the calibrated target, else from `prior_draw`, else at `init`.
        More than 64 chains share such starts: 16 superchains, neighbours together, from 2 sds around θ̂ or from the
        prior, so that `fit.nested_rhat()` shows whether they have forgotten them.
    progress
        Show progress. Ctrl-C ends the run and returns the draws made so far.
    precision
        `"float32"`, `"float64"` or `"auto"`: float32 unless its rounding would affect the acceptance ratio. A model
        that is not JAX works in float64.
    keep_tune
        Keep the path of tune too, thinned as the draws are if `thinning` is a number: `fit.warmup`, which ArviZ calls
        `warmup_posterior`. These are not draws of the posterior.
    keep
        `"all"` draws; or a `"summary"` of all of them, made while they come, and the last draws of each chain, as many
        as 64 MiB hold: `fit.summary()` and `fit.nested_rhat()` are then of all draws, anything else of the last ones.
        `"auto"` keeps all if they fit a quarter of the free memory or go to a checkpoint. It changes no draw.
    checkpoint
        A new folder: lwa streams draws to it and writes the state of all chains every few seconds, so that
        `lwa.resume(folder, model, data)` continues to the same draws whatever ends the process.
    executor
        Where passes over all rows and the chains are computed: `lwa.executors.Dask(client)`, a cluster;
        `lwa.executors.Processes(4)`, processes of this machine; None, this process. Draws are the same.

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
    asked = {name: value for name, value in locals().items() if name not in NOT_KEPT}
    return run_stages(model, data, asked, initvals, progress=progress, executor=executor)


@full_precision()
def run_stages(
    model: Model | Unbound, data: object, asked: dict[str, Any], initvals: PyTree[Any], *, progress: bool | Display,
    executor: Executor | None = None, begun: kept_runs.Begun | None = None, fresh: kept_runs.Fresh = kept_runs.FRESH,
) -> Result:  # fmt: skip
    """Run all stages, from a checkpoint if `begun` is one."""
    require_model(model)
    if executor is not None:
        require_executor(executor)
    settings = options.Settings.check(asked, ordered=model.ordered is not False)
    if settings.checkpoint is not None and begun is None:
        kept_runs.require_new(settings.checkpoint, fresh)
    began = time.monotonic()
    with open_display(progress) as display:
        with display.stages("layout"):
            laid_out = lay_out(model, data, display, executor, np.float32)
        if begun is None:
            starts = read_starts(laid_out.given, initvals, settings.chains)
        else:
            starts = kept_runs.recall_starts(begun)
        run = prepare(laid_out, settings, starts, display)
        keeper, remarks = None, list[str]()
        try:
            remarks = [] if begun is None else kept_runs.check_identity(run, begun)
            display.say(run.retention_in_words)
            with (
                display.stages("saving"),
                nullcontext()
                if settings.checkpoint is None
                else kept_runs.open_run(run, settings.checkpoint, asked, starts, begun=begun, fresh=fresh) as keeper,
            ):
                outcome = carry_out(run, display, keeper)
        except ExecutorError as error:
            raise add_advice(error, run) from error.__cause__
        finally:
            for cohort in run.cohorts:
                cohort.close()

    def build_result() -> Result:
        fit = conclude(run, outcome, time.monotonic() - began, display.stages.record, remarks)
        with display.stages("saving"):
            return fit if keeper is None else kept_runs.finish_folder(keeper, fit)

    if outcome.fault is None:
        return build_result()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings would hide what the user's function raised; the result holds them
        fit = build_result()
    raise add_advice(attach_result(outcome.fault, fit, settings.of_draws), run)


def add_advice(fault: BaseException, run: Run) -> BaseException:
    """Return an error with a note on how to resume from the checkpoint, if there is one."""
    if run.settings.checkpoint is not None:
        fault.add_note(f"lwa.resume({str(run.settings.checkpoint)!r}, model, data) continues the run")
    return fault


def resume(
    folder: str | os.PathLike[str],
    model: Model | Unbound,
    data: object,
    *,
    draws: int | None = None,
    budget: options.BudgetOption = None,
    progress: bool | Display = True,
    executor: Executor | None = None,
    **given: Any,
) -> Result:
    """Continue a run that `lwa.sample(..., checkpoint=folder)` began, to the draws it would have made.

    They are the same bit for bit, with the same versions on a processor of the same kind. lwa compares everything that
    draws depend on (data, model, settings, versions), and raises if the run would not be the same.

    Parameters
    ----------
    folder
        The folder that was passed as `checkpoint`.
    model, data
        The same as before: a checkpoint holds no functions and no rows.
    draws, budget
        New totals, if more is wanted than was asked for before.
    progress
        Show progress.
    executor
        Where chains are computed; draws do not depend on it.
    given
        Settings that a file cannot hold, such as `summary=lwa.summaries.PerRow(function)`, the same as before.

    Returns
    -------
    Result
        All draws, including those made before.
    """
    begun = kept_runs.load_state(folder)
    names = set(inspect.signature(sample).parameters) - {*NOT_KEPT, "checkpoint"}
    asked = kept_runs.read_arguments(begun, given, names, draws=draws, budget=budget) | {"checkpoint": folder}
    return run_stages(model, data, asked, None, progress=progress, executor=executor, begun=begun)
