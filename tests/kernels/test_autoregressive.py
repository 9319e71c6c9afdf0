"""Autoregressive proposals where they serve, random walks where they do not: judged, settled and frozen in tune."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.engine.cohort import ADAPT_EVERY
from lwa.kernels import Autoregressive, RandomWalk
from lwa.kernels.autoregressive import ENOUGH_PROPOSALS, FALLEN_BACK, threshold
from lwa.kernels.kernel import steering_gain
from lwa.targets.reference import Reference
from lwa.targets.target import Terms
from tests.kernels.test_kernels import COVARIANCE, bounded, gaussian, skewed

KERNEL = Autoregressive()
CHAINS = 32
BLOCK = 1024


class Chains(NamedTuple):
    theta: jax.Array
    terms: Terms
    tuning: object


def reference(centre, covariance):
    centre, covariance = np.atleast_1d(centre), np.atleast_2d(covariance)
    return Reference(centre, 0 * centre, np.linalg.inv(covariance), 0 * covariance, 1)


def evaluate(log_density, theta):
    """The target alone, as one row of which θ is the only thing to know."""
    return Terms(jnp.zeros(()), jnp.zeros(1), log_density(theta).astype(jnp.float64))


def begin(log_density, kernel, around, dtype=jnp.float64, seed=1):
    """Every chain at a draw of the reference's Gaussian."""
    drawn = np.random.default_rng(seed).normal(size=(CHAINS, len(around.theta)))
    theta = jnp.asarray(around.theta + drawn @ around.factor.T, dtype)
    tuning = jax.vmap(partial(kernel.init, reference=around))(theta)
    return Chains(theta, jax.vmap(partial(evaluate, log_density))(theta), tuning)


def play(chains, seed, gains, log_density, kernel, moves):
    """So many moves of all chains, and θ after each."""
    d, dtype = chains.theta.shape[-1], chains.theta.dtype
    drawn = [kernel.noise(np.random.default_rng([*seed, chain]), moves, d, dtype) for chain in range(CHAINS)]
    noise = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves, axis=1)), *drawn)
    return follow(chains, noise, gains, log_density, kernel)


@partial(jax.jit, static_argnames=("log_density", "kernel"))
def follow(chains, noise, gains, log_density, kernel):

    def one(theta, terms, tuning, noise, gain):
        theta, terms, info = kernel.step(noise, tuning, theta, terms, partial(evaluate, log_density))
        return Chains(theta, terms, kernel.steer(tuning, noise, info, gain))

    def move(chains, entry):
        chains = jax.vmap(one, in_axes=(0, 0, 0, 0, None))(*chains, *entry)
        return chains, chains.theta

    return jax.lax.scan(move, chains, (noise, gains))


@partial(jax.jit, static_argnames=("kernel",))
def adapt(tuning, path, moves, kernel):
    return jax.vmap(kernel.adapt, in_axes=(0, 1, None))(tuning, path, moves)


def tune(chains, log_density, kernel, moves, seed=2):
    """As `engine.cohort.LocalCohort` does: steered at each move, adapted every 32."""
    for done in range(0, moves, ADAPT_EVERY):
        gains = jnp.asarray(steering_gain(done + np.arange(ADAPT_EVERY)), chains.theta.dtype)
        chains, path = play(chains, (seed, done), gains, log_density, kernel, ADAPT_EVERY)
        chains = chains._replace(tuning=adapt(chains.tuning, path, float(done + ADAPT_EVERY), kernel))
    return chains


def sample(chains, log_density, kernel, moves, seed=3):
    """Nothing is learnt any more."""
    paths = []
    for done in range(0, moves, BLOCK):
        chains, path = play(chains, (seed, done), jnp.zeros(BLOCK, chains.theta.dtype), log_density, kernel, BLOCK)
        paths.append(np.asarray(path))
    return chains, np.concatenate(paths)


def first_row(log_likelihood, scalar=False):
    """A target of test_kernels.py as a function of θ alone."""
    return lambda theta: log_likelihood(theta[0] if scalar else theta, jnp.zeros(1))[0]


GAUSSIAN, SKEWED, BOUNDED = first_row(gaussian), first_row(skewed, scalar=True), first_row(bounded, scalar=True)
RIGHT = reference(np.zeros(3), COVARIANCE)
"""The reference of GAUSSIAN."""


def banana(theta):
    """θ_0 ~ Normal(0, 1), θ_1 | θ_0 ~ Normal(2 θ_0², 1)."""
    return -0.5 * theta[0] ** 2 - 0.5 * (theta[1] - 2 * theta[0] ** 2) ** 2


def student(theta):
    """Student's t with 3 degrees of freedom in 10 dimensions; its curvature at the mode is 13/3."""
    return -0.5 * 13 * jnp.log1p(jnp.sum(theta**2) / 3)


def quantiles_agree(draws, law):
    """Draws `(moves, chains)`: shares under quantiles, one number a chain, against the law's."""
    for level in (0.1, 0.5, 0.9):
        assert stats.ttest_1samp((draws < law.ppf(level)).mean(0), level).pvalue > 1e-4


