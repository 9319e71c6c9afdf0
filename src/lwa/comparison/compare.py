"""The verb: several methods, the same model, data, starts and budget."""

import warnings
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.budget import as_budget
from lwa.comparison.error_in_time import Estimate, Moments, curve, estimates, worth
from lwa.comparison.methods import Method, Other, methods_of
from lwa.comparison.table import Comparison, Line
from lwa.diagnostics.certify import certify
from lwa.diagnostics.draws import draws_of
from lwa.errors import InputError, LwaError
from lwa.layout import lay_out
from lwa.models.asking import is_theirs
from lwa.models.model import Model
from lwa.models.unbound import Unbound, require_model
from lwa.progress import Display
from lwa.randomness import Purpose, as_seed, generator
from lwa.reference import Reference
from lwa.result import Result
from lwa.rivals.rival import Setting
from lwa.rivals.sampling import as_kernel, at_the_mode, differentiable
from lwa.settings import whole
from lwa.starts import given_starts

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

    Every method does all of its own work, finding the mode included, and its clock runs from the call on. A method that
    does not apply (ordered data, no bound, no gradient) is listed with the reason.

    Parameters
    ----------
    model, data
        As `lwa.sample` takes them.
    methods
        Names, such as `["lwa", "metropolis", "confidence_proxy", "sgld"]`, or objects, such as
        `lwa.rivals.Austerity(epsilon=0.01)` and `lwa.comparison.Lwa(subset_size=100)`. `"auto"` are all.
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
        `print` it, or see `comparison.table()`, `comparison.figure("figure.png")` and `comparison.save(folder)`.

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
    layout = lay_out(model, data)
    model = layout.given
    with Display(progress) as display, jax.enable_x64(True):
        layout = layout.checked(np.float64)
        given = given_starts(model, initvals, chains)
        layout, expanded, fault = at_the_mode(layout, None, given, seed, display)
        setting = Setting(layout.given, differentiable(layout), fault)
        each = f"{allowed.seconds:g} s" if np.isfinite(allowed.seconds) else f"{allowed.rows:,.0f} row reads"
        display.say(f"{len(chosen)} methods, {each} of tune and sampling each, on {len(layout):,} rows.")
    starts = initvals if given is not None else spread_out(layout.given, expanded, seed, chains)
    common = {
        "draws": "auto", "tune": tune, "chains": chains, "budget": allowed, "seed": seed, "initvals": starts,
        "progress": progress,
    }  # fmt: skip
    fits: dict[str, Result] = {}
    reasons: dict[str, str] = {}
    for method in chosen:
        if reason := method.excluded(setting):
            reasons[method.label] = reason
        elif any(stopped_by_hand(fit) for fit in fits.values()):
            reasons[method.label] = "interrupted before its turn"
        else:
            outcome = attempt(method, model, layout, common)
            if isinstance(outcome, str):
                reasons[method.label] = outcome
            else:
                fits[method.label] = outcome
    moments = moments_of(model, layout, reference, fits, progress)
    lines = tuple(
        Line(method.label, is_exact(method), reason=reasons[method.label])
        if method.label in reasons
        else line_of(method, model, fits[method.label], moments)
        for method in chosen
    )
    return Comparison(lines, fits, len(layout), moments.source, float(allowed.seconds))


def is_exact(method: Method) -> bool:
    """Whether the posterior of all rows is its limit."""
    return method.rival.exact if isinstance(method, Other) else bool(getattr(method, "exact", False))


def stopped_by_hand(fit: Result) -> bool:
    """Whether Ctrl-C ended it."""
    return str(fit.attributes.get("stopped", "")).startswith("interrupted")


def attempt(method: Method, model: Model, layout: Any, common: dict[str, Any]) -> Result | str:
    """Its draws, or why there are none: what one method cannot do is no reason to lose the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kept with the run
        try:
            fit = method.run(model, layout, common)
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
        vector = expanded.theta + SPREAD * expanded.factor @ z
        values = [array[0] for array in model.by_name(vector[None]).values()]
        return jax.tree.unflatten(jax.tree.structure(model.init), values)

    return [one(chain) for chain in range(chains)]


def moments_of(model: Model, layout: Any, reference: Any, fits: dict[str, Result], progress: bool) -> Moments:
    """Mean and sd of the posterior: given, or as the certificate has them."""
    if reference is not None:
        draws = flat(draws_of(model, reference))
        return Moments(draws.mean(0), draws.std(0), f"{len(draws):,} given draws")
    for label, fit in fits.items():
        try:
            found = certify(model, layout, fit, progress=progress)
        except LwaError:  # too few draws, or no derivatives
            continue
        return Moments(
            found.mean, found.sd,
            f"the posterior's mean and sd by gradients of all rows at the draws of {label} (R² {found.r_squared:.3f})",
        )  # fmt: skip
    if not fits:
        nothing = np.full(model.dimension, np.nan)
        return Moments(nothing, nothing, "nothing: no method ran")
    label, fit = max(fits.items(), key=lambda item: (item[1].attributes.get("exact", False), item[1].draws))
    draws = flat(draws_of(model, fit))
    return Moments(draws.mean(0), draws.std(0), f"the draws of {label}, for lack of gradients")


def flat(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """All chains one after the other."""
    return draws.reshape(-1, draws.shape[-1])


def line_of(method: Method, model: Model, fit: Result, moments: Moments) -> Line:
    """What a run is worth."""
    told, stats = fit.attributes, fit.sample_stats
    last = Estimate(*(values[0] for values in estimates(model, fit, moments, np.array([fit.draws]))))
    count = worth(model, fit)
    return Line(
        method.label,
        is_exact(method),
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
