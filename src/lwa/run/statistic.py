"""The survey: one pass over all rows as they came, and the summary S on its way through them."""

from typing import NamedTuple

from lwa.data.data import Data
from lwa.rows import Survey, survey
from lwa.rows.column import load_column
from lwa.rows.passes import visit_rows
from lwa.run.settings import Settings
from lwa.run.windows import AnyStatistic, WindowColumn
from lwa.summaries import Curvature, WindowSummary
from lwa.summaries.groups import OverGroups
from lwa.summaries.summary import NO_STATISTIC, start_gathering
from lwa.user.progress import Display


class Surveyed(NamedTuple):
    """What one pass over all rows found."""

    survey: Survey  # how many rows, and their fingerprint
    statistic: AnyStatistic


def survey_rows(data: Data, settings: Settings, display: Display) -> Surveyed:
    """Check that all rows are finite, take their fingerprint, and gather S if rows say what it is."""

    def progress(done: int) -> None:
        display.show("all rows", done, len(data))

    summary = settings.summary
    if isinstance(summary, WindowSummary):
        column = load_column(data.rows, summary.column, summary.asked, data.series.order)
        found = WindowColumn(summary.prepare(column, data.series.offsets[1:]), column)
        return Surveyed(survey(data.rows, progress=progress), found)
    from_reference = isinstance(summary, Curvature) and settings.calibration is not None
    if summary is None or data.ordered or from_reference:
        return Surveyed(survey(data.rows, progress=progress), NO_STATISTIC)
    seen, gathering = visit_rows(data.rows, start_gathering, own=(summary,), here=True, progress=progress)
    finished = gathering.finish()
    return Surveyed(seen, finished if data.parts is None else OverGroups(finished, data.mean_size))
