"""Summaries of windows, against NumPy: of one window, and of all rows block by block."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import lwa
from lwa.backend.numba_jit import jit_compile
from lwa.rows.memory import select_column
from lwa.rows.parts import Parts
from lwa.rows.units import number_windows
from lwa.subsets import Gaussian, Window
from lwa.subsets.windows.law import build_window_law, draw_window_page
from lwa.subsets.windows.walk import walk_page
from lwa.summaries import Autocorrelations, Combine, Custom, MinMax, Moments, Quantiles, WindowStatistic, whole_column
from lwa.summaries import window_kernels as kernels

N, ENDS = 600, np.array([250, 253, 600])
Y = np.random.default_rng(3).normal(2.0, 3.0, N).cumsum() * 0.1
LEVELS = (0.2, 0.5, 0.8)
S0 = Combine(Quantiles(*LEVELS), Autocorrelations(5))
FLOATS = st.floats(-1e6, 1e6)
WINDOW = st.lists(FLOATS | st.integers(-3, 3).map(float), min_size=1, max_size=60)


def of_window(statistic, window):
    out = np.full(statistic.dimension, np.nan)
    statistic.function(np.asarray(window), out)
    return out


def written_by(kernel, window, size, *arguments):
    out = np.full(size, np.nan)
    kernel(np.asarray(window), *arguments, out)
    return out


def autocorrelations_by_hand(y, lags):
    y = np.asarray(y) - np.mean(y)
    square = (y * y).sum()
    return [(y[p:] * y[: max(len(y) - p, 0)]).sum() / square if square > 0 else 0.0 for p in range(1, lags + 1)]


def pooled_by_hand(column, ends, lags):
    y = np.split(column - column.mean(), ends[:-1])
    products = [sum((part[p:] * part[: max(len(part) - p, 0)]).sum() for part in y) for p in range(lags + 1)]
    return np.array(products[1:]) / products[0]


def moments_by_hand(y):
    return [np.mean(y), np.std(y), stats.skew(y), stats.kurtosis(y, fisher=False)]


# One window


@settings(deadline=None)  # the first call compiles
@given(window=WINDOW, levels=st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_quantiles_are_numpys(window, levels):
    found = written_by(jit_compile(kernels.write_quantiles), window, len(levels), np.sort(levels))
    np.testing.assert_allclose(found, np.quantile(window, np.sort(levels)), rtol=1e-12, atol=1e-12)


def test_quantiles_of_random_windows():
    rng, quantiles = np.random.default_rng(6), jit_compile(kernels.write_quantiles)
    for size in range(1, 400):
        window, levels = rng.normal(size=size), np.sort(rng.random(4))
        np.testing.assert_allclose(
            written_by(quantiles, window, 4, levels), np.quantile(window, levels), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("shape", [np.sort, np.negative, np.round, np.zeros_like, lambda y: np.sin(y)])
def test_quantiles_of_long_windows(shape):
    """Sorted, reversed, with ties, constant, periodic: all in a time that grows like n."""
    window = shape(np.linspace(-50, 50, 20_000))
    found = written_by(jit_compile(kernels.write_quantiles), window, 3, np.array(LEVELS))
    np.testing.assert_allclose(found, np.quantile(window, LEVELS), rtol=1e-12, atol=1e-12)


def test_nan_does_not_hang():
    written_by(jit_compile(kernels.write_quantiles), [1.0, np.nan, 2.0, np.nan, np.inf], 3, np.array(LEVELS))


@settings(deadline=None)  # the first call compiles
@given(window=st.lists(st.integers(-1000, 1000).map(lambda k: k / 8), min_size=1, max_size=60))
def test_autocorrelations_by_definition(window):
    found = written_by(jit_compile(kernels.write_autocorrelations), window, 5)
    np.testing.assert_allclose(found, autocorrelations_by_hand(window, 5), atol=1e-10)


@settings(deadline=None)  # the first call compiles
@given(window=WINDOW)
def test_extremes(window):
    assert written_by(jit_compile(kernels.write_extremes), window, 2).tolist() == [min(window), max(window)]


def test_moments_by_definition():
    found = written_by(jit_compile(kernels.write_moments), Y[:101], 4)
    np.testing.assert_allclose(found, moments_by_hand(Y[:101]), rtol=1e-10)
    assert written_by(kernels.write_moments, Y[:101], 1) == found[:1]


def test_a_window_that_never_varies():
    assert written_by(kernels.write_autocorrelations, np.full(50, 3.5), 5).tolist() == [0.0] * 5
    assert written_by(kernels.write_moments, np.full(50, 3.5), 4).tolist() == [3.5, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
@pytest.mark.parametrize("kernel", [kernels.write_autocorrelations, kernels.write_extremes, kernels.write_moments])
def test_windows_of_other_types_are_summed_in_float64(kernel, dtype):
    window = (Y[:200] * 1e3).astype(dtype)[::2]
    wide = written_by(kernel, window.astype(np.float64), 2)
    assert written_by(kernel, window, 2).tolist() == wide.tolist()


def test_levels_keep_their_order():
    statistic = Quantiles(0.8, 0.2).prepare(Y, ENDS)
    np.testing.assert_allclose(of_window(statistic, Y[:50]), np.quantile(Y[:50], [0.8, 0.2]), rtol=1e-12)
    np.testing.assert_allclose(statistic.full, np.quantile(Y, [0.8, 0.2]), rtol=1e-12)


# All rows


@pytest.fixture(params=["memory", "mapped", "float32", "one column of a matrix"])
def column(request, tmp_path):
    if request.param == "mapped":
        np.save(tmp_path / "y.npy", Y)
        return np.load(tmp_path / "y.npy", mmap_mode="r")
    if request.param == "one column of a matrix":
        return np.column_stack([Y, Y])[:, 1]
    return Y.astype(np.float32) if request.param == "float32" else Y


@pytest.mark.parametrize("block", [7, 250, 10_000])
def test_all_rows(column, block, monkeypatch):
    monkeypatch.setattr(whole_column, "COLUMN_BLOCK", block)
    y = np.asarray(column, np.float64)
    assert whole_column.find_column_quantiles(column, np.array(LEVELS)).tolist() == np.quantile(y, LEVELS).tolist()
    assert whole_column.find_column_extremes(column).tolist() == [y.min(), y.max()]
    np.testing.assert_allclose(whole_column.find_column_moments(column, 4), moments_by_hand(y), rtol=1e-10)
    np.testing.assert_allclose(
        whole_column.find_column_autocorrelations(column, ENDS, 5), pooled_by_hand(y, ENDS, 5), rtol=1e-10
    )


def test_one_series_is_one_long_window():
    one = np.array([N])
    for kernel, full in (
        (kernels.write_autocorrelations, whole_column.find_column_autocorrelations(Y, one, 9)),
        (kernels.write_moments, whole_column.find_column_moments(Y, 5)),
        (kernels.write_extremes, whole_column.find_column_extremes(Y)),
    ):
        np.testing.assert_allclose(written_by(kernel, Y, len(full)), full, rtol=1e-10)


@settings(max_examples=30, deadline=None)
@given(column=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40), data=st.data())
def test_order_statistics_to_the_last_bit(column, data):
    ranks = data.draw(st.lists(st.integers(0, len(column) - 1), min_size=1, max_size=4))
    found = whole_column.find_order_statistics(np.array(column), np.array(ranks))
    assert found.tolist() == np.sort(column)[ranks].tolist()


def test_a_column_that_never_varies():
    assert whole_column.find_column_autocorrelations(np.ones(50), np.array([50]), 3).tolist() == [0.0] * 3
    assert whole_column.find_column_moments(np.ones(50), 3).tolist() == [1.0, 0.0, 0.0]


# What is put together, and what others write


def test_the_papers_statistics():
    statistic = S0.prepare(Y, ENDS)
    assert statistic.compiled
    assert statistic.dimension == 8
    expected = [*np.quantile(Y[40:140], LEVELS), *autocorrelations_by_hand(Y[40:140], 5)]
    np.testing.assert_allclose(of_window(statistic, Y[40:140]), expected, rtol=1e-10)
    np.testing.assert_allclose(statistic.full, [*np.quantile(Y, LEVELS), *pooled_by_hand(Y, ENDS, 5)], rtol=1e-10)


def roughness(window):
    """Compiled: a number."""
    return np.abs(np.diff(window)).mean()


def in_plain_python(window):
    """Not compiled: Numba knows no dict of this kind."""
    return np.array(list({"low": min(window), "high": max(window), 3: 1.0}.values()))


def by_sign(window):
    """Compiled: a vector whose length varies."""
    return window[window > window.mean()]


def half(window):
    """Compiled: as many numbers for every window; it writes into what it is given."""
    window.sort()
    return window[:2]


@pytest.mark.parametrize("function", [pytest.param(roughness, marks=pytest.mark.slow), half])
def test_a_compiled_function(function):
    before = Y.copy()
    statistic = Custom(function).prepare(Y, ENDS)
    assert statistic.compiled
    np.testing.assert_allclose(statistic.full, function(Y.copy()), rtol=1e-12)
    np.testing.assert_allclose(of_window(statistic, Y[:30]), function(Y[:30].copy()), rtol=1e-12)
    assert np.array_equal(Y, before)


@pytest.mark.slow
def test_a_function_that_numba_cannot_compile_says_so_once():
    summary = Combine(Autocorrelations(2), Custom(in_plain_python))
    with pytest.warns(lwa.LwaWarning, match="plain Python at every proposal") as seen:
        statistic = summary.prepare(Y, ENDS)
    assert len(seen) == 1
    walked(statistic)  # warnings are errors
    assert not statistic.compiled
    window = Y[:50]
    np.testing.assert_allclose(
        of_window(statistic, window), [*autocorrelations_by_hand(window, 2), min(window), max(window), 1.0], rtol=1e-10
    )


def walked(statistic, column=Y):
    windows = number_windows(Parts(np.array([0, *ENDS])), 50)
    law = build_window_law(windows.number, Window(local=0.7))
    draws = draw_window_page(np.random.default_rng(8), 300, law)
    return walk_page(5, draws, windows, law, column=column, statistic=statistic, weight=Gaussian(), epsilon=10.0)


def test_the_compiled_loop_is_the_python_loop():
    compiled_statistic = S0.prepare(Y, ENDS)

    def plain(window, out):
        kernels.write_quantiles(window, np.array(LEVELS), out[:3])
        kernels.write_autocorrelations(window, out[3:])

    paths = walked(compiled_statistic), walked(WindowStatistic(plain, compiled_statistic.full, compiled=False))
    for fast, slow in zip(*paths, strict=True):
        assert np.array_equal(fast, slow)
    assert 0.05 < paths[0].accepted.mean() < 0.95


def test_the_loop_is_compiled_once_for_a_summary():
    """A second run with the paper's S₀ is called with the same function, so Numba has its loop already."""

    def prepared():
        return Combine(Quantiles(0.8, 0.2), Autocorrelations(2)).prepare(Y, np.array([len(Y)])).function

    assert prepared() is prepared()


