"""Summaries of windows: S(Y_U) of a window as a whole, in the order of its rows."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lwa.backend.numba_jit import compile_summary, jit_compile
from lwa.errors import InputError, warn
from lwa.rows.memory import ColumnName
from lwa.summaries.summary import Gathering, Summary
from lwa.summaries.whole_column import (
    find_column_autocorrelations,
    find_column_extremes,
    find_column_moments,
    find_column_quantiles,
)
from lwa.summaries.window_kernels import Doubles, write_autocorrelations, write_extremes, write_moments, write_quantiles
from lwa.user.validate import is_real, is_whole

type WindowFunction = Callable[[NDArray[Any], Doubles], None]
"""`(window, out)`: writes S(Y_U) of a window into `out`, `(s,)`."""
type UserFunction = Callable[[Doubles], ArrayLike]
"""The function that a user passes: a window's rows to a number or a vector."""


@dataclass(frozen=True)
class WindowStatistic:
    """A window summary that has seen all rows."""

    function: WindowFunction
    full: Doubles  # s_N
    compiled: bool  # whether compiled code may call the function
    calls_user: bool = False  # whether it runs code of the user's, which may raise
    dimension: int = field(init=False)  # s

    def __post_init__(self) -> None:
        """Set the number of components."""
        object.__setattr__(self, "dimension", len(self.full))


class WindowSummary(Summary):
    """S of windows of one column."""

    column: ColumnName

    @abstractmethod
    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Return S for windows, and s_N over all rows of the column, in which series end before `series_ends`."""

    @property
    def asked(self) -> str:
        """What error messages call its column."""
        return f"{type(self).__name__}(column={self.column!r})"

    def gather(self) -> Gathering:
        """Raise: single rows are no window."""
        raise InputError(
            f"summary={self} summarises windows of ordered data. Pass lwa.Model(..., ordered=True) with it, or "
            "summary=lwa.summaries.PerRow(function) for rows without order."
        )


@dataclass(frozen=True, init=False)
class Quantiles(WindowSummary):
    """Quantiles of a window, interpolated as `np.quantile` does; four passes over all rows.

    Parameters
    ----------
    levels
        From 0 to 1, in any order.
    column
        A name if the data are a dict or a table, a position if they are a matrix, `None` if they are one column.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.Quantiles(0.2, 0.5, 0.8)
    """

    levels: tuple[float, ...]
    column: ColumnName = None

    def __init__(self, *levels: float, column: ColumnName = None) -> None:
        """Check that the levels are probabilities."""
        if not levels or not all(is_real(level) and 0 <= level <= 1 for level in levels):
            raise InputError(
                f"Quantiles{levels!r} must have levels from 0 to 1. Pass Quantiles(0.2, 0.5, 0.8), for example."
            )
        object.__setattr__(self, "levels", tuple(map(float, levels)))
        object.__setattr__(self, "column", column)

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Return quantiles by selection for windows, by counting for all rows."""
        full = find_column_quantiles(column, np.array(self.levels))
        return WindowStatistic(compile_quantiles(self.levels), full, compiled=True)


@lru_cache
def compile_quantiles(levels: tuple[float, ...]) -> WindowFunction:
    """Compile quantiles in the order of the levels. Cached, so that the next run does not compile its loop again."""
    order = np.argsort(levels)
    ascending = np.array(levels)[order]

    def function(window: NDArray[Any], out: Doubles) -> None:
        found = np.empty(len(ascending))
        write_quantiles(window, ascending, found)
        for i in range(len(order)):
            out[order[i]] = found[i]

    return jit_compile(function)


