"""Numba's jit, for loops that XLA runs slowly: sorting a window, walking from window to window.

Such loops are plain functions of scalars and arrays, which also run without Numba. `jit_compile` makes a compiled twin
of a function and of every function of lwa that it calls.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from types import FunctionType
from typing import Any


def jit_compile[F: Callable[..., object]](function: F) -> F:
    """Return a twin that Numba compiles at its first call, kept on disk if `may_cache`; it releases the GIL."""
    assert isinstance(function, FunctionType)
    twin: F = (_compile_twin if function.__closure__ else _compile_once)(function)  # keep no closure: it may hold data
    return twin


def _compile_twin(function: FunctionType) -> Any:
    import numba

    callees = find_callees(function)
    namespace = {**function.__globals__, **{name: jit_compile(callee) for name, callee in callees.items()}}
    twin = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
    compile_twin = partial(numba.njit, twin, nogil=True, error_model="numpy")  # x/0 gives inf, which is refused later
    if may_cache(function):
        with suppress(RuntimeError):  # no folder to write to
            return compile_twin(cache=True)
    return compile_twin()


_compile_once = cache(_compile_twin)


def find_callees(function: FunctionType) -> dict[str, FunctionType]:
    """Return the functions of lwa that a function calls, by name."""
    found = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {
        name: callee
        for name, callee in found.items()
        if isinstance(callee, FunctionType) and callee.__module__.split(".")[0] == "lwa"
    }


def may_cache(function: FunctionType) -> bool:
    """Return whether compiled code may stay on disk.

    Numba discards cached code only if the function's own file has changed, so every callee must be in that file. It
    would also cache every function that is passed as an argument, the user's included.
    """
    types = [str(kind) for name, kind in function.__annotations__.items() if name != "return"]
    takes_functions = any("Callable" in kind or "Function" in kind for kind in types)
    return not (function.__closure__ or takes_functions) and all(
        callee.__code__.co_filename == function.__code__.co_filename and may_cache(callee)
        for callee in find_callees(function).values()
    )


def compile_summary(function: Callable[..., object]) -> tuple[Any, bool] | str:
    """Compile a user's function of a float64 vector. Return it and whether it returns a vector; or why it fails."""
    import numba

    try:
        twin: Any = function if numba.extending.is_jitted(function) else numba.njit(function, nogil=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on the speed of code that is not ours
            twin.compile((numba.float64[::1],))
    except Exception as error:  # Numba fails in as many ways as there is Python
        return f"{type(error).__name__}: {find_first_line(error)}"
    returned = twin.overloads[(numba.float64[::1],)].signature.return_type
    if isinstance(returned, numba.types.Number | numba.types.Boolean):
        return twin, False
    if isinstance(returned, numba.types.Array) and returned.ndim == 1:
        return twin, True
    return f"it returns {returned}, neither a number nor a vector"


def find_first_line(error: Exception) -> str:
    """Return the first line of an error that says what is wrong; Numba adds pages to it."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("Failed in")), "no reason given")
