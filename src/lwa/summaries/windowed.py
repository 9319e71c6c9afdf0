"""Summaries of windows: S(Y_U) of a window as a whole, in the order of its rows."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.backend.numba_jit import compiled, compiled_summary
from lwa.errors import InputError, LwaWarning
from lwa.rows import Batch
from lwa.rows.column import ColumnName, select_column
from lwa.summaries import whole_column
from lwa.summaries.summary import Gathering, Summary
from lwa.summaries.window_kernels import Vector, autocorrelations, extremes, moments, quantiles

type WindowFunction = Callable[[NDArray[Any], Vector], None]
"""`(window, out)`: writes S(Y_U) of a window into `out`, `(s,)`."""


@dataclass(frozen=True)
class WindowStatistic:
    """A window summary that has seen all rows."""

    function: WindowFunction
    full: Vector  # s_N
    compiled: bool  # whether compiled code may call the function
    theirs: bool = False  # whether it runs code of the user's, which may raise

    @property
    def dimension(self) -> int:
        """s."""
        return len(self.full)


class WindowSummary(Summary):
    """S of windows of one column."""

    column: ColumnName

    @abstractmethod
    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """S for windows, and s_N over all rows of the column, in which series end before these rows."""

    def select(self, batch: Batch) -> NDArray[Any]:
        """The column that is summarised."""
        return select_column(batch, self.column, self.asked)

    @property
    def asked(self) -> str:
        """What errors call its column."""
        return f"{type(self).__name__}(column={self.column!r})"

    def gather(self) -> Gathering:
        """Rows one by one are no window."""
        raise InputError(
            f"summary={self} summarises windows of ordered data. Pass lwa.Model(..., ordered=True) with it, or "
            "summary=lwa.summaries.PerRow(function) for rows without order."
        )


@dataclass(frozen=True, init=False)
class Quantiles(WindowSummary):
    """Quantiles of a window, interpolated as `np.quantile` does; over all rows, in four passes.

    Parameters
    ----------
    levels
        From 0 to 1, in any order.
    column
        A name where the data are a dict or a table, a position where they are a matrix, `None` where they are one
        column.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.Quantiles(0.2, 0.5, 0.8)
    """

    levels: tuple[float, ...]
    column: ColumnName = None

    def __init__(self, *levels: float, column: ColumnName = None) -> None:
        """Refuse levels that are no probabilities."""
        if not levels or not all(isinstance(level, int | float | np.number) and 0 <= level <= 1 for level in levels):
            raise InputError(
                f"Quantiles{levels!r} must have levels from 0 to 1. Pass Quantiles(0.2, 0.5, 0.8), for example."
            )
        object.__setattr__(self, "levels", tuple(map(float, levels)))
        object.__setattr__(self, "column", column)

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Selection for windows, counting for all rows."""
        full = whole_column.quantiles_of(column, np.array(self.levels))
        return WindowStatistic(quantiles_at(self.levels), full, compiled=True)


@lru_cache
def quantiles_at(levels: tuple[float, ...]) -> WindowFunction:
    """Quantiles in the order of the levels. Kept, so that the next run with them does not compile its loop again."""
    order = np.argsort(levels)
    ascending = np.array(levels)[order]

    def function(window: NDArray[Any], out: Vector) -> None:
        found = np.empty(len(ascending))
        quantiles(window, ascending, found)
        for i in range(len(order)):
            out[order[i]] = found[i]

    twin: WindowFunction = compiled(function)
    return twin


