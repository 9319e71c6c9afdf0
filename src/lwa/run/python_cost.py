"""What a model in Python asks of the settings, and what it will cost: said before anything long begins."""

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lwa.data.data import Layout
from lwa.errors import InputError
from lwa.kernels.kernel import MetropolisKernel
from lwa.models.python_model import PythonModel, evaluate_rows
from lwa.run.plan import SMALLEST
from lwa.run.settings import Settings
from lwa.user.progress import Display

TIMED_CALLS, TIMED_SECONDS = 5, 0.1
"""Calls of a model in Python that are timed, at the most, and for how long."""
OWN_SECONDS = 2e-4
"""What lwa itself takes for a move of such a model, a chain (two cores, calibrated, n = 100, four chains)."""
PASSES_TO_THE_MODE = 4
"""Passes over all rows that the calibrated target takes at first, to say what a model in Python will cost."""


def in_python(
    layout: Layout, settings: Settings, given: list[NDArray[np.float64]] | None, display: Display
) -> tuple[Settings, float | None]:
    """Where the model is not JAX: what that asks of the settings, and what a call costs, in µs, said up front."""
    model = layout.model
    if not isinstance(model, PythonModel):
        return settings, None
    if settings.precision == "float32":
        raise InputError(
            f"precision='float32', but {model.in_words} and is called with float64 arrays. Pass precision='float64', "
            "leave it out, or write the model with jax.numpy."
        )
    if settings.kernel is not None and not isinstance(settings.kernel, MetropolisKernel):
        raise InputError(
            f"kernel={type(settings.kernel).__name__}(...) needs gradients, but {model.in_words}. Pass kernel='auto', "
            "or lwa.kernels.RandomWalk(), which need none, or write the model with jax.numpy."
        )
    n = min(settings.subset_size or SMALLEST, len(layout.rows) if layout.ordered else len(layout.full))
    calibrated, d = settings.target in ("calibrated", "auto"), model.dimension
    theta = given[0] if given else model.ravel(model.init)
    seconds = seconds_a_call(layout, n, theta)
    moves = settings.chains * (settings.tune + settings.draws * (settings.thinning or 1))
    passes = PASSES_TO_THE_MODE * (d**2 + d + 1) if calibrated else 0
    passes += settings.chains * settings.draws if settings.exact else 0
    total = moves * (seconds + OWN_SECONDS) + passes * seconds * len(layout.rows) / layout.reads(n, 0)
    display.say(
        f"{model.in_words}: called from Python, once per chain and step, about {1e6 * seconds:,.0f} µs each, about "
        f"{max(1.0, total):,.0f} s in total."
    )
    return replace(settings, precision="float64"), round(1e6 * seconds, 1)


def seconds_a_call(layout: Layout, n: int, theta: NDArray[np.float64]) -> float:
    """What the log-likelihood of one subset takes: the fastest of some calls."""
    if layout.ordered:
        model, rows = layout.given, layout.series.take(layout.rows, np.arange(min(n, layout.available)))
    else:
        model, rows = layout.model, layout.full.take(np.arange(n))
    taken, began = list[float](), time.monotonic()
    while not taken or (len(taken) < TIMED_CALLS and time.monotonic() - began < TIMED_SECONDS):
        start = time.monotonic()
        evaluate_rows(model, theta, rows)
        taken.append(time.monotonic() - start)
    return min(taken)
