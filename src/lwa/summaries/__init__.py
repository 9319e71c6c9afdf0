"""S: summary statistics, by which a subset is judged representative of all rows."""

from lwa.summaries.accept import as_summary
from lwa.summaries.counts import Counts
from lwa.summaries.curvature import Curvature
from lwa.summaries.per_row import PerRow
from lwa.summaries.summary import AdditiveStatistic, Gathering, Statistic, SubsetStatistic, Summary
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
    "AdditiveStatistic", "Autocorrelations", "Combine", "Counts", "Curvature", "Custom", "Gathering", "MinMax",
    "Moments", "PerRow", "Quantiles", "Statistic", "SubsetStatistic", "Summary", "WindowStatistic", "WindowSummary",
    "as_summary",
]  # fmt: skip
