"""`lwa resume`: continue a fit, or extend it."""

from pathlib import Path
from typing import Annotated

import typer

from lwa.cli import options


def resume(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of an lwa fit that ended early, or that should have more draws."),
    ],
    draws: Annotated[
        int | None,
        typer.Option(show_default="as before", help="Draws per chain in total, to extend the run.", min=1),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            show_default="as before",
            help="Time for tuning and sampling in total, such as 60s or '10 min', to extend it.",
        ),
    ] = None,
    numpyro: options.NumpyroParam = None,
    dask: options.DaskParam = None,
    certify: options.CertifyParam = True,
    page: options.ReportParam = True,
    json: options.JsonParam = False,
) -> None:
    """Continue a fit. Its draws are the same, bit for bit, as if it had never stopped.

    The data, the model, the settings and the versions of the packages must be
    those of the first command; lwa names what differs. Repeat --numpyro if the
    first command had it. --draws or --budget extend a fit that is complete.
    """
    from lwa.cli.fitting import print_fit, resume_and_save
    from lwa.executors.dask import connect_dask
    from lwa.user.progress import start_stopwatch

    stages = start_stopwatch()
    with connect_dask(dask) as executor:
        fitted = resume_and_save(
            run, draws=draws, budget=budget, numpyro=numpyro, certify=certify, report=page, progress=not json,
            executor=executor, stages=stages,
        )  # fmt: skip
    print_fit(fitted, run, json=json)
