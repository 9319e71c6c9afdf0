"""`lwa summary`: print the table of a saved run."""

from pathlib import Path
from typing import Annotated

import typer

from lwa.cli import options


def summary(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder saved by lwa fit, lwa demo or fit.save().")],
    json: options.JsonParam = False,
) -> None:
    """Print a saved run: ArviZ's summary, the certificate and the warnings.

    With --json it prints what lwa fit --json printed.
    """
    from lwa.result.result import load

    fit = load(run)
    if json:
        from lwa.cli.json import format_run

        page = run / "report.html"
        typer.echo(format_run(fit, run, page if page.exists() else None))
        return
    typer.echo(repr(fit))
    typer.echo(str(fit.summary()))
