"""Where each chain begins: given values, a draw from the prior, or the model's `init`."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.backend.random import Purpose, generator, keys
from lwa.diagnostics.running import MANY_CHAINS, count_superchains
from lwa.errors import InputError, ModelError
from lwa.models.check import describe_theta, report_user_errors
from lwa.models.model import Model
from lwa.targets.reference import Reference
from lwa.targets.target import Terms

ATTEMPTS = 100
"""Draws from the prior before a chain gives up."""
WIDER = 2.0
"""Sds of the reference's Gaussian by which superchains begin: overdispersed, so that what is left of a start shows."""


def given_starts(model: Model, initvals: Any, chains: int) -> list[NDArray[np.float64]] | None:
    """`initvals` as one flat θ a chain: one θ for all, or a list of one a chain. None where there are none."""
    if initvals is None:
        return None
    if model.fits(initvals):
        return [flat(model, initvals, "initvals")] * chains
    if isinstance(initvals, list | tuple) and all(map(model.fits, initvals)):
        if len(initvals) != chains:
            raise InputError(
                f"initvals holds {len(initvals)} starts for {chains} chains. Pass one for each, or one theta."
            )
        return [flat(model, theta, f"initvals[{chain}]") for chain, theta in enumerate(initvals)]
    raise InputError(
        f"initvals is no theta of this model and no list of thetas. Pass one theta, or a list of {chains}, built like "
        f"init: {jax.tree.structure(model.init)}."
    )


def flat(model: Model, theta: Any, source: str) -> NDArray[np.float64]:
    """A user's θ as a vector; the error says where it came from."""
    try:
        model.leaves(theta)
    except (TypeError, ValueError) as error:  # of the wrong structure or shape, or not numbers
        fault = str(error).rstrip(".")
        raise ModelError(
            f"{source} gave {theta!r}, which is no theta of this model: {fault}. "
            f"Pass numbers built like init, {model.shapes}."
        ) from None
    return model.ravel(theta, source)


def superchains_of(
    model: Model, chains: int, given: list[NDArray[np.float64]] | None, reference: Reference | None
) -> int | None:
    """How many superchains there are, each with one start; None where each chain has its own, or all have the same.

    Starts are shared where chains are many and nobody said where they begin. Nested R-hat compares superchains: it can
    tell that chains still remember their start only where that was the same within one and different elsewhere.
    """
    vary = given is None and (reference is not None or model.prior_draw is not None)
    return count_superchains(chains) if chains > MANY_CHAINS and vary else None


def find_starts(
    model: Model,
    score: Callable[[NDArray[Any]], Terms],
    seed: int,
    chains: Sequence[int],
    given: list[NDArray[np.float64]] | None,
    reference: Reference | None,
    dtype: Any,
    together: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """A start `(chains, d)` with a finite log target given each chain's first subset, which is what `score` finds.

    Where there is a reference, a draw of its Gaussian takes the place of the prior's. `together` has the superchain of
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
        if reference is not None:
            draw = generator(seed, Purpose.START, name, attempt).normal(size=model.dimension)
            return reference.theta + wide * (reference.factor @ draw)
        if model.prior_draw is None:
            return model.ravel(model.init)
        with report_user_errors("prior_draw", "a key"):
            theta = model.prior_draw(keys(seed, Purpose.START, [name], attempt)[0])
        return flat(model, theta, "prior_draw")

    theta = np.stack([start(chain, 0) for chain in chains]).astype(dtype)
    for attempt in range(1, ATTEMPTS + 1):
        terms = jax.tree.map(np.asarray, score(theta))
        bad = np.flatnonzero(~np.isfinite(terms.total)).tolist()
        if len(bad) == 0:
            return theta
        if not drawn or attempt == ATTEMPTS:
            raise _no_start(model, theta[bad[0]], terms.prior[bad[0]], terms.rows[bad[0]], chains[bad[0]], drawn)
        for c in bad:
            theta[c] = start(chains[c], attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _no_start(
    model: Model, theta: NDArray[Any], prior: NDArray[Any], rows: NDArray[Any], chain: int, drawn: bool
) -> ModelError:
    """Says which θ it was and which part of the log target is not finite there."""
    faults = []
    if not np.isfinite(prior):
        faults.append(f"log_prior is {prior}")
    for value, count in (("NaN", np.isnan(rows)), ("-inf", np.isneginf(rows)), ("+inf", np.isposinf(rows))):
        if count.any():
            faults.append(f"log_likelihood is {value} in {count.sum()} of {len(rows)} rows")
    source = "the reference's Gaussian" if model.prior_draw is None else "prior_draw"
    tried = f"after {ATTEMPTS} draws from {source}, the last being" if drawn else "at its start"
    return ModelError(
        f"Chain {chain} has no finite log target {tried} theta = {describe_theta(model, theta)}: {', '.join(faults)}. "
        "Pass initvals=... where the model is finite, or mend the model there."
    )
