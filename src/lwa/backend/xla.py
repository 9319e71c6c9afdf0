"""How XLA compiles and runs programs: compiler options, precision, and whether there is an accelerator.

By default XLA runs independent steps of a program in parallel. A move of θ consists of some fifty steps of less than a
microsecond, and handing them from thread to thread takes longer than the steps themselves. Here they run one after the
other (`benchmarks/choices.py` times both). Cohorts use the cores.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps

import jax

MOST_MAPS = 0.4
"""Share of the memory maps of a process from which programs are forgotten. One fit and its certificate add some 160 of
65,530, if no program of an earlier one serves."""
CPU_OPTIONS: dict[str, str | int] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",  # one step after the other
    "xla_cpu_prefer_vector_width": 512,  # 256 by default, even if the processor has twice as much
}


def accelerated() -> bool:
    """Return whether programs run on a GPU or another accelerator rather than on a CPU."""
    return jax.default_backend() != "cpu"


def make_room_for_programs() -> None:
    """Forget compiled programs if they hold many memory maps: past the limit of Linux, XLA's next program is a crash.

    Programs that are needed again are compiled again. So a process can fit thousands of models, one after the other.
    """
    if measure_used_maps() > MOST_MAPS:
        jax.clear_caches()  # type: ignore[no-untyped-call]
        gc.collect()


def measure_used_maps() -> float:
    """Return the share of the memory maps that this process may have that it has; 0 if the system does not tell."""
    try:
        with open("/proc/self/maps", "rb") as maps, open("/proc/sys/vm/max_map_count", "rb") as most:
            return sum(1 for _ in maps) / int(most.read())
    except OSError:
        return 0.0


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 matrices in float32: by default a GPU rounds their entries to ten bits.

    Applies to all threads of the process while the block lasts, since a run has threads of its own.
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


def program[**P, R](
    *, static_argnames: tuple[str, ...] = (), donate_argnames: tuple[str, ...] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`jax.jit` for a program of many short steps. Do not call such a program inside another."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @cache
        def compile_once() -> Callable[P, R]:
            return jax.jit(
                function, static_argnames=static_argnames, donate_argnames=donate_argnames,
                compiler_options=find_cpu_options(),
            )  # fmt: skip

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            return compile_once()(*args, **kwargs)

        return run

    return decorate


@cache
def find_cpu_options() -> dict[str, str | int] | None:
    """Return the options for a CPU, which change speed, never results; None on an accelerator or if unknown to XLA."""
    if accelerated():
        return None
    try:
        jax.jit(lambda x: x, compiler_options=CPU_OPTIONS).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return CPU_OPTIONS
