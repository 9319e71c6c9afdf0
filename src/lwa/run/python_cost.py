"""Check the settings of a model in Python, and report what the run will cost before anything long begins."""

import time

import numpy as np
from jaxtyping import Float64

from lwa.data.data import Data
from lwa.errors import InputError
from lwa.kernels.kernel import MetropolisKernel
from lwa.models.python_model import PythonModel, evaluate_rows
from lwa.run.begin import Starts
from lwa.run.plan import SMALLEST_SIZE
from lwa.run.settings import Settings
from lwa.user.progress import Display

TIMED_CALLS, TIMED_SECONDS = 5, 0.1
"""At most so many calls of a model in Python are timed, for so long."""
OWN_SECONDS = 2e-4
"""Seconds that lwa itself takes per move and chain of such a model (two cores, calibrated, n = 100, four chains)."""
PASSES_TO_THE_MODE = 4
"""Passes over all rows that the calibrated target takes at first, to forecast the cost of a model in Python."""


def time_python_model(data: Data, settings: Settings, starts: Starts | None, display: Display) -> float:
    """Raise if settings do not suit a model in Python; report what the run will cost, and return µs per call."""
    model = data.model
    assert isinstance(model, PythonModel)
    if settings.precision == "float32":
        raise InputError(
            f"precision='float32', but {model.in_words} and is called with float64 arrays. Pass precision='float64', "
            "leave it out, or write the model with jax.numpy.",
            advice={"precision": "float64"},
        )
    if settings.kernel is not None and not isinstance(settings.kernel, MetropolisKernel):
        raise InputError(
            f"kernel={type(settings.kernel).__name__}(...) needs gradients, but {model.in_words}. Pass kernel='auto', "
            "or lwa.kernels.RandomWalk(), which need none, or write the model with jax.numpy.",
            advice={"kernel": "auto"},
        )
    n, d = min(settings.subset_size or SMALLEST_SIZE, data.scored), model.dimension
    seconds = time_call(data, n, starts[0] if starts else model.ravel(model.init))
    moves = settings.chains * (settings.tune + settings.draws * (settings.thinning or 1))
    passes = PASSES_TO_THE_MODE * (d**2 + d + 1) if settings.calibration is not None else 0
    passes += settings.chains * settings.draws if settings.exact else 0
    total = moves * (seconds + OWN_SECONDS) + passes * seconds * len(data.rows) / data.reads(n, 0)
    display.say(
        f"{model.in_words}: called from Python, once per chain and step, about {1e6 * seconds:,.0f} µs each, about "
        f"{max(1.0, total):,.0f} s in total."
    )
    return round(1e6 * seconds, 1)


def time_call(data: Data, n: int, theta: Float64[np.ndarray, " d"]) -> float:
    """Return the seconds that the log-likelihood of one subset takes: the fastest of some calls."""
    if data.ordered:
        model, rows = data.given, data.series.take(data.rows, np.arange(min(n, data.available)))
    else:
        model, rows = data.model, data.full.take(np.arange(n) * data.scored // n)
    taken, began = list[float](), time.monotonic()
    while not taken or (len(taken) < TIMED_CALLS and time.monotonic() - began < TIMED_SECONDS):
        start = time.monotonic()
        evaluate_rows(model, theta, rows)
        taken.append(time.monotonic() - start)
    return min(taken)
