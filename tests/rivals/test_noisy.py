"""Noisy M-H: its kernel by enumeration, the bound on its error, and Metropolis key for key where there is no noise."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.errors import InputError
from lwa.rivals import Metropolis, Noisy, total_variation_bound
from lwa.rivals.problem import GaussianAtMode, RivalProblem
from lwa.rivals.rival import propose_theta
from tests.rivals import conjugate

Y = np.array([-1.1, -0.3, 0.2, 0.6, 1.3])
"""No two subsets of three have the same sum."""
MODEL = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2, init=0.0)


@pytest.fixture(autouse=True)
def _in_double():
    with jax.enable_x64(True):
        yield


def log_posterior(theta, rows=Y):
    """What so many rows say of θ, as if they were all."""
    return -0.5 * theta**2 - 0.5 * len(Y) * ((rows - theta) ** 2).mean()


def acceptances(theta, proposed, n):
    """min(1, r̂) of every subset of n rows."""
    subsets = [Y[list(chosen)] for chosen in combinations(range(len(Y)), n)]
    return np.array([min(1.0, np.exp(log_posterior(proposed, U) - log_posterior(theta, U))) for U in subsets])


def test_a_step_accepts_by_a_random_subset():
    """Each of the 10 subsets of 3 rows is met, and no other acceptance probability."""
    rival, problem = Noisy(subset_size=3), RivalProblem(MODEL, len(Y), jnp.asarray(Y), 1.0)
    state = rival.init(jax.random.key(0), jnp.array([0.7]), problem)
    step, compiled, met = jax.jit(rival.step), jax.jit(propose_theta), set()
    for key in jax.random.split(jax.random.key(1), 200):
        proposed, log_u, _ = compiled(key, state, problem)
        after, info = step(key, state, problem)
        gaps = np.abs(acceptances(0.7, float(proposed[0]), 3) - info.acceptance)
        assert gaps.min() < 1e-12
        assert info.accepted == (log_u < np.log(info.acceptance))
        assert (after.theta == (proposed if info.accepted else state.theta)).all()
        assert info.rows == 6
        if info.acceptance < 1 and (gaps < 1e-12).sum() == 1:
            met.add(int(gaps.argmin()))
    assert len(met) == 10


@pytest.fixture(scope="module")
def problem():
    """The conjugate model, expanded at a point in the bulk."""
    rows = jax.tree.map(np.asarray, conjugate.ROWS)
    with jax.enable_x64(True):
        theta = jnp.concatenate([jnp.array([-0.8]), jnp.asarray(conjugate.CENTRE)])

        def total(theta):
            return conjugate.log_likelihood(conjugate.MODEL.unravel(theta), rows).sum()

        curvature = -jax.hessian(total)(theta)
        whitening = jnp.linalg.cholesky(curvature).T
        gaussian = GaussianAtMode(theta, jax.grad(total)(theta), curvature, jnp.linalg.inv(whitening), whitening)
        return RivalProblem(conjugate.MODEL, conjugate.N, jax.tree.map(jnp.asarray, rows), 1.0, gaussian)


@pytest.mark.parametrize(("rival", "reads"), [(Noisy(conjugate.N), 2 * conjugate.N), (Noisy(10, proxy=True), 40)])
def test_without_noise_it_is_metropolis_key_for_key(rival, reads, problem):
    """With all rows; and with a proxy that leaves the same of every row, as on the conjugate model."""
    one = rival.init(jax.random.key(0), problem.gaussian.theta, problem)
    other = jax.jit(Metropolis().init)(jax.random.key(0), problem.gaussian.theta, problem)
    step, reference, moves = jax.jit(rival.step), jax.jit(Metropolis().step), 0
    for key in jax.random.split(jax.random.key(1), 100):
        one, info = step(key, one, problem)
        other, expected = reference(key, other, problem)
        np.testing.assert_allclose(info.acceptance, expected.acceptance, rtol=1e-8)
        np.testing.assert_array_equal(one.theta, other.theta)
        assert info.rows == reads
        moves += int(info.accepted)
    assert 10 < moves < 90


def test_subsets_that_take_several_evaluations(problem, monkeypatch):
    """Blocks of 7 rows, the last of them not full, say the same as one block."""
    rival, thetas = Noisy(subset_size=100), (problem.gaussian.theta, problem.gaussian.theta + 0.01)
    whole = rival.log_posteriors(jax.random.key(3), thetas, problem)
    monkeypatch.setattr(RivalProblem, "block", 7)
    np.testing.assert_allclose(rival.log_posteriors(jax.random.key(3), thetas, problem), whole, rtol=1e-12)


@pytest.mark.slow
def test_noise_widens_the_law():
    """The acceptance rate and the spread of draws from few rows: what makes it approximate."""
    run = conjugate.fit("noisy", subset_size=20, draws=500, chains=4)
    assert run.attributes["exact"] is False
    assert np.isnan(run.sample_stats["lp"]).all()
    assert (run.sample_stats["n_rows_read"] == 40).all()
    assert run.posterior["mean"][..., 0].std() > 2 * conjugate.LAWS["mean[0]"].std()


def test_a_proposal_without_a_log_density_is_rejected_and_counted():
    broken = lwa.Model(lambda mu, y: jnp.where(mu > 1.0, jnp.nan, -0.5 * (y - mu) ** 2), lambda mu: 0.0 * mu, init=0.0)
    rival, problem = Noisy(subset_size=3), RivalProblem(broken, len(Y), jnp.asarray(Y), 1.0)
    state, step, counted = rival.init(jax.random.key(0), jnp.array([0.9]), problem), jax.jit(rival.step), 0
    for key in jax.random.split(jax.random.key(1), 50):
        state, info = step(key, state, problem)
        assert state.theta[0] <= 1.0
        assert not (info.invalid and info.accepted)
        counted += int(info.invalid)
    assert counted


GRID = np.linspace(-0.5, 0.5, 6)


def kernel(accept):
    """M-H on the grid with uniform proposals, from the acceptance probability of each move."""
    moves = accept / len(GRID)
    np.fill_diagonal(moves, 0.0)
    return moves + np.diag(1.0 - moves.sum(1))


def stationary(P):
    """The law that a kernel leaves as it is."""
    law = np.linalg.solve(np.vstack([(P.T - np.eye(len(P)))[:-1], np.ones(len(P))]), np.eye(len(P))[-1])
    np.testing.assert_allclose(law @ P, law, atol=1e-14)
    return law


def total_variation(one, other):
    """The largest difference between the probabilities of a set, over the last axis."""
    return 0.5 * np.abs(one - other).sum(-1)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_bound_holds_for_the_enumerated_kernel_and_says_something(n):
    """All subsets of n of 5 rows on 6 values of θ: the exact noisy kernel, its law, and its law after each step."""
    each = np.array([[acceptances(theta, proposed, n) for proposed in GRID] for theta in GRID])
    exact = np.array([[acceptances(theta, proposed, len(Y))[0] for proposed in GRID] for theta in GRID])
    P, noisy = kernel(exact), kernel(each.mean(-1))
    posterior = np.exp([log_posterior(theta) for theta in GRID])
    np.testing.assert_allclose(stationary(P), posterior / posterior.sum(), rtol=1e-12)
    error = np.abs(each - exact[..., None]).mean(-1).mean(1).max()
    rho = total_variation(P[:, None], P[None]).max()  # Dobrushin's coefficient: Σ |Pⁿ(θ, ·) - π| ≤ 2 ρⁿ
    bound = total_variation_bound(2.0, rho, error)
    gap = total_variation(stationary(P), stationary(noisy))
    assert 0 < gap <= bound < 1
    one = other = np.eye(len(GRID))
    for _ in range(50):
        one, other = one @ P, other @ noisy
        assert total_variation(one, other).max() <= bound


@pytest.mark.parametrize("C", [0.3, 1.0, 1.5, 2.0, 4.0, 30.0])
def test_the_bound_is_the_sum_of_what_is_left_of_each_error(C):
    """Σ_k min(1, C ρᵏ), of which the first is 1: an error has not faded when it is made."""
    rho = 0.8
    left = np.minimum(1.0, C * rho ** np.arange(1, 400)).sum() + 1.0
    np.testing.assert_allclose(total_variation_bound(C, rho, 0.01), 0.01 * left, rtol=1e-12)
    assert total_variation_bound(C, rho, 0.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0.0, 0.5, 0.1), "C=0.0"), ((2.0, 1.0, 0.1), r"rho=1.0"), ((2.0, 0.5, -0.1), "error=-0.1"),
     ((2.0, 0.5, float("nan")), "error=nan"), ((2.0, "half", 0.1), "rho='half'")],
)  # fmt: skip
def test_the_bound_of_what_cannot_be_meant(arguments, message):
    with pytest.raises(InputError, match=message):
        total_variation_bound(*arguments)


def test_bad_hyperparameters():
    with pytest.raises(InputError, match="Pass subset_size=1000"):
        Noisy(subset_size=0)
    with pytest.raises(
        InputError, match=r"subset_size=3000 exceeds the 2000 rows of the data\. Pass subset_size <= 2000"
    ):
        conjugate.fit("noisy", subset_size=3000)
    assert [Noisy().label, Noisy(proxy=True).label] == ["noisy", "noisy, proxy"]
    assert [Noisy().needs_mode, Noisy(proxy=True).needs_mode] == [False, True]
