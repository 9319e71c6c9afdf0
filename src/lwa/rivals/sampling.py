"""The verb: run a rival by name and return a Result, as `lwa.sample` does."""

import time
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, NoReturn

import jax
import numpy as np
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.data.data import lay_out
from lwa.errors import InputError, one_of, warn
from lwa.kernels.kernel import MetropolisKernel
from lwa.models.model import Model, Unbound, require_model
from lwa.result.result import Origin, Result
from lwa.rivals.engine import RivalOutcome, RivalPlan, RivalRun, Steps, run_rival
from lwa.rivals.prepare import GivenReference, as_rival_kernel, prepare_rival
from lwa.rivals.rival import Rival
from lwa.run.begin import read_starts
from lwa.run.conclude import attach_result, label_axes, record_costs, record_versions
from lwa.run.settings import BudgetOption, as_plain
from lwa.user.progress import Display
from lwa.user.validate import require_whole

RIVAL_CLASSES = {
    "metropolis": "Metropolis", "confidence": "Confidence", "austerity": "Austerity", "firefly": "Firefly",
    "delayed_acceptance": "DelayedAcceptance", "pseudo_marginal": "PseudoMarginal", "noisy": "Noisy", "sgld": "SGLD",
}  # fmt: skip
"""The class of each method, in the module of the method's name."""


def find_rival(method: object, options: dict[str, object]) -> Rival:
    """Return a rival by name and hyperparameters, or as it is."""
    if isinstance(method, Rival):
        if options:
            raise InputError(f"{type(method).__name__}(...) has its own hyperparameters; leave out {list(options)}.")
        return method
    if not isinstance(method, str) or method not in RIVAL_CLASSES:
        raise one_of("name", method, list(RIVAL_CLASSES))
    kind = getattr(import_module(f"lwa.rivals.{method}"), RIVAL_CLASSES[method])
    known = [field.name for field in fields(kind)]
    if strange := [name for name in options if name not in known]:
        raise InputError(
            f"{strange[0]}={options[strange[0]]!r} is no option of {method!r}. Valid: {', '.join(known) or 'none'}."
        )
    made: Rival = kind(**options)
    return made


