"""The one accept/reject of the code base, for U and for θ alike."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def accepts(log_u: Any, log_ratio: Any) -> Any:
    """Whether a uniform u falls under min(1, ratio). A NaN ratio rejects. Of arrays, or of numbers where compiled."""
    return log_u < log_ratio


def probability(log_ratio: Array) -> Array:
    """min(1, ratio); 0 where the ratio is NaN."""
    return jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))


def choose(accept: Array, new: Any, old: Any) -> Any:
    """`new` where accepted, else `old`, leaf by leaf: lines 4-5 and 8-9 of Algorithm 1."""
    return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old)