def fallen_back(tuning):
    """The share of chains that walk, by a shape of their own."""
    assert KERNEL.describe(jax.tree.map(np.asarray, tuning)).startswith("random walk")
    return np.mean((tuning.share == FALLEN_BACK) & tuning.walk.learnt & ~tuning.walk.shaped)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_gaussian_keeps_the_reference(dtype):
    chains = tune(begin(GAUSSIAN, KERNEL, RIGHT, dtype), GAUSSIAN, KERNEL, 1024)
    tuning = jax.tree.map(np.asarray, chains.tuning)
    np.testing.assert_array_equal(tuning.share, np.asarray(KERNEL.walk, dtype))
    # What is refused is rounding: terms of the log ratio reach 10³ for this precision matrix.
    np.testing.assert_allclose(tuning.acceptance, 1.0, atol=1e3 * jnp.finfo(dtype).eps)
    np.testing.assert_array_equal(tuning.walk.factor, tuning.factor)
    assert KERNEL.describe(tuning) == "autoregressive proposals around the reference, 100 % accepted"
    draws = sample(chains, GAUSSIAN, KERNEL, 4 * BLOCK)[1]
    for i in range(3):
        quantiles_agree(draws[..., i], stats.norm(0, COVARIANCE[i, i] ** 0.5))


@pytest.mark.parametrize(
    ("target", "centre", "covariance", "laws"),
    [
        (GAUSSIAN, np.zeros(3), COVARIANCE, [stats.norm(0, variance**0.5) for variance in COVARIANCE.diagonal()]),
        (SKEWED, 0.0, 1.0, [stats.gumbel_l]),
        (BOUNDED, 1 / 3, 0.04, [stats.beta(2, 3)]),
    ],
    ids=["gaussian", "skewed", "bounded"],
)
def test_a_reference_20_times_too_narrow_is_left(target, centre, covariance, laws):
    """On the targets that every kernel must get right, walking for the most part."""
    chains = tune(begin(target, KERNEL, reference(centre, covariance / 20**2)), target, KERNEL, 2048)
    assert fallen_back(chains.tuning) == 1
    draws = sample(chains, target, KERNEL, 16 * BLOCK)[1]
    for i, law in enumerate(laws):
        quantiles_agree(draws[..., i], law)


def test_the_shape_is_learnt_from_the_path_and_the_scale_with_it():
    chains = tune(begin(GAUSSIAN, KERNEL, reference(np.zeros(3), COVARIANCE / 20**2)), GAUSSIAN, KERNEL, 2048)
    factor = np.asarray(chains.tuning.walk.factor)
    sd = COVARIANCE.diagonal() ** 0.5
    learnt = (factor @ factor.swapaxes(1, 2)).mean(0) / np.outer(sd, sd)
    # 2,048 moves of a walk are about 100 draws: entries have an sd of 0.14 a chain, and 0.03 over 32.
    np.testing.assert_allclose(learnt, COVARIANCE / np.outer(sd, sd), atol=0.1)
    # Acceptance 0.3 needs nearly 2.38/√3 = 1.37 in units of that shape; in units of F it would need 27.
    assert np.all((np.exp(chains.tuning.walk.log_scale) > 0.7) & (np.exp(chains.tuning.walk.log_scale) < 3))


def test_a_banana_is_walked():
    chains = tune(begin(banana, KERNEL, reference(np.zeros(2), np.eye(2))), banana, KERNEL, 2048)
    assert fallen_back(chains.tuning) == 1
    draws = sample(chains, banana, KERNEL, 32 * BLOCK)[1]
    quantiles_agree(draws[..., 0], stats.norm)
    quantiles_agree(draws[..., 1] - 2 * draws[..., 0] ** 2, stats.norm)


def test_heavy_tails_are_walked():
    chains = tune(begin(student, KERNEL, reference(np.zeros(10), 3 / 13 * np.eye(10))), student, KERNEL, 2048)
    assert fallen_back(chains.tuning) > 0.8  # 0.1 is accepted, 0.23 the limit: a chain or two may err
    draws = sample(chains, student, KERNEL, 16 * BLOCK)[1]
    quantiles_agree(draws[..., 0], stats.t(3))
    quantiles_agree((draws**2).mean(-1), stats.f(10, 3))


def test_without_fallback_the_share_stays():
    kernel = Autoregressive(fallback=False)
    chains = tune(begin(GAUSSIAN, kernel, reference(np.zeros(3), COVARIANCE / 20**2)), GAUSSIAN, kernel, 1024)
    assert np.all(chains.tuning.share == KERNEL.walk)
    np.testing.assert_array_equal(chains.tuning.walk.factor, chains.tuning.factor)
    # The scale follows all the same: 20 times 2.38/√3 is 27, steered by 200 walks a chain to within a factor of two.
    assert np.all(np.exp(chains.tuning.walk.log_scale) > 10)


