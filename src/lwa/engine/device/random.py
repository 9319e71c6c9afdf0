"""Random numbers drawn on the device, by the names that NumPy's generators have: kernels ask either for their noise."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


class DeviceGenerator:
    """NumPy's `Generator` as far as kernels use it, over a JAX key; for use while one page is traced."""

    def __init__(self, key: Array) -> None:
        self.key = key

    def _next(self) -> Array:
        self.key, key = jax.random.split(self.key)
        return key

    def standard_normal(self, size: Any, dtype: Any = jnp.float64) -> Array:
        """Standard normal numbers."""
        return jax.random.normal(self._next(), size, dtype)

    def random(self, size: Any, dtype: Any = jnp.float64) -> Array:
        """Uniform numbers in [0, 1)."""
        return jax.random.uniform(self._next(), size if isinstance(size, tuple) else (size,), dtype)

    def chisquare(self, df: float, size: Any) -> Array:
        """χ² with so many degrees of freedom."""
        return 2.0 * jax.random.gamma(self._next(), df / 2.0, size, jnp.float64)

    def integers(self, high: int, size: Any, dtype: Any = jnp.int64) -> Array:
        """Whole numbers from 0 to high - 1."""
        return jax.random.randint(self._next(), size if isinstance(size, tuple) else (size,), 0, high, dtype)
