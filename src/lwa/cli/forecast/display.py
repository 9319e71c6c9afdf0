"""A forecast for people."""

from rich.console import Console
from rich.table import Table

from lwa.cli.forecast.advice import in_bytes, spoken
from lwa.cli.forecast.forecast import Forecast
from lwa.cli.forecast.work import PHASES


def show(found: Forecast, console: Console) -> None:
    """The table, then what to think of it."""
    work, seconds = found.work, found.seconds
    about = "" if found.counted else "about "
    console.print(
        f"{about}{work.rows:,} rows of {work.row_bytes} bytes, {found.parameters} parameters; measured on "
        f"{found.sample_rows:,} of them.",
        highlight=False,
    )
    table = Table("what", "passes", "bytes", "time", "for")
    for column in table.columns[1:4]:
        column.justify = "right"
    table.add_row("start", "", "", spoken(seconds["start"]), "imports, compilation")
    for phase, purpose in PHASES.items():
        if count := work.passes[phase]:
            size = work.source_bytes if phase == "convert" else work.pass_bytes
            table.add_row(phase, f"{count:,}", in_bytes(count * size), spoken(seconds[phase]), purpose)
    gathered = work.gathered_rows * work.row_bytes
    moved = f"{work.moves:,} moves of {work.chains} chains, {1e6 * found.move:.3g} µs a move and chain"
    table.add_row("moves", "", in_bytes(gathered), spoken(seconds["moves"]), moved, end_section=True)
    passes = sum(work.passes.values())
    table.add_row("in all", f"{passes:,}", in_bytes(work.bytes_read + gathered), spoken(found.total), "")
    console.print(table)
    worth = found.efficiency * found.draws * work.chains
    console.print(
        f"{found.draws:,} draws a chain, one in {found.thinning} moves, worth about {worth:,.0f} independent ones. "
        f"Memory: {in_bytes(found.memory)} at the most, files that the system keeps at hand apart.",
        highlight=False,
    )
    if work.passes["certificate"]:
        console.print("Where one pass of the certificate cannot tell, it makes a second.", highlight=False)
    for one in found.warnings:
        console.print(f"Warning: {one}", highlight=False, markup=False)
    for one in found.advice:
        console.print(f"- {one}", highlight=False, markup=False)
