"""Calls of a user's plain Python functions, and how to recognise an error that they raised."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lwa.errors import ModelError


def call_user[**P, R](function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """Return what a user's function returns; what it raises passes through, and `is_users_error` finds this frame.

    NumPy's warnings of NaN and infinity are suppressed, as JAX has none: such values are rejected and counted. If a
    user made them errors, they stay errors.
    """
    warned = {kind: "ignore" for kind, how in np.geterr().items() if how == "warn"}
    with np.errstate(**warned):  # type: ignore[arg-type]
        return function(*arguments, **options)


def is_users_error(error: BaseException) -> bool:
    """Return whether an error came out of a user's function that `call_user` called."""
    frames = error.__traceback__
    while frames is not None:
        if frames.tb_frame.f_code is call_user.__code__:
            return True
        frames = frames.tb_next
    return False


def require_terms(values: ArrayLike, m: int) -> NDArray[np.float64]:
    """Return what a log-likelihood returned for m rows, of the shape that it was checked for at first."""
    terms = np.asarray(values, np.float64)
    if terms.shape != (m,):
        raise ModelError(
            f"log_likelihood returned shape {terms.shape} for {m} rows; one value per row, shape ({m},), is expected. "
            "Return an array with log f(Y_k|theta) of each row."
        )
    return terms
