"""Numba, for the loops that XLA is slow at: sorting a window, walking from window to window.

What is compiled is written as plain functions of scalars and arrays, which also run as they stand. They know nothing of
Numba: `compiled` makes a twin of a function, and of every function of lwa that it calls.
"""

import warnings
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any


def compiled(function: Callable[..., Any]) -> Any:
    """The function compiled by Numba, at its first call; it holds no lock of Python's while it runs.

    Where it is safe (`keeps`), code stays on disk for the next process.
    """
    assert isinstance(function, FunctionType)
    return _twin(function) if function.__closure__ else _module_twin(function)  # a closure may hold data: forget it


@cache
def _module_twin(function: FunctionType) -> Any:
    return _twin(function)


def _twin(function: FunctionType) -> Any:
    import numba

    callees = called(function)
    namespace = {**function.__globals__, **{name: compiled(callee) for name, callee in callees.items()}}
    twin = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
    options: Any = {"nogil": True, "error_model": "numpy"}  # x/0 is no exception: what is not finite is refused later
    if keeps(function):
        try:
            return numba.njit(twin, cache=True, **options)
        except RuntimeError:  # no folder to write to
            pass
    return numba.njit(twin, **options)


def called(function: FunctionType) -> dict[str, FunctionType]:
    """The functions of lwa that a function calls by name."""
    found = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {
        name: callee
        for name, callee in found.items()
        if isinstance(callee, FunctionType) and callee.__module__.split(".")[0] == "lwa"
    }


def keeps(function: FunctionType) -> bool:
    """Whether compiled code may stay on disk.

    Numba takes it for stale when the function's own file has changed and no other, so all that is called must stand
    there; and it would write down every function that comes as an argument, the user's included.
    """
    takes_functions = any("Callable" in str(kind) or "Function" in str(kind) for kind in annotations(function))
    return not (function.__closure__ or takes_functions) and all(
        callee.__code__.co_filename == function.__code__.co_filename and keeps(callee)
        for callee in called(function).values()
    )


def annotations(function: FunctionType) -> list[Any]:
    """The types of a function's arguments."""
    return [kind for name, kind in function.__annotations__.items() if name != "return"]


def compiled_summary(function: Callable[..., Any]) -> tuple[Any, bool] | str:
    """Somebody's function of a float64 vector, compiled, and whether it returns a vector rather than a number.

    Or, in words, why Numba cannot compile it.
    """
    import numba

    try:
        twin: Any = function if numba.extending.is_jitted(function) else numba.njit(function, nogil=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on speed, which is about code that is not ours
            twin.compile((numba.float64[::1],))
    except Exception as error:  # Numba fails in as many ways as there is Python
        return f"{type(error).__name__}: {first_line(error)}"
    returned = twin.overloads[(numba.float64[::1],)].signature.return_type
    if isinstance(returned, numba.types.Number | numba.types.Boolean):
        return twin, False
    if isinstance(returned, numba.types.Array) and returned.ndim == 1:
        return twin, True
    return f"it returns {returned}, neither a number nor a vector"


def first_line(error: Exception) -> str:
    """What an error says, without the pages that Numba adds."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("Failed in")), "no reason given")
