"""Refusals of hyperparameters that cannot be meant."""

from lwa.errors import InputError
from lwa.kernels.random_walk import is_real


def require_share(name: str, value: object, example: float) -> None:
    """A number in (0, 1)."""
    if not is_real(value) or not 0.0 < value < 1.0:  # type: ignore[operator]
        raise InputError(f"{name}={value!r} must lie in (0, 1). Pass {name}={example}.")


def require_positive(name: str, value: object, example: float) -> None:
    """A positive, finite number."""
    if not is_real(value) or not 0.0 < value < float("inf"):  # type: ignore[operator]
        raise InputError(f"{name}={value!r} must be positive and finite. Pass {name}={example}.")


def require_whole(name: str, value: object, least: int, example: int) -> None:
    """A whole number from `least` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}={value!r} must be a whole number >= {least}. Pass {name}={example}.")