def test_a_mapped_column_gives_the_same_bits(tmp_path):
    np.save(tmp_path / "y.npy", Y)
    statistic = MinMax().prepare(Y, ENDS)
    for mapped, held in zip(
        walked(statistic, np.load(tmp_path / "y.npy", mmap_mode="r")), walked(statistic), strict=True
    ):
        assert np.array_equal(mapped, held)


def quiet(summary):
    """Prepared without the warning that it runs in plain Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lwa.LwaWarning)
        return summary.prepare(Y, ENDS)


def by_sign_in_python(window):
    return list(window[window > window.mean()]) if {"a": 1, 2: "b"} else []


@pytest.mark.parametrize("function", [by_sign, by_sign_in_python])
def test_a_length_that_varies(function):
    statistic = quiet(Custom(function))
    message = rf"returned \d+ numbers for a window, but {len(function(Y))} for all rows"
    with pytest.raises(lwa.InputError, match=message):
        walked(statistic)


def infinite_for_windows(window):
    return 1.0 if len(window) > 100 else np.inf


def infinite_in_python(window):
    return {100: 1.0, "b": 2}.get(100) if len(window) > 100 else np.nan


@pytest.mark.parametrize("function", [infinite_for_windows, infinite_in_python])
def test_a_summary_that_is_not_finite(function):
    statistic = quiet(Custom(function))
    with pytest.raises(lwa.InputError, match="window of 50 rows that starts at row 5 is NaN or infinite"):
        walked(statistic)


def raises_for_windows(window):
    if len(window) < 100:
        raise ValueError("too short")
    return window.mean()


def raises_in_python(window):
    return {"a": 1, 2: window.mean()}[2] if len(window) > 100 else {}["missing"]


@pytest.mark.parametrize(
    ("function", "message"), [(raises_for_windows, "ValueError: too short"), (raises_in_python, "KeyError: 'missing'")]
)
def test_a_function_that_raises(function, message):
    statistic = quiet(Custom(function))
    with pytest.raises(lwa.InputError, match=f"The summary function raised {message}"):
        walked(statistic)


def test_all_rows_must_have_a_finite_summary():
    with pytest.raises(lwa.InputError, match=r"returned \[?nan\]? for all 600 rows"):
        Custom(lambda window: np.nan).prepare(Y, ENDS)


# What is refused, and which column is read


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Quantiles(), r"must have levels from 0 to 1"),
        (lambda: Quantiles(20), r"Quantiles\(20,\) must have levels from 0 to 1"),
        (lambda: Autocorrelations(0), r"Autocorrelations\(lags=0\) must be a whole number >= 1"),
        (lambda: Moments(1.5), r"Moments\(order=1.5\) must be a whole number >= 1"),
        (lambda: Custom(3), r"Custom\(function=3\) cannot be called"),
        (lambda: Combine(), r"must combine window summaries"),
        (lambda: Combine(MinMax(), lwa.summaries.PerRow(abs)), r"must combine window summaries"),
        (lambda: Combine(MinMax("a"), Moments(2, "b")), r"parts of the columns 'a', 'b', but a window has one column"),
    ],
)
def test_a_summary_that_is_none(build, message):
    with pytest.raises(lwa.InputError, match=message):
        build()


def test_the_column_that_is_read():
    table, matrix = {"x": Y, "y": -Y}, np.column_stack([Y, -Y])

    def read(summary, data):
        return select_column(data, summary.column, summary.asked)

    assert np.array_equal(read(Combine(MinMax("y"), Moments(2, "y")), table), -Y)
    assert np.array_equal(read(Quantiles(0.5, column=1), matrix), -Y)
    assert np.array_equal(read(Autocorrelations(2), Y), Y)
    with pytest.raises(lwa.InputError, match=r"MinMax\(column='z'\): no such column. Valid: 'x', 'y'"):
        read(MinMax("z"), table)


def test_rows_without_order_have_no_window_summary():
    with pytest.raises(lwa.InputError, match="summarises windows of ordered data"):
        S0.gather()
