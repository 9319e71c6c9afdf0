"""`lwa watch`: show the progress of a fit that runs in another process."""

from pathlib import Path
from typing import Annotated

import typer


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a fit that is running.")],
    once: Annotated[bool, typer.Option("--once", help="Print the progress once, and exit.")] = False,
) -> None:
    """Show the progress of a running fit: draws, effective draws, R-hat, time left."""
    from lwa.run.checkpoints.watch import follow

    follow(run, once=once)
