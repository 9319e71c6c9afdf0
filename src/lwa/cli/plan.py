"""`lwa plan`: what a fit would do and cost."""

from typing import Annotated

import typer

from lwa.cli import options
from lwa.errors import InputError


def plan(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Parquet, Arrow, CSV or .npy: a file, a folder, a pattern or a URL; or a folder made by lwa convert.",
        ),
    ],
    formula: Annotated[
        str | None, options.model_option(help="The formula of the fit, such as 'y ~ x + C(k) + a:b'.")
    ] = None,
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
        return
    from rich.console import Console

    from lwa.cli.forecast.display import print_forecast

    print_forecast(forecast, Console())
