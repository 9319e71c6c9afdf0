"""What is decided before a rival's first step: the mode, the kernel, the problem and where chains start."""

from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator, keys
from lwa.data.data import Data
from lwa.data.lead_in import extend_lead_in
from lwa.errors import InputError, ModelError
from lwa.kernels import Autoregressive, Blockwise, RandomWalk
from lwa.kernels.kernel import MetropolisKernel
from lwa.rivals.engine import RivalPlan, RivalRun
from lwa.rivals.problem import RivalProblem, build_gaussian, choose_term_precision
from lwa.rivals.rival import Rival, Setting
from lwa.rows import Rows, survey
from lwa.rows.units import build_groups
from lwa.run.begin import Starts, draw_start, explain_no_start, flatten_theta
from lwa.targets.reference import Reference, compute_log_posterior, expand_at, find_not_differentiable, find_reference
from lwa.targets.target import Terms
from lwa.user.progress import Display

type GivenReference = Reference | PyTree | Literal[False] | None
"""A θ in the bulk of the posterior, or what was found there before; False for none; None to look for the mode."""


def prepare_rival(
    rival: Rival, data: Data, plan: RivalPlan, kernel: MetropolisKernel, *, starts: Starts | None, chains: int,
    reference: GivenReference, display: Display,
) -> RivalRun:  # fmt: skip
    """Check that the method applies, find the mode, load the rows and put every chain at its start."""
    N = len(data)
    surveyed = survey(data.rows, progress=lambda done: display.show("all rows", done, N))
    require_applicable(rival, data, "")  # before any costly pass
    data, mode, no_mode = find_mode(data, reference, starts, plan.seed, display)
    require_applicable(rival, data, no_mode)
    problem, warned = pose_problem(rival, data, mode, kernel, plan.seed)
    return RivalRun(
        rival=rival, problem=problem, plan=plan,
        starts=find_rival_starts(data, problem, mode, starts, seed=plan.seed, chains=chains), data=data,
        fingerprint=surveyed.fingerprint, warned=warned,
    )  # fmt: skip


def as_rival_kernel(kernel: object) -> MetropolisKernel:
    """Return Q by name, or as it is."""
    known = {"walk": RandomWalk(), "gaussian": Autoregressive()}
    if isinstance(kernel, str) and kernel in known:
        return known[kernel]
    if isinstance(kernel, RandomWalk | Blockwise) or (isinstance(kernel, Autoregressive) and kernel.df == float("inf")):
        return kernel
    raise InputError(
        f"kernel={kernel!r} is not known. Valid: 'walk', 'gaussian', lwa.kernels.RandomWalk(...), Blockwise(...) or "
        "Autoregressive(...) with df=inf."
    )


def describe_setting(data: Data, no_mode: str) -> Setting:
    """Return what is known of the model and its data; `no_mode` is why there is no mode."""
    return Setting(data.given, explain_no_derivatives(data), no_mode)


def require_applicable(rival: Rival, data: Data, no_mode: str) -> None:
    """Refuse a method that does not apply."""
    if reason := rival.explain_exclusion(describe_setting(data, no_mode)):
        raise InputError(f"{rival.label} does not apply: it {reason}.")


def explain_no_derivatives(data: Data) -> str:
    """Return why JAX cannot differentiate the model twice; empty if it can."""
    if data.given.in_python:
        return "the model is not JAX"
    one = data.full.take(np.zeros(1, np.int64))
    fault = find_not_differentiable(data.model, one, lambda function: jax.jacfwd(jax.grad(function)))
    return "" if fault is None else f"JAX cannot differentiate {fault[0]}: {fault[1]}"


def find_mode(
    data: Data, reference: GivenReference, given: Starts | None, seed: int, display: Display
) -> tuple[Data, Reference | None, str]:
    """Return the expansion at the mode, or why there is none; for a sequence, with segments that look back enough."""
    if reference is False:
        return data, None, "none was looked for, as reference=False asks"
    if fault := explain_no_derivatives(data):
        return data, None, fault
    if isinstance(reference, Reference):  # found before
        return data, reference, ""
    model = data.model

    def expand(data: Data, start: NDArray[np.float64]) -> Reference:
        if reference is not None:
            return expand_at(model, data.full, flatten_theta(model, reference, "reference"))
        return find_reference(
            model, data.full, start, seed, lambda passes: display.show("mode", passes, passes, "passes over all rows")
        )

    try:
        found = expand(data, given[0] if given else model.ravel(model.init))
        if data.ordered:
            looked_back = data.lead_in
            data = extend_lead_in(data, found.theta, found.factor)[0]
            if data.lead_in > looked_back:
                found = expand(data, found.theta)
    except ModelError as error:
        if reference is not None:
            raise
        return data, None, str(error)
    return data, found, ""


def pose_problem(
    rival: Rival, data: Data, mode: Reference | None, kernel: MetropolisKernel, seed: int
) -> tuple[RivalProblem, list[str]]:
    """Load all rows in a random order and let the method prepare; return also its warnings."""
    order = generator(seed, Purpose.RIVAL_ORDER, 0).permutation(len(data.full))
    if isinstance(kernel, Blockwise):
        kernel = kernel.bind(data.model)
    if mode is None and isinstance(kernel, Autoregressive):
        kernel = RandomWalk()
    problem = RivalProblem(
        model=data.model, length=len(data.full), rows=jax.tree.map(jnp.asarray, fill_to_longest(data).take(order)),
        reads=len(data) / len(data.full), gaussian=None if mode is None else build_gaussian(mode), kernel=kernel,
    )  # fmt: skip
    measuring, preparing = keys(seed, Purpose.RIVAL_PREPARATION, [0, 1])
    if rival.may_round:
        problem = choose_term_precision(measuring, problem)
    own, warned = rival.prepare(preparing, problem)
    return replace(problem, own=own), warned


def fill_to_longest(data: Data) -> Rows:
    """Return all units, groups in strata of size as units of one length: the methods draw any of them into any slot."""
    return build_groups(data.rows, data.series) if data.stratified else data.full


def find_rival_starts(
    data: Data, problem: RivalProblem, mode: Reference | None, given: Starts | None, *, seed: int, chains: int
) -> Float64[np.ndarray, "chains d"]:
    """Return a start per chain: given, from the Gaussian at the mode, from the prior, or `init`."""
    starts = np.stack(given or [draw_start(data.given, mode, seed, chain) for chain in range(chains)])
    values = compute_log_posterior(data.model, data.full, starts)
    if not np.isfinite(values).all():
        chain = int(np.argmin(np.isfinite(values)))
        theta = jnp.asarray(starts[chain])
        terms = Terms(problem.log_prior(theta), problem.terms(theta, problem.rows), jnp.asarray(values[chain]))
        raise explain_no_start(data.given, starts[chain], terms, chain=chain, drawn=False)
    return starts
