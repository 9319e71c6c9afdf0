"""Programs of many short steps, and how XLA is asked to run them on a CPU.

By default XLA runs the steps of a program side by side where they do not depend on each other. A move of θ is some
fifty steps of less than a microsecond, and handing them from thread to thread takes longer than they do: here they run
one after the other (`benchmarks/choices.py` times both). Cohorts use the cores.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import jax

OPTIONS: dict[str, str | int] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",  # one step after the other
    "xla_cpu_prefer_vector_width": 512,  # 256 by default, even where processors have twice as much
}


def accelerated() -> bool:
    """Whether programs run on a GPU, or on what else is no CPU."""
    return jax.default_backend() != "cpu"


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of float32 matrices in float32: by default a GPU rounds their entries to ten bits.

    For all threads of the process while it lasts, since some of them are the run's own.
    """
    before = jax.config.jax_default_matmul_precision
    if not accelerated() or before is not None:
        yield
        return
    jax.config.update("jax_default_matmul_precision", "highest")  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        jax.config.update("jax_default_matmul_precision", before)  # type: ignore[no-untyped-call]


def program[**P, R](**settings: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`jax.jit(**settings)` for a program of many short steps; not to be called inside of another."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @cache
        def made() -> Callable[P, R]:
            return jax.jit(function, compiler_options=understood(), **settings)

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            return made()(*args, **kwargs)

        return run

    return decorate


@cache
def understood() -> dict[str, str | int] | None:
    """The options, on a CPU and where this version of XLA still has them; they change how fast it is, no more."""
    if accelerated():
        return None
    try:
        jax.jit(lambda x: x, compiler_options=OPTIONS).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return OPTIONS
