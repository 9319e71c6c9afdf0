"""Every θ kernel alike: the law of its draws, what n = N must reproduce, and what must not change after tune."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lwa
from lwa.backend.random import Purpose, generator
from lwa.engine.cohort import ADAPT_EVERY
from lwa.kernels import HMC, MALA, NUTS, Autoregressive, Blockwise, Independence, RandomWalk
from lwa.kernels.gradient import leapfrog
from lwa.rows import as_rows
from lwa.run import loop
from lwa.targets.reference import find_reference
from lwa.targets.target import Terms
from tests.support import SHORT_RUN, furthest_from

# Four conjugate models in one: their posterior is the product of theirs, so one run shows a correlated Gaussian, a
# skewed, a bounded and a simplex-valued parameter, each in unconstrained coordinates with the Jacobian in its prior.
N, D = 12, 5
rng = np.random.default_rng(5)
MIXING = np.eye(D) + 0.6 * np.tri(D, D, -1)
NOISE = np.diag([1.0, 2.0, 0.5, 1.0, 3.0]) @ MIXING @ MIXING.T @ np.diag([1.0, 2.0, 0.5, 1.0, 3.0])
"""Known covariance of the Gaussian rows: sds from 0.5 to 6, correlations up to 0.9."""
ROWS = {
    "y": rng.multivariate_normal(np.zeros(D), NOISE, N),
    "events": rng.poisson(0.3, N).astype(float),
    "success": (rng.random(N) < 0.8).astype(float),
    "kind": np.array([0] * 2 + [1] * 3 + [2] * 7),
}
PRIOR_SD, SHAPE, RATE, ALPHA = 10.0, 1.0, 1.0, np.array([1.0, 2.0, 0.5])
PRECISION = np.linalg.inv(NOISE)


def log_probabilities(simplex):
    """Softmax with the last logit 0."""
    return jax.nn.log_softmax(jnp.append(simplex, 0.0))


def log_likelihood(theta, rows):
    away = rows["y"] - theta["mean"]
    gaussian = -0.5 * ((away @ jnp.asarray(PRECISION, away.dtype)) * away).sum(-1)
    poisson = rows["events"] * theta["log_rate"] - jnp.exp(theta["log_rate"])
    coin = rows["success"] * theta["logit"] - jnp.logaddexp(0.0, theta["logit"])
    return gaussian + poisson + coin + log_probabilities(theta["simplex"])[rows["kind"]]


def log_prior(theta):
    gaussian = -0.5 * jnp.sum(theta["mean"] ** 2) / PRIOR_SD**2
    gamma = SHAPE * theta["log_rate"] - RATE * jnp.exp(theta["log_rate"])
    beta = theta["logit"] - 2 * jnp.logaddexp(0.0, theta["logit"])  # Beta(1, 1)
    return gaussian + gamma + beta + jnp.sum(jnp.asarray(ALPHA) * log_probabilities(theta["simplex"]))


INIT = {"log_rate": 0.0, "logit": 0.0, "mean": jnp.zeros(D), "simplex": jnp.zeros(2)}
MODEL = lwa.Model(log_likelihood, log_prior, INIT)

COVARIANCE = np.linalg.inv(N * PRECISION + np.eye(D) / PRIOR_SD**2)
CENTRE = COVARIANCE @ PRECISION @ ROWS["y"].sum(0)
COUNTS = ALPHA + np.bincount(ROWS["kind"], minlength=3)
LAWS = {
    **{f"mean[{i}]": stats.norm(CENTRE[i], COVARIANCE[i, i] ** 0.5) for i in range(D)},
    "rate": stats.gamma(SHAPE + ROWS["events"].sum(), scale=1 / (RATE + N)),
    "probability": stats.beta(1 + ROWS["success"].sum(), 1 + N - ROWS["success"].sum()),
    **{f"simplex[{k}]": stats.beta(COUNTS[k], COUNTS.sum() - COUNTS[k]) for k in range(3)},
}


def constrained(posterior):
    """Draws by the names of `LAWS`."""
    logits = posterior["simplex"]
    simplex = np.exp(np.concatenate([logits, np.zeros_like(logits[..., :1])], -1))
    simplex /= simplex.sum(-1, keepdims=True)
    return {
        **{f"mean[{i}]": posterior["mean"][..., i] for i in range(D)},
        "rate": np.exp(posterior["log_rate"]),
        "probability": 1 / (1 + np.exp(-posterior["logit"])),
        **{f"simplex[{k}]": simplex[..., k] for k in range(3)},
    }


KERNELS = {
    "RandomWalk": (RandomWalk(), "powered"),
    "Blockwise": (Blockwise([["mean"], ["log_rate", "simplex"], ["logit"]]), "powered"),
    "Blockwise at a reference": (Blockwise(), "calibrated"),
    "Autoregressive": (Autoregressive(), "calibrated"),
    "Independence": (Independence(), "calibrated"),
    "MALA": (MALA(), "powered"),
    "HMC": (HMC(), "powered"),
    "HMC at a reference": (HMC(), "calibrated"),
    "NUTS": (NUTS(), "powered"),
}
LONG = ("Blockwise at a reference", "HMC", "HMC at a reference", "NUTS")
"""Those that take seconds to compile."""
every_kernel = pytest.mark.parametrize(("kernel", "target"), KERNELS.values(), ids=KERNELS)
every_kernel_in_its_time = pytest.mark.parametrize(
    ("kernel", "target"),
    [pytest.param(*KERNELS[name], id=name, marks=[pytest.mark.slow] if name in LONG else []) for name in KERNELS],
)


def fit(kernel, target, **options):
    """n = N, so that no subset stands between the draws and the posterior."""
    common = dict(subset_size=N, precision="float64", seed=6, progress=False)
    return lwa.sample(MODEL, ROWS, kernel=kernel, target=target, **(common | options))


def worst_t(kernel, target):
    """Student's t of each moment and each share under a quantile, over 32 independent chains; the worst by name."""
    slow = isinstance(kernel, RandomWalk | Blockwise)
    run = fit(kernel, target, draws=200, tune=1500, chains=32, thinning=20 if slow else 2)
    i, j = 1, 3
    product = ((run.posterior["mean"][..., i] - CENTRE[i]) * (run.posterior["mean"][..., j] - CENTRE[j])).mean(1)
    covariance = stats.ttest_1samp(product, COVARIANCE[i, j]).statistic
    return max(furthest_from(LAWS, constrained(run.posterior)), (abs(covariance), "covariance"))