@dataclass(frozen=True)
class Autocorrelations(WindowSummary):
    """Sample autocorrelations ρ_1, …, ρ_lags of a window; two passes over all rows.

    ρ_p = Σ_t (y_t - ȳ)(y_{t+p} - ȳ) / Σ_t (y_t - ȳ)², and 0 if y never varies. Over all rows of several series,
    products are summed within each series and ȳ is the mean of all.

    Parameters
    ----------
    lags
        The number of autocorrelations.
    column
        A name if the data are a dict or a table, a position if they are a matrix, `None` if they are one column.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.Autocorrelations(5)
    """

    lags: int
    column: ColumnName = None

    def __post_init__(self) -> None:
        """Check the number of lags."""
        if not is_whole(self.lags, least=1):
            raise InputError(
                f"Autocorrelations(lags={self.lags!r}) must be a whole number >= 1. Pass Autocorrelations(5), for "
                "example."
            )

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Return products at each lag, over those at lag 0."""
        full = find_column_autocorrelations(column, series_ends, self.lags)
        return WindowStatistic(jit_compile(write_autocorrelations), full, compiled=True)


@dataclass(frozen=True)
class MinMax(WindowSummary):
    """The smallest and the largest value of a window. The paper's S₂: few windows hold the extremes of all rows.

    Parameters
    ----------
    column
        A name if the data are a dict or a table, a position if they are a matrix, `None` if they are one column.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.MinMax()
    """

    column: ColumnName = None

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Return both extremes; one pass over all rows."""
        return WindowStatistic(jit_compile(write_extremes), find_column_extremes(column), compiled=True)


@dataclass(frozen=True)
class Moments(WindowSummary):
    """The first moments of a window: mean, standard deviation, skewness, kurtosis (3 for a Gaussian), …

    From the third on they are standardised, m_k / sd^k with m_k = n⁻¹ Σ (y - ȳ)^k, and 0 if y never varies. Two
    passes over all rows.

    Parameters
    ----------
    order
        The number of moments.
    column
        A name if the data are a dict or a table, a position if they are a matrix, `None` if they are one column.

    Examples
    --------
    >>> import lwa
    >>> summary = lwa.summaries.Moments(2)
    """

    order: int
    column: ColumnName = None

    def __post_init__(self) -> None:
        """Check the number of moments."""
        if not is_whole(self.order, least=1):
            raise InputError(
                f"Moments(order={self.order!r}) must be a whole number >= 1. Pass Moments(2), for example."
            )

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Return sums of powers, standardised."""
        return WindowStatistic(jit_compile(write_moments), find_column_moments(column, self.order), compiled=True)


@dataclass(frozen=True)
class Custom(WindowSummary):
    """Any function of a window.

    Parameters
    ----------
    function
        `window -> number` or `(s,)`. It is called with a copy of n rows of the column, in float64, and once with a copy
        of all N, which takes 8 N bytes. Numba compiles it if it can; if not, lwa warns, and the function runs in plain
        Python, which is slower.
    column
        A name if the data are a dict or a table, a position if they are a matrix, `None` if they are one column.

    Examples
    --------
    >>> import numpy as np, lwa
    >>> summary = lwa.summaries.Custom(lambda window: np.abs(np.diff(window)).mean())
    """

    function: UserFunction
    column: ColumnName = None

    def __post_init__(self) -> None:
        """Check that it can be called."""
        if not callable(self.function):
            raise InputError(
                f"Custom(function={self.function!r}) cannot be called. Pass a function of a window, "
                "Custom(lambda window: window.mean()), for example."
            )

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Compile the function if Numba can, and call it once with all rows, to see how many numbers to expect."""
        found = compile_summary(self.function)
        if isinstance(found, str):
            warn(
                f"The function of summary=Custom(...) is called in plain Python at every proposal of a window, since "
                f"Numba cannot compile it ({found}). If this is too slow, use loops, arithmetic and NumPy functions "
                "that Numba supports."
            )
            full = self.summarise_all(self.function, column)
            return WindowStatistic(wrap_python(self.function), full, compiled=False, calls_user=True)
        function, is_vector = found
        write = jit_compile(wrap_vector(function) if is_vector else wrap_number(function))
        return WindowStatistic(write, self.summarise_all(function, column), compiled=True, calls_user=True)

    def summarise_all(self, function: UserFunction, column: NDArray[Any]) -> Doubles:
        """Return s_N."""
        with explain_summary_errors():
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
        """Check that all parts summarise windows of one column."""
        if not parts or not all(isinstance(part, WindowSummary) for part in parts):
            raise InputError(
                f"Combine{parts!r} must combine window summaries. Pass Combine(Quantiles(0.5), Autocorrelations(5)), "
                "for example."
            )
        columns = list(dict.fromkeys(part.column for part in parts))
        if len(columns) > 1:
            raise InputError(
                f"Combine has parts of the columns {', '.join(map(repr, columns))}, but a window has one column. "
                f"Pass column={columns[0]!r} to every part."
            )
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "column", columns[0])

    def prepare(self, column: NDArray[Any], series_ends: NDArray[np.int64]) -> WindowStatistic:
        """Join the parts: each writes its share of `out`. One part in plain Python makes the whole run there."""
        joined, *others = [part.prepare(column, series_ends) for part in self.parts]
        for other in others:
            joined = join_statistics(joined, other)
        return joined


