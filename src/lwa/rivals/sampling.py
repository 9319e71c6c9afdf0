"""The verb: run a rival by name, return the same Result as `lwa.sample`."""

import platform
import time
import warnings
from dataclasses import fields, replace
from importlib import import_module
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa import __version__
from lwa.backend.random import Purpose, as_seed, generator, keys
from lwa.data.data import Data, lay_out
from lwa.data.lead_in import measured
from lwa.errors import InputError, LwaWarning, ModelError, one_of
from lwa.kernels.autoregressive import Autoregressive
from lwa.kernels.blockwise import Blockwise
from lwa.kernels.kernel import MetropolisKernel
from lwa.kernels.random_walk import RandomWalk
from lwa.models.check import named
from lwa.models.model import Model
from lwa.models.unbound import Unbound, require_model
from lwa.result.result import Origin, Result, free_axis
from lwa.rivals.engine import Outcome, Plan, carry_out
from lwa.rivals.problem import Problem, choose_precision, gaussian_of, hold
from lwa.rivals.record import Steps
from lwa.rivals.rival import Rival, Setting
from lwa.rows import Survey, survey
from lwa.run.budget import as_budget
from lwa.run.loop import since_the_call
from lwa.run.settings import plain, whole, yes_or_no
from lwa.run.starts import flat, given_starts
from lwa.targets.reference import Reference, find_reference, log_posterior, not_differentiable, reference_at
from lwa.user.progress import Display

RIVALS = {
    "metropolis": "Metropolis",
    "confidence": "Confidence",
    "austerity": "Austerity",
    "firefly": "Firefly",
    "delayed_acceptance": "DelayedAcceptance",
    "pseudo_marginal": "PseudoMarginal",
    "noisy": "Noisy",
    "sgld": "SGLD",
}
"""Each in the module of its name."""


def rival_of(method: Any, options: dict[str, Any]) -> Rival:
    """A rival by name and hyperparameters, or as it is."""
    if isinstance(method, Rival):
        if options:
            raise InputError(f"{type(method).__name__}(...) has its own hyperparameters; leave out {list(options)}.")
        return method
    if not isinstance(method, str) or method not in RIVALS:
        raise one_of("name", method, list(RIVALS))
    kind = getattr(import_module(f"lwa.rivals.{method}"), RIVALS[method])
    known = [field.name for field in fields(kind)]
    if strange := [name for name in options if name not in known]:
        raise InputError(
            f"{strange[0]}={options[strange[0]]!r} is no option of {method!r}. Valid: {', '.join(known) or 'none'}."
        )
    made: Rival = kind(**options)
    return made