@dataclass(frozen=True)
class Autocorrelations(WindowSummary):
    """Sample autocorrelations ρ_1, …, ρ_lags of a window; over all rows, in two passes.

    ρ_p = Σ_t (y_t - ȳ)(y_{t+p} - ȳ) / Σ_t (y_t - ȳ)², and 0 where y never varies. Over all rows of several series,
    products are summed within each series and ȳ is the mean of all.

    Parameters
    ----------
    lags
        How many.
    column
        A name where the data are a dict or a table, a position where they are a matrix, `None` where they are one
        column.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.Autocorrelations(5)
    """

    lags: int
    column: ColumnName = None

    def __post_init__(self) -> None:
        """Refuse a number that is none."""
        require_whole("Autocorrelations(lags={})", self.lags, "Autocorrelations(5)")

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Products at each lag."""
        full = whole_column.autocorrelations_of(column, series_ends, self.lags)
        return WindowStatistic(compiled(autocorrelations), full, compiled=True)


@dataclass(frozen=True)
class MinMax(WindowSummary):
    """The smallest and the largest value of a window. The paper's S₂: few windows hold the extremes of all rows.

    Parameters
    ----------
    column
        A name where the data are a dict or a table, a position where they are a matrix, `None` where they are one
        column.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.MinMax()
    """

    column: ColumnName = None

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """One pass."""
        return WindowStatistic(compiled(extremes), whole_column.extremes_of(column), compiled=True)


@dataclass(frozen=True)
class Moments(WindowSummary):
    """The first moments of a window: mean, standard deviation, skewness, kurtosis (3 for a Gaussian), …

    From the third on they are standardised, m_k / sd^k with m_k = n⁻¹ Σ (y - ȳ)^k, and 0 where y never varies. Over all
    rows, in two passes.

    Parameters
    ----------
    order
        How many.
    column
        A name where the data are a dict or a table, a position where they are a matrix, `None` where they are one
        column.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.Moments(2)
    """

    order: int
    column: ColumnName = None

    def __post_init__(self) -> None:
        """Refuse a number that is none."""
        require_whole("Moments(order={})", self.order, "Moments(2)")

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Sums of powers."""
        return WindowStatistic(compiled(moments), whole_column.moments_of(column, self.order), compiled=True)


@dataclass(frozen=True)
class Custom(WindowSummary):
    """Any function of a window.

    Parameters
    ----------
    function
        `window -> number` or `(s,)`. It is called with a copy of n rows of the column, in float64; and once with a copy
        of all N, which takes 8 N bytes. Numba compiles it where it can; where it cannot, it is called as it is, which
        is slower and is said.
    column
        A name where the data are a dict or a table, a position where they are a matrix, `None` where they are one
        column.

    Examples
    --------
    >>> import numpy as np, lwa
    >>> summary = lwa.summaries.Custom(lambda window: np.abs(np.diff(window)).mean())
    """

    function: Callable[[Any], Any]
    column: ColumnName = None

    def __post_init__(self) -> None:
        """Refuse what cannot be called."""
        if not callable(self.function):
            raise InputError(
                f"Custom(function={self.function!r}) cannot be called. Pass a function of a window, "
                "Custom(lambda window: window.mean()), for example."
            )

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """One call for all rows, which also tells how many numbers are to be expected."""
        found = compiled_summary(self.function)
        if isinstance(found, str):
            warnings.warn(
                f"The function of summary=Custom(...) is called in plain Python at every proposal of a window, since "
                f"Numba cannot compile it ({found}). Use loops, arithmetic and NumPy functions that Numba knows, if "
                "this is too slow.",
                LwaWarning,
                stacklevel=2,
            )
            full = self.of_all(self.function, column)
            return WindowStatistic(in_python(self.function), full, compiled=False, theirs=True)
        function, is_vector = found
        write = compiled(vector_of(function) if is_vector else number_of(function))
        return WindowStatistic(write, self.of_all(function, column), compiled=True, theirs=True)

    def of_all(self, function: Callable[[Any], Any], column: NDArray[Any]) -> Vector:
        """s_N."""
        with surfaced():
            values = np.asarray(function(column.astype(np.float64)), np.float64)
        if values.ndim > 1 or not np.isfinite(values).all():
            raise InputError(
                f"The summary function returned {np.array2string(values, threshold=5)} for all {len(column)} rows. "
                "Return a finite number or a vector of finite numbers."
            )
        return np.atleast_1d(values)


