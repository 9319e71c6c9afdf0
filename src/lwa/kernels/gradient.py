"""What MALA, HMC and NUTS share: coordinates in which the target is round, a step size, and BlackJAX's integrator.

In z with θ' = θ + F z, θ being where the move begins, the momentum's mass is the identity: F holds all that is known of
the target's shape. Trajectories are followed in float64, so no energy is lost to the working precision.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float64

from lwa.kernels.kernel import AnyArray, Evaluate, Kernel, MoveInfo, Noise, metropolis
from lwa.kernels.random_walk import Tuning, begin_tuning, learn_shape
from lwa.models.model import Model
from lwa.targets.reference import Reference
from lwa.targets.target import Terms

DIVERGED = 1000.0
"""The loss of energy above which a trajectory counts as divergent: Stan's and BlackJAX's."""
FIRST_STEP = 0.1
"""The first step size if nothing is known of the target, in units of the best one for a round target of sd 1."""
FORGETS = 5.0
"""The path from the start counts i^-5 after i batches of moves; i^-2 for the random walk, whose batches say less.
From 1,000 sds away, with d = 20 sds from 10⁻³ to 10, HMC's steps are then 0.7 long after 1,000 moves, else 0.07."""
TRAJECTORY_STATISTICS: dict[str, np.generic] = {
    "diverging": np.bool_(False), "n_steps": np.int32(0), "step_size": np.float64(0), "energy": np.float64(0),
}  # fmt: skip
"""What every kernel of this kind reports of a move, as Stan and ArviZ name it."""


def suitable_step(d: int) -> Array:
    """Return d^-1/4: the energy that a leapfrog step of size ε loses on a round Gaussian grows like ε⁴ d."""
    return jnp.asarray(d**-0.25)


class GradientKernel(Kernel):
    """A kernel that follows the gradient of the log target.

    F is the reference's if there is one, else learnt from the path during tune, like the random walk's. The step size
    follows Robbins-Monro steps on the acceptance probability. Neither changes after tune.
    """

    needs_gradients: ClassVar[bool] = True
    target_accept: float

    @final
    def bind(self, model: Model) -> Kernel:
        """Import BlackJAX before anything is traced, since it makes arrays on import."""
        import blackjax  # noqa: F401

        return self

    @final
    def init(self, theta: Array, reference: Reference | None) -> Tuning:
        """Return a small step in the coordinates of θ; with a reference, a suitable step in its coordinates."""
        suitable = suitable_step(theta.shape[-1])
        return begin_tuning(theta.astype(jnp.float64), reference, FIRST_STEP * float(suitable), suitable)

    @final
    def steer(self, tuning: Tuning, noise: Noise, info: MoveInfo, gain: Array) -> Tuning:
        """log step ← log step + gain (acceptance - target)."""
        return tuning._replace(log_scale=tuning.log_scale + gain * (info.acceptance - self.target_accept))

    @final
    def adapt(self, tuning: Tuning, path: Array, moves: Array) -> Tuning:
        """Take the shape of the path."""
        return learn_shape(tuning, path, moves, suitable_step(path.shape[-1]), FORGETS)

    def extra(self) -> dict[str, np.generic]:
        """Return a zero of each statistic of a trajectory."""
        return dict(TRAJECTORY_STATISTICS)

    @abstractmethod
    def most_evaluations(self) -> int:
        """Count the longest trajectory, one for the gradient where it begins and one for the terms where it ends."""


class Field(NamedTuple):
    """The log target as trajectories see it."""

    place: Callable[[Array], Array]  # z -> θ'
    log_density: Callable[[Array], Array]  # z -> the log target there, NaN if it is invalid
    gradient: Float64[Array, " d"]  # at z = 0


def build_field(tuning: Tuning, theta: Array, evaluate: Evaluate) -> Field:
    """Return the log target around θ, in coordinates in which it is round."""

    def place(z: Array) -> Array:
        return (theta + tuning.factor @ z).astype(theta.dtype)

    def log_density(z: Array) -> Array:
        terms = evaluate(place(tame(z)))
        return jnp.where(terms.invalid, jnp.nan, terms.total)

    return Field(place, log_density, jax.grad(log_density)(jnp.zeros(theta.shape, jnp.float64)))


@jax.custom_vjp
def tame(z: Array) -> Array:
    """Return z; the gradient that comes back through it is set to 0 wherever it is not finite.

    So a chain whose target has become zero, because the subset received a row that θ cannot explain, moves straight
    ahead. Any function of z alone may replace the gradient: leapfrog steps stay reversible and preserve volume.
    """
    return z


tame.defvjp(lambda z: (z, None), lambda _, gradient: (jnp.where(jnp.isfinite(gradient), gradient, 0.0),))


def kinetic_energy(momentum: AnyArray, position: Array | None = None) -> Array:
    """Return ½ ‖p‖²."""
    return 0.5 * jnp.sum(momentum**2)


def leapfrog(
    momentum: AnyArray, log_u: AnyArray, steps: int | AnyArray, *, tuning: Tuning, theta: Array, terms: Terms,
    evaluate: Evaluate,
) -> tuple[Array, Terms, MoveInfo]:  # fmt: skip
    """Make this many leapfrog steps from θ, then accept or reject: the kinetic energies are Q's part of the ratio."""
    from blackjax import mcmc

    around, step_size = build_field(tuning, theta, evaluate), jnp.exp(tuning.log_scale)
    integrate = mcmc.trajectory.static_integration(mcmc.integrators.velocity_verlet(around.log_density, kinetic_energy))
    start = mcmc.integrators.IntegratorState(jnp.zeros_like(momentum), momentum, terms.log_density, around.gradient)
    end = integrate(start, step_size, steps)
    lost = kinetic_energy(momentum) - kinetic_energy(end.momentum)
    proposed = around.place(end.position)
    new = evaluate(proposed)
    log_ratio = new.log_density - terms.log_density + lost
    finite = jnp.all(jnp.isfinite(proposed))  # else it is the trajectory that is at fault, not the model
    diverging = ~(log_ratio > -DIVERGED) & jnp.isfinite(terms.log_density)
    theta, terms, info = metropolis(log_u, (theta, terms), (proposed, new), lost)
    energy = jnp.where(info.accepted, kinetic_energy(end.momentum), kinetic_energy(momentum)) - terms.log_density
    steps = jnp.asarray(steps, jnp.int32)
    extra = {"diverging": diverging, "n_steps": steps, "step_size": step_size, "energy": energy}
    return theta, terms, info._replace(invalid=info.invalid & finite, evaluations=steps + 2, extra=extra)


def describe_step_size(tuning: Tuning) -> str:
    """Report the step size, averaged over chains."""
    return f"step size {np.exp(np.mean(tuning.log_scale)):.2g} in units of the posterior's spread"