def sample(
    name: Any,
    model: Model | Unbound,
    data: Any,
    *,
    draws: int | str = 1000,
    tune: int = 1000,
    chains: int = 4,
    thinning: int = 1,
    seed: int | None = None,
    budget: Any = None,
    initvals: Any = None,
    reference: Any = None,
    kernel: Any = "walk",
    progress: bool = True,
    keep_tune: bool = False,
    **options: Any,
) -> Result:
    """Draw θ by another paper's algorithm, from the same model and data, with the same counts of rows read.

    Parameters
    ----------
    name
        `"metropolis"`, `"confidence"`, `"austerity"`, `"firefly"`, `"delayed_acceptance"`, `"pseudo_marginal"`,
        `"noisy"` or `"sgld"`; or an object such as `lwa.rivals.Austerity(epsilon=0.01)`.
    model, data
        As `lwa.sample` takes them. All rows are held in memory.
    draws
        Kept draws a chain; or `"auto"`, with a budget: as many as it allows, thinned to what 64 MiB hold.
    tune, chains, thinning
        Steps that adapt the proposal and are dropped; chains; steps a kept draw.
    seed, budget, initvals, progress, keep_tune
        As `lwa.sample` takes them.
    reference
        A θ in the bulk of the posterior, in the place of the mode. Proposals are shaped by the curvature there, and
        methods that expand the log-likelihood do so there. Without derivatives proposals learn from the path; so they
        do with `False`, where no mode is looked for.
    kernel
        `"walk"`, as the papers have it: a random walk, by the curvature at the mode or else by its path; `"gaussian"`,
        `lwa.sample`'s own: from the Gaussian at the mode, whatever θ is, with a walk now and then, and falling back to
        it where the posterior is not near Gaussian. Or an object of `lwa.kernels` of either kind, or its
        `Blockwise(...)`, one block of parameters at a time.
    options
        The method's own hyperparameters, such as `epsilon=0.01` of `"austerity"`.

    Returns
    -------
    Result
        As that of `lwa.sample`; `sample_stats["n_rows_read"]` counts a row that is evaluated at θ and at θ′ twice.

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
    rival = rival_of(name, options)
    plan = Plan(
        None if isinstance(draws, str) and draws == "auto" else whole("draws", draws, least=1, example=1000),
        whole("tune", tune, least=0, example=1000),
        whole("thinning", thinning, least=1, example=1),
        as_seed(seed),
        as_budget(budget),
        yes_or_no("keep_tune", keep_tune),
    )
    if plan.draws is None and budget is None:
        raise InputError("draws='auto' needs a budget. Pass budget='60 s' with it, or draws=1000.")
    chains = whole("chains", chains, least=1, example=4)
    walk = as_kernel(kernel)
    with Display(progress) as display, jax.enable_x64(True):
        layout = lay_out(model, data, display).checked(np.float64)
        given = given_starts(layout.given, initvals, chains)
        N = len(layout)
        surveyed = survey(layout.rows, progress=lambda done: display.show("all rows", done, N))
        require_fit(rival, layout, "")  # before any costly pass
        layout, expanded, fault = at_the_mode(layout, reference, given, plan.seed, display)
        require_fit(rival, layout, fault)
        problem, remarks = pose(rival, layout, expanded, walk, plan.seed)
        starts = find_starts(layout, expanded, given, plan.seed, chains)
        amount = "as many draws as the budget allows" if plan.draws is None else f"{plan.draws:,} draws"
        display.say(f"{rival.label}: {chains} chains, {plan.tune:,} steps of tune, then {amount}, on {N:,} rows.")
        outcome = carry_out(rival, problem, starts, plan, display)
    seconds = time.monotonic() - began
    fit = result_of(rival, layout, plan, chains, surveyed, outcome, seconds, remarks, problem.kernel)
    if outcome.fault is not None:
        outcome.fault.lwa_result = fit  # type: ignore[attr-defined]
        outcome.fault.add_note(f"lwa kept {fit.draws} draws: they are error.lwa_result")
        raise outcome.fault
    for remark in fit.attributes["warnings"]:
        warnings.warn(remark, LwaWarning, stacklevel=2)
    return fit


def require_fit(rival: Rival, layout: Data, fault: str) -> None:
    """Refuse a method that does not apply; `fault` is why there is no mode."""
    if reason := rival.excluded(Setting(layout.given, differentiable(layout), fault)):
        raise InputError(f"{rival.label} does not apply: it {reason}.")


def pose(
    rival: Rival, layout: Data, expanded: Reference | None, walk: MetropolisKernel, seed: int
) -> tuple[Problem, list[str]]:
    """All rows in memory, in a random order, and what the method must know of them; and what to say of that."""
    order = generator(seed, Purpose.RIVAL_ORDER, 0).permutation(len(layout.full))
    problem = Problem(
        layout.model, len(layout.full), hold(layout.full, order), len(layout) / len(layout.full),
        None if expanded is None else gaussian_of(expanded),
        bound(walk, layout.model) if expanded is not None or not isinstance(walk, Autoregressive) else RandomWalk(),
    )  # fmt: skip
    measuring, preparing = keys(seed, Purpose.RIVAL_PREPARATION, [0, 1])
    if rival.single:
        problem = choose_precision(measuring, problem)
    own, remarks = rival.prepare(preparing, problem)
    return replace(problem, own=own), remarks


def bound(walk: MetropolisKernel, model: Model) -> MetropolisKernel:
    """The kernel with its blocks found in θ, where it has some."""
    return walk.bind(model) if isinstance(walk, Blockwise) else walk


def as_kernel(kernel: Any) -> MetropolisKernel:
    """Q by name, or as it is."""
    known = {"walk": RandomWalk(), "gaussian": Autoregressive()}
    if isinstance(kernel, str) and kernel in known:
        return known[kernel]
    if isinstance(kernel, RandomWalk | Blockwise):
        return kernel
    if isinstance(kernel, Autoregressive) and kernel.df == float("inf"):
        return kernel
    raise InputError(
        f"kernel={kernel!r} is not known. Valid: 'walk', 'gaussian', lwa.kernels.RandomWalk(...), Blockwise(...) or "
        "Autoregressive(...) with df=inf."
    )


def differentiable(layout: Data) -> str:
    """Why JAX cannot differentiate the model twice; nothing where it can."""
    if layout.given.host:
        return "the model is not JAX"
    one = layout.full.take(np.zeros(1, np.int64))
    fault = not_differentiable(layout.model, one, lambda function: jax.jacfwd(jax.grad(function)))
    return "" if fault is None else f"JAX cannot differentiate {fault[0]}: {fault[1]}"


def at_the_mode(
    layout: Data, reference: Any, given: list[NDArray[np.float64]] | None, seed: int, display: Display
) -> tuple[Data, Reference | None, str]:
    """The Gaussian at the mode, or why there is none; for a sequence, segments that look back far enough."""
    if reference is False:
        return layout, None, "none was looked for, as reference=False asks"
    if fault := differentiable(layout):
        return layout, None, fault
    model = layout.model

    def expand(layout: Data, start: NDArray[np.float64]) -> Reference:
        if reference is not None:
            return reference_at(model, layout.full, flat(model, reference, "reference"))
        return find_reference(
            model, layout.full, start, seed, lambda passes: display.show("mode", passes, passes, "passes over all rows")
        )

    if isinstance(reference, Reference):  # found before
        return layout, reference, ""
    try:
        found = expand(layout, given[0] if given else model.ravel(model.init))
        if layout.ordered:
            looked_back = layout.lead_in
            layout = measured(layout, found.theta, found.factor)[0]
            if layout.lead_in > looked_back:
                found = expand(layout, found.theta)
    except ModelError as error:
        if reference is not None:
            raise
        return layout, None, str(error)
    return layout, found, ""


def find_starts(
    layout: Data, expanded: Reference | None, given: list[NDArray[np.float64]] | None, seed: int, chains: int
) -> NDArray[np.float64]:
    """A start a chain: given, of the Gaussian at the mode, of the prior, or `init`."""
    model = layout.given

    def one(chain: int) -> NDArray[np.float64]:
        if given is not None:
            return given[chain]
        if expanded is not None:
            draw = generator(seed, Purpose.START, chain).normal(size=model.dimension)
            return expanded.theta + expanded.factor @ draw
        if model.prior_draw is not None:
            return flat(model, model.prior_draw(keys(seed, Purpose.START, [chain])[0]), "prior_draw")
        return model.ravel(model.init)

    starts = np.stack([one(chain) for chain in range(chains)])
    values = log_posterior(layout.model, layout.full, starts)
    for chain, value in enumerate(values):
        if not np.isfinite(value):
            raise ModelError(
                f"Chain {chain} has no finite log posterior at its start theta = {named(model, starts[chain])}. "
                "Pass initvals=... where the model is finite, or mend the model there."
            )
    return starts


def result_of(
    rival: Rival,
    layout: Data,
    plan: Plan,
    chains: int,
    surveyed: Survey,
    outcome: Outcome,
    seconds: float,
    remarks: list[str],
    kernel: MetropolisKernel,
) -> Result:
    """Draws by name, and how they came about."""
    model = layout.given
    posterior, stats = as_arrays(model, outcome.kept, outcome.thinning, chains)
    theta = posterior.pop("")
    warmup: dict[str, NDArray[Any]] | None = None
    warmup_stats: dict[str, NDArray[Any]] | None = None
    if plan.keep_tune:
        warmup, warmup_stats = as_arrays(model, outcome.warmup, plan.thinning, chains)
        warmup.pop("")
    told = [*remarks, *(["Stopped early: " + outcome.stopped + "."] if outcome.stopped else []), *rival.tell(stats)]
    if outcome.invalid:
        told.append(f"{outcome.invalid} proposals had a log density that was NaN or +inf and were rejected.")
    before = seconds - outcome.seconds
    attributes = {
        "inference_library": "lwa",
        "inference_library_version": __version__,
        "versions": {one: version(one) for one in ("jax", "jaxlib", "numpy")} | {"python": platform.python_version()},
        "method": rival.name,
        "paper": rival.paper,
        "exact": rival.exact,
        "rows": len(layout),
        "fingerprint": surveyed.fingerprint,
        "seed": plan.seed,
        "thinning": outcome.thinning,
        "moves": outcome.steps,
        "tune_moves": outcome.tuned,
        "rows_read": outcome.rows,
        "nonfinite_proposals": outcome.invalid,
        "seconds": round(seconds, 3),
        "sampling_seconds": round(outcome.seconds, 3),
        "clock": since_the_call(outcome.clock, before),
        "tune_clock": since_the_call(outcome.tune_clock, before),
        "stopped": outcome.stopped,
        "warnings": told,
        "kernel": plain(kernel),
        "proposal_variances": kernel.proposal_variances(outcome.walk) if rival.walks else [],
        "settings": {"method": plain(rival)} | {name: plain(value) for name, value in vars(plan).items()},
    }
    dims = {name: list(axes) for name, axes in (model.dims or {}).items()}
    coords = {name: list(labels) for name, labels in (model.coords or {}).items()}
    unconstrained = None
    if model.constrained:
        unconstrained = model.free_by_name(theta)
        coords |= {free_axis(name): support.scalar_names(name) for name, support in model.supports.items()}
    origin = Origin(model, layout, cannot_polish)
    return Result(posterior, stats, attributes, dims, coords, origin, unconstrained, warmup, warmup_stats)


def cannot_polish(*_: Any) -> Any:
    """A rival has no subsets to polish by."""
    raise InputError("Only draws of lwa.sample can be polished. Pass exact=True to lwa.sample, or certify these draws.")


def as_arrays(
    model: Model, steps: list[Steps], thinning: int, chains: int
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Draws by name, the flat ones under no name, and sample_stats; arrays `(chains, draws, ...)`."""
    if not steps:
        theta = np.empty((chains, 0, model.dimension))
        return model.with_derived(theta) | {"": theta}, {"lp": np.empty((chains, 0))}
    kept = jax.tree.map(lambda *leaves: np.stack(leaves), *steps)
    stats = {
        "lp": kept.lp,
        "acceptance_rate": np.diff(kept.acceptance, axis=1, prepend=0.0) / thinning,
        "accepted": kept.accepted,
        "n_rows_read": np.diff(kept.rows, axis=1, prepend=0),
    } | kept.extra
    return model.with_derived(kept.theta) | {"": kept.theta}, stats
