"""Random numbers drawn on the device, through the methods of NumPy's generators: kernels use either for their noise."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike


class DeviceGenerator:
    """The methods of NumPy's `Generator` that kernels use, over a JAX key; for use while one page is traced."""

    def __init__(self, key: Array) -> None:
        self.key = key

    def _next(self) -> Array:
        self.key, key = jax.random.split(self.key)
        return key

    def standard_normal(self, size: tuple[int, ...], dtype: DTypeLike = jnp.float64) -> Array:
        """Draw standard normal numbers."""
        return jax.random.normal(self._next(), size, dtype)

    def random(self, size: int | tuple[int, ...], dtype: DTypeLike = jnp.float64) -> Array:
        """Draw uniform numbers in [0, 1)."""
        return jax.random.uniform(self._next(), size if isinstance(size, tuple) else (size,), dtype)

    def chisquare(self, df: float, size: tuple[int, ...]) -> Array:
        """Draw from χ² with `df` degrees of freedom."""
        return 2.0 * jax.random.gamma(self._next(), df / 2.0, size, jnp.float64)

    def integers(self, high: int, size: int | tuple[int, ...], dtype: DTypeLike = jnp.int64) -> Array:
        """Draw whole numbers from 0 to high - 1."""
        return jax.random.randint(self._next(), size if isinstance(size, tuple) else (size,), 0, high, dtype)
