"""Sample, save, certify, report and print: what `lwa fit` and `lwa resume` do."""

import inspect
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from lwa.cli.options import SampleOptions, parse_number_or_auto, parse_whole_or_auto
from lwa.cli.source import Source
from lwa.errors import InputError, LwaError, LwaWarning, RunFolderError, Terminated
from lwa.executors import Executor
from lwa.result.result import Result
from lwa.run.checkpoints.kept_runs import Fresh, load_state, report_foreign_state
from lwa.run.sample import NOT_KEPT, run_stages, sample
from lwa.run.settings import Settings
from lwa.user.progress import Display, Stopwatch, format_stages


def parse_sample_options(
    *, budget: str | None, epsilon: str, draws: str | None, subset_size: str | None, tune: int, chains: int,
    target: str, exact: bool, seed: int | None, keep: str = "auto",
) -> SampleOptions:  # fmt: skip
    """Return the options of `lwa.sample`, checked as it checks them, before any long work begins."""
    options = SampleOptions(
        tune=tune, chains=chains, budget=budget, target=target, exact=exact, seed=seed, keep=keep,
        epsilon=parse_number_or_auto("--epsilon", epsilon),
        draws=parse_whole_or_auto("--draws", draws or ("1000" if budget is None else "auto")),
        subset_size=None if subset_size is None else parse_whole_or_auto("--subset-size", subset_size),
    )  # fmt: skip
    Settings.check(complete_settings(options), ordered=False)
    return options


def complete_settings(options: SampleOptions, **more: object) -> dict[str, Any]:
    """Return all settings of `lwa.sample`: the options, and defaults for the rest."""
    parameters = inspect.signature(sample).parameters
    defaults = {name: one.default for name, one in parameters.items() if name not in NOT_KEPT}
    return defaults | dict(options) | more


def fit_source(
    source: Source, out: Path, options: SampleOptions, command: Sequence[str], *, progress: bool, overwrite: bool,
    executor: Executor | None, stages: Stopwatch,
) -> Result:  # fmt: skip
    """Read and sample. Draws are saved in `out` as they are made, so no later error can lose them.

    The run records the words of its command. If `overwrite`, it replaces an earlier run as soon as it is prepared.
    """
    with Display(progress, stages) as display:
        model, rows = source.read(progress=display, executor=executor)
    settings = complete_settings(options, checkpoint=out)
    fresh = Fresh({"source": asdict(source), "command": list(command)}, replaces=overwrite)
    with silence_warnings(), Display(progress, stages) as display:
        return run_stages(model, rows, settings, None, progress=display, executor=executor, fresh=fresh)


def read_source(folder: Path, numpyro: str | None) -> tuple[Source, list[str]]:
    """Return the model and the data of an earlier fit, and the words of its command.

    No code is taken from the folder of a run: --numpyro must be given again.
    """
    with report_foreign_state(folder):
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
    run: Result, out: Path, command: Sequence[str], stages: Stopwatch, *, certify: bool, report: bool, json: bool
) -> None:
    """Save, certify, report and print a run; exit with code 1 if the certificate fails."""
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
    verdict, failed = certify_fit(run, out, stages, progress=not json) if certify else ("", False)
    with stages("report"):
        table = run.summary()
        page = run.report(out / "report.html") if report else None
    run = replace(run, attributes={**run.attributes, "stages": stages.record})
    with stages("saving"):
        run.save(out)
    if json:
        from lwa.cli.json import format_run

        typer.echo(format_run(run, out, page))
    else:
        warned = [f"Warning: {warning}\n" for warning in run.attributes["warnings"]]
        certified = [f"Certificate: {verdict}\n"] if verdict else []
        saved = f"Saved to {out}." + ("" if page is None else f" Open {page} for the full report.")
        typer.echo("\n".join([f"{table}\n", *warned, *certified, saved, f"Time: {format_stages(stages.seconds)}."]))
    if failed:
        raise typer.Exit(1)


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
