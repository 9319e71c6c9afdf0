"""`lwa demo`: a fit to simulated data, and what the same steps would cost on all rows."""

from pathlib import Path
from typing import Annotated

import typer

from lwa.cli.options import SEED_HELP


def demo(
    rows: Annotated[int, typer.Option(help="Rows to simulate.", min=10)] = 1_000_000,
    subset_size: Annotated[int, typer.Option(help="Rows that a step reads.", min=1)] = 1000,
    draws: Annotated[int, typer.Option(help="Draws to keep per chain.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help=SEED_HELP, min=0)] = 1,
    out: Annotated[Path, typer.Option(help="Folder to save the run to.")] = Path("runs/demo"),
) -> None:
    """Fit a logistic regression with 10 parameters to a million simulated rows, and show the result."""
    from rich.console import Console

    from lwa.cli.quantities import format_seconds
    from lwa.errors import LwaError
    from lwa.rivals.problems import measure_full_pass, simulate_logistic
    from lwa.run.sample import sample
    from lwa.storage.run_folder import require_free

    require_free(out)  # before any long work begins
    console = Console()
    console.print(f"Simulating {rows:,} rows of a logistic regression with 10 parameters.")
    model, data, _, truth = simulate_logistic(rows, seed=seed, parameters=10)
    fit = sample(model, data, subset_size=subset_size, draws=draws, seed=seed)
    folder = fit.save(out)
    try:
        certified = f"Certificate: {fit.certify().verdict}"
        fit.save(out)
    except LwaError as error:  # too few draws, for example: the draws are saved all the same
        certified = f"No certificate: {error}"

    table = fit.summary()
    table.insert(0, "truth", truth)
    console.print("\nPosterior given all rows, and the true values that the data were simulated with:")
    typer.echo(str(table))

    facts, chains = fit.attributes, len(fit.posterior["beta"])
    step, full = 1 / facts["moves_a_second"], measure_full_pass(model, data, chains)
    console.print(f"\n{certified}")
    console.print(
        f"\nThe run took {facts['seconds']:.1f} s, {facts['sampling_seconds']:.1f} s of it for tuning and sampling: "
        f"{facts['moves']:,} steps of {chains} chains with {facts['kernel']}.\n"
        f"A step read {facts['subset_size']:,} of {facts['rows']:,} rows per chain and took {format_seconds(step)}. "
        f"On all rows it would take {format_seconds(full)}, {full / step:,.0f} times as long: "
        f"{format_seconds(full * facts['moves'])} for this run.\n"
        f"Saved to {folder}. Load it with lwa.load({str(folder)!r}), or print it again with: lwa summary {folder}"
    )