def join_statistics(first: WindowStatistic, second: WindowStatistic) -> WindowStatistic:
    """Join two statistics side by side."""
    both, calls_user = first.compiled and second.compiled, first.calls_user or second.calls_user
    parts = first.function, second.function, first.dimension
    cached = both and not calls_user  # what holds a function of the user's is not cached
    function = compile_side_by_side(*parts) if cached else write_side_by_side(*parts)
    if both and not cached:
        function = jit_compile(function)
    return WindowStatistic(function, np.concatenate([first.full, second.full]), compiled=both, calls_user=calls_user)


def write_side_by_side(before: WindowFunction, after: WindowFunction, cut: int) -> WindowFunction:
    """Return a function in which one part writes up to the cut and the other from there on."""

    def function(window: NDArray[Any], out: Doubles) -> None:
        before(window, out[:cut])
        after(window, out[cut:])

    return function


@lru_cache
def compile_side_by_side(before: WindowFunction, after: WindowFunction, cut: int) -> WindowFunction:
    """Compile two parts of lwa's own side by side, once."""
    return jit_compile(write_side_by_side(before, after, cut))


class VaryingLength(InputError):
    """A summary function returned a vector whose length depends on the window."""

    def __init__(self, found: int, expected: int) -> None:
        super().__init__(
            f"The summary function returned {found} numbers for a window, but {expected} for all rows. Return the same "
            "number for every window."
        )


def wrap_number(function: UserFunction) -> WindowFunction:
    """Let a compiled function that returns a number write it."""

    def write(window: NDArray[Any], out: Doubles) -> None:
        out[0] = function(window.astype(np.float64))

    return write


def wrap_vector(function: Callable[[Doubles], Doubles]) -> WindowFunction:
    """Let a compiled function that returns a vector write it."""

    def write(window: NDArray[Any], out: Doubles) -> None:
        values = function(window.astype(np.float64))
        if len(values) != len(out):
            raise VaryingLength(len(values), len(out))
        for i in range(len(out)):
            out[i] = values[i]

    return write


def wrap_python(function: UserFunction) -> WindowFunction:
    """Let a function that Numba cannot compile write what it returns."""

    def write(window: NDArray[Any], out: Doubles) -> None:
        with explain_summary_errors():
            values = np.atleast_1d(np.asarray(function(window.astype(np.float64)), np.float64))
        if values.shape != out.shape:
            raise VaryingLength(values.size, len(out))
        out[:] = values

    return write


@contextmanager
def explain_summary_errors() -> Iterator[None]:
    """Raise what a summary function raises as an `InputError` that names the function."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"The summary function raised {type(error).__name__}: {error}. It is called with the rows of a window, and "
            "once with all rows, as a float64 vector, and must return a number or a vector."
        ) from error
