"""What Numba compiles, and what may stay on disk."""

import numba
import numpy as np
import pytest

from lwa.backend import numba_jit
from lwa.backend.numba_jit import jit_compile, may_cache
from lwa.subsets.windows.law import find_neighbour, find_neighbours, log_window_ratio
from lwa.subsets.windows.walk import walk_windows
from lwa.summaries.window_kernels import write_quantiles


def test_a_twin_calls_twins_and_leaves_the_function_alone():
    assert jit_compile(find_neighbours) is jit_compile(find_neighbours)
    x, u = np.array([0, 4, 8]), np.array([0.99, 0.5, 0.01])
    found = jit_compile(find_neighbours)(x, u, 9, 0.5)
    assert found.tolist() == [find_neighbour(*pair, 9, 0.5) for pair in zip(x.tolist(), u.tolist(), strict=True)]
    assert not numba.extending.is_jitted(find_neighbours.__globals__["find_neighbour"])


def test_what_may_stay_on_disk():
    assert may_cache(write_quantiles)
    assert may_cache(log_window_ratio)
    assert not may_cache(walk_windows)  # it is called with functions, the user's too
    scale = 2.0

    def closure(x):
        return scale * x

    assert not may_cache(closure)
    assert jit_compile(closure)(3.0) == 6.0


def test_a_folder_that_cannot_be_written(monkeypatch):
    def refuses(function, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return original(function, **options)

    original = numba.njit
    monkeypatch.setattr(numba, "njit", refuses)
    monkeypatch.setattr(numba_jit, "_compile_once", numba_jit._compile_twin)  # what is compiled here is forgotten
    assert jit_compile(find_neighbour)(4, 0.0, 9, 0.5) == 4


@pytest.mark.parametrize("function", [lambda x: (x, x), lambda x, y: x, abs])
def test_what_numba_cannot_compile_is_said(function):
    assert isinstance(numba_jit.compile_summary(function), str)
