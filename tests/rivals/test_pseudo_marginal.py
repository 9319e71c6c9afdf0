"""Pseudo-marginal: estimates in closed form, what is kept, and the law of the draws, with signs and without.

The model: ℓ_k(θ) = -θ²/2N + (A/N) c_k h(θ) with a bump h that has no derivatives at 0 up to the third. So d_k is the
bump alone, d̂ from one row is A c_k h, and where c_k sum to 0 the posterior is Normal(0, 1) however rough rows are.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import lwa
from lwa.errors import InputError, LwaWarning
from lwa.rivals import Metropolis, PseudoMarginal
from lwa.rivals.problem import GaussianAtMode, RivalProblem
from lwa.rivals.proxy import READS_PER_REMAINDER
from lwa.rivals.pseudo_marginal import estimate_block_poisson, estimate_difference
from tests.rivals import conjugate
from tests.support import furthest_from

A, N = 3.0, 20
EVEN = np.tile([-1.0, 1.0], N // 2)
UNEVEN = np.array([2.0, -1.0, -0.5, 0.5, 1.0] * (N // 5))


def bump(theta):
    """h: 0 at the mode, 1 far away."""
    return theta**4 / (1 + theta**4)


MODEL = lwa.Model(lambda theta, c: -0.5 * theta**2 / N + A / N * c * bump(theta), lambda theta: 0.0 * theta, init=0.0)


def problem_of(c, model=MODEL):
    """The expansion at 0 of all rows: -θ²/2."""
    one = jnp.eye(1)
    return RivalProblem(model, len(c), jnp.asarray(c), 1.0, GaussianAtMode(jnp.zeros(1), jnp.zeros(1), one, one, one))


def estimates(of, theta, blocks, minibatch, problem, count, seed=0):
    """So many independent ones at one θ."""

    @jax.jit
    def all_of(keys, problem):
        return jax.lax.map(
            lambda key: of(jnp.array([theta]), jax.random.split(key, blocks), minibatch, problem), keys, batch_size=1000
        )

    return jax.tree.map(np.asarray, all_of(jax.random.split(jax.random.key(seed), count), problem))


@pytest.fixture(autouse=True)
def _in_double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(("blocks", "minibatch"), [(1, 1), (2, 1), (2, 2)])
def test_block_poisson_is_unbiased_though_it_may_be_negative(blocks, minibatch):
    """E Ẑ = L, and Var Ẑ/L = exp((d² + Var d̂)/λ) - 1: the standard error is known, not estimated."""
    theta, count = 1.5, 50_000
    found = estimates(estimate_block_poisson, theta, blocks, minibatch, problem_of(UNEVEN), count)
    d, variance = A * bump(theta) * UNEVEN.mean(), (A * bump(theta)) ** 2 * UNEVEN.var() / minibatch
    ratio = found.sign * np.exp(found.log + 0.5 * theta**2 - d)
    assert 0.01 < (found.sign < 0).mean() < 0.5
    assert abs(ratio.mean() - 1) < 4 * np.sqrt(np.expm1((d**2 + variance) / blocks) / count)
    minibatches = found.minibatches.mean()
    assert abs(minibatches - blocks) < 4 * np.sqrt(blocks / count)


@pytest.mark.slow
def test_block_poisson_is_the_product_over_the_minibatches_of_its_keys():
    """Row by row in NumPy, from the same keys."""
    problem, theta, minibatch = problem_of(UNEVEN), 1.2, 2
    keys = jax.random.split(jax.random.key(0), 80)  # more minibatches than are evaluated at once

    @jax.jit
    @jax.vmap
    def drawn(key):
        counting, drawing = jax.random.split(key)
        rows = [jax.random.randint(jax.random.fold_in(drawing, h), (minibatch,), 0, N) for h in range(8)]
        return jax.random.uniform(counting, (), jnp.float64), jnp.stack(rows)

    u, rows = drawn(keys)
    counts = stats.poisson.ppf(np.asarray(u), 1.0)
    assert 1 < counts.max() <= 8
    there = np.arange(8) < counts[:, None]
    expected = np.prod(1 + A * bump(theta) * UNEVEN[np.asarray(rows)].mean(-1)[there] / len(keys))
    found = jax.jit(estimate_block_poisson, static_argnums=2)(jnp.array([theta]), keys, minibatch, problem)
    assert found.minibatches == counts.sum()
    np.testing.assert_allclose(found.sign * np.exp(found.log + 0.5 * theta**2), expected, rtol=1e-12)


@pytest.mark.slow
def test_the_noise_of_an_estimate_is_what_it_says():
    """Var log |Ẑ| is the mean of Σ log² of a compound Poisson sum; of the difference estimator σ² is known."""
    theta, blocks, count = 1.2, 50, 10_000
    found = estimates(estimate_block_poisson, theta, blocks, 1, problem_of(UNEVEN), count)
    gap = (found.log - found.log.mean()) ** 2 - found.variance
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(count)
    variance = estimates(estimate_difference, theta, blocks, 1, problem_of(UNEVEN), count).variance
    expected = (A * bump(theta)) ** 2 * UNEVEN.var() / blocks
    assert abs(variance.mean() - expected) < 4 * variance.std() / np.sqrt(count)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "at_least", "at_most"), [(4, 1.2, 1.4), (400, 1.0, 1.01)])
def test_the_difference_estimator_is_off_by_what_a_gaussian_mean_leaves(m, at_least, at_most):
    """With Gaussian d_k, E Ẑ/L = exp(σ²/2) (1 + σ²/(m-1))^(-(m-1)/2), σ² = N²/m Var d_k: far off where m is small.

    Mean and variance of a Gaussian sample are independent, and the latter is a χ².
    """
    rows, theta, count = 5000, 1.2, 20_000
    c = stats.norm.ppf((np.arange(rows) + 0.5) / rows)
    c *= np.sqrt(2 * m) / rows / (A / N * bump(theta) * c.std())  # so that σ² = 2
    found = estimates(estimate_difference, theta, m // 4, 4, problem_of(c), count)
    ratio = np.exp(found.log + 0.5 * theta**2)
    expected = np.exp(1.0) * (1 + 2 / (m - 1)) ** (-(m - 1) / 2)
    assert at_least < expected < at_most
    assert abs(ratio.mean() - expected) < 4 * ratio.std() / np.sqrt(count)
    assert (found.sign == 1).all()
    assert (found.minibatches == m // 4).all()


def unweighted_law(blocks):
    """Of chains on |Ẑ| with one row a minibatch, c_k = ±1: E|Ẑ|/L = exp(λ (max(1, A h/λ) - 1)). Its Z and variance."""

    def density(theta, power=0):
        return theta**power * stats.norm.pdf(theta) * np.exp(blocks * (max(1.0, A * bump(theta) / blocks) - 1.0))

    whole, second = (2 * integrate.quad(density, 0, 12, args=(power,), points=[1.0])[0] for power in (0, 2))
    return whole, second / whole


def fit(rival, c=EVEN, **options):
    """10⁵ steps, with what the draws are said to need."""
    common = dict(draws=5000, tune=300, chains=20, seed=3, progress=False, reference=0.0)
    return lwa.rivals.sample(rival, MODEL, c, **(common | options))


def worst_t(run, weights):
    """Against the posterior, Normal(0, 1)."""
    return furthest_from({"theta": stats.norm()}, run.posterior, weights)


@pytest.mark.slow
def test_the_law_of_the_draws_is_exact_with_signs_and_known_without():
    blocks = 2
    with pytest.warns(LwaWarning, match=r"% of the draws have a negative sign.*sample_stats\['sign'\]"):
        run = fit(PseudoMarginal(blocks=blocks, refreshed=0.5))
    sign = run.sample_stats["sign"]
    t, what = worst_t(run, sign)
    assert t < 5, what
    assert worst_t(run, None)[0] > 6
    whole, variance = unweighted_law(blocks)
    negative = 0.5 * (1 - 1 / whole)
    assert 0.02 < negative < 0.2
    for values, expected in (((sign < 0), negative), (run.posterior["theta"] ** 2, variance)):
        assert abs(stats.ttest_1samp(values.mean(1), expected).statistic) < 5


@dataclass(frozen=True)
class Forgetful(PseudoMarginal):
    """A planted bug: Ẑ(θ) is estimated anew at every step."""

    def step(self, key, state, problem):
        """With an estimate of its own."""
        again, key = jax.random.split(key)
        return super().step(key, self.init(again, state.theta, problem)._replace(walk=state.walk), problem)


@pytest.mark.slow
def test_an_estimate_that_is_not_kept_gives_another_law():
    with pytest.warns(LwaWarning, match="negative sign"):
        run = fit(Forgetful(blocks=2, refreshed=0.5))
    assert worst_t(run, run.sample_stats["sign"])[0] > 7


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["block_poisson", "difference"])
def test_the_law_of_the_draws_where_all_rows_leave_the_same(estimator):
    """On the conjugate model all d_k are equal: the difference estimator is then exact, too."""
    run = conjugate.fit("pseudo_marginal", estimator=estimator)
    assert run.attributes["exact"] is (estimator == "block_poisson")
    t, what = conjugate.worst_t(run, run.sample_stats.get("sign"))
    assert t < 5, what
    rows = run.sample_stats["n_rows_read"]
    if estimator == "difference":
        assert (rows == 100 * READS_PER_REMAINDER).all()
    else:
        assert abs(stats.ttest_1samp(rows.mean(1), 100 * READS_PER_REMAINDER).statistic) < 5


def test_without_noise_it_is_metropolis_key_for_key():
    """With c_k all equal the difference estimator knows the likelihood."""
    problem = problem_of(np.ones(N))
    noisy, plain = PseudoMarginal("difference", blocks=4), Metropolis()
    start, theta = jax.random.key(0), jnp.array([0.5])
    one, other = jax.jit(noisy.init)(start, theta, problem), jax.jit(plain.init)(start, theta, problem)
    step, reference = jax.jit(noisy.step), jax.jit(plain.step)
    for key in jax.random.split(jax.random.key(1), 100):
        one, info = step(key, one, problem)
        other, expected = reference(key, other, problem)
        assert info.accepted == expected.accepted
        np.testing.assert_allclose(info.acceptance, expected.acceptance, rtol=1e-10)
        np.testing.assert_array_equal(one.theta, other.theta)


@pytest.mark.slow
def test_a_rejection_keeps_everything_and_an_acceptance_redraws_some_keys():
    rival, problem = PseudoMarginal(blocks=10, refreshed=0.3), problem_of(EVEN)
    state = rival.init(jax.random.key(1), jnp.array([0.5]), problem)
    step, estimate, seen = jax.jit(rival.step), jax.jit(rival.estimate), set()
    for key in jax.random.split(jax.random.key(2), 100):
        after, info = step(key, state, problem)
        changed = (jax.random.key_data(after.keys) != jax.random.key_data(state.keys)).any(1)
        assert changed.sum() == (3 if info.accepted else 0)
        if not info.accepted:
            assert (after.theta, after.lp, after.sign) == (state.theta, state.lp, state.sign)
        else:
            again = estimate(after.theta, after.keys, problem)
            np.testing.assert_allclose(after.lp, again.log, rtol=1e-12)
            assert after.sign == again.sign
        seen.add(tuple(np.asarray(changed)))
        state = after
    assert len(seen) == 11  # ten stretches of three blocks, and none


def test_a_proposal_without_a_log_density_is_rejected_and_counted():
    broken = lwa.Model(
        lambda theta, c: jnp.where(theta > 1.0, jnp.nan, c - 0.5 * theta**2 / N), lambda theta: 0.0 * theta, init=0.0
    )
    rival, problem = PseudoMarginal(blocks=50), problem_of(EVEN, broken)  # of 4, one in 55 would read no row at all
    state, counted = rival.init(jax.random.key(1), jnp.array([0.9]), problem), 0
    step = jax.jit(rival.step)
    for key in jax.random.split(jax.random.key(2), 100):
        state, info = step(key, state, problem)
        assert state.theta[0] <= 1.0
        assert not (info.invalid and info.accepted)
        counted += int(info.invalid)
    assert counted
    lost = rival.init(jax.random.key(1), jnp.array([2.0]), problem)
    assert lost.lp == -jnp.inf


def test_what_a_user_is_told():
    rival = PseudoMarginal(refreshed=1.0)
    calm = {"sign": np.ones((2, 50)), "log_noise": np.full((2, 50), 1.0)}
    assert rival.collect_warnings(calm) == rival.collect_warnings({}) == []
    sign = np.ones((2, 50))
    sign[0, :4] = -1
    assert "4 % of the draws" in rival.collect_warnings(calm | {"sign": sign})[0]
    sign[0, :10] = -1
    assert "Pass blocks=200" in rival.collect_warnings(calm | {"sign": sign})[0]
    assert "Pass blocks=400" in rival.collect_warnings(calm | {"log_noise": np.full((2, 50), 2.0)})[0]
    assert PseudoMarginal("difference").label == "pseudo-marginal, difference"
    assert PseudoMarginal().label == "pseudo-marginal, block-Poisson"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "poisson"}, "Valid: 'block_poisson', 'difference'"),
        ({"minibatch": 0}, "Pass minibatch=1"),
        ({"blocks": 1.5}, "Pass blocks=100"),
        ({"refreshed": 0.0}, "Pass refreshed=0.1"),
        ({"refreshed": 1.1}, "Pass refreshed=0.1"),
        ({"estimator": "difference", "blocks": 1}, "Pass minibatch=10"),
    ],
)
def test_bad_hyperparameters(options, message):
    with pytest.raises(InputError, match=message):
        PseudoMarginal(**options)
