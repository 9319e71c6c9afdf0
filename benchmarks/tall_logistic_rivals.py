"""The rivals of `tall_logistic.py`, and the reference that all are compared with; nothing here uses lwa.

A rival is a generator: it sets itself up from a cold start, then yields one piece of draws after another, each an array
`(chains, draws, d)` from one compiled program that continues where the last piece stopped. Every rival is given the
mode and the inverse Hessian there, found by Newton's method, starts at draws of that Gaussian, and knows the
posterior's scale from it, so that none needs a warm-up. That, and the exact Hessian written by hand, is more than users
have.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PRIOR_SD = 5.0
BLOCK = 16_384
"""Rows in one compiled sum in float64."""
LEAP = 1.1
"""Leapfrog steps in posterior sds. On a Gaussian in ten dimensions NUTS then takes 3 leapfrogs a draw, two thirds of
which are accepted. At 0.9, with the 0.8 that adaptation aims at, some trees resonate with the Gaussian's period, up to
31 leapfrogs, and vectorised chains all wait for the longest: ten times fewer effective draws of θ² a leapfrog."""
SGLD_THINNING = 10


class Gaussian(NamedTuple):
    """Normal(mode, F Fᵀ), where F Fᵀ is the inverse Hessian at the mode."""

    mode: np.ndarray
    factor: np.ndarray  # F

    @property
    def covariance(self):
        return self.factor @ self.factor.T

    def draw(self, rng, *shape):
        return self.mode + rng.standard_normal((*shape, len(self.mode))) @ self.factor.T


class Posterior(NamedTuple):
    """The reference: moments of every parameter."""

    mean: np.ndarray
    sd: np.ndarray
    square_variance: np.ndarray  # of ((θ - mean) / sd)², 2 for a Gaussian
    error: float  # standard error of means and sds, the worst one, in sds


@jax.jit
def derivatives(theta, x, y):
    """log-likelihood of a block, its gradient and negative Hessian."""
    x = x.astype(jnp.float64)
    score = x @ theta
    chance = jax.nn.sigmoid(score)
    weight = chance * (1.0 - chance)
    return (y * score - jax.nn.softplus(score)).sum(), x.T @ (y - chance), (x * weight[:, None]).T @ x


@jax.jit
def log_likelihoods(thetas, x, y):
    """log-likelihood of a block for each θ."""
    scores = x.astype(jnp.float64) @ thetas.T
    return (y[:, None] * scores - jax.nn.softplus(scores)).sum(0)


def over_blocks(function, theta, x, y):
    """The sum over all rows of what `function` says of a block, in float64."""
    with jax.enable_x64(True):
        parts = [function(theta, x[i : i + BLOCK], y[i : i + BLOCK]) for i in range(0, len(y), BLOCK)]
        return jax.tree.map(lambda *leaves: np.sum([np.asarray(leaf) for leaf in leaves], axis=0), *parts)


def find_mode(x, y):
    """Newton's method on the first rows, which come in random order, then on all."""
    theta = np.zeros(x.shape[1])
    for rows in (max(2_000, len(y) // 20), len(y)):
        share, decrement = len(y) / min(rows, len(y)), np.inf
        while decrement > 1e-3:  # posterior sds; the step after that is still taken
            _, slope, bend = over_blocks(derivatives, theta, x[:rows], y[:rows])
            slope, precision = share * slope - theta / PRIOR_SD**2, share * bend + np.eye(len(theta)) / PRIOR_SD**2
            step = np.linalg.solve(precision, slope)
            theta, decrement = theta + step, np.sqrt(slope @ step)
    return Gaussian(theta, np.linalg.inv(np.linalg.cholesky(precision)).T)


def full_posterior(x, y, gaussian, pairs):
    """The regression's, every point scored on all rows."""

    def log_posteriors(thetas):
        parts = [over_blocks(log_likelihoods, thetas[i : i + 50], x, y) for i in range(0, len(thetas), 50)]
        return np.concatenate(parts) - 0.5 * (thetas**2).sum(1) / PRIOR_SD**2

    return weighed(log_posteriors, gaussian, pairs)


def weighed(log_posteriors, gaussian, pairs):
    """Importance sampling from the Gaussian at the mode, antithetic pairs.

    Only what the Gaussian does not know, (weight - 1) times a power of θ - mode, is estimated.
    """
    z = np.random.default_rng(1).standard_normal((pairs, len(gaussian.mode)))
    away = np.concatenate([z, -z]) @ gaussian.factor.T
    log = log_posteriors(gaussian.mode + away) + 0.5 * (np.concatenate([z, z]) ** 2).sum(1)
    weight = np.exp(log - log.max())
    more = (weight / weight.mean() - 1.0)[:, None]

    def by_pair(values):
        return (more * values).reshape(2, pairs, -1).mean(0)

    variance = np.diag(gaussian.covariance)
    first, second = by_pair(away), by_pair(away**2)
    shift = first.mean(0)
    sd = np.sqrt(variance + second.mean(0) - shift**2)
    # E (θ - mean)⁴: of the Gaussian, whose mean is `shift` away, and the rest.
    fourth = 3 * variance**2 + 6 * variance * shift**2 + shift**4 + by_pair((away - shift) ** 4).mean(0)
    error = max((first.std(0) / sd).max(), (second.std(0) / (2 * sd**2)).max()) / np.sqrt(pairs)
    return Posterior(gaussian.mode + shift, sd, fourth / sd**4 - 1.0, float(error))


def laplace(x, y, chains, draws) -> Iterator[np.ndarray]:
    """Independent draws from the Gaussian at the mode."""
    gaussian, rng = find_mode(x, y), np.random.default_rng(1)
    while True:
        yield gaussian.draw(rng, chains, draws)


def regression(x, y, subsample=None):
    """The model in NumPyro's words; `subsample` rows of it, or all."""
    import numpyro
    from numpyro import distributions

    prior = distributions.Normal(0.0, PRIOR_SD).expand([x.shape[1]]).to_event(1)
    beta = numpyro.sample("beta", prior)
    with numpyro.plate("rows", x.shape[0], subsample_size=subsample):
        few_x, few_y = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", distributions.Bernoulli(logits=few_x @ beta), obs=few_y)


def nuts_kernel(model, gaussian):
    from numpyro.infer import NUTS

    mass = {("beta",): jnp.asarray(gaussian.covariance, jnp.float32)}
    return NUTS(
        model, step_size=LEAP, adapt_step_size=False, inverse_mass_matrix=mass, dense_mass=True, adapt_mass_matrix=False
    )


def run_on(step, theta_of, state, draws, *rows):
    """Endless pieces of draws of chains that `step(state, *rows)` moves, all at once.

    XLA runs a program that is one long loop on one core. So that no core idles, chains are cut into as many parts as
    there are cores, each vectorised, one thread a part. The first call plays nothing: it compiles, on one thread, since
    tracing NumPyro's models on several is not safe.
    """
    cores = len(os.sched_getaffinity(0))
    chains = len(jax.tree.leaves(state)[0])
    parts = [slice(i * chains // cores, (i + 1) * chains // cores) for i in range(cores)]
    states = [jax.tree.map(lambda leaf, part=part: leaf[part], state) for part in parts]

    @jax.jit
    def piece(state, count, *rows):
        def keep(i, carry):
            state, kept = carry
            state = step(state, *rows)
            return state, kept.at[i].set(theta_of(state))

        return lax.fori_loop(0, count, keep, (state, jnp.zeros((draws, *theta_of(state).shape))))

    jax.block_until_ready(piece(states[0], 0, *rows))
    with ThreadPoolExecutor(cores) as pool:
        while True:
            done = list(pool.map(lambda state: jax.block_until_ready(piece(state, draws, *rows)), states))
            states = [state for state, _ in done]
            yield np.concatenate([np.asarray(kept) for _, kept in done], axis=1).swapaxes(0, 1)


def run_kernel(kernel, gaussian, x, y, chains, draws):
    """Pieces of draws of a NumPyro kernel.

    Not through `MCMC`: HMCECS does not know `chain_method="vectorized"`, NumPyro's advice being `jax.vmap`, and `MCMC`
    compiles that anew at every run. The same two methods of the kernel are called here, and compiled once.
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    starts = {"beta": jnp.asarray(gaussian.draw(np.random.default_rng(1), chains), jnp.float32)}
    keys = jax.random.split(jax.random.key(1), chains)
    state = jax.vmap(lambda key, start: kernel.init(key, 0, start, (x, y), {}))(keys, starts)

    def step(state, x, y):
        return jax.vmap(lambda one: kernel.sample(one, (x, y), {}))(state)

    yield from run_on(step, lambda state: state.z["beta"], state, draws, x, y)


def nuts(x, y, chains, draws) -> Iterator[np.ndarray]:
    """NumPyro's NUTS on all rows."""
    gaussian = find_mode(x, y)
    yield from run_kernel(nuts_kernel(regression, gaussian), gaussian, x, y, chains, draws)


def hmcecs(x, y, chains, draws, subsample, blocks) -> Iterator[np.ndarray]:
    """NumPyro's HMC with energy conserving subsampling, control variates of second order at the mode."""
    from numpyro.infer import HMCECS

    gaussian = find_mode(x, y)
    proxy = HMCECS.taylor_proxy({"beta": jnp.asarray(gaussian.mode, jnp.float32)})
    inner = nuts_kernel(partial(regression, subsample=subsample), gaussian)
    kernel = HMCECS(inner, num_blocks=blocks, proxy=proxy)
    yield from run_kernel(kernel, gaussian, x, y, chains, draws)


def sgld(x, y, chains, draws, minibatch, pace) -> Iterator[np.ndarray]:
    """BlackJAX's stochastic gradient Langevin dynamics with control variates; `pace` in mean posterior variances."""
    import blackjax
    from blackjax.sgmcmc.gradients import control_variates, grad_estimator

    def log_prior(theta):
        return -0.5 * jnp.sum(theta**2) / PRIOR_SD**2

    def log_likelihood(theta, row):
        score = row[0] @ theta
        return row[1] * score - jax.nn.softplus(score)

    gaussian, rows = find_mode(x, y), (jnp.asarray(x), jnp.asarray(y))
    estimate = grad_estimator(log_prior, log_likelihood, len(y))
    kernel = blackjax.sgld(control_variates(estimate, jnp.asarray(gaussian.mode, jnp.float32), rows))
    epsilon = pace * float(np.diag(gaussian.covariance).mean())

    def move(key, theta, x, y):
        key, which, noise = jax.random.split(key, 3)
        drawn = jax.random.randint(which, (minibatch,), 0, len(y))
        return key, kernel.step(noise, theta, (x[drawn], y[drawn]), epsilon)

    def step(state, x, y):
        moves = jax.vmap(lambda key, theta: move(key, theta, x, y))
        return lax.fori_loop(0, SGLD_THINNING, lambda _, state: moves(*state), state)

    starts = jnp.asarray(gaussian.draw(np.random.default_rng(1), chains), jnp.float32)
    state = jax.random.split(jax.random.key(1), chains), starts
    yield from run_on(step, lambda state: state[1], state, draws, *rows)
