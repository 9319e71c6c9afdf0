"""Sample, save, certify and report: what `lwa fit` and `lwa resume` do between reading and printing."""

import inspect
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lwa.cli.options import DEFAULT_SUBSET_SIZE, SampleOptions, parse_number_or_auto, parse_whole_or_auto
from lwa.cli.source import Source
from lwa.errors import InputError, LwaError, LwaWarning, RunFolderError, Terminated
from lwa.executors import Executor
from lwa.result.result import Result
from lwa.run.checkpoints.resume import Fresh, load_state, of_lwas_own
from lwa.run.sample import NOT_KEPT, resume, run_stages, sample
from lwa.run.settings import Settings
from lwa.user.progress import Display, Stopwatch, format_stages

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Fitted:
    """A saved run, and what to print about it."""

    run: Result
    table: "pandas.DataFrame"  # ArviZ's summary
    verdict: str
    failed: bool  # whether the certificate fails
    page: Path | None  # the report
    stages: Stopwatch


def parse_sample_options(
    *,
    tune: int,
    chains: int,
    budget: str | None,
    target: str,
    exact: bool,
    seed: int | None,
    epsilon: str,
    draws: str | None,
    subset_size: str | None,
    keep: str = "auto",
) -> SampleOptions:
    """Return the options of `lwa.sample`, checked as it checks them, before any long work begins."""
    options = SampleOptions(
        tune=tune,
        chains=chains,
        budget=budget,
        target=target,
        exact=exact,
        seed=seed,
        epsilon=parse_number_or_auto("--epsilon", epsilon),
        draws=parse_whole_or_auto("--draws", draws or ("1000" if budget is None else "auto")),
        subset_size=None if subset_size is None else parse_whole_or_auto("--subset-size", subset_size),
        keep=keep,
    )
    size = DEFAULT_SUBSET_SIZE if subset_size is None else options["subset_size"]
    Settings.check(complete_settings(options, subset_size=size), ordered=False)
    return options


def complete_settings(options: SampleOptions, **more: object) -> dict[str, Any]:
    """Return all settings of `lwa.sample`: the options, and defaults for the rest."""
    parameters = inspect.signature(sample).parameters
    defaults = {name: one.default for name, one in parameters.items() if name not in NOT_KEPT}
    return defaults | dict(options) | more


def fit_and_save(
    source: Source,
    out: Path,
    options: SampleOptions,
    *,
    command: Sequence[str],
    certify: bool,
    report: bool,
    progress: bool,
    overwrite: bool,
    executor: Executor | None,
    stages: Stopwatch,
) -> Fitted:
    """Read, sample, certify and report. Draws are saved as they are made, so no later error can lose them.

    Parameters
    ----------
    source
        The model and the data.
    out
        The folder of the run.
    options
        Options of `lwa.sample`.
    command
        The words of the command, which the run records together with its seed.
    certify, report, progress
        Whether to certify, to write the report, and to show progress.
    overwrite
        Whether to replace a run that is already in `out`, as soon as this one is prepared.
    executor
        Who computes.
    stages
        The stopwatch of the command.
    """
    with Display(progress, stages) as display:
        model, rows = source.read(progress=display, executor=executor)
    size = options["subset_size"] or min(DEFAULT_SUBSET_SIZE, len(rows))
    settings = complete_settings(options, subset_size=size, checkpoint=out)
    fresh = Fresh({"source": asdict(source), "command": list(command)}, replaces=overwrite)
    with silence_warnings(), Display(progress, stages) as display:
        run = run_stages(model, rows, settings, None, progress=display, executor=executor, fresh=fresh)
    return conclude_fit(run, out, command, stages, certify=certify, report=report, progress=progress)


def resume_and_save(
    folder: Path,
    *,
    draws: int | None,
    budget: str | None,
    numpyro: str | None,
    certify: bool,
    report: bool,
    progress: bool,
    executor: Executor | None,
    stages: Stopwatch,
) -> Fitted:
    """Continue a fit, then certify and report it."""
    source, command = read_source(folder, numpyro)
    with silence_warnings(), Display(progress, stages) as display:
        model, rows = source.read(progress=display, executor=executor)
        run = resume(folder, model, rows, draws=draws, budget=budget, progress=display, executor=executor)
    return conclude_fit(run, folder, command, stages, certify=certify, report=report, progress=progress)


