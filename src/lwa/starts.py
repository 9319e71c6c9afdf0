"""Where each chain begins: given values, a draw from the prior, or the model's `init`."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError, ModelError
from lwa.models.check import named, users_function
from lwa.models.model import Model
from lwa.pipeline import evaluate
from lwa.randomness import Purpose, generator, keys
from lwa.reference import Reference
from lwa.target import Target

ATTEMPTS = 100
"""Draws from the prior before a chain gives up."""


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


def find_starts(
    target: Target,
    given_subset: tuple[Any, Any, Any],
    seed: int,
    chains: Sequence[int],
    given: list[NDArray[np.float64]] | None,
    reference: Reference | None,
    dtype: Any,
) -> NDArray[Any]:
    """A start `(chains, d)` with a finite log target given each chain's first subset: its rows, tilt and counts.

    Where there is a reference, a draw of its Gaussian takes the place of the prior's.
    """
    model = target.model
    drawn = given is None and (reference is not None or model.prior_draw is not None)

    def start(chain: int, attempt: int) -> NDArray[np.float64]:
        if given is not None:
            return given[min(chain, len(given) - 1)]
        if reference is not None:
            draw = generator(seed, Purpose.START, chain, attempt).normal(size=model.dimension)
            return reference.theta + reference.factor @ draw
        if model.prior_draw is None:
            return model.ravel(model.init)
        with users_function("prior_draw", "a key"):
            theta = model.prior_draw(keys(seed, Purpose.START, [chain], attempt)[0])
        return flat(model, theta, "prior_draw")

    theta = np.stack([start(chain, 0) for chain in chains]).astype(dtype)
    for attempt in range(1, ATTEMPTS + 1):
        terms = jax.tree.map(np.asarray, evaluate(target, theta, *given_subset))
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
        f"Chain {chain} has no finite log target {tried} theta = {named(model, theta)}: {', '.join(faults)}. "
        "Pass initvals=... where the model is finite, or mend the model there."
    )
