"""JAX's precision is the user's to set."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import jax


@contextmanager
def precision_kept() -> Iterator[None]:
    """JAX's precision stays the user's: PyTensor sets it for the whole process where its JAX functions are imported."""
    with ThreadPoolExecutor(1) as another:  # a new thread sees what is set for the process, whatever `with` we are in
        before = another.submit(lambda: jax.config.jax_enable_x64).result()
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)  # type: ignore[no-untyped-call]
