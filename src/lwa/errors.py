"""What lwa raises and warns of: every message says what came, what is expected and what to type."""

import contextlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOT_THE_USERS = (str(Path(__file__).parent), contextlib.__file__.removesuffix(".py"))
"""Files whose lines no warning points to: lwa's own, and those through which its decorated functions are called."""

type Advice = Mapping[str, Any]
"""The arguments of `lwa.sample` that a message says to pass; of alternatives, the first."""


class LwaError(Exception):
    """Base of every error that lwa raises on purpose; `advice` holds the arguments that its text says to pass."""

    def __init__(self, *args: object, advice: Advice | None = None) -> None:
        super().__init__(*args)
        self.advice: dict[str, Any] = dict(advice or {})


class InputError(LwaError, ValueError):
    """An argument, a model or a data set that lwa cannot work with."""


class DataError(InputError):
    """Rows that are empty, ragged, missing, non-numeric, non-finite or unreadable."""


class ModelError(InputError):
    """A log-likelihood, log-prior or start that raises, has the wrong shape or is not finite."""


class NotSmoothError(ModelError):
    """A model without the derivatives that the calibrated target needs."""


class NoModeError(ModelError):
    """A posterior whose density has no maximum, or none that is found, though it can be differentiated."""


class CollapsedError(NoModeError):
    """A posterior whose density grows without end as a scale falls to zero."""


class RunFolderError(LwaError):
    """A saved run that is missing, damaged or of another format."""


class ExecutorError(LwaError):
    """Workers or a scheduler that are gone."""


class Terminated(Exception):
    """The system asked the process to end, and what was drawn is kept."""


def out_of_memory(error: BaseException) -> bool:
    """Whether there was none left, for Python or for XLA, which has an error of its own for it."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def one_of(option: str, value: object, valid: list[str]) -> InputError:
    """The error for an unknown name: it lists the valid ones."""
    names = ", ".join(repr(name) for name in valid)
    return InputError(f"{option}={value!r} is not known. Valid: {names}. Pass {option}={valid[0]!r}, for example.")


class LwaWarning(UserWarning):
    """Something a user should know about their result; `advice` holds the arguments that its text says to pass."""

    def __init__(self, *args: object, advice: Advice | None = None) -> None:
        super().__init__(*args)
        self.advice: dict[str, Any] = dict(advice or {})


def warn(message: str, advice: Advice | None = None) -> None:
    """Warn at the line of the user's own code that called lwa; `advice` is what the message says to pass."""
    warnings.warn(LwaWarning(message, advice=advice), skip_file_prefixes=NOT_THE_USERS)


def describe_arguments(advice: Advice) -> str:
    """Return arguments as they are typed: "subset_size=4000, refresh_steps=2"."""
    return ", ".join(f"{name}={value!r}" for name, value in advice.items())
