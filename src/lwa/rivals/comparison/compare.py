"""The verb: run several methods on the same model and data, from the same starts, under the same budget."""

import time
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import PyTree

from lwa.backend.random import as_seed
from lwa.data.data import lay_out
from lwa.errors import InputError
from lwa.models.model import Model, Unbound, require_model
from lwa.result.result import Result
from lwa.rivals.bounds import RowBound
from lwa.rivals.comparison import methods as known
from lwa.rivals.comparison.judge import Judge, read_moments
from lwa.rivals.comparison.table import Comparison, Line
from lwa.rivals.prepare import as_rival_kernel, describe_setting, find_mode
from lwa.run.begin import read_starts
from lwa.run.budget import as_budget
from lwa.run.settings import BudgetOption
from lwa.user.progress import REASONS, Display
from lwa.user.validate import require_whole


def compare(
    model: Model | Unbound,
    data: PyTree,
    methods: str | Sequence[str | known.Method] = "auto",
    *,
    budget: BudgetOption = "60 s",
    chains: int = 4,
    tune: int = 1000,
    subset_size: int | str = 1000,
    bound: RowBound | None = None,
    kernel: str = "gaussian",
    seed: int | None = None,
    initvals: PyTree = None,
    reference: object = None,
    progress: bool = True,
) -> Comparison:
    """Draw from one posterior by several methods, each under the same budget and from the same starts.

    The clock of each method includes all that it needs: finding the mode, which is done once and charged to each,
    preparing and compiling, tune and sampling. A method that does not apply (ordered data, no bound, no gradient) is
    listed with the reason.

    Parameters
    ----------
    model, data
        As `lwa.sample` takes them.
    methods
        Names, such as `["lwa", "metropolis", "confidence_proxy", "sgld"]`, or objects, such as
        `lwa.rivals.Austerity(epsilon=0.01)` and `lwa.rivals.comparison.Lwa(subset_size=100)`. `"auto"` is all.
    budget
        What each method may spend on tune and sampling: seconds, `"60 s"` or `lwa.RowReads(10**9)`.
    chains, tune, seed
        Chains of each method; steps that adapt and are dropped, half the budget at most; a whole number.
    subset_size
        Rows that lwa reads per step.
    bound
        Firefly's lower bound of the likelihood, such as `lwa.rivals.JaakkolaJordan()`.
    kernel
        Where rivals' proposals come from: `"gaussian"`, the Gaussian at the mode, as in lwa, or `"walk"`, a random
        walk, as in most of the papers.
    initvals
        Starts, as `lwa.sample` takes them. By default draws of the Gaussian at the mode, twice as wide.
    reference
        Draws of the posterior (a `lwa.Result`, DataTree or dict of arrays) that errors are measured against. By
        default the certificate's mean and sd of the posterior, from gradients of all rows at the draws of the first
        method that gave enough of them.
    progress
        Show progress. Ctrl-C ends the comparison and keeps the runs that are there.

    Returns
    -------
    Comparison
        `print` it, or see `comparison.table()`, `comparison.figure("figure.png")` and `comparison.save(folder)`. Its
        `fits` keep 10,000 draws per chain at most, spread evenly; lines were measured on all draws.

    Examples
    --------
    >>> import numpy as np, lwa
    >>> y = np.random.default_rng(0).normal(3.0, 1.0, 10_000)
    >>> model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * (mu / 10) ** 2, init=0.0)
    >>> found = lwa.compare(model, y, ["lwa", "metropolis"], budget="1 s", subset_size=100, seed=1, progress=False)
    >>> list(found.table().index)
    ['lwa, n = 100', 'metropolis']
    """
    require_model(model)
    chosen, seed = known.find_methods(methods, subset_size, bound), as_seed(seed)
    chains = require_whole("chains", chains, least=1, example=4)
    tune = require_whole("tune", tune, least=0, example=1000)
    allowed = as_budget(budget)
    as_rival_kernel(kernel)
    if budget is None:
        raise InputError("A comparison needs a budget. Pass budget='60 s', for example.")
    laid_out = lay_out(model, data, progress)
    model = laid_out.given
    with Display(progress) as display, jax.enable_x64(True):
        given = read_starts(model, initvals, chains)
        began = time.monotonic()
        laid_out, mode, no_mode = find_mode(laid_out, None, given, seed, display)
        charged = time.monotonic() - began
        setting = describe_setting(laid_out, no_mode)
        each = f"{allowed.seconds:g} s" if np.isfinite(allowed.seconds) else f"{allowed.rows:,.0f} row reads"
        display.say(f"{len(chosen)} methods, {each} of tune and sampling each, on {len(laid_out):,} rows.")
    common = known.CommonOptions(
        draws="auto", tune=tune, chains=chains, budget=budget, seed=seed, progress=progress,
        initvals=initvals if given is not None else known.draw_starts(laid_out.given, mode, seed, chains),
    )  # fmt: skip
    judge = Judge(model, laid_out, read_moments(model, reference), progress)
    by_label = known.label_methods(chosen)
    reasons, stopped = dict[str, str](), False
    for label, method in by_label.items():
        if reason := method.explain_exclusion(setting):
            reasons[label] = reason
        elif stopped:
            reasons[label] = "interrupted before its turn"
        else:
            outcome = known.try_method(method, model, laid_out, mode, kernel=kernel, common=common)
            if isinstance(outcome, str):
                reasons[label] = outcome
            else:
                judge.add(label, method.exact, add_seconds(outcome, charged))
                stopped = str(outcome.attributes.get("stopped", "")).startswith(tuple(REASONS.values()))  # by hand
    source = judge.finish()
    lines = tuple(
        Line(label, method.exact, reason=reasons[label]) if label in reasons else judge.lines[label]
        for label, method in by_label.items()
    )
    return Comparison(lines, judge.fits, len(laid_out), source, float(allowed.seconds))


def add_seconds(fit: Result, seconds: float) -> Result:
    """Return a run on a clock that started with the search for the mode, which all methods share."""
    held = fit.attributes
    clock = [[draws, round(at + seconds, 3)] for draws, at in held["clock"]]
    return replace(fit, attributes={**held, "clock": clock, "seconds": round(held["seconds"] + seconds, 3)})