def test_it_recovers_where_proposals_are_accepted_again():
    """A chain that was misled, by a far start say, comes back to the reference, its shape and its scale."""
    chains = begin(GAUSSIAN, KERNEL, RIGHT)
    full = jnp.full(CHAINS, float(ENOUGH_PROPOSALS))
    misled = adapt(chains.tuning._replace(proposals=full), jnp.zeros((ADAPT_EVERY, CHAINS, 3)), 32.0, KERNEL)
    assert np.all(misled.share == FALLEN_BACK)
    short = tune(chains._replace(tuning=misled), GAUSSIAN, KERNEL, ADAPT_EVERY)
    assert np.all(short.tuning.share == FALLEN_BACK)
    # (16 · 0 + k · 1)/(16 + k) reaches 1/2 with k = 16, one in 20 moves: within 640 but for 2 in 10⁴ chains.
    tuning = tune(chains._replace(tuning=misled), GAUSSIAN, KERNEL, 960).tuning
    assert np.all(tuning.share == KERNEL.walk)
    assert np.all(tuning.walk.shaped & ~tuning.walk.learnt)
    np.testing.assert_array_equal(tuning.walk.factor, tuning.factor)


def one_move(kernel, dtype, kind):
    """A kernel's state, the noise and outcome of one move of it, and a path."""
    theta = jnp.zeros(3, dtype)
    noise = jax.tree.map(lambda leaf: leaf[0], kernel.noise(np.random.default_rng(1), 1, len(theta), theta.dtype))
    if isinstance(kernel, Autoregressive):
        noise = noise._replace(kind=jnp.asarray(kind, noise.kind.dtype))
    tuning = kernel.init(theta, RIGHT)
    _, _, info = kernel.step(noise, tuning, theta, evaluate(GAUSSIAN, theta), partial(evaluate, GAUSSIAN))
    return tuning, noise, info._replace(acceptance=jnp.asarray(0.9))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("kernel", [KERNEL, RandomWalk()], ids=str)
@pytest.mark.parametrize("kind", [0.1, 0.9], ids=["walk", "towards"])
def test_nothing_is_learnt_without_gain(kernel, dtype, kind):
    tuning, noise, info = one_move(kernel, dtype, kind)
    frozen = jax.jit(kernel.steer)(tuning, noise, info, jnp.zeros((), dtype))
    assert all(map(np.array_equal, jax.tree.leaves(frozen), jax.tree.leaves(tuning)))
    heard = jax.jit(kernel.steer)(tuning, noise, info, jnp.asarray(0.5, dtype))
    assert not all(map(np.array_equal, jax.tree.leaves(heard), jax.tree.leaves(tuning)))


def test_each_kind_of_move_teaches_its_own_part():
    half = jnp.asarray(0.5)
    tuning, noise, info = one_move(KERNEL, jnp.float64, kind=0.05)
    walked = KERNEL.steer(tuning, noise, info, half)
    np.testing.assert_allclose(walked.walk.log_scale, tuning.walk.log_scale + 0.5 * (0.9 - 0.3))
    assert (walked.proposals, walked.acceptance) == (0, 0)
    tuning, noise, info = one_move(KERNEL, jnp.float64, kind=0.9)
    once = KERNEL.steer(tuning, noise, info, half)
    twice = KERNEL.steer(once, noise, info._replace(acceptance=jnp.asarray(0.5)), half)
    assert twice.walk.log_scale == tuning.walk.log_scale
    assert (once.proposals, twice.proposals) == (1, 2)
    np.testing.assert_allclose([once.acceptance, twice.acceptance], [0.9, 0.7])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("kernel", [KERNEL, RandomWalk()], ids=str)
def test_what_is_learnt_keeps_its_types(kernel, dtype):
    """So that no program is compiled again, and none works in another precision than θ."""
    tuning, noise, info = one_move(kernel, dtype, kind=0.9)
    before = jax.eval_shape(lambda x: x, tuning)
    assert {leaf.dtype for leaf in jax.tree.leaves(before)} == {jnp.dtype(dtype), jnp.dtype(bool)}
    assert jax.eval_shape(kernel.steer, tuning, noise, info, jnp.ones((), dtype)) == before
    assert jax.eval_shape(kernel.adapt, tuning, jnp.zeros((ADAPT_EVERY, 3), dtype), 64.0) == before


def test_words_for_the_user():
    with_chains = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], 4, 0), KERNEL.init(jnp.zeros(3), RIGHT))
    assert KERNEL.describe(with_chains) == "autoregressive proposals around the reference"
    heard = with_chains._replace(proposals=np.full(4, 64.0), acceptance=np.array([0.8, 0.84, 0.001, 0.005]))
    assert KERNEL.describe(heard) == "autoregressive proposals around the reference, 41 % accepted"
    fallen = heard._replace(walk=heard.walk._replace(shaped=heard.acceptance > threshold(3)))
    assert KERNEL.describe(fallen) == (
        "random walk in 2 of 4 chains: less than 1 % of the autoregressive proposals were accepted, too few "
        "(under 50 %): the posterior is not near Gaussian"
    )
    walk = with_chains.walk._replace(log_scale=np.log([0.35, 1.4, 0.7, 0.7]))
    assert RandomWalk().describe(walk) == "adaptive random walk, step size 0.7"


def test_fallback_must_be_yes_or_no():
    with pytest.raises(lwa.InputError, match="fallback='no' must be True or False"):
        Autoregressive(fallback="no")
