"""Run: everything that is decided before the first move, with every chain at its start."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

import jax
import numpy as np
from jaxtyping import Float64, Int64, PyTree
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator, keys
from lwa.data.data import Data
from lwa.diagnostics.running import MANY_CHAINS, assign_superchains, count_superchains
from lwa.engine.cohort import Cohort, LocalCohort, begin_cohort
from lwa.engine.problem import Problem
from lwa.engine.remote_cohort import RemoteCohort
from lwa.errors import InputError, ModelError
from lwa.models.check import describe_theta, report_user_errors
from lwa.models.model import Model
from lwa.rows import Survey
from lwa.run import budget
from lwa.run.plan import SubsetPlan
from lwa.run.settings import Settings
from lwa.targets.reference import Reference
from lwa.targets.target import Terms

ATTEMPTS = 100
"""Draws from the prior or the reference's Gaussian before a chain gives up."""
WIDER = 2.0
"""Sds of the reference's Gaussian from which superchains start: overdispersed, so that a remembered start shows."""
STATISTICS_BYTES = 41
"""Bytes of the statistics of one draw: five numbers and a flag."""

type Starts = list[Float64[np.ndarray, " d"]]


@dataclass(frozen=True)
class Run:
    """Everything that is decided before the first move."""

    settings: Settings
    data: Data
    survey: Survey
    plan: SubsetPlan
    problem: Problem
    cohorts: list[Cohort]
    superchains: int | None  # groups of chains that began together, if chains are many
    python_call: float | None  # microseconds per call of the log-likelihood, if it runs in Python
    warned: list[str]  # before the first move

    @property
    def subset_size(self) -> int:
        """n: rows, groups, or the steps of a window."""
        return self.plan.subsets.size

    @property
    def rows_per_move(self) -> int:
        """Most rows that the log-likelihood reads if every chain moves once."""
        return self.problem.kernel.most_evaluations() * self.problem.reads * self.settings.chains

    @property
    def on_device(self) -> bool:
        """Whether all chains are on one accelerator."""
        return self.cohorts[0].on_device

    @property
    def draw_bytes(self) -> int:
        """Bytes of one draw of one chain, statistics included."""
        model = self.data.given
        none = np.empty((1, 0, model.dimension))
        groups = [model.with_derived(none), model.free_by_name(none) if model.constrained else {}]
        values = [values for group in groups for values in group.values()]
        extra = sum(zero.dtype.itemsize for zero in self.problem.kernel.extra().values())
        return STATISTICS_BYTES + extra + sum(value.itemsize * prod(value.shape[2:]) for value in values)

    @property
    def retention_in_words(self) -> str:
        """What is kept of the draws, if they are many; with a budget this is decided after tune."""
        draws, size = self.settings.draws, self.settings.chains * self.draw_bytes
        if self.settings.budget != budget.Budget() or draws * size <= budget.LAST_BYTES:
            return ""
        return self.decide_retention(draws)[1]

    def decide_retention(self, draws: int) -> tuple[budget.Retention, str]:
        """Return what is kept of so many draws per chain, and a sentence about it."""
        chains, keep, on_disk = self.settings.chains, self.settings.keep, self.settings.checkpoint is not None
        return budget.decide_retention(draws, self.draw_bytes, chains=chains, keep=keep, on_disk=on_disk)

    def record(self) -> dict[str, Any]:
        """Return all settings as JSON, with what was chosen."""
        return self.settings.record(self.subset_size, self.problem.kernel)

    @property
    def in_words(self) -> str:
        """A summary of what the run will do."""
        settings, N, n = self.settings, len(self.data.rows), self.subset_size
        draws = "as many draws as the budget allows" if settings.filling else f"{settings.draws:,} draws per chain"
        if self.data.ordered:
            lead_in = self.problem.reads - n
            before = f", and {lead_in:,} before it to start from" if lead_in else ""
            reads = f"a window of {n:,} of {N:,} observations{before}"
        elif self.data.parts is not None:
            reads = f"{n:,} of {len(self.data.full):,} groups, about {self.problem.reads:,} of {N:,} rows"
        else:
            reads = f"{n:,} of {N:,} rows"
        precision = np.dtype(self.problem.dtype).name
        return (
            f"{settings.chains} chains: {settings.tune:,} tuning steps, then {draws}. Each step reads {reads}, in "
            f"{precision}. {self.plan.in_words}."
        )


def begin_run(
    data: Data, settings: Settings, survey: Survey, plan: SubsetPlan, problem: Problem, *, starts: Starts | None,
    warming: Future[None] | None, python_call: float | None, warned: list[str],
) -> Run:  # fmt: skip
    """Return the run with every chain at its start, in its cohort; `warming` compiles programs meanwhile."""
    superchains = choose_superchains(data.model, settings.chains, starts, problem.reference)
    find = partial(
        find_starts, data.model, seed=settings.seed, given=starts, reference=problem.reference, dtype=problem.dtype,
        together=None if superchains is None else assign_superchains(settings.chains, superchains),
    )  # fmt: skip
    cohorts: list[Cohort] = []
    for chains, U in plan.firsts:
        holds = settings.checkpoint is not None or data.runs_remotely
        cohort = begin_cohort(problem, chains, U, find, warming=[warming] if warming else [], holds=holds)
        away = data.executor if data.runs_remotely else None
        if away is not None and isinstance(cohort, LocalCohort):
            cohort = RemoteCohort(cohort, away, len(cohorts) / len(plan.firsts))
        cohorts.append(cohort)
    return Run(
        settings=settings, data=data, survey=survey, plan=plan, problem=problem, cohorts=cohorts,
        superchains=superchains, python_call=python_call, warned=warned,
    )  # fmt: skip


