"""The command line: parse, call, print."""

from pathlib import Path
from typing import Annotated, Any

import typer

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

    from lwa.demo import full_step_seconds, logistic
    from lwa.errors import LwaError
    from lwa.run_folder import require_free
    from lwa.sampling import sample

    require_free(out)  # rather than after all the work
    console = Console()
    console.print(f"Simulating {rows:,} rows of a logistic regression with 10 parameters.")
    model, data, truth = logistic(rows, 10, seed)
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
    step, full = 1 / told["moves_a_second"], full_step_seconds(model, data, chains)
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


@app.command()
def fit(
    what: Annotated[str, typer.Argument(help="A formula, 'late ~ distance + origin'; or the data, with --numpyro.")],
    data: Annotated[
        str | None,
        typer.Argument(
            help="Parquet, Arrow or CSV: a file, a folder, a pattern or a URL; a folder made by lwa convert."
        ),
    ] = None,
    family: Annotated[
        str,
        typer.Option(
            help="gaussian, student_t, bernoulli, binomial, poisson, negative_binomial, gamma or categorical."
        ),
    ] = "gaussian",
    link: Annotated[str | None, typer.Option(help="logit or probit of bernoulli, for example.")] = None,
    prior: Annotated[
        list[str] | None, typer.Option(help="'x = normal(0, 1)', as often as needed; or flat. Else weak ones.")
    ] = None,
    offset: Annotated[str | None, typer.Option(help="A column or expression, 'log(exposure)'.")] = None,
    weights: Annotated[str | None, typer.Option(help="A column: how often a row counts.")] = None,
    trials: Annotated[str | None, typer.Option(help="A column or a number, for binomial.")] = None,
    numpyro: Annotated[str | None, typer.Option(help="module:model, a NumPyro model in place of a formula.")] = None,
    missing: Annotated[str, typer.Option(help="error, or drop to leave out rows with missing values.")] = "error",
    subset_size: Annotated[str, typer.Option(help="Rows that a step reads, or auto.")] = "1000",
    draws: Annotated[int, typer.Option(help="Kept draws a chain.", min=1)] = 1000,
    tune: Annotated[int, typer.Option(help="Steps that adapt and are dropped.", min=0)] = 1000,
    chains: Annotated[int, typer.Option(help="Chains.", min=1)] = 4,
    budget: Annotated[str | None, typer.Option(help="'60 s' or '10 min' of tune and sampling at the most.")] = None,
    target: Annotated[str, typer.Option(help="calibrated, powered, subposterior or auto.")] = "calibrated",
    exact: Annotated[bool, typer.Option(help="Correct every draw by all rows.")] = False,
    epsilon: Annotated[str, typer.Option(help="Bandwidth of the subsets' law, or auto.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same draws.", min=0)] = None,
    certify: Annotated[bool, typer.Option(help="Say how far the draws are from the posterior of all rows.")] = True,
    page: Annotated[bool, typer.Option(help="Write report.html into the run's folder.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")] = False,
    out: Annotated[Path, typer.Option(help="Folder to save the run to.")] = Path("runs/fit"),
) -> None:
    """Fit a regression, or a NumPyro model, to a table; certify the draws and write a page about them.

    Ends with 0 where all went well, with 1 where the certificate says that the draws are not those of the posterior,
    with 2 where something was refused.
    """
    import warnings

    from lwa.errors import InputError, LwaError, LwaWarning
    from lwa.models.from_numpyro import from_numpyro
    from lwa.models.glm import glm
    from lwa.models.named import own_object, priors_of
    from lwa.rows.cache import rows_at
    from lwa.run_folder import require_free
    from lwa.sampling import sample

    require_free(out)  # rather than after all the work
    if numpyro is None and data is None:
        raise InputError(f"{what!r} came alone. Pass a formula and the data: lwa fit 'y ~ x' table.parquet.")
    if numpyro is not None and data is not None:
        raise InputError("--numpyro takes the place of the formula. Pass the data alone.")
    source = what if data is None else data
    if numpyro is None:
        number = int(trials) if trials is not None and trials.isdigit() else trials
        unbound = glm(
            what, family, link=link, priors=priors_of(prior or []), offset=offset, weights=weights, trials=number
        )
        rows = rows_at(source, progress=True, columns=unbound.names, missing=missing)
        model: Any = unbound
    else:
        rows = rows_at(source, progress=True, missing=missing)
        model = from_numpyro(own_object(numpyro), rows)
    size: Any = int(subset_size) if subset_size.isdigit() else subset_size
    if isinstance(size, int):
        size = min(size, len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LwaWarning)  # they are printed below, and kept with the run
        run = sample(
            model, rows, subset_size=size, draws=draws, tune=tune, chains=chains, budget=budget, target=target,
            exact=exact, epsilon=float(epsilon) if epsilon != "auto" else epsilon, seed=seed,
        )  # fmt: skip
        run.save(out)
        verdict, outcome = "", None
        if certify:
            try:
                found = run.certify()
                verdict, outcome = found.verdict, found.outcome
                run.save(out)
            except LwaError as error:  # too few draws, for example: what was drawn is there all the same
                verdict = f"No certificate: {error}"
    written = run.report(out / "report.html") if page else None
    show_fit(run, verdict, written, out, as_json=json)
    if outcome == "fail":
        raise typer.Exit(1)


def show_fit(run: Any, verdict: str, page: Path | None, out: Path, *, as_json: bool) -> None:
    """What came of a fit, for people or for scripts."""
    table, told = run.summary(), run.attributes["warnings"]
    if as_json:
        import json

        summary = json.loads(table.to_json(orient="index"))
        printed = {"summary": summary, "certificate": run.attributes.get("certificate"), "warnings": told}
        printed |= {"run": str(out), "report": None if page is None else str(page), "rows": run.attributes["rows"]}
        typer.echo(json.dumps(printed))
        return
    typer.echo(str(table))
    for remark in told:
        typer.echo(f"Warning: {remark}", err=True)
    if verdict:
        typer.echo(f"\nCertificate: {verdict}")
    typer.echo(f"\nSaved to {out}." + ("" if page is None else f" Open {page} for the whole story."))


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
    from lwa.comparison.compare import compare as run
    from lwa.comparison.own import own_problem
    from lwa.comparison.table import require_folder
    from lwa.problems import PROBLEMS, Simulated, simulate

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
def summary(run: Annotated[Path, typer.Argument(help="A folder saved by lwa demo or fit.save().")]) -> None:
    """Print ArviZ's summary of a saved run."""
    from lwa.result import load

    fit = load(run)
    typer.echo(repr(fit))
    typer.echo(str(fit.summary()))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A folder saved by lwa demo or fit.save().")],
    out: Annotated[Path | None, typer.Option(help="Page to write [default: RUN/report.html].")] = None,
) -> None:
    """Write a saved run as one page of HTML: verdict, table, pictures, warnings, and how to repeat it."""
    from lwa.result import load

    page = load(run).report(run / "report.html" if out is None else out)
    typer.echo(f"Wrote {page}")


def main() -> None:
    """Run a command; what lwa refuses is one sentence and exit code 2, never a traceback."""
    from lwa.errors import LwaError

    try:
        app()
    except LwaError as error:
        typer.echo(f"lwa: {error}", err=True)
        raise SystemExit(2) from None
