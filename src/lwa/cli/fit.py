"""`lwa fit`: fit a model to a table, certify it and report it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lwa.cli import options

FORMULA_HELP = "Such as 'y ~ x + C(k) + a:b' or '(delay > 15) ~ distance'. Leave it out with --numpyro."


def fit(
    what: Annotated[str, typer.Argument(metavar="FORMULA", help=FORMULA_HELP)],
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=options.DATA_HELP)] = None,
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
    keep: Annotated[
        str, options.sampling_option(help="all: every draw; summary: statistics and each chain's last ones; auto: all.")
    ] = "auto",
    seed: options.SeedParam = None,
    target: options.TargetParam = "calibrated",
    exact: options.ExactParam = False,
    epsilon: options.EpsilonParam = "auto",
    dask: options.DaskParam = None,
    out: Annotated[Path, options.output_option(help="Folder of the run.")] = Path("runs/fit"),
    overwrite: Annotated[bool, options.output_option("--overwrite", help="Replace the run that is there.")] = False,
    certify: options.CertifyParam = True,
    page: options.ReportParam = True,
    json: options.JsonParam = False,
) -> None:
    """Fit a regression, or a NumPyro model, to a table; certify and report it.

    The table is converted once. After that, each step reads --subset-size rows,
    however many rows there are. Draws are saved in --out as they are made. If
    the process ends early, lwa resume continues the run; lwa watch shows its
    progress. Ctrl-C ends sampling early, and the run is still certified and saved.

    Examples:

        lwa fit "late ~ distance + origin" flights.parquet --family bernoulli \\
            --budget 60s --out runs/flights

        lwa fit "claims ~ age + C(region, ref='north')" "claims/*.csv" \\
            --family poisson --offset "log(exposure)" --missing drop

        lwa fit --numpyro mymodels:hierarchical flights.parquet --json > fit.json

    Exit codes: 0 if all went well, 1 if the certificate fails, 2 for invalid
    input (with a one-line explanation), 130 after Ctrl-C before the first draw,
    143 after SIGTERM (the draws are saved, and lwa resume continues the run).
    """
    from lwa.cli.fitting import conclude_fit, fit_source, parse_sample_options
    from lwa.cli.source import Source
    from lwa.executors.dask import connect_dask
    from lwa.storage.run_folder import require_free
    from lwa.user.progress import start_stopwatch

    stages, command = start_stopwatch(), ["lwa", *sys.argv[1:]]
    require_free(out, replace=overwrite)  # check this and all options before any long work begins
    asked = parse_sample_options(
        tune=tune, chains=chains, budget=budget, target=target, exact=exact, seed=seed, epsilon=epsilon, draws=draws,
        subset_size=subset_size, keep=keep,
    )  # fmt: skip
    source = Source(
        what, data, family=family, link=link, prior=prior or [], offset=offset, weights=weights, trials=trials,
        numpyro=numpyro, missing=missing,
    )  # fmt: skip
    with connect_dask(dask) as executor:
        run = fit_source(
            source, out, asked, command, progress=not json, overwrite=overwrite, executor=executor, stages=stages
        )
        conclude_fit(run, out, command, stages, certify=certify, report=page, json=json)