def read_starts(model: Model, initvals: PyTree[Any] | None, chains: int) -> Starts | None:
    """Return `initvals`, one θ or a list of one per chain, as one flat θ per chain; None if not given."""
    if initvals is None:
        return None
    if model.fits(initvals):
        return [flatten_theta(model, initvals, "initvals")] * chains
    if isinstance(initvals, list | tuple) and all(map(model.fits, initvals)):
        if len(initvals) != chains:
            raise InputError(f"initvals holds {len(initvals)} starts for {chains} chains. Pass {chains}, or one theta.")
        return [flatten_theta(model, theta, f"initvals[{chain}]") for chain, theta in enumerate(initvals)]
    raise InputError(
        f"initvals is no theta of this model and no list of thetas. Pass one theta, or a list of {chains}, built like "
        f"init: {jax.tree.structure(model.init)}."
    )


def flatten_theta(model: Model, theta: PyTree[Any], source: str) -> Float64[np.ndarray, " d"]:
    """Return a user's θ as a vector; the error says where it came from."""
    try:
        model.leaves(theta)
    except (TypeError, ValueError) as error:  # of the wrong structure or shape, or not numbers
        fault = str(error).rstrip(".")
        raise ModelError(
            f"{source} gave {theta!r}, which is no theta of this model: {fault}. "
            f"Pass numbers built like init, {model.shapes}."
        ) from None
    return model.ravel(theta, source)


def choose_superchains(model: Model, chains: int, given: Starts | None, reference: Reference | None) -> int | None:
    """Return the number of superchains, each with one start, if chains are many and none is given; else None.

    Nested R-hat detects that chains remember their start only if it is shared within a superchain and differs between.
    """
    vary = given is None and (reference is not None or model.prior_draw is not None)
    return count_superchains(chains) if chains > MANY_CHAINS and vary else None


def find_starts(
    model: Model, score: Callable[[NDArray[Any]], Terms], seed: int, chains: Sequence[int], given: Starts | None,
    reference: Reference | None, dtype: type[np.floating[Any]], together: Int64[np.ndarray, " chains"] | None = None,
) -> NDArray[Any]:  # fmt: skip
    """Return a start `(chains, d)` with a finite log target given each chain's first subset, which `score` finds.

    If there is a reference, a draw of its Gaussian takes the place of the prior's. `together` has the superchain of
    each chain of the run, if starts are shared; a chain whose target is not finite there takes its superchain's next.
    """
    wide = 1.0 if together is None else WIDER
    drawn = given is None and (reference is not None or model.prior_draw is not None)

    def start(chain: int, attempt: int) -> NDArray[np.float64]:
        if given is not None:
            return given[min(chain, len(given) - 1)]
        return begin(chain if together is None else int(together[min(chain, len(together) - 1)]), attempt)

    @cache
    def begin(name: int, attempt: int) -> NDArray[np.float64]:
        return draw_start(model, reference, seed, name, attempt=attempt, spread=wide)

    theta = np.stack([start(chain, 0) for chain in chains]).astype(dtype)
    for attempt in range(1, ATTEMPTS + 1):
        terms = jax.tree.map(np.asarray, score(theta))
        bad = np.flatnonzero(~np.isfinite(terms.total)).tolist()
        if len(bad) == 0:
            return theta
        if not drawn or attempt == ATTEMPTS:
            one = Terms(*(leaf[bad[0]] for leaf in terms))
            raise explain_no_start(model, theta[bad[0]], one, chain=chains[bad[0]], drawn=drawn)
        for c in bad:
            theta[c] = start(chains[c], attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def draw_start(
    model: Model, reference: Reference | None, seed: int, name: int, *, attempt: int = 0, spread: float = 1.0
) -> Float64[np.ndarray, " d"]:
    """Draw from the reference's Gaussian, `spread` times as wide, or from the prior; without either, return `init`."""
    if reference is not None:
        draw = generator(seed, Purpose.START, name, attempt).normal(size=model.dimension)
        return reference.theta + spread * (reference.factor @ draw)
    if model.prior_draw is None:
        return model.ravel(model.init)
    with report_user_errors("prior_draw", "a key"):
        theta = model.prior_draw(keys(seed, Purpose.START, [name], attempt)[0])
    return flatten_theta(model, theta, "prior_draw")


def explain_no_start(model: Model, theta: NDArray[Any], terms: Terms, *, chain: int, drawn: bool) -> ModelError:
    """Return the error that says which θ it was and which part of the log target is not finite there."""
    prior, rows = np.asarray(terms.prior), np.asarray(terms.rows)
    faults = [] if np.isfinite(prior) else [f"log_prior is {prior}"]
    for value, found in (("NaN", np.isnan(rows)), ("-inf", np.isneginf(rows)), ("+inf", np.isposinf(rows))):
        if found.any():
            faults.append(f"log_likelihood is {value} in {found.sum()} of {len(rows)} rows")
    source = "the reference's Gaussian" if model.prior_draw is None else "prior_draw"
    tried = f"after {ATTEMPTS} draws from {source}, the last being" if drawn else "at its start"
    return ModelError(
        f"Chain {chain} has no finite log target {tried} theta = {describe_theta(model, theta)}: {', '.join(faults)}. "
        "Pass initvals=... where the model is finite, or fix the model there."
    )
