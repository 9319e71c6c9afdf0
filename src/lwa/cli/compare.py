"""`lwa compare`: run lwa and the algorithms of other papers on the same problem."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lwa.cli.options import split_names
from lwa.errors import InputError

if TYPE_CHECKING:
    from lwa.rivals.problems import Simulated


def compare(
    problem: Annotated[
        str,
        typer.Argument(
            help="A simulated problem: logistic, student_t, gaussian, lognormal or arma. Or your own, as module:name "
            "of a lwa.Model or of a function that returns (model, data)."
        ),
    ] = "logistic",
    data: Annotated[Path | None, typer.Argument(help="File with the data of your own lwa.Model, .npy.")] = None,
    rows: Annotated[float, typer.Option(help="Rows to simulate, such as 1e6.", min=10)] = 1e6,
    budget: Annotated[str, typer.Option(help="Time for tuning and sampling per method, such as '1 min'.")] = "1 s",
    methods: Annotated[str, typer.Option(help="Such as 'lwa,metropolis,sgld', with commas; auto: all.")] = "auto",
    subset_size: Annotated[int, typer.Option(help="Rows that a step of lwa reads.", min=1)] = 1000,
    kernel: Annotated[
        str,
        typer.Option(help="Proposals of other methods: gaussian, at the mode, as lwa's; or walk, as in papers."),
    ] = "gaussian",
    chains: Annotated[int, typer.Option(help="Chains per method.", min=1)] = 4,
    tune: Annotated[int, typer.Option(help="Steps that tune a method and are dropped.", min=0)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the data and of the draws.", min=0)] = 1,
    out: Annotated[
        Path | None, typer.Option(show_default="runs/compare-PROBLEM", help="Folder for table, figure and runs.")
    ] = None,
) -> None:
    """Run lwa beside the algorithms of other papers, with the same budget and the same starts.

    Prints one table (steps, rows per step, effective draws per second, shift and
    sd ratio against the posterior) and which method has the lowest error over
    time. Methods that do not apply are listed with the reason. Saves a figure.
    """
    from lwa.rivals.comparison.compare import compare as compare_methods
    from lwa.rivals.comparison.table import require_folder
    from lwa.rivals.problems import PROBLEMS, simulate

    own = ":" in problem and problem not in PROBLEMS
    case = load_problem(problem, data) if own else simulate(problem, int(rows), seed)
    folder = out or Path("runs") / f"compare-{problem.replace(':', '-')}"
    require_folder(folder)  # before any long work begins
    found = compare_methods(
        case.model, case.data, methods if methods == "auto" else split_names(methods), budget=budget, chains=chains,
        tune=tune, subset_size=subset_size, bound=case.bound, kernel=kernel, seed=seed,
    )  # fmt: skip
    found.save(folder)
    typer.echo(repr(found))
    typer.echo(f"\nThe table, the figure and the runs are in {folder}: {folder / 'figure.png'}")


def load_problem(name: str, data: Path | None) -> "Simulated":
    """Load a user's `lwa.Model` and its data, or what a function returns: (model, data) or (model, data, bound)."""
    from lwa.cli.source import load_object
    from lwa.models.model import Model
    from lwa.rivals.problems import Simulated

    found = load_object(name)
    if isinstance(found, Model):
        if data is None:
            raise InputError(f"{name!r} is a model without data. Pass a .npy file after it, or a function's name.")
        return Simulated(found, data)
    made = found() if callable(found) else found
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], Model):
        raise InputError(
            f"{name!r} is of type {type(made).__name__}; a lwa.Model, or a function that returns (model, data), is "
            "expected."
        )
    return Simulated(*made)
