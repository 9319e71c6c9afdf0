"""The verb: several methods, the same model, data, starts and budget."""

import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.backend.random import Purpose, as_seed, generator
from lwa.data.data import Data, lay_out
from lwa.diagnostics.certify import certify
from lwa.diagnostics.draws import draws_of
from lwa.errors import InputError, LwaError
from lwa.models.model import Model
from lwa.models.unbound import Unbound, require_model
from lwa.models.user_calls import is_theirs
from lwa.result.result import Result
from lwa.rivals.comparison.error_in_time import Estimate, Moments, curve, estimates, worth
from lwa.rivals.comparison.methods import Method, Other, as_written, methods_of
from lwa.rivals.comparison.table import Comparison, Line
from lwa.rivals.rival import Setting
from lwa.rivals.sampling import as_kernel, at_the_mode, differentiable
from lwa.run.budget import as_budget
from lwa.run.settings import whole
from lwa.run.starts import read_starts
from lwa.targets.reference import Reference
from lwa.user.progress import REASONS, Display

MOST_SAVED = 10_000
"""Draws a chain that a comparison keeps of each run, once it is measured."""
SPREAD = 2.0
"""Starts are drawn from the Gaussian at the mode, so many times as wide: no chain begins where it should end."""


def compare(
    model: Model | Unbound,
    data: Any,
    methods: Any = "auto",
    *,
    budget: Any = "60 s",
    chains: int = 4,
    tune: int = 1000,
    subset_size: int | str = 1000,
    bound: Any = None,
    kernel: Any = "gaussian",
    seed: int | None = None,
    initvals: Any = None,
    reference: Any = None,
    progress: bool = True,
) -> Comparison:
    """Draw from one posterior by several methods, each under the same budget and from the same starts.

    The clock of each method has all that it needed: finding the mode, which is done once and charged to each, preparing
    and compiling, tune and sampling. A method that does not apply (ordered data, no bound, no gradient) is listed with
    the reason.

    Parameters
    ----------
    model, data
        As `lwa.sample` takes them.
    methods
        Names, such as `["lwa", "metropolis", "confidence_proxy", "sgld"]`, or objects, such as
        `lwa.rivals.Austerity(epsilon=0.01)` and `lwa.rivals.comparison.Lwa(subset_size=100)`. `"auto"` are all.
    budget
        What each method may spend on tune and sampling: seconds, `"60 s"` or `lwa.RowReads(10**9)`.
    chains, tune, seed
        Chains of each method; steps that adapt and are dropped, half the budget at the most; a whole number.
    subset_size
        n of lwa.
    bound
        Firefly's lower bound of the likelihood, such as `lwa.rivals.JaakkolaJordan()`.
    kernel
        Where rivals' proposals come from: `"gaussian"`, the Gaussian at the mode, as lwa's own do, or `"walk"`, a
        random walk, as most of their papers have it.
    initvals
        Starts, as `lwa.sample` takes them; else draws of the Gaussian at the mode, twice as wide.
    reference
        Draws of the posterior (a `lwa.Result`, DataTree or dict of arrays) that errors are measured against. Else the
        certificate's mean and sd of the posterior, from gradients of all rows at the draws of the first method that
        gave enough of them.
    progress
        Show what is going on. Ctrl-C ends the comparison and keeps what is there.

    Returns
    -------
    Comparison
        `print` it, or see `comparison.table()`, `comparison.figure("figure.png")` and `comparison.save(folder)`. Its
        `fits` keep 10,000 draws a chain at the most, spread evenly; lines were measured on all of them.

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
    chosen, seed = methods_of(methods, subset_size, bound, kernel), as_seed(seed)
    chains, tune = whole("chains", chains, least=1, example=4), whole("tune", tune, least=0, example=1000)
    allowed = as_budget(budget)
    as_kernel(kernel)
    if budget is None:
        raise InputError("A comparison needs a budget. Pass budget='60 s', for example.")
    layout = lay_out(model, data, progress)
    model = layout.given
    with Display(progress) as display, jax.enable_x64(True):
        layout = layout.checked(np.float64)
        given = read_starts(model, initvals, chains)
        began = time.monotonic()
        layout, expanded, fault = at_the_mode(layout, None, given, seed, display)
        charged = time.monotonic() - began
        setting = Setting(layout.given, differentiable(layout), fault)
        each = f"{allowed.seconds:g} s" if np.isfinite(allowed.seconds) else f"{allowed.rows:,.0f} row reads"
        display.say(f"{len(chosen)} methods, {each} of tune and sampling each, on {len(layout):,} rows.")
    starts = initvals if given is not None else spread_out(layout.given, expanded, seed, chains)
    common = {
        "draws": "auto", "tune": tune, "chains": chains, "budget": allowed, "seed": seed, "initvals": starts,
        "progress": progress,
    }  # fmt: skip
    judge = Judge(model, layout, given_moments(model, reference), progress)
    by_label = labelled(chosen)
    reasons: dict[str, str] = {}
    stopped = False
    for label, method in by_label.items():
        if reason := method.excluded(setting):
            reasons[label] = reason
        elif stopped:
            reasons[label] = "interrupted before its turn"
        else:
            outcome = attempt(method, model, layout, expanded, common)
            if isinstance(outcome, str):
                reasons[label] = outcome
            else:
                judge.hear(label, is_exact(method), charge(outcome, charged))
                stopped = stopped_by_hand(outcome)
    source = judge.finish()
    lines = tuple(
        Line(label, is_exact(method), reason=reasons[label]) if label in reasons else judge.lines[label]
        for label, method in by_label.items()
    )
    return Comparison(lines, judge.fits, len(layout), source, float(allowed.seconds))


def is_exact(method: Method) -> bool:
    """Whether the posterior of all rows is its limit."""
    return method.rival.exact if isinstance(method, Other) else bool(getattr(method, "exact", False))


def stopped_by_hand(fit: Result) -> bool:
    """Whether Ctrl-C ended it."""
    return str(fit.attributes.get("stopped", "")).startswith(tuple(REASONS.values()))


def labelled(methods: list[Method]) -> dict[str, Method]:
    """Methods by label; those with one label are numbered."""
    found: dict[str, Method] = {}
    for method in methods:
        same = sum(1 for other in found.values() if other.label == method.label)
        found[f"{method.label} ({same + 1})" if same else method.label] = method
    return found


def charge(fit: Result, seconds: float) -> Result:
    """The same on a clock that started when the mode was looked for, once for all methods."""
    told = fit.attributes
    clock = [[draws, round(at + seconds, 3)] for draws, at in told["clock"]]
    return replace(fit, attributes={**told, "clock": clock, "seconds": round(told["seconds"] + seconds, 3)})


def attempt(method: Method, model: Model, layout: Any, mode: Reference | None, common: dict[str, Any]) -> Result | str:
    """Its draws, or why there are none: what one method cannot do is no reason to lose the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kept with the run
        try:
            fit = method.run(model, layout, mode, common)
        except LwaError as error:
            return f"failed: {error}".rstrip(".")
        except Exception as error:
            if is_theirs(error):
                raise
            return f"failed with {type(error).__name__}: {error}".rstrip(".")
    return fit if fit.draws else "no draw was made within the budget"


