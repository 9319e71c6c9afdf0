"""What U is a set of: single rows, whole groups, or the steps of one window of a sequence."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lwa.errors import InputError
from lwa.executors import Executor, Serial
from lwa.models.check import check_model, choose_row_numbers
from lwa.models.glm.recipe import RecipeRows
from lwa.models.model import Model, Unbound
from lwa.rows import Rows, as_rows
from lwa.rows.memory import ArrayRows
from lwa.rows.parts import Parts, join_series, as_one_part, find_parts, require_ascending, require_index_ascending
from lwa.rows.passes import SpreadRows, spread_passes
from lwa.rows.store.cache import is_read_by_workers
from lwa.rows.memory import is_series, is_table
from lwa.rows.units import build_groups, build_stretches
from lwa.rows.workers.on_workers import RowsOnWorkers
from lwa.targets.target import power

LEAD_IN = 512
"""Steps before each segment of a pass over all rows, until it is known how long the model remembers."""
SEGMENT = 4
"""Scored steps of a segment for each step of its lead-in: a pass evaluates a quarter more steps than there are."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The data as units, and the model of them. Single rows are units of their own."""

    given: Model  # as the user wrote it
    model: Model  # whose rows are units
    rows: Rows  # as they came
    full: Rows  # all of them as units, for passes over everything
    parts: Parts | None = None
    lead_in: int = 0  # steps before each segment of `full`
    described: str = ""  # what a model chose when it was bound to the data
    executor: Executor | None = None  # who computes passes over `rows` and `full`

    @property
    def ordered(self) -> bool:
        """Whether U is a window."""
        return self.given.ordered is not False

    @property
    def units_in_words(self) -> str:
        """What units are."""
        return "rows" if self.parts is None else "segments" if self.ordered else "groups"

    @property
    def available(self) -> int:
        """The largest subset_size: all rows, all groups, or the steps of the shortest series."""
        return int(self.series.sizes.min()) if self.ordered else len(self.full)

    @property
    def series(self) -> Parts:
        """The parts, where there are."""
        assert self.parts is not None
        return self.parts

    @property
    def mean_size(self) -> float:
        """Rows of a group."""
        return len(self.rows) / len(self.series)

    def __len__(self) -> int:
        """N, the rows of the data."""
        return len(self.rows)

    def slots(self, n: int) -> int:
        """How many units U holds."""
        return 1 if self.ordered else n

    def power(self, target: str, n: int) -> float:
        """w: what U counts for, by scored steps."""
        return power(target, n, len(self.rows) if self.ordered else len(self.full))

    def reads(self, n: int, lead_in: int) -> int:
        """Rows that the log-likelihood reads of one U; of groups on average."""
        if self.parts is None:
            return n
        return n + lead_in if self.ordered else round(n * self.mean_size)

    def remembering(self, steps: int) -> "Layout":
        """The same with so many steps before each segment of a pass over all rows."""
        segments = build_stretches(self.rows, self.series, SEGMENT * steps, steps)
        return replace(self, full=spread_passes(segments, self.executor), lead_in=steps)

    def by(self, executor: Executor | None) -> "Layout":
        """The same with passes computed by an executor."""
        return replace(self, rows=spread_passes(self.rows, executor), full=spread_passes(self.full, executor), executor=executor)

    @property
    def plays_away(self) -> bool:
        """Whether cohorts are played by workers.

        Not where a model runs in Python, on the user's own thread; nor where each worker holds some of the rows: one
        that played a cohort would read the whole source for itself.
        """
        if self.executor is None or isinstance(self.executor, Serial):
            return False
        return not self.model.host and not held_by_workers(self.rows)

    def checked(self, dtype: Any) -> "Layout":
        """The same with a model that can be sampled: one that runs in Python where JAX cannot trace it."""
        sizes = len(self.rows) if self.parts is None else int(self.parts.sizes[0])
        first = np.arange(min(max(choose_row_numbers(self.given)), sizes))
        model = check_model(
            self.given, self.rows.take(first) if self.parts is None else self.parts.take(self.rows, first), dtype
        )
        if model is self.given:
            return self
        return replace(self, given=model, model=model if self.parts is None else model.of_units)

    def fit(self, n: int | None) -> None:
        """Refuse a subset that the data cannot hold."""
        if n is None or n <= self.available:
            return
        most = self.available
        if self.ordered:
            which = int(np.argmin(self.series.sizes))
            of = "the data" if len(self.series) == 1 else f"the shortest series (number {which})"
            raise InputError(
                f"subset_size={n}: a window of {n} steps is longer than {of}, which has {most}. Pass subset_size <= "
                f"{most}, or leave short series out."
            )
        raise InputError(
            f"subset_size={n} exceeds the {most} {self.units_in_words} of the data. Pass subset_size <= {most}."
        )


