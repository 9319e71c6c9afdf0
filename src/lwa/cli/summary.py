"""`lwa summary`: print the table of a saved run."""

import typer

from lwa.cli import options


def summary(run: options.RunArgument, json: options.JsonParam = False) -> None:
    """Print a saved run: ArviZ's summary, the certificate and the warnings.

    With --json it prints what lwa fit --json printed.
    """
    from lwa.result.result import load

    fit = load(run)
    if json:
        from lwa.cli.json import format_run

        page = run / "report.html"
        typer.echo(format_run(fit, run, page if page.exists() else None))
    else:
        typer.echo(f"{fit!r}\n{fit.summary()}")
