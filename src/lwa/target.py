"""The ladder of targets: what θ is scored by, given U.

| name             | log target given U    | what is left                                   |
|------------------|-----------------------|------------------------------------------------|
| `"subposterior"` | log p + Σ_U ℓ_k       | the paper as written: as wide as n rows' own   |
| `"powered"`      | log p + (N/n) Σ_U ℓ_k | right spread, centred on the subset's own mode |
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lwa.errors import one_of
from lwa.models.model import Model
from lwa.rows.slots import put

NAMES = ["powered", "subposterior"]


class Terms(NamedTuple):
    """The log target given U at one θ, term by term, so that a refresh touches only the rows that changed."""

    prior: Array  # ()    log p(θ)
    rows: Array  # (n,)  log f(Y_k|θ)
    total: Array  # ()    their weighted sum in float64

    @property
    def invalid(self) -> Array:
        """Whether the log target is NaN or +inf: no density is."""
        return ~(self.total < jnp.inf)

    @property
    def log_density(self) -> Array:
        """The log target; -inf where it is invalid, so that such a θ is never entered and always left."""
        return jnp.where(self.invalid, -jnp.inf, self.total)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Target:
    """log p(θ) + w Σ_{k∈U} log f(Y_k|θ)."""

    model: Model = field(metadata={"static": True})
    power: float | Array  # w

    def evaluate(self, theta: Array, rows: Any) -> Terms:
        """All n terms at θ; `rows` has its slots on the last axis."""
        return self._sum(self.model.log_prior_at(theta), self.model.log_likelihood_at(theta, rows))

    def refresh(self, terms: Terms, theta: Array, slots: Array, incoming: Any) -> Terms:
        """The terms at the same θ after `incoming` took `slots` of U: what was cached for those slots is stale."""
        if slots.shape[-1] == 0:
            return terms
        return self._sum(terms.prior, put(slots, self.model.log_likelihood_at(theta, incoming), terms.rows))

    def _sum(self, prior: Array, rows: Array) -> Terms:
        return Terms(prior, rows, prior.astype(jnp.float64) + self.power * rows.astype(jnp.float64).sum(-1))


def power(name: str, n: int, N: int) -> float:
    """w, by the target's name."""
    if name == "subposterior":
        return 1.0
    if name == "powered":
        return N / n
    raise one_of("target", name, NAMES)
