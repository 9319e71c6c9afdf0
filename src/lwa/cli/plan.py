"""`lwa plan`: what a fit would do and cost."""

from typing import TYPE_CHECKING, Annotated

import typer

from lwa.cli import options
from lwa.cli.forecast.work import PASS_PURPOSES
from lwa.cli.quantities import format_bytes, format_seconds
from lwa.errors import InputError

if TYPE_CHECKING:
    from lwa.cli.forecast.forecast import Forecast


def plan(
    data: Annotated[str, typer.Argument(metavar="DATA", help=options.DATA_HELP)],
    formula: Annotated[str | None, options.model_option(help="Formula, such as 'y ~ x + C(k) + a:b'.")] = None,
    family: options.FamilyParam = None,
    link: options.LinkParam = None,
    prior: options.PriorParam = None,
    offset: options.OffsetParam = None,
    weights: options.WeightsParam = None,
    trials: options.TrialsParam = None,
    numpyro: options.NumpyroParam = None,
    missing: options.MissingParam = "error",
    subset_size: options.SubsetSizeParam = None,
    budget: options.BudgetParam = None,
    draws: options.DrawsParam = None,
    tune: options.TuneParam = 1000,
    chains: options.ChainsParam = 4,
    seed: options.SeedParam = None,
    target: options.TargetParam = "calibrated",
    exact: options.ExactParam = False,
    epsilon: options.EpsilonParam = "auto",
    certify: options.CertifyParam = True,
    json: options.JsonParam = False,
) -> None:
    """Estimate what lwa fit would do and cost with the same options: passes, bytes, memory, time; and what to change.

    Everything is measured on a sample of the rows of DATA, in seconds. There is
    no pass over all rows, and nothing is saved.

    Example:

        lwa plan flights.parquet --formula "late ~ distance + origin" \\
            --family bernoulli --subset-size 1000
    """
    from lwa.cli.fitting import parse_sample_options
    from lwa.cli.forecast.forecast import make_forecast
    from lwa.cli.source import Source

    if (formula is None) == (numpyro is None):
        raise InputError("Exactly one model is needed. Pass --formula 'y ~ x', or --numpyro module:model.")
    asked = parse_sample_options(
        tune=tune, chains=chains, budget=budget, target=target, exact=exact, seed=seed, epsilon=epsilon, draws=draws,
        subset_size=subset_size,
    )  # fmt: skip
    source = Source(
        formula or data, data if formula else None, family=family, link=link, prior=prior or [], offset=offset,
        weights=weights, trials=trials, numpyro=numpyro, missing=missing,
    )  # fmt: skip
    forecast = make_forecast(source, asked, certify=certify)
    if json:
        from lwa.cli.json import format_json

        typer.echo(format_json(forecast.as_dict()))
    else:
        print_forecast(forecast)


def print_forecast(found: "Forecast") -> None:
    """Print the table of passes and moves, then warnings and advice."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    work, seconds = found.work, found.seconds
    about = "" if found.counted else "About "
    console.print(
        f"{about}{work.rows:,} rows of {work.row_bytes} bytes, {found.parameters} parameters. Measured on a sample of "
        f"{found.sample_rows:,} rows."
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
        f"Memory: at most {format_bytes(found.memory)}, not counting files that the system caches."
    )
    if work.passes["certificate"]:
        console.print("If one pass is too imprecise, the certificate makes a second.")
    for warning in found.warnings:
        console.print(f"Warning: {warning}")
    for advice in found.advice:
        console.print(f"- {advice}")
