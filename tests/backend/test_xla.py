"""Programs of many short steps: options that a version of XLA does not know are left out, and change no result."""

import jax
import jax.numpy as jnp
import numpy as np

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


def test_programs_are_forgotten_before_their_memory_maps_run_out(monkeypatch):
    """Beyond the maps that Linux allows a process, the next program of XLA ends it with a segmentation fault."""
    traced = []

    @jax.jit
    def add(x):
        traced.append(1)
        return x + 1

    add(0.0)
    xla.make_room_for_programs()
    add(0.0)
    assert len(traced) == 1
    monkeypatch.setattr(xla, "measure_used_maps", lambda: 0.9)
    xla.make_room_for_programs()
    add(0.0)
    assert len(traced) == 2
