"""From a table on disk to a run on disk: what `lwa fit` does between parsing and printing."""

import inspect
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lwa.cli.parsing import own_object, priors_of
from lwa.errors import InputError, LwaError, LwaWarning, RunFolderError, Terminated
from lwa.executors import Executor
from lwa.models.glm import Glm, glm
from lwa.models.model import Model
from lwa.result.result import Result
from lwa.rows import Rows
from lwa.rows.store.cache import rows_at
from lwa.rows.store.levels import require_one_kind
from lwa.rows.store.store import StoreRows
from lwa.rows.workers.on_workers import RowsOnWorkers
from lwa.run.checkpoints.resume import Fresh, load_state, of_lwas_own
from lwa.run.sample import NOT_KEPT, resume, run_stages, sample
from lwa.run.settings import Settings
from lwa.user.progress import Display
from lwa.user.stopwatch import Stopwatch

if TYPE_CHECKING:
    import pandas

SUBSET_SIZE = 1000
"""Rows that a step reads where nothing is asked, or all of them where there are fewer."""


@dataclass(frozen=True)
class Fitted:
    """A run that is saved, and what was said of it."""

    run: Result
    table: "pandas.DataFrame"  # ArviZ's
    verdict: str
    condemned: bool  # whether the certificate says that the draws are not those of the posterior
    page: Path | None
    stages: Stopwatch  # of everything so far


def require_settings(options: Mapping[str, Any]) -> None:
    """Refuse at once what `lwa.sample` would refuse, but only after a long conversion."""
    Settings.check(ordered=False, **settings_of(options))


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `lwa.sample` where these options are passed to it."""
    parameters = inspect.signature(sample).parameters
    return {name: one.default for name, one in parameters.items() if name not in NOT_KEPT} | dict(options)


@dataclass(frozen=True)
class Source:
    """What `lwa fit` is told of the model and the data: words and numbers, so that a file can hold it."""

    what: str  # the formula, or the data where a NumPyro model takes its place
    data: str | None
    family: str | None = None
    link: str | None = None
    prior: Sequence[str] = ()
    offset: str | None = None
    weights: str | None = None
    trials: str | None = None
    numpyro: str | None = None
    missing: str = "error"

    def read(self, *, progress: bool | Display, executor: Executor | None = None) -> tuple[Any, Rows]:
        """The model, and the rows that it needs; of Parquet files the workers of an executor read them."""
        if self.numpyro is not None:
            self._require_no_formula()
            return numpyro_model(self.numpyro, self.what, self.missing, progress, executor)
        if self.data is None:
            raise InputError(f"{self.what!r} came alone. Pass a formula and the data: lwa fit 'y ~ x' table.parquet.")
        model = self.regression()
        return model, rows_at(self.data, progress, columns=model.names, missing=self.missing, executor=executor)

    def regression(self) -> Glm:
        """The formula as a model."""
        trials = int(self.trials) if self.trials is not None and self.trials.isdigit() else self.trials
        return glm(
            self.what, self.family or "gaussian", link=self.link, priors=priors_of(list(self.prior)),
            offset=self.offset, weights=self.weights, trials=trials,
        )  # fmt: skip

    def _require_no_formula(self) -> None:
        """Refuse what belongs to a formula."""
        if self.data is not None:
            raise InputError(
                f"{self.what!r} and {self.data!r} came with --numpyro, which takes the place of the formula. Pass the "
                "data alone."
            )
        for name in ("family", "link", "prior", "offset", "weights", "trials"):
            if getattr(self, name):
                raise InputError(f"--{name} is of a formula, and --numpyro takes its place. Write it into the model.")


def source_of(folder: Path, numpyro: str | None) -> tuple[Source, list[str]]:
    """What a fit was told, and the command that was typed.

    A run names no code to be executed: whoever goes on with a NumPyro model names it again.
    """
    with of_lwas_own(folder):
        told = load_state(folder).description["told"]
        if told is None:
            raise RunFolderError(
                f"{folder} holds a run that was begun in Python, and goes on there: lwa.resume(folder, model, data)."
            )
        source, command = Source(**told["source"]), [str(word) for word in told["command"]]
        words = [value for name, value in asdict(source).items() if name != "prior" and value is not None]
        if not all(isinstance(word, str) for word in (*words, *source.prior)):
            raise TypeError("its source is no text")
    if source.numpyro != numpyro:
        was = "with a formula" if source.numpyro is None else f"with --numpyro {source.numpyro}"
        again = "Leave --numpyro out." if source.numpyro is None else f"Pass the same: --numpyro {source.numpyro}."
        raise RunFolderError(f"{folder} was begun {was}. A run is no place to take code from. {again}")
    return source, command


def numpyro_model(
    name: str, source: str, missing: str, progress: bool | Display, executor: Executor | None = None
) -> tuple[Model, Rows]:
    """A NumPyro model by its name, `module:model`, and the columns of a table that it takes."""
    from lwa.models.from_numpyro import from_numpyro  # NumPyro takes a while to import, and a formula needs none of it

    function = own_object(name)
    rows = rows_at(source, progress, columns=columns_of(function), missing=missing, executor=executor)
    if isinstance(rows, StoreRows | RowsOnWorkers):
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
    source: Source,
    certify: bool = True,
    report: bool = True,
    progress: bool = True,
    overwrite: bool = False,
    executor: Executor | None = None,
    stages: Stopwatch | None = None,
) -> Fitted:
    """Sample, certify and report. Draws are kept as they come, so that nothing that comes later can lose them.

    Parameters
    ----------
    options
        Those of `lwa.sample`; `subset_size` may be None.
    command
        What was typed, which the run keeps, with the seed that was used.
    source
        What it was told of model and data.
    overwrite
        Whether a run that is in `out` already goes, as soon as this one is prepared.
    executor
        Who computes.
    stages
        Where the time went before.
    """
    size = options["subset_size"] or min(SUBSET_SIZE, len(rows))
    asked = settings_of(dict(options) | {"subset_size": size, "checkpoint": out})
    fresh = Fresh({"source": asdict(source), "command": list(command)}, replaces=overwrite)
    with quietly(), Display(progress, stages) as display:
        run = run_stages(model, rows, asked, None, progress=display, executor=executor, fresh=fresh)
    return concluded(run, out, command, display.stages, certify=certify, report=report, progress=progress)


def resume_and_save(
    folder: Path,
    *,
    draws: int | None,
    budget: str | None,
    numpyro: str | None,
    certify: bool,
    report: bool,
    progress: bool,
    executor: Executor | None = None,
    stages: Stopwatch | None = None,
) -> Fitted:
    """Go on with a fit, then certify and report it."""
    source, command = source_of(folder, numpyro)
    with quietly(), Display(progress, stages) as display:
        model, rows = source.read(progress=display, executor=executor)
        run = resume(folder, model, rows, draws=draws, budget=budget, progress=display, executor=executor)
    return concluded(run, folder, command, display.stages, certify=certify, report=report, progress=progress)


@contextmanager
def quietly() -> Iterator[None]:
    """A run keeps its warnings, and whoever asked for it prints them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LwaWarning)
        yield


