"""Steps in Python, for models that JAX cannot trace: what does not call the model is compiled all the same."""

from collections.abc import Callable
from functools import wraps

import jax


def always_compiled[**P, R](function: Callable[P, R], static: tuple[str, ...] = ()) -> Callable[P, R]:
    """Compiled where the step around it runs in Python under `jax.disable_jit()`; part of it where that is compiled."""
    compiled = jax.jit(function, static_argnames=static)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.disable_jit(False):
            return compiled(*args, **kwargs)

    return call
