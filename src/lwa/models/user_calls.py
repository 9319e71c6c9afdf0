"""Calls of a user's plain Python function, and how to tell that what was raised is theirs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import ModelError


def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a user's function returns; whatever it raises passes through, and `is_theirs` knows it by this frame.

    NumPy's warnings of NaN and infinity are held back, as JAX has none: such values are rejected, counted and told.
    Where a user made them errors, they stay errors.
    """
    warned = {kind: "ignore" for kind, how in np.geterr().items() if how == "warn"}
    with np.errstate(**warned):  # type: ignore[arg-type]
        return function(*arguments)


def is_theirs(error: BaseException) -> bool:
    """Whether an error came out of a user's function that `ask` called."""
    frames = error.__traceback__
    while frames is not None:
        if frames.tb_frame.f_code is ask.__code__:
            return True
        frames = frames.tb_next
    return False


def as_terms(values: Any, m: int) -> NDArray[np.float64]:
    """What a log-likelihood returned for m rows; it was checked once, but may have changed its mind."""
    terms = np.asarray(values, np.float64)
    if terms.shape != (m,):
        raise ModelError(
            f"log_likelihood returned shape {terms.shape} for {m} rows; one value a row, shape ({m},), is expected. "
            "Return an array with log f(Y_k|theta) of each row."
        )
    return terms
