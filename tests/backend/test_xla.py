"""Programs of many short steps: options that a version of XLA does not know are left out, and change no result."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import compilation_cache

from lwa.backend import xla


def test_options_are_known_here():
    """On the CPU that tests run on, by the oldest JAX that lwa takes: else pages silently take twice as long."""
    if jax.default_backend() == "cpu":
        assert xla.find_cpu_options() == xla.CPU_OPTIONS


def test_unknown_options_are_left_out(monkeypatch):
    monkeypatch.setattr(xla, "CPU_OPTIONS", {"xla_cpu_no_such_option": 1})
    xla.find_cpu_options.cache_clear()
    try:
        double = xla.program(static_argnames=("times",))(lambda x, times: x * times)
        np.testing.assert_array_equal(double(jnp.arange(3), times=2), [0, 2, 4])
        assert xla.find_cpu_options() is None
    finally:
        xla.find_cpu_options.cache_clear()


def test_a_program_is_traced_once():
    traced = []

    @xla.program()
    def add(x):
        traced.append(1)
        return x + 1

    add(jnp.zeros(2))
    add(jnp.ones(2))
    assert len(traced) == 1


def test_jax_loads_programs_from_disk_by_the_function_that_is_locked():
    assert hasattr(compilation_cache.get_executable_and_time, "__wrapped__")


def test_one_thread_at_a_time_loads_a_program(monkeypatch):
    inside, most = [], []

    def load(key):
        inside.append(key)
        most.append(len(inside))
        time.sleep(0.01)
        inside.remove(key)
        return key

    monkeypatch.setattr(compilation_cache, "get_executable_and_time", load)
    xla.lock_cache_reads()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(compilation_cache.get_executable_and_time, range(8))) == list(range(8))
    assert max(most) == 1