def spread_out(model: Model, expanded: Reference | None, seed: int, chains: int) -> Any:
    """Starts around the mode as users would write them; None, for each method's own, where there is none."""
    if expanded is None:
        return None

    def one(chain: int) -> Any:
        z = generator(seed, Purpose.START, chain, 1).normal(size=model.dimension)
        return as_written(model, expanded.theta + SPREAD * expanded.factor @ z)

    return [one(chain) for chain in range(chains)]


class Judge:
    """Measures runs as they come: once the posterior is known, a run's line is drawn up and few of its draws are kept.

    Until then, as where the first methods gave too few draws for a certificate, runs wait whole.
    """

    def __init__(self, model: Model, layout: Data, moments: Moments | None, progress: bool) -> None:
        self.model, self.layout, self.moments, self.progress = model, layout, moments, progress
        self.waiting: dict[str, tuple[bool, Result]] = {}
        self.lines: dict[str, Line] = {}
        self.fits: dict[str, Result] = {}

    def hear(self, label: str, exact: bool, fit: Result) -> None:
        """The next run."""
        self.waiting[label] = (exact, fit)
        if self.moments is None:
            self.moments = certified(self.model, self.layout, label, fit, self.progress)
        if self.moments is not None:
            self._measure(self.moments)

    def finish(self) -> str:
        """Measure what still waits; returns what errors were measured against."""
        if self.moments is None and self.waiting:
            label, (_, fit) = max(self.waiting.items(), key=lambda item: (item[1][0], item[1][1].draws))
            self.moments = moments_from(self.model, fit, f"the draws of {label}, for lack of gradients")
        if self.moments is None:
            return "nothing: no method ran"
        self._measure(self.moments)
        return self.moments.source

    def _measure(self, moments: Moments) -> None:
        for label, (exact, fit) in self.waiting.items():
            self.lines[label] = line_of(label, exact, self.model, fit, moments)
            self.fits[label] = thinned(fit)
        self.waiting = {}


