"""The command line: parse, call, print."""

import gc
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lwa.cli.fit import Fitted

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def lwa() -> None:
    """Bayesian inference on tall data at a fixed cost per step."""


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="Rows to simulate.", min=10)] = 1_000_000,
    subset_size: Annotated[int, typer.Option(help="Rows that a step reads.", min=1)] = 1000,
    draws: Annotated[int, typer.Option(help="Kept draws a chain.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same draws.", min=0)] = 1,
    out: Annotated[Path, typer.Option(help="Folder to save the run to.")] = Path("runs/demo"),
) -> None:
    """Fit a 10-parameter logistic regression to a million simulated rows and show what came of it."""
    from rich.console import Console

    from lwa.errors import LwaError
    from lwa.rivals.problems import measure_full_pass, simulate_logistic
    from lwa.run.sample import sample
    from lwa.storage.run_folder import require_free

    require_free(out)  # rather than after all the work
    console = Console()
    console.print(f"Simulating {rows:,} rows of a logistic regression with 10 parameters.")
    model, data, _, truth = simulate_logistic(rows, seed=seed, parameters=10)
    fit = sample(model, data, subset_size=subset_size, draws=draws, seed=seed)
    folder = fit.save(out)
    try:
        certified = f"Certificate, from one pass over all rows: {fit.certify().verdict}"
        fit.save(out)
    except LwaError as error:  # too few draws, for example: what was drawn is there all the same
        certified = f"No certificate: {error}"

    table = fit.summary()
    table.insert(0, "truth", truth)
    console.print("\nPosterior of all rows beside the values the data were simulated with:")
    typer.echo(str(table))

    told, chains = fit.attributes, len(fit.posterior["beta"])
    step, full = 1 / told["moves_a_second"], measure_full_pass(model, data, chains)
    console.print(f"\n{certified}")
    console.print(
        f"\n{told['seconds']:.1f} s in all, {told['sampling_seconds']:.1f} s of it tune and sampling: "
        f"{told['moves']:,} moves of {chains} chains, {told['kernel']}.\n"
        f"A move of {chains} chains read {told['subset_size']:,} of {told['rows']:,} rows for each and took "
        f"{1e6 * step:.0f} µs. On all rows it would take {1e3 * full:.0f} ms, {full / step:,.0f} times as long: "
        f"{duration(full * told['moves'])} for this run.\n"
        f"Saved to {folder}. Read it again with lwa.load({str(folder)!r}) or: lwa summary {folder}"
    )


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads well."""
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


MODEL, DATA, SAMPLING, OUTPUT = "Model", "Data", "Sampling", "What comes of it"


@app.command()
def fit(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FORMULA", help="'y ~ x + C(k) + a:b', '(delay > 15) ~ distance'. Leave it out with --numpyro."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Parquet, Arrow or CSV: a file, a folder, a pattern or a URL; or a folder that lwa convert made.",
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MODEL,
            show_default="gaussian",
            help="gaussian, student_t, bernoulli, binomial, poisson, negative_binomial, gamma or categorical.",
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(rich_help_panel=MODEL, help="Other than the family's own: probit or cloglog, log of gaussian."),
    ] = None,
    prior: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=MODEL,
            metavar="PRIOR",
            help="'x = normal(0, 1)' or 'sigma = exponential(2)', as often as needed, or flat. Others are weak and "
            "scaled to the data; all are printed before sampling.",
        ),
    ] = None,
    offset: Annotated[
        str | None, typer.Option(rich_help_panel=MODEL, help="A column or an expression, 'log(exposure)'.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(rich_help_panel=MODEL, help="A column: how often each row counts.")
    ] = None,
    trials: Annotated[
        str | None, typer.Option(rich_help_panel=MODEL, help="Of binomial: a column, or a number for all rows.")
    ] = None,
    numpyro: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MODEL,
            metavar="MODULE:MODEL",
            help="A NumPyro model of a module in this folder, in place of a formula; its arguments are columns.",
        ),
    ] = None,
    missing: Annotated[
        str,
        typer.Option(rich_help_panel=DATA, help="error, or drop to leave out rows that lack a value that is needed."),
    ] = "error",
    subset_size: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=SAMPLING,
            show_default="1000, or all rows where there are fewer",
            help="Rows that a step reads, or auto: as few as will do.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(rich_help_panel=SAMPLING, help="60s or '10 min' of tune and sampling, at the most."),
    ] = None,
    draws: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=SAMPLING,
            show_default="1000; auto with a budget",
            help="Kept draws a chain, or auto: what the budget allows.",
        ),
    ] = None,
    tune: Annotated[
        int, typer.Option(rich_help_panel=SAMPLING, help="Steps that adapt and are dropped.", min=0)
    ] = 1000,
    chains: Annotated[int, typer.Option(rich_help_panel=SAMPLING, help="Chains.", min=1)] = 4,
    keep: Annotated[
        str,
        typer.Option(
            rich_help_panel=SAMPLING,
            help="all draws, or a summary of them made on the way, with the last of each chain; auto: all.",
        ),
    ] = "auto",
    seed: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=SAMPLING,
            show_default="a fresh one, recorded",
            help="The same seed gives the same draws.",
            min=0,
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(rich_help_panel=SAMPLING, help="calibrated, powered, subposterior or auto.")
    ] = "calibrated",
    exact: Annotated[
        bool,
        typer.Option(rich_help_panel=SAMPLING, help="Correct every draw by all rows, at a pass over them for each."),
    ] = False,
    epsilon: Annotated[
        str,
        typer.Option(
            rich_help_panel=SAMPLING, help="Bandwidth of the subsets' law, of powered and subposterior; or auto."
        ),
    ] = "auto",
    dask: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=SAMPLING,
            metavar="ADDRESS",
            help="Scheduler of a Dask cluster that computes, tcp://10.0.0.1:8786; its workers read Parquet files.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(rich_help_panel=OUTPUT, help="Folder to save the run to.")] = Path("runs/fit"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", rich_help_panel=OUTPUT, help="Replace a run that is there already.")
    ] = False,
    certify: Annotated[
        bool,
        typer.Option(
            rich_help_panel=OUTPUT,
            help="Say how far the draws are from the posterior of all rows, at a pass or two over them.",
        ),
    ] = True,
    page: Annotated[
        bool,
        typer.Option("--report/--no-report", rich_help_panel=OUTPUT, help="Write report.html into that folder."),
    ] = True,
    json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON, and nothing else, on standard output."),
    ] = False,
) -> None:
    """Fit a regression, or a NumPyro model, to a table; certify and report it.

    The table is converted once. Then a step reads as many rows of it as
    --subset-size says, however many there are. Draws are kept in --out as they
    come: whatever ends the process, lwa resume goes on from there, and lwa watch
    shows how far it is. Ctrl-C ends it early, and still certifies and saves it.

    Examples:

        lwa fit "late ~ distance + origin" flights.parquet --family bernoulli \\
            --budget 60s --out runs/flights

        lwa fit "claims ~ age + C(region, ref='north')" "claims/*.csv" \\
            --family poisson --offset "log(exposure)" --missing drop

        lwa fit --numpyro mymodels:hierarchical flights.parquet --json > fit.json

    Ends with 0 when it is done, 1 when the certificate says that the draws are
    not those of the posterior, 2 when something was refused (one sentence says
    what, and what to type), 130 when Ctrl-C came before there were draws, 143
    when the system asked it to end: what was drawn is kept, and
    lwa resume goes on from there.
    """
    from lwa.cli.fit import Source, fit_and_save
    from lwa.executors.dask import connect_dask
    from lwa.storage.run_folder import require_free
    from lwa.user.progress import Display
    from lwa.user.progress import start_stopwatch

    stages = start_stopwatch()
    require_free(out, replace=overwrite)  # this and all options, rather than after all the work
    options = options_of(tune, chains, budget, target, exact, seed, epsilon, draws, subset_size, keep)
    source = Source(
        what, data, family=family, link=link, prior=prior or [], offset=offset, weights=weights, trials=trials,
        numpyro=numpyro, missing=missing,
    )  # fmt: skip
    with connect_dask(dask) as executor:
        with Display(not json, stages) as display:
            model, rows = source.read(progress=display, executor=executor)
        done = fit_and_save(
            model, rows, out, options, command=["lwa", *sys.argv[1:]], source=source, certify=certify, report=page,
            progress=not json, overwrite=overwrite, executor=executor, stages=stages,
        )  # fmt: skip
    tell(done, out, json=json)


def tell(done: "Fitted", out: Path, *, json: bool) -> None:
    """Print what came of a fit, and end with what the certificate says."""
    if json:
        from lwa.cli.json import run_as_json

        typer.echo(run_as_json(done.run, out, done.page))
    else:
        show_fit(done, out)
    if done.condemned:
        raise typer.Exit(1)


def show_fit(done: "Fitted", out: Path) -> None:
    """What came of a fit: the table, then what to think of it, then where it is."""
    from lwa.user.progress import format_stages

    typer.echo(str(done.table))
    for remark in done.run.attributes["warnings"]:
        typer.echo(f"\nWarning: {remark}")
    if done.verdict:
        typer.echo(f"\nCertificate: {done.verdict}")
    typer.echo(f"\nSaved to {out}." + ("" if done.page is None else f" Open {done.page} for the whole story."))
    typer.echo(f"{format_stages(done.stages.seconds)}.")


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The folder of an lwa fit that was ended before it was done.")],
    draws: Annotated[int | None, typer.Option(help="Draws a chain in all, where more are wanted.", min=1)] = None,
    budget: Annotated[str | None, typer.Option(help="60s or '10 min' in all, where more is wanted.")] = None,
    numpyro: Annotated[
        str | None,
        typer.Option(metavar="MODULE:MODEL", help="The same again, where the fit was begun with it."),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Scheduler of a Dask cluster that computes, tcp://10.0.0.1:8786; its workers read Parquet files.",
        ),
    ] = None,
    certify: Annotated[bool, typer.Option(help="Say how far the draws are from the posterior of all rows.")] = True,
    page: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html into that folder.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")] = False,
) -> None:
    """Go on with a fit, to the draws that it would have made: the same, bit for bit.

    Data, model, settings and versions must be those that it was begun with; what is different is named. With --draws or
    --budget a fit that is done is extended.
    """
    from lwa.cli.fit import resume_and_save
    from lwa.executors.dask import connect_dask
    from lwa.user.progress import start_stopwatch

    stages = start_stopwatch()
    with connect_dask(dask) as executor:
        done = resume_and_save(
            run, draws=draws, budget=budget, numpyro=numpyro, certify=certify, report=page, progress=not json,
            executor=executor, stages=stages,
        )  # fmt: skip
    tell(done, run, json=json)


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(help="The folder of a run that is kept while it goes on.")],
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
) -> None:
    """Show how far a running fit is: draws, effective draws, R-hat, how often U is refreshed, time left."""
    from lwa.run.checkpoints.watch import follow

    follow(run, once=once)


@app.command()
def compare(
    problem: Annotated[
        str,
        typer.Argument(
            help="logistic, student_t, gaussian, lognormal or arma, simulated; or module:name of your own lwa.Model, "
            "or of a function that returns (model, data)."
        ),
    ] = "logistic",
    data: Annotated[Path | None, typer.Argument(help="A .npy file, for a model of your own.")] = None,
    rows: Annotated[float, typer.Option(help="Rows to simulate, 1e6 for example.", min=10)] = 1e6,
    budget: Annotated[
        str, typer.Option(help="Seconds of tune and sampling that each method has, '1 s' or '1 min'.")
    ] = "1 s",
    methods: Annotated[
        str, typer.Option(help="Names between commas, 'lwa,metropolis,sgld'; auto: all that there are.")
    ] = "auto",
    subset_size: Annotated[int, typer.Option(help="Rows that a step of lwa reads.", min=1)] = 1000,
    kernel: Annotated[
        str, typer.Option(help="Rivals' proposals: gaussian, from the mode, as lwa's are; or walk, as in their papers.")
    ] = "gaussian",
    chains: Annotated[int, typer.Option(help="Chains of each method.", min=1)] = 4,
    tune: Annotated[int, typer.Option(help="Steps that adapt and are dropped.", min=0)] = 1000,
    seed: Annotated[int, typer.Option(help="Of data and draws.", min=0)] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder for table, figure and runs [default: runs/compare-PROBLEM].")
    ] = None,
) -> None:
    """Run lwa beside the algorithms of other papers, each under the same budget from the same starts.

    Prints one table (steps, rows a step, effective draws a second, shift and sd ratio against the posterior) and who
    wins on error against time; methods that do not apply are listed with the reason. Writes a figure.
    """
    from lwa.cli.user_module import own_problem
    from lwa.rivals.comparison.compare import compare as run
    from lwa.rivals.comparison.table import require_folder
    from lwa.rivals.problems import PROBLEMS, Simulated, simulate

    if problem in PROBLEMS or ":" not in problem:
        case: Simulated = simulate(problem, int(rows), seed)
    else:
        case = own_problem(problem, data)
    folder = out or Path("runs") / f"compare-{problem.replace(':', '-')}"
    require_folder(folder)  # rather than after all the work
    asked = "auto" if methods == "auto" else [name.strip() for name in methods.split(",") if name.strip()]
    found = run(
        case.model, case.data, asked, budget=budget, chains=chains, tune=tune, subset_size=subset_size,
        bound=case.bound, kernel=kernel, seed=seed,
    )  # fmt: skip
    found.save(folder)
    typer.echo(repr(found))
    typer.echo(f"\nTable, figure and runs are in {folder}: {folder / 'figure.png'}")


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="Parquet, Arrow IPC or CSV: a file, a folder, a pattern or a URL.")],
    destination: Annotated[Path, typer.Argument(help="The folder to make.")],
    columns: Annotated[str | None, typer.Option(help="Names between commas; all, when not given.")] = None,
    missing: Annotated[str, typer.Option(help="error, or drop to leave out rows with missing values.")] = "error",
    overwrite: Annotated[bool, typer.Option(help="Make it anew where it is there already.")] = False,
) -> None:
    """Turn a table into rows that can be read at random, once; a conversion that was stopped goes on where it was."""
    from lwa.rows import convert as run

    wanted = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    rows = run(source, destination, columns=wanted, missing=missing, overwrite=overwrite)
    dropped = f", {rows.dropped:,} with missing values left out" if rows.dropped else ""
    typer.echo(f"{len(rows):,} rows of {', '.join(rows.columns)} in {destination}{dropped}.")


@app.command()
def plan(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="As of lwa fit: Parquet, Arrow, CSV or .npy, or a folder of lwa convert."),
    ],
    formula: Annotated[
        str | None, typer.Option(rich_help_panel=MODEL, help="'y ~ x + C(k) + a:b', as of lwa fit.")
    ] = None,
    family: Annotated[
        str | None, typer.Option(rich_help_panel=MODEL, show_default="gaussian", help="As of lwa fit.")
    ] = None,
    link: Annotated[str | None, typer.Option(rich_help_panel=MODEL, help="As of lwa fit.")] = None,
    prior: Annotated[
        list[str] | None, typer.Option(rich_help_panel=MODEL, metavar="PRIOR", help="As of lwa fit.")
    ] = None,
    offset: Annotated[str | None, typer.Option(rich_help_panel=MODEL, help="A column or an expression.")] = None,
    weights: Annotated[str | None, typer.Option(rich_help_panel=MODEL, help="A column.")] = None,
    trials: Annotated[str | None, typer.Option(rich_help_panel=MODEL, help="Of binomial.")] = None,
    numpyro: Annotated[
        str | None, typer.Option(rich_help_panel=MODEL, metavar="MODULE:MODEL", help="In place of a formula.")
    ] = None,
    missing: Annotated[str, typer.Option(rich_help_panel=DATA, help="error, or drop.")] = "error",
    subset_size: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=SAMPLING,
            show_default="1000, or all rows where there are fewer",
            help="Rows that a step reads, or auto.",
        ),
    ] = None,
    budget: Annotated[str | None, typer.Option(rich_help_panel=SAMPLING, help="60s or '10 min'.")] = None,
    draws: Annotated[
        str | None, typer.Option(rich_help_panel=SAMPLING, show_default="1000; auto with a budget", help="A chain.")
    ] = None,
    tune: Annotated[int, typer.Option(rich_help_panel=SAMPLING, help="Steps that adapt.", min=0)] = 1000,
    chains: Annotated[int, typer.Option(rich_help_panel=SAMPLING, help="Chains.", min=1)] = 4,
    seed: Annotated[int | None, typer.Option(rich_help_panel=SAMPLING, help="As of the fit to come.", min=0)] = None,
    target: Annotated[
        str, typer.Option(rich_help_panel=SAMPLING, help="calibrated, powered, subposterior or auto.")
    ] = "calibrated",
    exact: Annotated[bool, typer.Option(rich_help_panel=SAMPLING, help="Correct every draw by all rows.")] = False,
    epsilon: Annotated[str, typer.Option(rich_help_panel=SAMPLING, help="As of lwa fit.")] = "auto",
    certify: Annotated[bool, typer.Option(rich_help_panel=OUTPUT, help="Whether the fit will be certified.")] = True,
    json: Annotated[
        bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON, and nothing else, on standard output.")
    ] = False,
) -> None:
    """Say what lwa fit would do and cost, before it does: passes, bytes, memory, time; and what would be better.

    Everything is measured on some of the rows of DATA, within seconds; there is
    no pass over all of them, and nothing is kept.

    Example:

        lwa plan flights.parquet --formula "late ~ distance + origin" \\
            --family bernoulli --subset-size 1000
    """
    from lwa.cli.fit import Source
    from lwa.cli.forecast.forecast import forecast
    from lwa.errors import InputError

    if (formula is None) == (numpyro is None):
        raise InputError("A model is needed, and only one. Pass --formula 'y ~ x', or --numpyro module:model.")
    options = options_of(tune, chains, budget, target, exact, seed, epsilon, draws, subset_size)
    source = Source(
        formula or data, data if formula else None, family=family, link=link, prior=prior or [], offset=offset,
        weights=weights, trials=trials, numpyro=numpyro, missing=missing,
    )  # fmt: skip
    found = forecast(source, options, certify=certify)
    if json:
        from lwa.cli.json import as_json

        typer.echo(as_json(found.as_dict()))
        return
    from rich.console import Console

    from lwa.cli.forecast.display import show

    show(found, Console())


def options_of(
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
) -> dict[str, Any]:
    """Those of `lwa.sample`, checked."""
    from lwa.cli.fit import number_or_auto, require_settings, whole_or_auto

    options: dict[str, Any] = {"tune": tune, "chains": chains, "budget": budget, "target": target, "exact": exact}
    options |= {"keep": keep, "seed": seed, "epsilon": number_or_auto("--epsilon", epsilon)}
    options |= {"draws": whole_or_auto("--draws", draws or ("1000" if budget is None else "auto"))}
    options["subset_size"] = None if subset_size is None else whole_or_auto("--subset-size", subset_size)
    require_settings({name: value for name, value in options.items() if (name, value) != ("subset_size", None)})
    return options


@app.command()
def summary(
    run: Annotated[Path, typer.Argument(help="A folder saved by lwa fit, lwa demo or fit.save().")],
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and nothing else: the same as lwa fit --json.")
    ] = False,
) -> None:
    """Print ArviZ's summary of a saved run, with its certificate and warnings."""
    from lwa.result.result import load

    fit = load(run)
    if json:
        from lwa.cli.json import run_as_json

        page = run / "report.html"
        typer.echo(run_as_json(fit, run, page if page.exists() else None))
        return
    typer.echo(repr(fit))
    typer.echo(str(fit.summary()))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A folder saved by lwa fit, lwa demo or fit.save().")],
    out: Annotated[Path | None, typer.Option(help="Page to write [default: RUN/report.html].")] = None,
) -> None:
    """Write a saved run as one page of HTML: verdict, table, pictures, warnings, and how to repeat it."""
    from lwa.result.result import load

    page = load(run).report(run / "report.html" if out is None else out)
    typer.echo(f"Wrote {page}")


