"""Data: the rows, the units that a subset is made of (rows, groups or windows), and the model bound to both."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import jax
import numpy as np

from lwa.backend.xla import make_room_for_programs
from lwa.errors import InputError
from lwa.executors import Executor, Serial
from lwa.models.check import check_model, choose_row_numbers
from lwa.models.glm.recipe import RecipeRows
from lwa.models.model import Model, Unbound
from lwa.rows import Rows, as_rows
from lwa.rows.memory import ArrayRows, is_series, is_table
from lwa.rows.parts import Parts, as_one_part, find_parts, join_series, require_ascending, require_index_ascending
from lwa.rows.passes import SpreadRows, find_strata, spread_passes
from lwa.rows.store.cache import is_read_by_workers
from lwa.rows.strata import build_strata
from lwa.rows.units import build_groups, build_stretches
from lwa.rows.workers.on_workers import RowsOnWorkers
from lwa.user.progress import Display

FIRST_LEAD_IN = 512
"""Steps before each segment of a pass over all rows, until the model's memory is measured."""
SEGMENT = 4
"""Scored steps per step of lead-in: a pass evaluates a quarter more steps than there are."""


@dataclass(frozen=True, eq=False)
class Data:
    """The rows as units, and the model that scores them. A subset is made of units: rows, groups or windows."""

    given: Model  # the user's, checked
    model: Model  # the model of units
    rows: Rows  # the user's
    full: Rows  # all rows as units, for passes over everything
    parts: Parts | None = None  # groups, or series
    lead_in: int = 0  # steps before each segment of `full`
    described: str = ""  # what the model chose when it was bound to the data
    executor: Executor | None = None  # computes passes over `rows` and `full`

    @property
    def ordered(self) -> bool:
        """Whether rows are a sequence, so that a subset is a window."""
        return self.given.ordered is not False

    @property
    def units_in_words(self) -> str:
        """The word for units in messages."""
        return "rows" if self.parts is None else "segments" if self.ordered else "groups"

    @property
    def available(self) -> int:
        """The largest subset_size: all rows, all groups, or the steps of the shortest series."""
        return int(self.series.sizes.min()) if self.ordered else len(self.full)

    @property
    def series(self) -> Parts:
        """The groups or series; only for data that have them."""
        assert self.parts is not None
        return self.parts

    @property
    def stratified(self) -> bool:
        """Whether groups are so unequal that they are units in strata of size."""
        return find_strata(self.full) is not None

    @property
    def mean_size(self) -> float:
        """Rows per group, on average."""
        return len(self.rows) / len(self.series)

    def __len__(self) -> int:
        """Return N, the rows of the data."""
        return len(self.rows)

    @property
    def scored(self) -> int:
        """N of N/n: the number of units, or of the steps of a sequence."""
        return len(self.rows) if self.ordered else len(self.full)

    def slots(self, n: int) -> int:
        """Return the number of units in a subset of size n: one if it is a window."""
        return 1 if self.ordered else n

    def reads(self, n: int, lead_in: int) -> int:
        """Return the rows that the log-likelihood reads per subset; the average for groups."""
        if self.parts is None:
            return n
        return n + lead_in if self.ordered else round(n * self.mean_size)

    def look_back(self, steps: int) -> "Data":
        """Return the data with this many steps before each segment of a pass over all rows."""
        segments = build_stretches(self.rows, self.series, SEGMENT * steps, steps)
        return replace(self, full=spread_passes(segments, self.executor), lead_in=steps)

    def compute_with(self, executor: Executor | None) -> "Data":
        """Return the data with passes computed by an executor."""
        rows, full = spread_passes(self.rows, executor), spread_passes(self.full, executor)
        return replace(self, rows=rows, full=full, executor=executor)

    @property
    def runs_remotely(self) -> bool:
        """Whether workers run the cohorts.

        They do not if the model runs in Python, on the user's own thread; nor if each worker holds some of the rows: a
        worker that ran a cohort would have to read the whole source.
        """
        if self.executor is None or isinstance(self.executor, Serial):
            return False
        return not self.model.in_python and not is_held_by_workers(self.rows)

    def require_fits(self, n: int | None) -> None:
        """Raise `InputError` if a subset is larger than the data."""
        if n is None or n <= self.available:
            return
        most = self.available
        if self.ordered:
            which = int(np.argmin(self.series.sizes))
            of = "the data" if len(self.series) == 1 else f"the shortest series (number {which})"
            raise InputError(
                f"subset_size={n}: a window of {n} steps is longer than {of}, which has {most}. Pass subset_size <= "
                f"{most}, or leave short series out.",
                advice={"subset_size": most},
            )
        raise InputError(
            f"subset_size={n} exceeds the {most} {self.units_in_words} of the data. Pass subset_size <= {most}.",
            advice={"subset_size": most},
        )


