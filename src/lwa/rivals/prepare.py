"""What is decided before a rival's first step: the mode, the kernel, the problem and where chains start."""

from dataclasses import replace
from typing import Literal

import jax
import numpy as np
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator, keys
from lwa.data.data import Data
from lwa.data.lead_in import extend_lead_in
from lwa.errors import InputError, ModelError
from lwa.kernels.autoregressive import Autoregressive
from lwa.kernels.blockwise import Blockwise
from lwa.kernels.kernel import MetropolisKernel
from lwa.kernels.random_walk import RandomWalk
from lwa.models.check import describe_theta
from lwa.rivals.problem import RivalProblem, build_gaussian, choose_term_precision, load_rows
from lwa.rivals.rival import Rival, Setting
from lwa.run.begin import flatten_theta
from lwa.targets.reference import Reference, compute_log_posterior, expand_at, find_not_differentiable, find_reference
from lwa.user.progress import Display

type GivenReference = Reference | PyTree | Literal[False] | None
"""A θ in the bulk of the posterior, or what was found there before; False for none; None to look for the mode."""


def as_rival_kernel(kernel: object) -> MetropolisKernel:
    """Return Q by name, or as it is."""
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


def describe_setting(layout: Data, no_mode: str) -> Setting:
    """Return what is known of the model and its data; `no_mode` is why there is no mode."""
    return Setting(layout.given, explain_no_derivatives(layout), no_mode)


def require_applicable(rival: Rival, layout: Data, no_mode: str) -> None:
    """Refuse a method that does not apply."""
    if reason := rival.explain_exclusion(describe_setting(layout, no_mode)):
        raise InputError(f"{rival.label} does not apply: it {reason}.")


def explain_no_derivatives(layout: Data) -> str:
    """Return why JAX cannot differentiate the model twice; empty if it can."""
    if layout.given.host:
        return "the model is not JAX"
    one = layout.full.take(np.zeros(1, np.int64))
    fault = find_not_differentiable(layout.model, one, lambda function: jax.jacfwd(jax.grad(function)))
    return "" if fault is None else f"JAX cannot differentiate {fault[0]}: {fault[1]}"


def find_mode(
    layout: Data,
    reference: GivenReference,
    given: list[NDArray[np.float64]] | None,
    seed: int,
    display: Display,
) -> tuple[Data, Reference | None, str]:
    """Return the expansion at the mode, or why there is none; for a sequence, with segments that look back enough."""
    if reference is False:
        return layout, None, "none was looked for, as reference=False asks"
    if fault := explain_no_derivatives(layout):
        return layout, None, fault
    if isinstance(reference, Reference):  # found before
        return layout, reference, ""
    model = layout.model

    def expand(layout: Data, start: NDArray[np.float64]) -> Reference:
        if reference is not None:
            return expand_at(model, layout.full, flatten_theta(model, reference, "reference"))
        return find_reference(
            model, layout.full, start, seed, lambda passes: display.show("mode", passes, passes, "passes over all rows")
        )

    try:
        found = expand(layout, given[0] if given else model.ravel(model.init))
        if layout.ordered:
            looked_back = layout.lead_in
            layout = extend_lead_in(layout, found.theta, found.factor)[0]
            if layout.lead_in > looked_back:
                found = expand(layout, found.theta)
    except ModelError as error:
        if reference is not None:
            raise
        return layout, None, str(error)
    return layout, found, ""


def build_problem(
    rival: Rival, layout: Data, mode: Reference | None, kernel: MetropolisKernel, seed: int
) -> tuple[RivalProblem, list[str]]:
    """Load all rows in a random order and let the method prepare; return also its warnings."""
    order = generator(seed, Purpose.RIVAL_ORDER, 0).permutation(len(layout.full))
    if isinstance(kernel, Blockwise):
        kernel = kernel.bind(layout.model)
    if mode is None and isinstance(kernel, Autoregressive):
        kernel = RandomWalk()
    problem = RivalProblem(
        model=layout.model,
        length=len(layout.full),
        rows=load_rows(layout.full, order),
        reads=len(layout) / len(layout.full),
        gaussian=None if mode is None else build_gaussian(mode),
        kernel=kernel,
    )
    measuring, preparing = keys(seed, Purpose.RIVAL_PREPARATION, [0, 1])
    if rival.may_round:
        problem = choose_term_precision(measuring, problem)
    own, warned = rival.prepare(preparing, problem)
    return replace(problem, own=own), warned


def find_rival_starts(
    layout: Data, mode: Reference | None, given: list[NDArray[np.float64]] | None, seed: int, chains: int
) -> Float64[np.ndarray, "chains d"]:
    """Return a start per chain: given, from the Gaussian at the mode, from the prior, or `init`."""
    model = layout.given

    def start(chain: int) -> NDArray[np.float64]:
        if given is not None:
            return given[chain]
        if mode is not None:
            draw = generator(seed, Purpose.START, chain).normal(size=model.dimension)
            return mode.theta + mode.factor @ draw
        if model.prior_draw is not None:
            return flatten_theta(model, model.prior_draw(keys(seed, Purpose.START, [chain])[0]), "prior_draw")
        return model.ravel(model.init)

    starts = np.stack([start(chain) for chain in range(chains)])
    values = compute_log_posterior(layout.model, layout.full, starts)
    for chain, value in enumerate(values):
        if not np.isfinite(value):
            raise ModelError(
                f"Chain {chain} has no finite log posterior at its start "
                f"theta = {describe_theta(model, starts[chain])}. Pass initvals=... where the model is "
                "finite, or correct the model there."
            )
    return starts