def sample(
    name: str | Rival,
    model: Model | Unbound,
    data: PyTree,
    *,
    draws: int | str = 1000,
    tune: int = 1000,
    chains: int = 4,
    thinning: int = 1,
    seed: int | None = None,
    budget: BudgetOption = None,
    initvals: PyTree = None,
    reference: GivenReference = None,
    kernel: str | MetropolisKernel = "walk",
    progress: bool = True,
    keep_tune: bool = False,
    **options: object,
) -> Result:
    """Draw θ by another paper's algorithm, from the same model and data as `lwa.sample` takes, and count rows alike.

    Parameters
    ----------
    name
        `"metropolis"`, `"confidence"`, `"austerity"`, `"firefly"`, `"delayed_acceptance"`, `"pseudo_marginal"`,
        `"noisy"` or `"sgld"`; or an object such as `lwa.rivals.Austerity(epsilon=0.01)`.
    model, data
        As `lwa.sample` takes them. All rows are held in memory.
    draws
        Kept draws per chain; or `"auto"`, with a budget: as many as it allows, thinned to what 64 MiB hold.
    tune, chains, thinning
        Steps that adapt the proposal and are dropped; chains; steps per kept draw.
    seed, budget, initvals, progress, keep_tune
        As `lwa.sample` takes them.
    reference
        A θ in the bulk of the posterior, in place of the mode. The curvature there shapes proposals, and methods that
        expand the log-likelihood do so there. Without derivatives, or with `False`, no mode is looked for and
        proposals learn from the path.
    kernel
        `"walk"`, as in most of the papers: a random walk shaped by the curvature at the mode, or else by its path.
        `"gaussian"`, as in `lwa.sample`: proposals from the Gaussian at the mode, with a walk now and then, falling
        back to the walk if the posterior is not near Gaussian. Or a `RandomWalk(...)`, `Autoregressive(...)` or
        `Blockwise(...)` of `lwa.kernels`.
    options
        The method's own hyperparameters, such as `epsilon=0.01` of `"austerity"`.

    Returns
    -------
    Result
        As `lwa.sample` returns; `sample_stats["n_rows_read"]` counts a row that is evaluated at θ and at θ′ twice.

    Examples
    --------
    >>> import numpy as np, lwa
    >>> y = np.random.default_rng(0).normal(3.0, 1.0, 10_000)
    >>> model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * (mu / 10) ** 2, init=0.0)
    >>> fit = lwa.rivals.sample("austerity", model, y, draws=200, tune=100, seed=1, progress=False)
    >>> fit.posterior["theta"].shape
    (4, 200)
    """
    began = time.monotonic()
    require_model(model)
    rival, proposals = find_rival(name, options), as_rival_kernel(kernel)
    plan = RivalPlan.check(draws=draws, tune=tune, thinning=thinning, seed=seed, budget=budget, keep_tune=keep_tune)
    chains = require_whole("chains", chains, least=1, example=4)
    with Display(progress) as display, jax.enable_x64(True):
        laid_out = lay_out(model, data, display)
        run = prepare_rival(
            rival, laid_out, plan, proposals, starts=read_starts(laid_out.given, initvals, chains), chains=chains,
            reference=reference, display=display,
        )  # fmt: skip
        display.say(run.in_words)
        outcome = run_rival(run, display)
    fit = build_result(run, outcome, time.monotonic() - began)
    if outcome.fault is not None:
        raise attach_result(outcome.fault, fit)
    for remark in fit.attributes["warnings"]:
        warn(remark)
    return fit


def build_result(run: RivalRun, outcome: RivalOutcome, seconds: float) -> Result:
    """Return the draws of a run that took so many seconds, with warnings among its attributes."""
    rival, plan, model, kernel = run.rival, run.plan, run.data.given, run.problem.kernel
    chains = len(run.starts)
    theta, stats = name_stats(outcome.kept, outcome.thinning, chains, model)
    path, path_stats = name_stats(outcome.warmup, plan.thinning, chains, model)
    attributes = {
        **record_versions(), "method": rival.name, "paper": rival.paper, "exact": rival.exact, "rows": len(run.data),
        "fingerprint": run.fingerprint, "seed": plan.seed, **record_costs(outcome, seconds),
        "warnings": collect_warnings(run, outcome, stats), "kernel": as_plain(kernel),
        "proposal_variances": kernel.proposal_variances(outcome.walk) if rival.walks else [],
        "settings": {"method": as_plain(rival)} | {name: as_plain(value) for name, value in vars(plan).items()},
    }  # fmt: skip
    dims, coords = label_axes(model)
    return Result(
        model.with_derived(theta), stats, attributes, dims, coords, origin=Origin(model, run.data, refuse_polish),
        unconstrained=model.free_by_name(theta) if model.constrained else None,
        warmup=model.with_derived(path) if plan.keep_tune else None,
        warmup_stats=path_stats if plan.keep_tune else None,
    )  # fmt: skip


def name_stats(
    kept: Steps | None, thinning: int, chains: int, model: Model
) -> tuple[Float64[np.ndarray, "chains draws d"], dict[str, NDArray[Any]]]:
    """Return the flat draws and `sample_stats` of kept steps."""
    if kept is None:
        return np.empty((chains, 0, model.dimension)), {"lp": np.empty((chains, 0))}
    theta, info = jax.tree.map(np.asarray, kept)
    rate, rows = np.diff(info.acceptance, axis=1, prepend=0.0) / thinning, np.diff(info.rows, axis=1, prepend=0)
    stats = {"lp": info.lp, "acceptance_rate": rate, "accepted": info.accepted, "n_rows_read": rows}
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