def concluded(
    run: Result, out: Path, command: Sequence[str], stages: Stopwatch, *, certify: bool, report: bool, progress: bool
) -> Fitted:
    """Save, certify and report."""
    ended = str(run.attributes["stopped"])
    if run.draws == 0:
        if ended.startswith("interrupted"):
            raise KeyboardInterrupt
        if not ended.startswith("terminated"):
            raise InputError(
                f"There are no draws: {ended}. Pass a larger budget: lwa resume {out} --budget '10 min', for example."
            )
    run = with_command(run, command)
    if run.home is None:  # the disk was full, for example
        raise RunFolderError(str(run.attributes["warnings"][-1]))
    with stages("saving"):
        run.save(out)
    if ended.startswith("terminated"):
        raise Terminated(f"Terminated with {run.draws} draws a chain, kept in {out}. lwa resume {out} goes on.")
    verdict, condemned = "", False
    if certify:
        try:
            with stages("certificate"):
                found = run.certify(progress=progress)
            verdict, condemned = found.verdict, found.outcome == "fail"
            with stages("saving"):
                run.save(out)
        except LwaError as error:  # too few draws, for example: what was drawn is there all the same
            verdict = f"none. {error}"
        except KeyboardInterrupt:
            verdict = "none: its pass over all rows was interrupted."
    with stages("report"):
        table = run.summary()
        page = run.report(out / "report.html") if report else None
    run = replace(run, attributes={**run.attributes, "stages": stages.record})
    with stages("saving"):
        run.save(out)
    return Fitted(run, table, verdict, condemned, page, stages)


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