def lay_out(model: Model | Unbound, data: Any, progress: Any = False, executor: Executor | None = None) -> Layout:
    """The rows of `data` as the units that the model asks for; data that were laid out before pass unchanged.

    `progress`, True or a `Display`, shows how a table on disk is converted. Passes are computed by `executor`.
    """
    if isinstance(data, Layout):
        return data if executor is None else data.by(executor)
    return units_of(model, data, progress, executor).by(executor)


def units_of(model: Model | Unbound, data: Any, progress: Any = False, executor: Executor | None = None) -> Layout:
    """The same, with passes over units computed here."""
    if isinstance(model, Unbound):
        bound = model.bind(data, progress, executor)
        return replace(units_of(bound.model, bound.rows), described=bound.described)
    require_rows_here(model, data, executor)
    several = model.ordered is not False and is_several(data)
    if several:
        rows, parts = join(data)
    else:
        rows, parts = as_rows(data, progress=progress, executor=executor), None
    if model.groups is not None:
        if several:
            raise InputError(f"data is a list of series, so groups={model.groups!r} is one too many. Leave it out.")
        parts = find_parts(rows, model.groups)
    if model.ordered is False:
        if parts is None:
            return Layout(model, model, rows, rows)
        return Layout(model, model.of_units, rows, build_groups(rows, parts), parts)
    parts = parts or as_one_part(rows)
    if isinstance(model.ordered, str | int) and not isinstance(model.ordered, bool):
        require_ascending(rows, parts, model.ordered)
    require_index_ascending(data, parts)
    return Layout(model, model.of_units, rows, rows, parts).remembering(LEAD_IN)


def require_rows_here(model: Model, data: Any, executor: Executor | None) -> None:
    """Refuse windows and groups of rows that only workers can read."""
    if (model.ordered is False and model.groups is None) or not is_read_by_workers(data, executor):
        return
    asked, what = (f"groups={model.groups!r}", "groups") if model.ordered is False else ("ordered", "windows")
    raise InputError(
        f"The model is one of {asked}, and {what} need rows that this process can read, but workers would hold those "
        "of Parquet files. Convert them first, with lwa convert SOURCE DESTINATION, and pass DESTINATION, a folder "
        "that workers can read too."
    )


def held_by_workers(rows: Rows) -> bool:
    """Whether each row comes from the worker that has it."""
    rows = rows.rows if isinstance(rows, SpreadRows) else rows
    return isinstance(rows.source if isinstance(rows, RecipeRows) else rows, RowsOnWorkers)


def is_several(data: Any) -> bool:
    """Whether data are a list of series, and not one series of numbers."""
    return (
        isinstance(data, list | tuple)
        and len(data) > 0
        and all(isinstance(one, dict) or is_table(one) or is_series(one) or np.ndim(one) > 0 for one in data)
    )


def join(data: Any) -> tuple[Rows, Parts]:
    """A list of series."""
    series = [as_rows(one) for one in data]
    held = [one for one in series if isinstance(one, ArrayRows)]
    if len(held) < len(series):
        raise InputError("A list of series holds arrays, dicts of arrays or tables. Pass a path or lwa.Rows by itself.")
    return join_series(held)
