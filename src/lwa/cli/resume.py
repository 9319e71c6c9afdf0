"""`lwa resume`: continue a fit, or extend it."""

from pathlib import Path
from typing import Annotated

import typer

from lwa.cli import options


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an lwa fit to continue or to extend.")],
    draws: Annotated[
        int | None, typer.Option(show_default="as before", help="Draws per chain in total, to extend the run.", min=1)
    ] = None,
    budget: Annotated[
        str | None, typer.Option(show_default="as before", help="Time for tuning and sampling in total, such as 60s.")
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
    from lwa.cli.fitting import conclude_fit, read_source, silence_warnings
    from lwa.executors.dask import connect_dask
    from lwa.run.sample import resume as resume_sampling
    from lwa.user.progress import Display, start_stopwatch

    stages = start_stopwatch()
    with connect_dask(dask) as executor:
        source, command = read_source(run, numpyro)
        with silence_warnings(), Display(not json, stages) as display:
            model, rows = source.read(progress=display, executor=executor)
            found = resume_sampling(run, model, rows, draws=draws, budget=budget, progress=display, executor=executor)
        conclude_fit(found, run, command, stages, certify=certify, report=page, json=json)
