"""S: summary statistics, by which a subset is judged representative of all rows."""

from lwa.errors import InputError
from lwa.summaries.counts import Counts
from lwa.summaries.curvature import Curvature
from lwa.summaries.per_row import PerRow, every_column, nothing
from lwa.summaries.summary import Gathering, Statistic, Summary
from lwa.summaries.windowed import (
    Autocorrelations,
    Combine,
    Custom,
    MinMax,
    Moments,
    Quantiles,
    WindowStatistic,
    WindowSummary,
)

__all__ = [
    "Autocorrelations",
    "Combine",
    "Counts",
    "Curvature",
    "Custom",
    "Gathering",
    "MinMax",
    "Moments",
    "PerRow",
    "Quantiles",
    "Statistic",
    "Summary",
    "WindowStatistic",
    "WindowSummary",
    "as_summary",
]


def as_summary(summary: object, *, weighted: bool, calibrated: bool = False, ordered: bool = False) -> Summary | None:
    """S as given. `"auto"` is left open for the calibrated target and for windows, which then weigh the same; else it
    is the mean of every column in units of its spread, or nothing where Φ plays no part."""
    if isinstance(summary, Summary):
        require_kind(summary, ordered=ordered)
        return summary
    if isinstance(summary, str) and summary == "auto":
        if calibrated or ordered:
            return None
        return PerRow(every_column, scaled=True) if weighted else PerRow(nothing)
    if callable(summary):
        raise InputError(
            "summary is a bare function. Pass summary=lwa.summaries.PerRow(function), or "
            "lwa.summaries.Custom(function) where it is one of windows."
        )
    raise InputError(
        f"summary={summary!r} is not known. Valid: 'auto', lwa.summaries.PerRow(function), "
        "lwa.summaries.Counts(column), lwa.summaries.Curvature(); for windows lwa.summaries.Quantiles(0.5), "
        "Autocorrelations(5), MinMax(), Moments(2), Custom(function) and Combine of these. Pass summary='auto', for "
        "example."
    )


def require_kind(summary: Summary, *, ordered: bool) -> None:
    """Windows have summaries of their own."""
    if isinstance(summary, WindowSummary) and not ordered:
        raise InputError(
            f"summary={summary} summarises windows of ordered data. Pass lwa.Model(..., ordered=True) with it, or "
            "summary=lwa.summaries.PerRow(function) for rows without order."
        )
    if ordered and not isinstance(summary, WindowSummary):
        raise InputError(
            f"summary={type(summary).__name__}(...) summarises rows one by one, but these are ordered, and U is a "
            "window of them. Pass a summary of windows, lwa.summaries.Moments(2) or Custom(function), for example."
        )