def read_source(folder: Path, numpyro: str | None) -> tuple[Source, list[str]]:
    """Return the model and the data of an earlier fit, and the words of its command.

    No code is taken from the folder of a run: --numpyro must be given again.
    """
    with of_lwas_own(folder):
        told = load_state(folder).description["told"]
        if told is None:
            raise RunFolderError(
                f"{folder} holds a run that was started in Python. Continue it there: lwa.resume(folder, model, data)."
            )
        source, command = Source(**told["source"]), [str(word) for word in told["command"]]
        words = [value for name, value in asdict(source).items() if name != "prior" and value is not None]
        if not all(isinstance(word, str) for word in (*words, *source.prior)):
            raise TypeError("its source is not text")
    if source.numpyro != numpyro:
        was = "a formula" if source.numpyro is None else f"--numpyro {source.numpyro}"
        again = "Leave --numpyro out." if source.numpyro is None else f"Pass the same: --numpyro {source.numpyro}."
        raise RunFolderError(f"{folder} was started with {was}. lwa takes no code from the folder of a run. {again}")
    return source, command


@contextmanager
def silence_warnings() -> Iterator[None]:
    """Do not print warnings of lwa: the run records them, and the command prints them at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LwaWarning)
        yield


def conclude_fit(
    run: Result, out: Path, command: Sequence[str], stages: Stopwatch, *, certify: bool, report: bool, progress: bool
) -> Fitted:
    """Save, certify and report a run."""
    ended = str(run.attributes["stopped"])
    require_first_draw(run, ended, out)
    run = add_command(run, command)
    if run.home is None:  # the disk was full, for example
        raise RunFolderError(str(run.attributes["warnings"][-1]))
    with stages("saving"):
        run.save(out)
    if ended.startswith("terminated"):
        raise Terminated(
            f"Terminated with {run.draws} draws per chain, saved in {out}. Continue with: lwa resume {out}"
        )
    verdict, failed = certify_fit(run, out, stages, progress=progress) if certify else ("", False)
    with stages("report"):
        table = run.summary()
        page = run.report(out / "report.html") if report else None
    run = replace(run, attributes={**run.attributes, "stages": stages.record})
    with stages("saving"):
        run.save(out)
    return Fitted(run, table=table, verdict=verdict, failed=failed, page=page, stages=stages)


def require_first_draw(run: Result, ended: str, out: Path) -> None:
    """Raise if a run ended before its first draw, unless the system terminated it."""
    if run.draws or ended.startswith("terminated"):
        return
    if ended.startswith("interrupted"):
        raise KeyboardInterrupt
    raise InputError(
        f"There are no draws: {ended}. Pass a larger budget, for example: lwa resume {out} --budget '10 min'."
    )


def certify_fit(run: Result, out: Path, stages: Stopwatch, *, progress: bool) -> tuple[str, bool]:
    """Certify and save a run; return the verdict, and whether the certificate fails."""
    try:
        with stages("certificate"):
            found = run.certify(progress=progress)
        with stages("saving"):
            run.save(out)
        return found.verdict, found.outcome == "fail"
    except LwaError as error:  # too few draws, for example: the draws are saved all the same
        return f"none. {error}", False
    except KeyboardInterrupt:
        return "none: its pass over all rows was interrupted.", False


def add_command(run: Result, command: Sequence[str]) -> Result:
    """Return the run with the command that repeats it."""
    seeded = any(word == "--seed" or word.startswith("--seed=") for word in command)
    again = [*command, *([] if seeded else ["--seed", str(run.attributes["seed"])])]
    return replace(run, attributes={**run.attributes, "command": " ".join(map(quote_word, again))})


def quote_word(word: str) -> str:
    """Return a word of a command as one types it in a shell."""
    readable = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if readable else shlex.quote(word)


def print_fit(fitted: Fitted, out: Path, *, json: bool) -> None:
    """Print the result of a fit, as JSON or for people; exit with code 1 if the certificate fails."""
    if json:
        from lwa.cli.json import format_run

        typer.echo(format_run(fitted.run, out, fitted.page))
    else:
        typer.echo(str(fitted.table))
        for warning in fitted.run.attributes["warnings"]:
            typer.echo(f"\nWarning: {warning}")
        if fitted.verdict:
            typer.echo(f"\nCertificate: {fitted.verdict}")
        typer.echo(f"\nSaved to {out}." + ("" if fitted.page is None else f" Open {fitted.page} for the full report."))
        typer.echo(f"Time: {format_stages(fitted.stages.seconds)}.")
    if fitted.failed:
        raise typer.Exit(1)