def lay_out(
    model: Model | Unbound,
    data: object,
    progress: bool | Display = False,
    executor: Executor | None = None,
    dtype: type[np.floating[Any]] = np.float64,
) -> Data:
    """Return the rows of `data` as the units that the model needs, and the model, checked on a few of them.

    `Data` passes unchanged. `progress` shows the conversion of a table on disk, `executor` computes passes, and `dtype`
    is the precision in which the model is checked. Runs, rivals and certificates begin here, so programs of earlier
    ones are forgotten here if they are too many.
    """
    make_room_for_programs()
    if isinstance(data, Data):
        return data if executor is None else data.compute_with(executor)
    return check(lay_out_units(model, data, progress, executor).compute_with(executor), dtype)


def check(data: Data, dtype: type[np.floating[Any]]) -> Data:
    """Check the model on a few rows, and return the data with a model that runs in Python if JAX cannot trace it."""
    sizes = len(data.rows) if data.parts is None else int(data.parts.sizes[0])
    first = np.arange(min(max(choose_row_numbers(data.given)), sizes))
    some = data.rows.take(first) if data.parts is None else data.parts.take(data.rows, first)
    with jax.enable_x64(True):
        model = check_model(data.given, some, dtype)
    if model is data.given:
        return data
    return replace(data, given=model, model=model if data.parts is None else model.of_units)


def lay_out_units(
    model: Model | Unbound, data: object, progress: bool | Display = False, executor: Executor | None = None
) -> Data:
    """Return the rows as units, with passes computed in this process."""
    if isinstance(model, Unbound):
        bound = model.bind(data, progress, executor)
        return replace(lay_out_units(bound.model, bound.rows), described=bound.described)
    require_rows_here(model, data, executor)
    several = False
    if model.ordered is not False and is_list_of_series(data):
        several, (rows, parts) = True, join_list(data)
    else:
        rows, parts = as_rows(data, progress=progress, executor=executor), None
    if model.groups is not None:
        if several:
            raise InputError(f"data is a list of series, which are the groups: leave out groups={model.groups!r}.")
        parts = find_parts(rows, model.groups)
    if model.ordered is False:
        if parts is None:
            return Data(model, model, rows, rows)
        return Data(model, model.of_units, rows, build_strata(rows, parts) or build_groups(rows, parts), parts)
    parts = parts or as_one_part(rows)
    if isinstance(model.ordered, str | int) and not isinstance(model.ordered, bool):
        require_ascending(rows, parts, model.ordered)
    require_index_ascending(data, parts)
    return Data(model, model.of_units, rows, rows, parts).look_back(FIRST_LEAD_IN)


def require_rows_here(model: Model, data: object, executor: Executor | None) -> None:
    """Raise `InputError` for windows and groups of rows that only workers can read."""
    if (model.ordered is False and model.groups is None) or not is_read_by_workers(data, executor):
        return
    asked, what = (f"has groups={model.groups!r}", "groups") if model.ordered is False else ("is ordered", "windows")
    raise InputError(
        f"The model {asked}, and {what} need rows that this process can read, but the workers would hold the rows of "
        "these Parquet files. Convert them first with lwa convert SOURCE DESTINATION, and pass DESTINATION, a folder "
        "that workers can read too."
    )


def is_held_by_workers(rows: Rows) -> bool:
    """Return whether workers hold the rows, each some of them."""
    rows = rows.rows if isinstance(rows, SpreadRows) else rows
    return isinstance(rows.source if isinstance(rows, RecipeRows) else rows, RowsOnWorkers)


def is_list_of_series(data: object) -> TypeGuard[Sequence[object]]:
    """Return whether data is a list of series, and not one series of numbers."""
    return (
        isinstance(data, list | tuple)
        and len(data) > 0
        and all(isinstance(one, dict) or is_table(one) or is_series(one) or np.ndim(one) > 0 for one in data)
    )


def join_list(data: Sequence[object]) -> tuple[Rows, Parts]:
    """Return the rows of a list of series, one after the other, and the start of each."""
    series = [as_rows(one) for one in data]
    held = [one for one in series if isinstance(one, ArrayRows)]
    if len(held) < len(series):
        raise InputError("A list of series holds arrays, dicts of arrays or tables. Pass a path or lwa.Rows by itself.")
    return join_series(held)