def certified(model: Model, layout: Data, label: str, fit: Result, progress: bool) -> Moments | None:
    """Mean and sd of the posterior from gradients of all rows; None where these draws or this model allow none."""
    try:
        found = certify(model, layout, fit, progress=progress)
    except (LwaError, KeyboardInterrupt):  # too few draws, no derivatives, or no patience: what was drawn is there
        return None
    source = f"the posterior's mean and sd by gradients of all rows at the draws of {label} (R² {found.r_squared:.3f})"
    return Moments(found.mean, found.sd, source)


def given_moments(model: Model, reference: Any) -> Moments | None:
    """Of draws that the user passed."""
    if reference is None:
        return None
    count = len(flat(draws_of(model, reference)))
    return moments_from(model, reference, f"{count:,} given draws")


def moments_from(model: Model, idata: Any, source: str) -> Moments:
    """Of draws."""
    draws = flat(draws_of(model, idata))
    return Moments(draws.mean(0), draws.std(0), source)


def thinned(fit: Result) -> Result:
    """The same run with as many draws as a folder should hold, spread evenly, for whoever wants to look at them."""
    every = -(-fit.draws // MOST_SAVED)
    if every <= 1:
        return fit

    def some(variables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {name: values[:, every - 1 :: every] for name, values in variables.items()}

    def together(name: str, values: NDArray[Any]) -> NDArray[Any]:
        groups = values[:, : fit.draws // every * every].reshape(len(values), -1, every)
        if name == "n_rows_read":
            return groups.sum(-1)
        return groups.mean(-1) if name in ("acceptance_rate", "subset_accepted") else groups[..., -1]

    clock = [[draws // every, at] for draws, at in fit.attributes["clock"]]
    told = {**fit.attributes, "clock": clock, "thinning": fit.attributes["thinning"] * every}
    free = None if fit.unconstrained is None else some(fit.unconstrained)
    return replace(
        fit,
        posterior=some(fit.posterior),
        sample_stats={name: together(name, values) for name, values in fit.sample_stats.items()},
        attributes=told,
        unconstrained=free,
    )


def flat(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """All chains one after the other."""
    return draws.reshape(-1, draws.shape[-1])


def line_of(label: str, exact: bool, model: Model, fit: Result, moments: Moments) -> Line:
    """What a run is worth."""
    told, stats = fit.attributes, fit.sample_stats
    last = Estimate(*(values[0] for values in estimates(model, fit, moments, np.array([fit.draws]))))
    count = worth(model, fit)
    return Line(
        label,
        exact,
        float(told["moves"]),
        float(stats["n_rows_read"].mean() / told["thinning"]),
        float(stats["acceptance_rate"].mean()),
        count,
        count / told["seconds"],
        float(np.abs(last.shift).max()),
        float(last.ratio.min()),
        float(last.ratio.max()),
        float(last.error),
        float(told["seconds"]),
        tuple(curve(model, fit, moments)),
        "",
        tuple(told["warnings"]),
    )
