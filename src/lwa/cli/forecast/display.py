"""Print a forecast for people."""

from rich.console import Console
from rich.table import Table

from lwa.cli.forecast.forecast import Forecast
from lwa.cli.forecast.work import PASS_PURPOSES
from lwa.cli.quantities import format_bytes, format_seconds


def print_forecast(found: Forecast, console: Console) -> None:
    """Print the table of passes and moves, then warnings and advice."""
    work, seconds = found.work, found.seconds
    about = "" if found.counted else "About "
    console.print(
        f"{about}{work.rows:,} rows of {work.row_bytes} bytes, {found.parameters} parameters. Measured on a sample of "
        f"{found.sample_rows:,} rows.",
        highlight=False,
    )
    table = Table("stage", "passes over all rows", "bytes read", "time", "purpose")
    for column in table.columns[1:4]:
        column.justify = "right"
    table.add_row("start", "", "", format_seconds(seconds["start"]), "import packages, compile")
    for phase, purpose in PASS_PURPOSES.items():
        if count := work.passes[phase]:
            size = work.source_bytes if phase == "convert" else work.pass_bytes
            table.add_row(phase, f"{count:,}", format_bytes(count * size), format_seconds(seconds[phase]), purpose)
    gathered = work.gathered_rows * work.row_bytes
    moved = f"draw: {work.moves:,} steps of {work.chains} chains, {1e6 * found.move:.3g} µs per step and chain"
    table.add_row("sampling", "", format_bytes(gathered), format_seconds(seconds["moves"]), moved, end_section=True)
    passes = sum(work.passes.values())
    table.add_row("total", f"{passes:,}", format_bytes(work.bytes_read + gathered), format_seconds(found.total), "")
    console.print(table)
    worth = found.efficiency * found.draws * work.chains
    every = "one per step" if found.thinning == 1 else f"one every {found.thinning} steps"
    console.print(
        f"{found.draws:,} draws per chain, {every}; together worth about {worth:,.0f} independent draws. "
        f"Memory: at most {format_bytes(found.memory)}, not counting files that the system caches.",
        highlight=False,
    )
    if work.passes["certificate"]:
        console.print("If one pass is too imprecise, the certificate makes a second.", highlight=False)
    for warning in found.warnings:
        console.print(f"Warning: {warning}", highlight=False, markup=False)
    for advice in found.advice:
        console.print(f"- {advice}", highlight=False, markup=False)
