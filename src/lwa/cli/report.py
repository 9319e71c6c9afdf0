"""`lwa report`: write the page of a saved run."""

from pathlib import Path
from typing import Annotated

import typer

from lwa.cli import options


def report(
    run: options.RunArgument,
    out: Annotated[Path | None, typer.Option(show_default="RUN/report.html", help="File to write.")] = None,
) -> None:
    """Write a saved run as one HTML page: verdict, table, plots, warnings, and how to repeat it."""
    from lwa.result.result import load

    page = load(run).report(run / "report.html" if out is None else out)
    typer.echo(f"Wrote {page}")
