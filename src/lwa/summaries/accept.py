"""What a user may pass as `summary`."""

from lwa.errors import InputError
from lwa.summaries.per_row import PerRow, every_column
from lwa.summaries.summary import Summary
from lwa.summaries.windowed import WindowSummary


def as_summary(summary: object, *, weighted: bool, calibrated: bool = False, ordered: bool = False) -> Summary | None:
    """Return S, or None if every subset weighs the same.

    `"auto"` is the mean of every column in units of its spread if Φ weighs subsets of rows, and None otherwise.
    """
    if isinstance(summary, Summary):
        require_kind(summary, ordered=ordered)
        return summary
    if isinstance(summary, str) and summary == "auto":
        return PerRow(every_column, scaled=True) if weighted and not calibrated and not ordered else None
    if callable(summary):
        raise InputError(
            "summary is a bare function. Pass summary=lwa.summaries.PerRow(function), or "
            "lwa.summaries.Custom(function) for a function of windows."
        )
    raise InputError(
        f"summary={summary!r} is not known. Valid: 'auto', lwa.summaries.PerRow(function), "
        "lwa.summaries.Counts(column), lwa.summaries.Curvature(); for windows lwa.summaries.Quantiles(0.5), "
        "Autocorrelations(5), MinMax(), Moments(2), Custom(function) and Combine of these. Pass summary='auto', for "
        "example."
    )


def require_kind(summary: Summary, *, ordered: bool) -> None:
    """Raise if a summary of windows came with rows that have no order, or the other way round."""
    if isinstance(summary, WindowSummary) and not ordered:
        summary.gather()  # raises
    if ordered and not isinstance(summary, WindowSummary):
        raise InputError(
            f"summary={type(summary).__name__}(...) summarises rows one by one, but these rows are ordered, so each "
            "subset is a window of them. Pass a summary of windows: lwa.summaries.Moments(2) or Custom(function), for "
            "example."
        )
