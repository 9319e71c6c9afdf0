"""BlackJAX's no-U-turn sampler, on a target that changes with the subset."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import UInt32

from lwa.kernels.gradient import DIVERGED, TRAJECTORY_STATISTICS, GradientKernel, build_field, describe_step_size
from lwa.kernels.kernel import AnyArray, Evaluate, MoveInfo, Precision, choose
from lwa.kernels.random_walk import Tuning
from lwa.targets.target import Terms
from lwa.user.validate import require_share, require_whole


class Noise(NamedTuple):
    """The randomness of one move."""

    key: UInt32[AnyArray, "2"]  # how many numbers a trajectory needs is not known before


@dataclass(frozen=True)
class NUTS(GradientKernel):
    """Trajectories that double until they turn back, from which the next θ is drawn (multinomial, biased).

    The draw is reversible given the trajectory, and each of a trajectory's points begins it with the same probability:
    so the move is reversible, as `exact=True` needs.

    Parameters
    ----------
    target_accept
        The average acceptance probability along a trajectory to aim for; a larger one means shorter steps.
    max_depth
        The largest number of doublings: a move takes at most 2^max_depth - 1 leapfrog steps.

    References
    ----------
    Hoffman and Gelman (2014), The no-U-turn sampler; Betancourt (2017), A conceptual introduction to HMC.

    Examples
    --------
    >>> import lwa
    >>> lwa.kernels.NUTS(target_accept=0.9)
    NUTS(target_accept=0.9, max_depth=8)
    """

    target_accept: float = 0.8
    max_depth: int = 8

    def __post_init__(self) -> None:
        """Check the acceptance rate and the number of doublings."""
        require_share("target_accept", self.target_accept, example=0.8)
        require_whole("max_depth", self.max_depth, least=1, example=8)

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Precision) -> Noise:
        """Draw the keys of a page."""
        return Noise(rng.integers(2**32, size=(moves, 2), dtype=np.uint32))

    def step(
        self, noise: Noise, tuning: Tuning, theta: Array, terms: Terms, evaluate: Evaluate
    ) -> tuple[Array, Terms, MoveInfo]:
        """Follow a trajectory and draw a point of it."""
        from blackjax.mcmc import hmc, nuts

        around, step_size = build_field(tuning, theta, evaluate), jnp.exp(tuning.log_scale)
        still = jnp.zeros(theta.shape, jnp.float64)
        start = hmc.HMCState(still, terms.log_density, around.gradient)
        key = jax.random.wrap_key_data(jnp.asarray(noise.key), impl="threefry2x32")
        kernel = nuts.build_kernel(divergence_threshold=DIVERGED)
        end, path = kernel(
            key, start, around.log_density, step_size, jnp.ones_like(still), max_num_doublings=int(self.max_depth)
        )
        moved = jnp.any(end.position != 0.0)
        proposed = around.place(end.position)
        theta, terms = choose(moved, (proposed, evaluate(proposed)), (theta, terms))
        tips = [path.trajectory_leftmost_state, path.trajectory_rightmost_state]
        invalid = jnp.any(jnp.stack([jnp.isnan(tip.logdensity) & jnp.isfinite(tip.position).all() for tip in tips]))
        steps = path.num_integration_steps.astype(jnp.int32)
        extra = {
            "diverging": path.is_divergent & jnp.isfinite(start.logdensity), "n_steps": steps, "step_size": step_size,
            "energy": path.energy, "tree_depth": path.num_trajectory_expansions.astype(jnp.int32),
        }  # fmt: skip
        return theta, terms, MoveInfo(path.acceptance_rate, moved, invalid, steps + 2, extra)

    def most_evaluations(self) -> int:
        """Count the gradients where it begins and at 2^max_depth - 1 steps, and the terms where it ends."""
        return 2 ** int(self.max_depth) + 1

    def extra(self) -> dict[str, np.generic]:
        """Add how often a trajectory was doubled."""
        return TRAJECTORY_STATISTICS | {"tree_depth": np.int32(0)}

    def describe(self, tuning: Tuning) -> str:
        """Report the step size."""
        return f"NUTS, {describe_step_size(tuning)}"