@pytest.mark.slow
@every_kernel
def test_the_law_of_the_draws(kernel, target):
    """|t| < 4.5 for 56 comparisons, with 31 degrees of freedom: by chance in one of 200 seeds."""
    t, name = worst_t(kernel, target)
    assert t < 4.5, name


class Forgetful(Independence):
    """Leaves out Q(θ', θ)/Q(θ, θ')."""

    def propose(self, noise, tuning, theta):
        return Independence.propose(self, noise, tuning, theta)[0], 0.0


class Hot(HMC):
    """Momenta of another temperature than the kinetic energy's."""

    def step(self, noise, tuning, theta, terms, evaluate):
        return leapfrog(
            1.2 * noise.momentum, noise.log_u, noise.steps, tuning=tuning, theta=theta, terms=terms, evaluate=evaluate
        )


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "target"), [(Forgetful(), "calibrated"), (Hot(), "powered")], ids=str)
def test_a_wrong_kernel_has_another_law(kernel, target):
    assert worst_t(kernel, target)[0] > 6


def full_log_posterior(theta):
    """Written out, as one row."""
    tree = MODEL.unravel(theta)
    prior, rows = log_prior(tree), log_likelihood(tree, jax.tree.map(jnp.asarray, ROWS))
    return Terms(prior, rows, prior + rows.sum())


