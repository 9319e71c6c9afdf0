"""The command line: parse, call, print."""

from pathlib import Path
from typing import Annotated

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

    from lwa.demo import logistic
    from lwa.run_folder import require_free
    from lwa.sampling import sample

    require_free(out)  # rather than after all the work
    console = Console()
    console.print(f"Simulating {rows:,} rows of a logistic regression with 10 parameters.")
    model, data, truth = logistic(rows, 10, seed)
    fit = sample(model, data, subset_size=subset_size, draws=draws, tune=5000, seed=seed)
    folder = fit.save(out)

    table = fit.summary()
    table.insert(0, "truth", truth)
    console.print("\nPosterior beside the values the data were simulated with:")
    typer.echo(str(table))

    told = fit.attributes
    console.print(
        f"\n{told['seconds']:.1f} s in all, {told['sampling_seconds']:.1f} s of it tune and sampling: "
        f"{told['moves']:,} moves of {len(fit.posterior['beta'])} chains.\n"
        f"Rows read per step: {told['subset_size']:,} of {told['rows']:,}. In total: {told['rows_read']:,}; "
        f"the same moves on all rows would have read {told['rows_read'] // told['subset_size'] * told['rows']:,}.\n"
        f"Target: {told['target']}. It has the width of {told['rows']:,} rows around each subset's own mode, so the sd "
        f"above also holds how far those modes lie apart.\n"
        f"Saved to {folder}. Read it again with lwa.load({str(folder)!r}) or: lwa summary {folder}"
    )


@app.command()
def summary(run: Annotated[Path, typer.Argument(help="A folder saved by lwa demo or fit.save().")]) -> None:
    """Print ArviZ's summary of a saved run."""
    from lwa.result import load

    fit = load(run)
    typer.echo(repr(fit))
    typer.echo(str(fit.summary()))


def main() -> None:
    """Run a command; what lwa refuses is one sentence and exit code 2, never a traceback."""
    from lwa.errors import LwaError

    try:
        app()
    except LwaError as error:
        typer.echo(f"lwa: {error}", err=True)
        raise SystemExit(2) from None