@dataclass(frozen=True, init=False)
class Combine(WindowSummary):
    """Several window summaries of one column, side by side.

    Parameters
    ----------
    parts
        Window summaries, all of the same column.

    Examples
    --------
    The paper's S₀.

    >>> from lwa.summaries import Autocorrelations, Combine, Quantiles
    >>> summary = Combine(Quantiles(0.2, 0.5, 0.8), Autocorrelations(5))
    """

    parts: tuple[WindowSummary, ...]
    column: ColumnName

    def __init__(self, *parts: WindowSummary) -> None:
        """Refuse what is no window summary, and several columns."""
        if not parts or not all(isinstance(part, WindowSummary) for part in parts):
            raise InputError(
                f"Combine{parts!r} must combine window summaries. Pass Combine(Quantiles(0.5), Autocorrelations(5)), "
                "for example."
            )
        columns = list(dict.fromkeys(part.column for part in parts))
        if len(columns) > 1:
            raise InputError(
                f"Combine has parts of the columns {', '.join(map(repr, columns))}, but windows are of one column. "
                f"Pass column={columns[0]!r} to every part."
            )
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "column", columns[0])

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Each part writes its share of `out`; one part in plain Python makes the whole run there."""
        joined, *others = [part.prepare(column, series_ends) for part in self.parts]
        for other in others:
            joined = join(joined, other)
        return joined


def join(first: WindowStatistic, second: WindowStatistic) -> WindowStatistic:
    """Two statistics side by side."""
    both, theirs = first.compiled and second.compiled, first.theirs or second.theirs
    parts = first.function, second.function, first.dimension
    if both:  # what holds a function of the user's is not kept
        function = compiled(side_by_side(*parts)) if theirs else compiled_side_by_side(*parts)
    else:
        function = side_by_side(*parts)
    return WindowStatistic(function, np.concatenate([first.full, second.full]), compiled=both, theirs=theirs)


def side_by_side(before: WindowFunction, after: WindowFunction, cut: int) -> WindowFunction:
    """One function writes up to the cut, the other from there on."""

    def function(window: NDArray[Any], out: Vector) -> None:
        before(window, out[:cut])
        after(window, out[cut:])

    return function


@lru_cache
def compiled_side_by_side(before: WindowFunction, after: WindowFunction, cut: int) -> WindowFunction:
    """The same compiled, and kept."""
    twin: WindowFunction = compiled(side_by_side(before, after, cut))
    return twin


class VaryingLength(InputError):
    """A summary function whose length depends on the window."""

    def __init__(self, found: int, expected: int) -> None:
        super().__init__(
            f"The summary function returned {found} numbers for a window, but {expected} for all rows. Return as many "
            "for every window."
        )


def number_of(function: Callable[[Any], Any]) -> WindowFunction:
    """A compiled function that returns a number."""

    def write(window: NDArray[Any], out: Vector) -> None:
        out[0] = function(window.astype(np.float64))

    return write


def vector_of(function: Callable[[Any], Any]) -> WindowFunction:
    """A compiled function that returns a vector."""

    def write(window: NDArray[Any], out: Vector) -> None:
        values = function(window.astype(np.float64))
        if len(values) != len(out):
            raise VaryingLength(len(values), len(out))
        for i in range(len(out)):
            out[i] = values[i]

    return write


def in_python(function: Callable[[Any], Any]) -> WindowFunction:
    """A function called as it is."""

    def write(window: NDArray[Any], out: Vector) -> None:
        with surfaced():
            values = np.atleast_1d(np.asarray(function(window.astype(np.float64)), np.float64))
        if values.shape != out.shape:
            raise VaryingLength(values.size, len(out))
        out[:] = values

    return write


@contextmanager
def surfaced() -> Iterator[None]:
    """What a summary function raises, said in a way that tells where it comes from."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"The summary function raised {type(error).__name__}: {error}. It is called with the rows of a window, and "
            "once with all rows, as a float64 vector, and must return a number or a vector."
        ) from error


def require_whole(call: str, value: object, example: str) -> None:
    """Refuse a number that is not whole and positive."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise InputError(f"{call.format(repr(value))} must be a whole number >= 1. Pass {example}, for example.")