@every_kernel_in_its_time
def test_all_rows_give_the_same_kernel_on_the_full_posterior(kernel, target):
    """n = N: the same keys give the draws of a plain loop over `kernel.step`, untuned and without a subset."""
    draws = 40
    run = fit(kernel, target, draws=draws, tune=0, thinning=1, initvals=INIT)
    with jax.enable_x64(True):
        bound, theta = kernel.bind(MODEL), jnp.asarray(MODEL.ravel(INIT))
        reference = find_reference(MODEL, as_rows(ROWS), MODEL.ravel(INIT), 6) if target == "calibrated" else None
        tuning = bound.init(theta, reference)

        @jax.jit
        def plain(noise):
            def move(carry, noise):
                theta, terms, _ = bound.step(noise, tuning, *carry, full_log_posterior)
                return (theta, terms), theta

            return jax.lax.scan(move, (theta, full_log_posterior(theta)), noise)[1]

        for chain in range(4):
            stream = generator(6, Purpose.THETA, chain, 0)
            noise = bound.noise(stream, run.attributes["page_moves"], MODEL.dimension, np.float64)
            path = MODEL.by_name(np.asarray(plain(jax.tree.map(lambda leaf: leaf[:draws], noise))))
            for name, values in run.posterior.items():
                np.testing.assert_allclose(values[chain], path[name], rtol=1e-8, atol=1e-8, err_msg=name)
    assert len(np.unique(run.posterior["mean"][..., 0])) > 5  # it moved


@every_kernel
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_what_is_learnt_is_frozen_by_a_gain_of_zero_and_keeps_its_types(kernel, target, dtype):
    with jax.enable_x64(True):
        kernel = kernel.bind(MODEL)
        theta = jnp.asarray(MODEL.ravel(INIT), dtype)
        reference = find_reference(MODEL, as_rows(ROWS), MODEL.ravel(INIT), 6) if target == "calibrated" else None
        tuning = kernel.init(theta, reference)
        noise = jax.tree.map(lambda leaf: leaf[0], kernel.noise(np.random.default_rng(1), 1, len(theta), dtype))
        evaluate = jax.jit(full_log_posterior)
        moved, terms, info = jax.jit(partial(kernel.step, evaluate=evaluate))(noise, tuning, theta, evaluate(theta))
        assert moved.dtype == theta.dtype
        assert jax.eval_shape(lambda: terms) == jax.eval_shape(evaluate, theta)
        assert {name: leaf.dtype for name, leaf in info.extra.items()} == {
            name: zero.dtype for name, zero in kernel.extra().items()
        }
        assert 1 <= info.evaluations <= kernel.most_evaluations()
        info = info._replace(acceptance=jnp.asarray(0.9))
        frozen = kernel.steer(tuning, noise, info, jnp.zeros((), dtype))
        assert all(map(np.array_equal, jax.tree.leaves(frozen), jax.tree.leaves(tuning)))
        heard = kernel.steer(tuning, noise, info, jnp.asarray(0.5, dtype))
        unchanged = all(map(np.array_equal, jax.tree.leaves(heard), jax.tree.leaves(tuning)))
        assert unchanged == isinstance(kernel, Independence)
        before = jax.eval_shape(lambda: tuning)
        assert jax.eval_shape(lambda: heard) == before
        assert jax.eval_shape(kernel.adapt, tuning, jnp.zeros((ADAPT_EVERY, len(theta)), dtype), 64.0) == before


@SHORT_RUN
@pytest.mark.parametrize(
    "kernel",
    [pytest.param(Blockwise(), marks=pytest.mark.slow), HMC(), pytest.param(NUTS(), marks=pytest.mark.slow)],
    ids=["Blockwise", "HMC", "NUTS"],
)
def test_block_length_changes_no_bit_and_nothing_is_traced_again(monkeypatch, kernel):
    traced = []

    def counted(theta, rows):
        traced.append(rows["kind"].shape)
        return log_likelihood(theta, rows)

    model = lwa.Model(counted, log_prior, INIT)
    options = dict(kernel=kernel, target="powered", subset_size=8, epsilon=1.0, tune=100, thinning=2, progress=False)
    fits = []
    for length in (1000, 7):
        monkeypatch.setattr(
            loop.BlockLength, "after", lambda self, took, moves, length=length: loop.BlockLength(length)
        )
        fits.append(lwa.sample(model, ROWS, draws=30, seed=3, **options))
    assert fits[0].posterior.keys() == INIT.keys()
    for group in ("posterior", "sample_stats"):
        for name, values in getattr(fits[0], group).items():
            assert np.array_equal(values, getattr(fits[1], group)[name]), name
    assert set(kernel.extra()) <= set(fits[0].sample_stats)
    before = len(traced)
    lwa.sample(model, ROWS, draws=60, seed=4, **options)
    looks = 5  # `check_model` thrice, and `require_gradients`, which differentiates what it looks at
    assert len(traced) - before <= looks
