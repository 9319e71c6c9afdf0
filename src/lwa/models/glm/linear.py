"""A regression as `Predictors`: z_k is the linear predictor of each level of y, then the family's parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from lwa.models.glm.design import Design
from lwa.models.predictors import Predictors


@dataclass(frozen=True, eq=False)
class LinearPredictors(Predictors):
    """θ holds β, of `equations` × coefficients, then the logarithms of `auxiliary`, in the order of their names."""

    design: Design
    equations: int
    auxiliary: tuple[str, ...]
    log_density: Callable[[Array, Mapping[str, Array], Mapping[str, Array]], Array]  # (η, auxiliary, rows)

    def at(self, theta: Array, rows: Mapping[str, Array]) -> Array:
        """Return η of each equation, and the auxiliary parameters, which are the same in all rows."""
        p, more = len(self.design.names), theta.shape[1:]
        betas = theta[: self.equations * p].reshape(self.equations, p, *more)
        eta = jnp.stack([self.design.predictor(beta, rows) for beta in betas], axis=1)
        if "offset" in rows:
            eta = eta + rows["offset"].reshape(-1, *(1 for _ in eta.shape[1:]))
        own = theta[self.equations * p :]
        return jnp.concatenate([eta, jnp.broadcast_to(own, (len(eta), *own.shape))], axis=1)

    def terms(self, z: Array, rows: Mapping[str, Array]) -> Array:
        """Return log f(y_k|z_k) of each row."""
        auxiliary = {name: jnp.exp(z[:, self.equations + i]) for i, name in enumerate(self.auxiliary)}
        return self.log_density(z[:, : self.equations], auxiliary, rows)

    def gram(self, h: Array, rows: Mapping[str, Array]) -> Array:
        """Return Σ Z_kᵀ h_k Z_k, equation by equation and parameter by parameter."""
        several, m = self.equations, h.shape[1]
        found: list[list[Array]] = [[h] * m for _ in range(m)]
        for i in range(m):
            for j in range(i + 1):
                if i < several:
                    own = self.design.gram(h[:, i, j], rows)
                elif j < several:
                    own = self.design.pull(h[:, i, j], rows)[None, :]
                else:
                    own = h[:, i, j].sum()[None, None]
                found[i][j], found[j][i] = own, own.T
        return jnp.block(found)
