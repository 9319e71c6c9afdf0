"""From a table on disk to a run on disk: what `lwa fit` does between parsing and printing."""

import inspect
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lwa.errors import InputError, LwaError, LwaWarning
from lwa.models.from_numpyro import from_numpyro
from lwa.models.glm import Glm
from lwa.models.model import Model
from lwa.models.named import own_object
from lwa.result import Result
from lwa.rows import Rows
from lwa.rows.cache import rows_at
from lwa.rows.levels import require_one_kind
from lwa.rows.store import StoreRows
from lwa.sampling import sample
from lwa.settings import Settings

SUBSET_SIZE = 1000
"""Rows that a step reads where nothing is asked, or all of them where there are fewer."""


@dataclass(frozen=True)
class Fitted:
    """A run that is saved, and what was said of it."""

    run: Result
    verdict: str
    condemned: bool  # whether the certificate says that the draws are not those of the posterior
    page: Path | None


def require_settings(options: Mapping[str, Any]) -> None:
    """Refuse at once what `lwa.sample` would refuse, but only after a long conversion."""
    defaults = {name: one.default for name, one in inspect.signature(sample).parameters.items()}
    Settings.check(ordered=False, **(defaults | dict(options)))


def formula_rows(model: Glm, source: str, missing: str, progress: bool) -> Rows:
    """The columns of a table that a formula needs."""
    return rows_at(source, progress, columns=model.names, missing=missing)


def numpyro_model(name: str, source: str, missing: str, progress: bool) -> tuple[Model, Rows]:
    """A NumPyro model by its name, `module:model`, and the columns of a table that it takes."""
    function = own_object(name)
    rows = rows_at(source, progress, columns=columns_of(function), missing=missing)
    if isinstance(rows, StoreRows):
        for column, levels in rows.levels.items():
            require_one_kind(column, levels)  # the model is given their codes
    return from_numpyro(function, rows), rows


def columns_of(function: Callable[..., Any]) -> list[str] | None:
    """The columns that a model cannot do without; None where it may take any."""
    if not callable(function):
        return None  # from_numpyro says what is wrong with it
    parameters = inspect.signature(function).parameters.values()
    needed = [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    return needed if needed and len(needed) == len(parameters) else None


def fit_and_save(
    model: Any,
    rows: Rows,
    out: Path,
    options: Mapping[str, Any],
    *,
    command: Sequence[str],
    certify: bool = True,
    report: bool = True,
    progress: bool = True,
) -> Fitted:
    """Sample, certify and report. The draws are saved first, so that nothing that comes later can lose them.

    Parameters
    ----------
    options
        Those of `lwa.sample`; `subset_size` may be None.
    command
        What was typed, which the run keeps, with the seed that was used.
    """
    size = options["subset_size"] or min(SUBSET_SIZE, len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LwaWarning)  # the run keeps them, and whoever asked for it prints them
        run = sample(model, rows, **(dict(options) | {"subset_size": size}), progress=progress)
    if run.draws == 0:
        if run.attributes["stopped"].startswith("interrupted"):
            raise KeyboardInterrupt
        raise InputError(f"There are no draws: {run.attributes['stopped']}. Pass a larger budget, or none.")
    run = with_command(run, command)
    run.save(out)
    verdict, condemned = "", False
    if certify:
        try:
            found = run.certify(progress=progress)
            verdict, condemned = found.verdict, found.outcome == "fail"
            run.save(out)
        except LwaError as error:  # too few draws, for example: what was drawn is there all the same
            verdict = f"none. {error}"
        except KeyboardInterrupt:
            verdict = "none: its pass over all rows was interrupted."
    page = run.report(out / "report.html") if report else None
    return Fitted(run, verdict, condemned, page)


def with_command(run: Result, command: Sequence[str]) -> Result:
    """The run with the command that repeats it."""
    seeded = any(word == "--seed" or word.startswith("--seed=") for word in command)
    again = [*command, *([] if seeded else ["--seed", str(run.attributes["seed"])])]
    return replace(run, attributes={**run.attributes, "command": " ".join(map(as_typed, again))})


def as_typed(word: str) -> str:
    """A word of a command as one types it in a shell."""
    readable = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if readable else shlex.quote(word)


def whole_or_auto(option: str, text: str) -> int | str:
    """A whole number, 1e6 among them, or `"auto"`."""
    if text == "auto":
        return text
    try:
        if float(text) == int(float(text)):
            return int(float(text))
    except (ValueError, OverflowError):
        pass
    raise InputError(f"{option} {text!r} is no whole number. Pass {option} 1000, for example, or {option} auto.")


def number_or_auto(option: str, text: str) -> float | str:
    """A number, or `"auto"`."""
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is no number. Pass {option} 0.1, for example, or {option} auto.") from None