def main() -> None:
    """Run a command; what lwa refuses is one sentence and exit code 2, never a traceback."""
    from lwa.errors import LwaError, Terminated, out_of_memory
    from lwa.storage.cache import keep_programs

    try:
        with keep_programs():
            app()
    except LwaError as error:
        typer.echo(f"lwa: {as_options(str(error))}", err=True)
        raise SystemExit(2) from None
    except Terminated as ended:
        typer.echo(f"lwa: {ended}", err=True)
        raise SystemExit(143) from None
    except Exception as error:
        if not out_of_memory(error):
            raise
        typer.echo(
            f"lwa: No memory was left: {error}. Pass a smaller --subset-size or fewer --chains, or end what else runs "
            "here. A run that had begun is kept: lwa resume goes on with it.",
            err=True,
        )
        raise SystemExit(2) from None
    finally:
        gc.freeze()  # else the interpreter looks through all that was imported before it ends: half a second


OPTION = re.compile(
    r"\b(budget|chains|draws|epsilon|family|keep|link|missing|offset|overwrite|seed|subset_size|target|trials|tune|weights)"
    r"(?:=(?:True\b)?|(?= [<>]=))"
)


RESUMING = re.compile(r"lwa\.resume\('([^']*)', model, data\)")
CONVERSION = re.compile(r"lwa\.rows\.convert\(('[^']*'|\w+), ('[^']*'), (overwrite=True)\)")


def as_options(message: str) -> str:
    """A message in the words of a command line: `Pass subset_size=100` is `Pass --subset-size 100` there."""

    def option(found: re.Match[str]) -> str:
        return f"--{found[1].replace('_', '-')}" + (" " if found[0].endswith("=") else "")

    message = CONVERSION.sub(r"lwa convert \1 \2 \3", message)
    return OPTION.sub(option, RESUMING.sub(r"lwa resume \1", message))
