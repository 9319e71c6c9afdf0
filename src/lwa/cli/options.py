"""Options that several commands share, and how their text becomes the settings of `lwa.sample`."""

from functools import partial
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from lwa.errors import InputError

model_option, data_option, sampling_option, output_option = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Model", "Data", "Sampling", "Output")
)
"""`typer.Option` in each panel of `--help`."""
DEFAULT_SUBSET_SIZE = 1000
"""Rows that a step reads unless --subset-size is given; all rows if there are fewer."""
DATA_HELP = "Parquet, Arrow, CSV or .npy: a file, a folder, a pattern or a URL; or a folder made by lwa convert."
SEED_HELP = "Seed of the random numbers. The same seed gives the same draws."

FAMILIES = "gaussian, student_t, bernoulli, binomial, poisson, negative_binomial, gamma or categorical"
FamilyParam = Annotated[
    str | None, model_option(show_default="gaussian", help=f"Distribution of the response: {FAMILIES}.")
]
LinkParam = Annotated[
    str | None, model_option(show_default="the family's own", help="Link function, such as probit, cloglog or log.")
]
PriorParam = Annotated[
    list[str] | None,
    model_option(
        metavar="PRIOR",
        help="Prior of one parameter, such as 'x = normal(0, 1)' or 'sigma = exponential(2)'; repeat the option for "
        "more, or pass flat for no priors. Parameters without one get a weak prior scaled to the data. All priors are "
        "printed before sampling.",
    ),
]
OffsetParam = Annotated[
    str | None, model_option(help="Column or expression added to the linear predictor, such as 'log(exposure)'.")
]
WeightsParam = Annotated[str | None, model_option(help="Column that says how often each row counts.")]
TrialsParam = Annotated[str | None, model_option(help="Trials of binomial: a column, or one number for all rows.")]
NumpyroParam = Annotated[
    str | None,
    model_option(metavar="MODULE:MODEL", help="NumPyro model in this folder. Its arguments are columns of the data."),
]
MissingParam = Annotated[str, data_option(help="Rows with missing values: error to stop, drop to leave them out.")]
SubsetSizeParam = Annotated[
    str | None,
    sampling_option(
        show_default="1000, more if draws would be off, all rows up to 5000",
        help="Rows that a step reads, or auto: the fewest that give accurate draws.",
    ),
]
BudgetParam = Annotated[
    str | None,
    sampling_option(show_default="no limit", help="Longest time for tuning and sampling, such as 60s or '10 min'."),
]
DrawsParam = Annotated[
    str | None,
    sampling_option(
        show_default="1000; auto with a budget", help="Draws to keep per chain, or auto: as many as the budget allows."
    ),
]
TuneParam = Annotated[int, sampling_option(help="Steps that tune the sampler and are dropped.", min=0)]
ChainsParam = Annotated[int, sampling_option(help="Number of chains.", min=1)]
SeedParam = Annotated[
    int | None, sampling_option(show_default="a new one, which the run records", help=SEED_HELP, min=0)
]
TargetParam = Annotated[
    str, sampling_option(help="How a subset of rows stands for all rows: calibrated, powered, subposterior or auto.")
]
ExactParam = Annotated[bool, sampling_option(help="Correct every draw by all rows, in one full pass per draw.")]
EpsilonParam = Annotated[
    str, sampling_option(help="How closely subsets resemble all rows (powered, subposterior): a number, or auto.")
]
DaskParam = Annotated[
    str | None,
    sampling_option(
        metavar="ADDRESS",
        help="Compute on the Dask cluster with this scheduler, such as tcp://10.0.0.1:8786. Its workers read Parquet "
        "files themselves.",
    ),
]
CertifyParam = Annotated[
    bool, output_option(help="Measure how far the draws are from the posterior of all rows, in one or two passes.")
]
ReportParam = Annotated[bool, output_option("--report/--no-report", help="Write report.html beside the draws.")]
JsonParam = Annotated[bool, output_option("--json", help="Print JSON on standard output, and nothing else.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder saved by lwa fit, lwa demo or fit.save().")]


class SampleOptions(TypedDict):
    """What commands pass to `lwa.sample`."""

    tune: int
    chains: int
    budget: str | None
    target: str
    exact: bool
    seed: int | None
    epsilon: float | str
    draws: int | str
    subset_size: int | str | None
    keep: str


def parse_whole_or_auto(option: str, text: str) -> int | str:
    """Return a whole number, such as 1e6, or `"auto"`."""
    if text == "auto":
        return text
    try:
        if float(text) == int(float(text)):
            return int(float(text))
    except (ValueError, OverflowError):
        pass
    raise InputError(f"{option} {text!r} is no whole number. Pass {option} 1000, for example, or {option} auto.")


def parse_number_or_auto(option: str, text: str) -> float | str:
    """Return a number, or `"auto"`."""
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is no number. Pass {option} 0.1, for example, or {option} auto.") from None


def split_names(text: str) -> list[str]:
    """Return the names between the commas of a text."""
    return [name.strip() for name in text.split(",") if name.strip()]
