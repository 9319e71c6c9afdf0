"""The chain on ν over windows: one page of transitions for one chain, compiled if the statistic is.

Local proposals depend on where the chain is, so windows cannot be fetched a page ahead, as rows are: the loop reads the
column itself. It does not depend on θ and draws nothing: all randomness arrives as arguments.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.backend.numba_jit import jit_compile
from lwa.errors import InputError
from lwa.kernels.kernel import accepts
from lwa.rows.units import Windows
from lwa.subsets.weights import Weight
from lwa.subsets.windows.law import WindowDraws, WindowLaw, log_window_ratio, propose_window
from lwa.summaries.windowed import WindowFunction, WindowStatistic, explain_summary_errors


class WindowPath(NamedTuple):
    """What the chain did in a page of transitions; arrays are `(transitions,)`."""

    x: NDArray[np.int64]  # the window after each
    accepted: NDArray[np.bool_]
    distance: NDArray[np.float64]


def find_first_row(windows: Windows, x: int) -> int:
    """Return the row that a window starts at."""
    series, beyond = 0, len(windows.first_row)
    while beyond - series > 1:
        middle = (series + beyond) // 2
        if windows.first_window[middle] <= x:
            series = middle
        else:
            beyond = middle
    return windows.first_row[series] + x - windows.first_window[series]


def walk_page(
    x: int, draws: WindowDraws, windows: Windows, law: WindowLaw, *, column: NDArray[Any] | None = None,
    statistic: WindowStatistic | None = None, weight: Weight | None = None, epsilon: float = math.inf,
) -> WindowPath:  # fmt: skip
    """Run lines 2-5 of Algorithm 1 over a page of draws, from the window x. Without a statistic, ν is uniform."""
    size = len(draws.log_u)
    path = WindowPath(np.empty(size, np.int64), np.empty(size, np.bool_), np.empty(size))
    if statistic is None or statistic.dimension == 0:
        none = np.empty(0)
        jit_compile(walk_windows)(
            x, draws, windows, law, column=none, function=None, full=none, log_weight=None, epsilon=epsilon, path=path
        )
        return path
    assert column is not None
    assert weight is not None
    loop, log_weight = walk_windows, weight.log_of_number
    if statistic.compiled:
        loop, log_weight = jit_compile(walk_windows), jit_compile(log_weight)
    with explain_summary_errors() if statistic.calls_user else nullcontext():
        row = loop(
            x, draws, windows, law, column=np.asarray(column), function=statistic.function, full=statistic.full,
            log_weight=log_weight, epsilon=epsilon, path=path,
        )  # fmt: skip
    if row >= 0:
        raise InputError(
            f"The summary of the window of {windows.n} rows that starts at row {row} is NaN or infinite. Use a summary "
            "that is finite for every window."
        )
    return path


def walk_windows(
    x: int, draws: WindowDraws, windows: Windows, law: WindowLaw, column: NDArray[Any],
    function: WindowFunction | None, full: NDArray[np.float64], log_weight: Callable[[float], float] | None,
    epsilon: float, path: WindowPath,
) -> int:  # fmt: skip
    """Run the loop. Return -1, or the first row of a window whose statistic is not finite."""
    n, away, log_phi = windows.n, 0.0, 0.0
    if function is not None and log_weight is not None:
        found, row = np.empty(len(full)), find_first_row(windows, x)
        function(column[row : row + n], found)
        away = find_window_distance(found, full)
        if not math.isfinite(away):
            return row
        log_phi = log_weight(away / epsilon)
    for t in range(len(draws.log_u)):
        new = propose_window(law, x, draws.is_local[t], draws.local_u[t], draws.remote[t])
        new_away, new_log_phi = 0.0, 0.0
        if new != x and function is not None and log_weight is not None:
            row = find_first_row(windows, new)
            function(column[row : row + n], found)
            new_away = find_window_distance(found, full)
            if not math.isfinite(new_away):
                return row
            new_log_phi = log_weight(new_away / epsilon)
        accept = new != x and accepts(draws.log_u[t], new_log_phi - log_phi + log_window_ratio(law, x, new))
        if accept:
            x, away, log_phi = new, new_away, new_log_phi
        path.x[t], path.accepted[t], path.distance[t] = x, accept, away
    return -1


def find_window_distance(found: NDArray[np.float64], full: NDArray[np.float64]) -> float:
    """Return ‖S(Y_U) - s_N‖."""
    total = 0.0
    for i in range(len(full)):
        total += (found[i] - full[i]) ** 2
    return math.sqrt(total)
