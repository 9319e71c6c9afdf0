"""Gather S, the statistic by which subsets are compared with all rows, in the pass that surveys them."""

from collections.abc import Callable

from lwa.data.data import Data
from lwa.rows import Survey, survey
from lwa.rows.memory import load_column
from lwa.rows.passes import visit_rows
from lwa.run.settings import Settings
from lwa.run.windows import WindowColumn
from lwa.summaries import Curvature, WindowSummary
from lwa.summaries.summary import NO_STATISTIC, OverGroups, SubsetStatistic, Summary, start_gathering


def gather_statistic(
    data: Data, settings: Settings, summary: Summary, progress: Callable[[int], None]
) -> tuple[Survey, SubsetStatistic]:
    """Return the survey of all rows, and S gathered in the same pass; curvature is found later, at the reference."""
    if isinstance(summary, WindowSummary):
        column = load_column(data.rows, summary.column, summary.asked, data.series.order)
        found = WindowColumn(summary.prepare(column, data.series.offsets[1:]), column)
        return survey(data.rows, progress=progress), found
    if isinstance(summary, Curvature) and settings.calibration is not None:
        return survey(data.rows, progress=progress), NO_STATISTIC
    seen, gathering = visit_rows(data.rows, start_gathering, own=(summary,), here=True, progress=progress)
    finished = gathering.finish()
    return seen, finished if data.parts is None else OverGroups(finished, data.mean_size)
