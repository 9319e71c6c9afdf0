"""`lwa convert`: convert a table to rows that can be read at random."""

from pathlib import Path
from typing import Annotated

import typer

from lwa.cli import options


def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Parquet, Arrow IPC or CSV: a file, a folder, a pattern or a URL.")
    ],
    destination: Annotated[Path, typer.Argument(metavar="DESTINATION", help="Folder to create.")],
    columns: Annotated[str | None, typer.Option(show_default="all", help="Columns, separated by commas.")] = None,
    missing: options.MissingParam = "error",
    overwrite: Annotated[bool, typer.Option(help="Replace rows that are already in the destination.")] = False,
) -> None:
    """Convert a table, once, to rows that can be read at random.

    A conversion that was stopped continues if the command is repeated.
    """
    from lwa.rows import convert as convert_table

    wanted = None if columns is None else options.split_names(columns)
    rows = convert_table(source, destination, columns=wanted, missing=missing, overwrite=overwrite)
    dropped = f" {rows.dropped:,} rows with missing values were left out." if rows.dropped else ""
    typer.echo(f"Converted {len(rows):,} rows of {', '.join(rows.columns)} to the folder {destination}.{dropped}")
