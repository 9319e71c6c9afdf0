"""Checks of the single values that a user passes. Each error says what came, what is expected and what to type."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import TypeGuard

from lwa.errors import InputError, one_of


def is_real(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, Python's or NumPy's; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object, *, least: int) -> TypeGuard[int]:
    """Return whether a value is a whole number of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def require_whole(name: str, value: object, *, least: int, example: int, also: str = "") -> int:
    """Return a whole number of at least `least`; `also` names what else would be valid."""
    if is_whole(value, least=least):
        return int(value)
    raise InputError(f"{name}={value!r} must be a whole number >= {least}{also}. Pass {name}={example}, for example.")


def require_share(name: str, value: object, *, example: float) -> float:
    """Return a number strictly between 0 and 1."""
    if is_real(value) and 0.0 < value < 1.0:
        return float(value)
    raise InputError(f"{name}={value!r} must lie in (0, 1). Pass {name}={example}.")


def require_positive(name: str, value: object, *, example: float) -> float:
    """Return a positive, finite number."""
    if is_real(value) and 0.0 < value < float("inf"):
        return float(value)
    raise InputError(f"{name}={value!r} must be positive and finite. Pass {name}={example}.")


def require_bool(name: str, value: object, *, example: bool = False, also: str = "") -> bool:
    """Return True or False, and refuse whatever merely looks like it."""
    if isinstance(value, bool):
        return value
    raise InputError(f"{name}={value!r} must be True or False{also}. Pass {name}={example}, for example.")


def require_one_of(name: str, value: object, valid: Sequence[str]) -> str:
    """Return one of the valid names."""
    if isinstance(value, str) and value in valid:
        return value
    raise one_of(name, value, list(valid))
