"""When is a random walk better than proposals from a Gaussian that does not fit? Behind `kernels/autoregressive.py`.

    python benchmarks/fallback.py --d 2 10          # some minutes each on two cores

For targets that a Gaussian misses in one way or another, by more and more: the share of its proposals accepted, and
effective draws per move (of θ and |θ - mean|, the worse) of the kernel that keeps to it and of the one that has fallen
back, each after a tune of 4,096 moves.
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lwa.diagnostics.autocorrelation import autocorrelation_time
from lwa.engine.cohort import ADAPT_EVERY, steering_gain
from lwa.kernels import Autoregressive, autoregressive
from lwa.targets.reference import Reference
from lwa.targets.target import Terms


def reference(centre, covariance):
    d = len(centre)
    return Reference(np.asarray(centre, float), np.zeros(d), np.linalg.inv(covariance), np.zeros((d, d)), 1)


def gaussian(theta):
    return -0.5 * jnp.sum(theta**2)


def scaled(d, c):
    """F is c times what it should be."""
    return gaussian, reference(np.zeros(d), c**2 * np.eye(d))


def shifted(d, s):
    """θ̂ is s sds off."""
    return gaussian, reference(s * np.eye(d)[0], np.eye(d))


def skewed(d, k):
    """A product of log-gammas."""
    return lambda theta: jnp.sum(k * (theta - jnp.exp(theta))), reference(np.zeros(d), np.eye(d) / k)


def student(d, nu):
    """Heavy tails."""
    density = lambda theta: -0.5 * (nu + d) * jnp.log1p(jnp.sum(theta**2) / nu)  # noqa: E731
    return density, reference(np.zeros(d), nu / (nu + d) * np.eye(d))


def banana(d, b):
    """θ_1 | θ_0 ~ Normal(b θ_0², 1)."""
    density = lambda theta: gaussian(theta.at[1].add(-b * theta[0] ** 2))  # noqa: E731
    return density, reference(np.zeros(d), np.eye(d))


CASES = [(scaled, (0.65, 0.8, 1.2, 1.5, 2.0)), (shifted, (1.0, 2.0)), (skewed, (10.0, 3.0, 1.0))]
CASES += [(student, (30.0, 10.0, 5.0)), (banana, (0.3, 1.0, 2.0))]


def play(density, around, kernel, chains, tune, moves):
    """θ after each move, `(moves, chains, d)`, once tuned; and what was learnt."""
    d, rng = len(around.theta), np.random.default_rng(0)

    def evaluate(theta):
        return Terms(jnp.zeros(()), jnp.zeros(1), density(theta))

    def move(carry, entry):
        def one(theta, terms, tuning, noise):
            theta, terms, info = kernel.step(noise, tuning, theta, terms, evaluate)
            return theta, terms, kernel.steer(tuning, noise, info, entry[1])

        carry = jax.vmap(one)(*carry, entry[0])
        return carry, carry[0]

    block = jax.jit(lambda carry, noise, gains: jax.lax.scan(move, carry, (noise, gains)))
    adapt = jax.jit(jax.vmap(kernel.adapt, (0, 1, None)))

    def noise(count):
        drawn = [kernel.noise(rng, count, d, np.float64) for _ in range(chains)]
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves, axis=1)), *drawn)

    theta = jnp.asarray(around.theta + rng.normal(size=(chains, d)) @ around.factor.T)
    carry = (theta, jax.vmap(evaluate)(theta), jax.vmap(partial(kernel.init, reference=around))(theta))
    for done in range(0, tune, ADAPT_EVERY):
        carry, path = block(carry, noise(ADAPT_EVERY), jnp.asarray(steering_gain(done + np.arange(ADAPT_EVERY))))
        carry = (*carry[:2], adapt(carry[2], path, float(done + ADAPT_EVERY)))
    paths = [np.empty((0, chains, d))]
    for _ in range(0, moves, 2048):
        carry, path = block(carry, noise(2048), jnp.zeros(2048))
        paths.append(np.asarray(path))
    return np.concatenate(paths), carry[2]


def worth(path):
    """Effective draws a move."""
    away = path - path.mean((0, 1))
    return min(1 / autocorrelation_time(away), 1 / autocorrelation_time(np.abs(away)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=int, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--chains", type=int, default=32)
    parser.add_argument("--tune", type=int, default=4096)
    parser.add_argument("--moves", type=int, default=8192)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("| d | target | by | accepted | kept to | fallen back | better by |\n|---|---|---|---|---|---|---|")
    for d in given.d:
        for make, values in CASES:
            for value in values:
                found = []
                for limit in (-1.0, 2.0):  # never, and always, to fall back
                    autoregressive.threshold = lambda d, limit=limit: limit
                    path, tuning = play(*make(d, value), Autoregressive(), given.chains, given.tune, given.moves)
                    found.append((worth(path), float(tuning.acceptance.mean())))
                (mixed, accepted), (walked, _) = found
                cells = (d, make.__name__, value, f"{accepted:.2f}", f"{mixed:.4f}", f"{walked:.4f}")
                print(f"| {' | '.join(map(str, cells))} | {walked / mixed:.2f} |", flush=True)


if __name__ == "__main__":
    main()
