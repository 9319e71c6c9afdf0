"""What Numba compiles, and what may stay on disk."""

import numba
import numpy as np
import pytest

from lwa.backend import numba_jit as adapter
from lwa.backend.numba_jit import compiled, keeps
from lwa.subsets.windows.law import log_hastings, neighbour, neighbours
from lwa.subsets.windows.walk import walk
from lwa.summaries.window_kernels import quantiles


def test_a_twin_calls_twins_and_leaves_the_function_alone():
    assert compiled(neighbours) is compiled(neighbours)
    x, u = np.array([0, 4, 8]), np.array([0.99, 0.5, 0.01])
    found = compiled(neighbours)(x, u, 9, 0.5)
    assert found.tolist() == [neighbour(*pair, 9, 0.5) for pair in zip(x.tolist(), u.tolist(), strict=True)]
    assert not numba.extending.is_jitted(neighbours.__globals__["neighbour"])


def test_what_may_stay_on_disk():
    assert keeps(quantiles)
    assert keeps(log_hastings)
    assert not keeps(walk)  # it is called with functions, the user's too
    scale = 2.0

    def closure(x):
        return scale * x

    assert not keeps(closure)
    assert compiled(closure)(3.0) == 6.0


def test_a_folder_that_cannot_be_written(monkeypatch):
    def refuses(function, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return original(function, **options)

    original = numba.njit
    monkeypatch.setattr(numba, "njit", refuses)
    monkeypatch.setattr(adapter, "_module_twin", adapter._twin)  # what is compiled here is forgotten
    assert compiled(neighbour)(4, 0.0, 9, 0.5) == 4


@pytest.mark.parametrize("function", [lambda x: (x, x), lambda x, y: x, abs])
def test_what_numba_cannot_compile_is_said(function):
    assert isinstance(adapter.compiled_summary(function), str)
