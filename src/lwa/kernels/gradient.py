"""What MALA, HMC and NUTS share: coordinates in which the target is round, a step size, and BlackJAX's integrator.

In z with θ' = θ + F z, θ being where the move begins, the momentum's mass is the identity: all that is known of the
target's shape is in F. Trajectories are followed in float64, so no energy is lost to the working precision.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lwa.errors import InputError
from lwa.kernels.kernel import Evaluate, Info, Kernel, metropolis
from lwa.kernels.random_walk import Tuning, begin, learn
from lwa.models.model import Model
from lwa.targets.reference import Reference
from lwa.targets.target import Terms

DIVERGED = 1000.0
"""Energy lost on the way past which a trajectory has left the target for good: Stan's and BlackJAX's."""
FIRST_STEP = 0.1
"""Where nothing is known of the target; in units of what suits a round target of sd 1."""
FORGETS = 5.0
"""The way from the start counts i^-5 after i batches of moves, where the random walk, whose batches say less, has i^-2.
From 1,000 sds away, with d = 20 sds from 10⁻³ to 10, HMC's steps are then 0.7 long after 1,000 moves, else 0.07."""
TOLD = {"diverging": np.bool_(False), "n_steps": np.int32(0), "step_size": np.float64(0), "energy": np.float64(0)}
"""What every kernel of this kind tells of a move."""


def blackjax() -> Any:
    """The library, on first use.

    Raises
    ------
    InputError
        Where it is not installed.
    """
    try:
        import blackjax
    except ImportError:
        raise InputError(
            "MALA, HMC and NUTS need BlackJAX, which is not installed. Run: pip install blackjax"
        ) from None
    return blackjax


def suited_step(d: int) -> Array:
    """d^-1/4: the energy that a leapfrog step of size ε loses on a round Gaussian grows like ε⁴ d."""
    return jnp.asarray(d**-0.25)


class Gradient(Kernel):
    """A kernel that follows the gradient of the log target.

    F is the reference's where there is one, else learnt from the path during tune, like the random walk's. The step
    size follows Robbins-Monro steps on the acceptance probability. Neither changes after tune.
    """

    needs_gradients: ClassVar[bool] = True
    target_accept: float

    @final
    def bind(self, model: Model) -> Kernel:
        """Say at once where BlackJAX is missing."""
        blackjax()
        return self

    @final
    def init(self, theta: Array, reference: Reference | None) -> Tuning:
        """A small step in the coordinates of θ; with a reference, in its own the step that suits them."""
        suited = suited_step(theta.shape[-1])
        return begin(theta.astype(jnp.float64), reference, FIRST_STEP * float(suited), suited)

    @final
    def steer(self, tuning: Tuning, noise: Any, info: Info, gain: Array) -> Tuning:
        """log step ← log step + gain (acceptance - target)."""
        return tuning._replace(log_scale=tuning.log_scale + gain * (info.acceptance - self.target_accept))

    @final
    def adapt(self, tuning: Tuning, path: Array, moves: Array) -> Tuning:
        """Take the shape of the path."""
        return learn(tuning, path, moves, suited_step(path.shape[-1]), FORGETS)

    def extra(self) -> dict[str, np.generic]:
        """As Stan and ArviZ name them."""
        return dict(TOLD)

    @abstractmethod
    def most_evaluations(self) -> int:
        """Those of the longest trajectory, one for the gradient where it begins and one for the terms where it ends."""


class Field(NamedTuple):
    """The log target as trajectories see it."""

    place: Callable[[Array], Array]  # z -> θ'
    log_density: Callable[[Array], Array]  # z -> the log target there, NaN where it is invalid
    gradient: Array  # at z = 0


def field(tuning: Tuning, theta: Array, evaluate: Evaluate) -> Field:
    """The log target around θ, in coordinates in which it is round."""

    def place(z: Array) -> Array:
        return (theta + tuning.factor @ z).astype(theta.dtype)

    def log_density(z: Array) -> Array:
        terms = evaluate(place(tame(z)))
        return jnp.where(terms.invalid, jnp.nan, terms.total)

    return Field(place, log_density, jax.grad(log_density)(jnp.zeros(theta.shape, jnp.float64)))


@jax.custom_vjp
def tame(z: Array) -> Array:
    """z; the gradient that comes back through it is 0 where it is not finite.

    So a chain whose target has become zero, as U brought a row that θ cannot explain, moves on straight ahead. Any
    function of z alone may take the gradient's place: leapfrog steps are reversible and keep volumes all the same.
    """
    return z


def tame_forward(z: Array) -> tuple[Array, None]:
    """Nothing need be remembered."""
    return z, None


def tame_backward(_: None, gradient: Array) -> tuple[Array]:
    """Finite, entry by entry."""
    return (jnp.where(jnp.isfinite(gradient), gradient, 0.0),)


tame.defvjp(tame_forward, tame_backward)


def kinetic(momentum: Array, position: Array | None = None) -> Array:
    """½ ‖p‖²."""
    return 0.5 * jnp.sum(momentum**2)


def leapfrog(
    momentum: Array, log_u: Array, steps: int | Array, tuning: Tuning, theta: Array, terms: Terms, evaluate: Evaluate
) -> tuple[Array, Terms, Info]:
    """So many leapfrog steps from θ, then accept or leave: the kinetic energies are Q's part of the ratio."""
    mcmc, around, step_size = blackjax().mcmc, field(tuning, theta, evaluate), jnp.exp(tuning.log_scale)
    integrate = mcmc.trajectory.static_integration(mcmc.integrators.velocity_verlet(around.log_density, kinetic))
    start = mcmc.integrators.IntegratorState(jnp.zeros_like(momentum), momentum, terms.log_density, around.gradient)
    end = integrate(start, step_size, steps)
    lost = kinetic(momentum) - kinetic(end.momentum)
    proposed = around.place(end.position)
    new = evaluate(proposed)
    log_ratio = new.log_density - terms.log_density + lost
    finite = jnp.all(jnp.isfinite(proposed))  # else it is the trajectory that is at fault, not the model
    diverging = ~(log_ratio > -DIVERGED) & jnp.isfinite(terms.log_density)
    theta, terms, info = metropolis(log_u, theta, terms, proposed, new, lost)
    energy = jnp.where(info.accepted, kinetic(end.momentum), kinetic(momentum)) - terms.log_density
    steps = jnp.asarray(steps, jnp.int32)
    extra = {"diverging": diverging, "n_steps": steps, "step_size": step_size, "energy": energy}
    return theta, terms, info._replace(invalid=info.invalid & finite, evaluations=steps + 2, extra=extra)


def step_size_in_words(tuning: Tuning) -> str:
    """Typical of the chains."""
    return f"step size {np.exp(np.mean(tuning.log_scale)):.2g} in units of the posterior's spread"
