"""The certificate condemns wrong draws, says by how much, passes exact ones, and refuses what it cannot judge."""

import json
import threading
from dataclasses import dataclass, replace
from functools import cache, cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.diagnostics.autocorrelation import SCARCE_DRAWS, effective_draws, standard_error_of_mean
from lwa.diagnostics.certificate import MadeBy
from lwa.diagnostics.draws import choose_points
from lwa.diagnostics.gradients import choose_score_precision, score_places
from lwa.diagnostics.stein import Evidence, find_frame, measure_effects, measure_worst_directions, read_log_width
from lwa.models.likelihood import Places, add_block
from lwa.rows import as_rows
from lwa.user.progress import Display
from tests.support import MODEL, SEVERAL, Y

N, D, CHAINS, DRAWS, SEEDS = 20_000, 5, 4, 1000, 100
TRUTH = np.array([-0.5, 0.8, -0.3, 0.4, 0.1])
QUIET = {"progress": False}


# Two regressions whose posterior is known, with correlation -0.8 between the second and third coefficient


@dataclass(frozen=True)
class Case:
    """A model, its data, and its exact posterior as a Gaussian times exp(third and fourth order)."""

    model: lwa.Model
    data: dict
    mode: np.ndarray
    factor: np.ndarray  # F Fᵀ is the covariance of the Gaussian
    third: np.ndarray | None = None  # derivatives of the log posterior at the mode, along the columns of F
    fourth: np.ndarray | None = None

    def standard(self, rng, count):
        """z of exact draws mode + F z, by rejection from a Gaussian 5 % wider."""
        if self.third is None:
            return rng.normal(size=(count, D))
        z = 1.05 * rng.normal(size=(3 * count, D))
        pairs = (z[:, :, None] * z[:, None]).reshape(-1, D * D)
        beyond = ((pairs @ self.third.reshape(D * D, D)) * z).sum(1) / 6
        beyond += ((pairs @ self.fourth.reshape(D * D, D * D)) * pairs).sum(1) / 24
        log_weight = beyond - 0.5 * (1 - 1 / 1.05**2) * (z**2).sum(1)
        return z[np.log(rng.random(len(z))) < log_weight - log_weight.max()][:count]

    def exact(self, seed):
        z = self.standard(np.random.default_rng([seed, 1]), CHAINS * DRAWS)
        return (self.mode + z @ self.factor.T).reshape(CHAINS, DRAWS, D)

    @cached_property
    def moments(self):
        """Mean and covariance of the posterior."""
        z = np.concatenate([self.standard(np.random.default_rng(10**6 + i), 40_000) for i in range(10)])
        return self.mode + self.factor @ z.mean(0), self.factor @ np.cov(z, rowvar=False) @ self.factor.T

    @property
    def sd(self):
        return np.sqrt(np.diag(self.moments[1]))


def covariates(seed):
    x = np.random.default_rng(seed).normal(size=(N, D))
    x[:, 0] = 1.0
    x[:, 2] = 0.8 * x[:, 1] + 0.6 * x[:, 2]
    return x


def log_prior(theta):
    return -0.5 * jnp.sum((theta["beta"] / 5.0) ** 2)


def linear_log_likelihood(theta, rows):
    return -0.5 * (rows["y"] - rows["x"] @ theta["beta"]) ** 2


def logistic_log_likelihood(theta, rows):
    return -jax.nn.softplus((1 - 2 * rows["y"]) * (rows["x"] @ theta["beta"]))


def gaussian(x, y, weight, mode):
    """One Newton step: mode and a factor of the covariance."""
    precision = (x * weight[:, None]).T @ x + np.eye(D) / 25
    return mode + np.linalg.solve(precision, x.T @ y - mode / 25), np.linalg.inv(np.linalg.cholesky(precision)).T


def linear_posterior(x, y):
    return gaussian(x, y, np.ones(len(x)), np.zeros(D))


def logistic_posterior(x, y):
    mode = np.zeros(D)
    for _ in range(10):
        p = 1 / (1 + np.exp(-x @ mode))
        mode, factor = gaussian(x, y - p, p * (1 - p), mode)
    return mode, factor


@cache
def case(name):
    x, rng = covariates(1), np.random.default_rng(2)
    init = {"beta": jnp.zeros(D)}
    if name == "linear":
        y = x @ TRUTH + rng.normal(size=N)
        return Case(lwa.Model(linear_log_likelihood, log_prior, init), {"x": x, "y": y}, *linear_posterior(x, y))
    y = (rng.random(N) < 1 / (1 + np.exp(-x @ TRUTH))).astype(float)
    mode, factor = logistic_posterior(x, y)
    p, along = 1 / (1 + np.exp(-x @ mode)), x @ factor
    v = p * (1 - p)
    third = -np.einsum("n,ni,nj,nk->ijk", v * (1 - 2 * p), along, along, along, optimize=True)
    fourth = -np.einsum("n,ni,nj,nk,nl->ijkl", v * (1 - 6 * v), along, along, along, along, optimize=True)
    model = lwa.Model(logistic_log_likelihood, log_prior, init)
    return Case(model, {"x": x, "y": y}, mode, factor, third, fourth)


# What is planted: draws, and the shift, the sd ratio and the eigenvalues that should be read


def planted(name, what, seed):
    known = case(name)
    draws, sd, ones = known.exact(seed), known.sd, np.ones(D)
    if what == "exact":
        return draws, 0 * ones, ones, ones
    kind, _, size = what.partition(" ")
    if kind == "shifted":
        return draws + float(size) * sd, float(size) * ones, ones, ones
    mean, covariance = known.moments
    if kind == "wide":
        return mean + float(size) * (draws - mean), 0 * ones, float(size) * ones, float(size) ** 2 * ones
    rng = np.random.default_rng([seed, 2])
    if kind == "independent":  # each parameter's own draws, in an order of their own
        flat = rng.permuted(draws.reshape(-1, D), axis=0)
        values = np.linalg.eigvals(np.linalg.solve(covariance, np.diag(np.diag(covariance)))).real
        return flat.reshape(draws.shape), 0 * ones, ones, np.sort(values)
    few = rng.choice(N, 1000, replace=False)
    posterior = linear_posterior if name == "linear" else logistic_posterior
    centre, factor = posterior(known.data["x"][few], known.data["y"][few])
    between = np.sort(np.linalg.eigvals(np.linalg.solve(covariance, factor @ factor.T)).real)
    draws = centre + rng.normal(size=draws.shape) @ factor.T
    return draws, (centre - mean) / sd, np.sqrt(np.diag(factor @ factor.T)) / sd, between


WRONG = ["shifted 0.2", "shifted 1", "wide 1.2", "wide 2", "independent", "subposterior"]


def judged(name, what, seed):
    """The certificate, and whether all that was planted lies in its error bars."""
    known = case(name)
    draws, shift, ratio, eigenvalues = planted(name, what, seed)
    found = lwa.certify(known.model, known.data, {"beta": draws}, **QUIET)
    inside = np.all(np.abs(found.shift - shift) <= found.shift_error)
    inside &= np.all(np.abs(found.sd_ratio - ratio) <= found.sd_ratio_error)
    if what == "exact":
        inside &= np.all(np.abs(found.moved) <= found.moved_error)
        inside &= np.all(np.abs(found.outside - 0.05) <= found.outside_error)
    if what in ("exact", "independent") or what.startswith(("shifted 0.2", "wide")):
        inside &= np.all(np.abs(found.skewness) <= found.skewness_error)
    if what == "independent":
        inside &= np.all(np.abs(found.eigenvalues - eigenvalues)[[0, -1]] <= found.eigenvalues_error[[0, -1]])
    return found, bool(inside)


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_wrong_draws_are_condemned_with_the_size_of_their_error(name, what):
    found, inside = judged(name, what, seed=1)
    assert found.outcome == "fail"
    assert not found.passed
    assert inside
    assert found.verdict.startswith("fail: in the region these draws visit")


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_exact_draws_pass(name):
    found, inside = judged(name, "exact", seed=1)
    assert found.passed
    assert inside
    assert found.verdict.startswith("pass: in the region these draws visit")
    assert found.r_squared > 0.99
    np.testing.assert_allclose(found.sd, case(name).sd, rtol=0.01)
    assert np.all(np.abs(found.mean - case(name).moments[0]) < 0.02 * found.sd)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["exact", *WRONG])
@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_rates(name, what):
    """Over a hundred seeds: exact draws pass, wrong ones are condemned, and what was planted is what is read."""
    expected = "pass" if what == "exact" else "fail"
    right, inside = np.mean([(found.outcome == expected, ok) for found, ok in
                             (judged(name, what, seed) for seed in range(SEEDS))], axis=0)  # fmt: skip
    print(f"{name}, {what}: {right:.0%} {expected}, {inside:.0%} inside the bars")
    assert right >= 0.95
    assert inside >= 0.95


# Draws that are exact but not independent, posteriors that are not Gaussian


def autoregressive(rng, chains, length, d, rho):
    """Standard normal draws with correlation ρ between neighbours."""
    z = rng.normal(size=(chains, length, d))
    for t in range(1, length):
        z[:, t] = rho * z[:, t - 1] + np.sqrt(1 - rho**2) * z[:, t]
    return z


def sticky(seed):
    known = case("linear")
    z = autoregressive(np.random.default_rng(seed), CHAINS, 8 * DRAWS, D, rho=0.8)
    return lwa.certify(known.model, known.data, {"beta": known.mode + z @ known.factor.T}, **QUIET)


COUNTS = np.repeat([0.0, 1.0, 2.0, 4.0], 2)
SKEWED = lwa.Model(lambda rate, y: y * rate - jnp.exp(rate), lambda rate: 0.0 * rate, init=0.0)
"""Log rate of 8 Poisson counts with sum 14: log of a Gamma(14, 8) variable."""


def skewed(seed, scale=1.0):
    draws = np.log(np.random.default_rng(seed).gamma(14.0, 1 / 8, size=(CHAINS, DRAWS)))
    return lwa.certify(SKEWED, COUNTS, {"theta": draws.mean() + scale * (draws - draws.mean())}, **QUIET)


def test_autocorrelated_draws_have_wider_bars():
    found = sticky(3)
    assert found.passed
    assert found.effective_draws == pytest.approx(8 * CHAINS * DRAWS / 9, rel=0.3)  # (1 + ρ) / (1 - ρ) = 9


def correlated(rho, length, seed=1):
    known = case("linear")
    z = autoregressive(np.random.default_rng(seed), CHAINS, length, D, rho)
    return lwa.certify(known.model, known.data, {"beta": known.mode + z @ known.factor.T}, **QUIET)


def test_a_thousand_effective_draws_are_enough():
    """As of NUTS with its defaults: another run could be off by more than is tolerated, these are known to be right."""
    found = correlated(0.5, DRAWS)
    assert found.passed
    assert found.log_ratio_error.max() > 0.9 * np.log(1.07)
    assert all(one.measured <= one.tolerance for one in found.findings)
    assert max(found.by_chance[:, 0] / found.shift_error) > 0.99


def test_a_hundred_effective_draws_are_too_few_and_the_advice_helps():
    found = correlated(0.95, DRAWS)
    assert found.outcome == "warn"
    assert found.lacking_points == 1.0
    assert 2 * DRAWS < found.advice["draws"] < 100 * DRAWS
    assert correlated(0.95, found.advice["draws"]).passed


def judge_skew_normal(alpha, draws=DRAWS, points=None):
    """Exact draws of a skew-normal law, and their certificate."""
    model = lwa.Model(
        lambda t, y: 0.0 * y * t, lambda t: -0.5 * t**2 + jax.scipy.stats.norm.logcdf(alpha * t), init=1.0
    )
    half, rest = np.random.default_rng(1).normal(size=(2, CHAINS, draws))
    exact = (alpha * np.abs(half) + rest) / np.hypot(1.0, alpha)
    return lwa.certify(model, np.zeros(100), {"theta": exact}, points=points, **QUIET)


def test_if_gradients_are_too_few_the_remedy_asks_for_as_many_draws():
    found = judge_skew_normal(7.0)
    assert found.outcome == "warn"
    advice = found.advice
    assert advice["points"] <= CHAINS * advice["draws"]
    assert all(f"{name}={value}" in found.verdict for name, value in advice.items())
    assert judge_skew_normal(7.0, **advice).passed


def test_if_no_number_of_gradients_would_do_the_remedy_says_so():
    found = judge_skew_normal(100.0)
    assert found.outcome == "warn"
    assert found.advice == {}
    assert "too far from Gaussian" in found.verdict


@pytest.mark.parametrize(
    ("made_by", "advice"),
    [
        (MadeBy(1000, 100_000, in_one_step=True), {"subset_size": 100_000}),
        (MadeBy(1000, 100_000), {"subset_size": 4000}),
        (MadeBy(100_000, 100_000), {}),
        (MadeBy(), {}),
    ],
)
def test_if_subsets_may_have_led_draws_to_where_gradients_tell_nothing_the_remedy_reads_more_rows(made_by, advice):
    found = replace(judge_skew_normal(100.0), made_by=made_by)
    assert found.advice == advice
    assert all(f"{name}={value}" in found.verdict for name, value in advice.items())


@pytest.mark.slow
def test_a_larger_subset_is_the_remedy_for_windows_that_led_chains_astray():
    """An MA(1) root of -0.97: windows of 1000 of 20,000 steps put sds 1.2 times too wide, on most seeds."""
    rng = np.random.default_rng([79, 0])
    e = rng.normal(size=20_001)
    model, y = lwa.arma(0, 1), 0.5 + e[1:] - 0.97 * e[:-1]
    with pytest.warns(lwa.LwaWarning):
        found = lwa.sample(model, y, seed=5, **QUIET).certify(**QUIET)
    assert found.outcome == "warn"
    assert found.advice == {"subset_size": 4000}
    assert lwa.sample(model, y, seed=5, **found.advice, **QUIET).certify(**QUIET).passed


def test_a_skewed_posterior_passes_exact_draws_but_not_its_laplace_approximation():
    """Sum 14: mode log(14/8), mean digamma(14) - log 8, sd √trigamma(14); the Laplace sd is 1/√14."""
    found = skewed(1)
    assert found.passed
    assert 0.9 < found.r_squared < 0.99
    z = np.random.default_rng(2).normal(size=(CHAINS, DRAWS)) / np.sqrt(14)
    laplace = lwa.certify(SKEWED, COUNTS, {"theta": np.log(14 / 8) + z}, **QUIET)
    mean, sd = 2.602918 - np.log(8), np.sqrt(0.0740406)
    assert laplace.outcome == "warn"  # 0.13 ± 0.06 sd, and 0.1 is tolerated
    assert abs(laplace.shift[0] - (np.log(14 / 8) - mean) / sd) < laplace.shift_error[0]
    assert abs(laplace.mean[0] - mean) < 0.05 * sd


@pytest.mark.slow
@pytest.mark.parametrize("make", [sticky, skewed])
def test_rates_of_exact_draws(make):
    passes = [make(seed).passed for seed in range(SEEDS)]
    print(f"{make.__name__}: {np.mean(passes):.0%} pass")
    assert np.mean(passes) >= 0.95


def test_few_draws_of_high_autocorrelation_are_not_judged():
    known = case("linear")
    z = autoregressive(np.random.default_rng(1), 2, 200, D, rho=0.98)
    found = lwa.certify(known.model, known.data, {"beta": known.mode + z @ known.factor.T}, **QUIET)
    assert found.outcome == "warn"
    assert not found.passed
    assert "cannot tell, in the region these draws visit" in found.verdict
    assert "Draw more" in found.verdict
    assert found.advice["draws"] > 1000


# The parts


def test_the_standard_error_is_that_of_an_autoregression():
    rho, runs = 0.7, 200
    z = autoregressive(np.random.default_rng(1), runs * 4, 500, 1, rho).reshape(runs, 4, 500, 1)
    worth = np.mean([effective_draws(run) for run in z])
    assert worth == pytest.approx(2000 * (1 - rho) / (1 + rho), rel=0.1)
    told = np.mean([standard_error_of_mean(run) for run in z])
    assert told == pytest.approx(z.mean((1, 2)).std() * (1 + SCARCE_DRAWS / worth), rel=0.12)
    assert standard_error_of_mean(np.ones((2, 10, 1))).tolist() == [0.0]


def test_chains_that_disagree_have_a_large_error():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(4, 500, 1)) + np.array([0.0, 0.0, 3.0, 3.0])[:, None, None]
    assert standard_error_of_mean(z)[0] > 0.5


def test_worst_directions_are_not_chosen_for_their_noise():
    """d = 40 and 400 draws a half: the largest plain eigenvalue is 1.7 under the null, the cross-measured one is 1."""
    rng, d = np.random.default_rng(1), 40
    draws = rng.normal(size=(2, 400, d))
    halves = [Evidence(z[None], z[::2], -z[::2]) for z in draws]
    assert np.linalg.eigvalsh(np.cov(draws[0], rowvar=False))[-1] > 1.6
    found = measure_worst_directions(*halves)
    log_width, bar = read_log_width(found, 3.5)
    assert np.all(np.abs(log_width) < bar)
    assert abs(found.size[0, 0]) < 3.5 * found.error[0, 0]


def test_a_gaussian_posterior_is_found_whatever_the_draws():
    """μ and H of a Gaussian to rounding, from draws of another law, so that effects are those of the draws' moments."""
    rng = np.random.default_rng(1)
    mu, root = rng.normal(size=3), rng.normal(size=(3, 3))
    precision = root @ root.T + np.eye(3)
    draws = rng.standard_exponential((2, 500, 3)) - 1.0
    points = draws.reshape(-1, 3)[::3]
    evidence = Evidence(draws, points, -(points - mu) @ precision)
    found = measure_effects(evidence, np.eye(3), find_frame(evidence))
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(found.size[:, 0], (draws.mean((0, 1)) - mu) / sd, rtol=1e-8)
    np.testing.assert_allclose(np.exp(read_log_width(found, 3.0)[0]), draws.std((0, 1)) / sd, rtol=1e-8)
    np.testing.assert_allclose(found.of_points, 0.0, atol=1e-8)


def test_points_are_spread_over_chains_and_draws():
    where = choose_points(np.zeros((4, 1000, 2)), None)
    assert len(np.unique(where)) == 300
    np.testing.assert_allclose(np.bincount(where // 1000), 75, atol=1)
    assert choose_points(np.zeros((2, 60, 2)), None).tolist() == list(range(120))


@pytest.mark.parametrize("moves", [300, 20])
def test_scores_are_those_of_all_rows(moves):
    """In blocks that do not divide N, beside the whole sum at once; values at all points, or where moves start."""
    model, data = case("logistic").model, {name: column[:4999] for name, column in case("logistic").data.items()}
    points = TRUTH + np.random.default_rng(1).normal(scale=0.1, size=(300, D))
    with jax.enable_x64(True), Display(False) as display:
        starts, ends = points[:moves] if moves < 300 else points[:0], points[::-1][:moves] + 0.1
        found = score_places(lay_out(model, data), Places(points, starts, ends), np.eye(D), display)

        def whole(beta):
            theta = {"beta": beta}
            return model.log_prior(theta) + model.log_likelihood(theta, data).sum()

        value, gradient = jax.vmap(jax.value_and_grad(whole))(points)
        proposed = jax.vmap(whole)(ends)
    np.testing.assert_allclose(found.log_density, value[:moves], rtol=1e-12)
    np.testing.assert_allclose(found.gradient, gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.proposed, proposed, rtol=1e-12)


@pytest.mark.parametrize(
    ("offset", "constant", "expected"), [(0.0, 0.0, np.float32), (1e4, 0.0, np.float64), (0.0, 1e4, np.float64)]
)
def test_float32_where_its_rounding_is_not_felt(offset, constant, expected):
    """A mean of 70,000 normal rows: near 0 single precision serves, near 10⁴ its rounding is a fifth of an sd.

    A constant in the log-likelihood changes no gradient, but is what log ratios are differences of.
    """
    y = offset + np.random.default_rng(1).normal(size=70_000)
    sd = 1 / np.sqrt(70_000)
    model = lwa.Model(lambda mu, y: constant - 0.5 * (y - mu) ** 2, lambda mu: 0.0 * mu, init=0.0)
    points, proposals = y.mean() + sd * np.random.default_rng(2).normal(size=(2, 30, 1))
    with jax.enable_x64(True):
        assert (
            choose_score_precision(model, as_rows(y), Places(points, points[:0], proposals), np.array([[sd]]))
            is expected
        )
    draws = y.mean() + sd * np.random.default_rng(3).normal(size=(4, 1000))
    found = lwa.certify(model, y, {"theta": draws}, **QUIET)
    assert found.passed
    assert abs(found.mean[0] - y.mean()) < 0.005 * sd
    assert found.total_variation < 0.03


def test_proposals_outside_the_support_do_not_ask_for_float64():
    y = np.random.default_rng(1).normal(size=70_000)
    model = lwa.Model(lambda mu, y: jnp.where(mu < 0.01, -0.5 * (y - mu) ** 2, -jnp.inf), lambda mu: 0.0 * mu, init=0.0)
    points, proposals = np.linspace(-0.01, 0.009, 30)[:, None], np.linspace(-0.01, 0.02, 30)[:, None]
    with jax.enable_x64(True):
        places = Places(points, points[:0], proposals)
        assert choose_score_precision(model, as_rows(y), places, np.array([[0.004]])) is np.float32


def test_one_program_serves_all_blocks():
    model = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * mu**2, init=0.0)
    before = add_block._cache_size()
    lwa.certify(model, np.repeat(Y, 60), {"theta": 3 + 0.01 * np.random.default_rng(1).normal(size=(2, 200))}, **QUIET)
    assert add_block._cache_size() == before + 1


# What goes in and what comes out


def tiny_draws(seed=1, chains=2, length=500):
    return Y.mean() + np.random.default_rng(seed).normal(size=(chains, length)) / np.sqrt(len(Y))


def test_any_form_of_draws():
    fit = lwa.sample(MODEL, Y, subset_size=200, target="powered", draws=200, tune=64, chains=2, seed=1, **QUIET)
    forms = [fit, fit.idata, fit.posterior, dict(fit.posterior), fit.idata.posterior.to_dataset()]
    first, *others = [lwa.certify(MODEL, Y, form, **QUIET).as_dict() for form in forms]
    assert all(other == first for other in others)


def test_a_single_chain_is_judged_by_its_halves():
    found = lwa.certify(MODEL, Y, {"theta": tiny_draws(chains=1, length=2001)}, **QUIET)
    assert found.passed
    assert (found.chains, found.draws) == (2, 1000)


def test_several_parameters_keep_their_names():
    rng = np.random.default_rng(1)
    draws = {"mu": rng.normal(size=(2, 400)), "beta": rng.normal(size=(2, 400, 3))}
    draws |= {"deep.loading": rng.normal(size=(2, 400, 2, 2)), "unused": np.zeros(3)}
    found = lwa.certify(SEVERAL, Y, draws, **QUIET)
    deep = [f"deep.loading[{i}, {j}]" for i in range(2) for j in range(2)]
    assert found.names == ["beta[age]", "beta[dose]", "beta[sex]", *deep, "mu"]
    assert found.outcome == "fail"


def test_the_certificate_can_be_read_and_kept():
    found = lwa.certify(MODEL, Y, {"theta": tiny_draws()}, **QUIET)
    assert isinstance(found, lwa.Certificate)
    kept = json.loads(json.dumps(found.as_dict()))
    assert kept["verdict"] == found.verdict
    assert kept["shift"] == found.shift.tolist()
    assert found.table() in repr(found)
    assert found.verdict in repr(found)
    assert "computation, not the model" in repr(found)
    again = lwa.Certificate.from_dict(kept)
    assert again.as_dict() == found.as_dict()
    assert repr(again) == repr(found)
    assert max(map(len, found.table().splitlines())) <= 100


def test_progress_goes_to_standard_error(capsys):
    lwa.certify(MODEL, Y, {"theta": tiny_draws()}, progress=True)
    shown = capsys.readouterr()
    assert "gradients" in shown.err
    assert shown.out == ""
    lwa.certify(MODEL, Y, {"theta": tiny_draws()}, progress=False)
    assert capsys.readouterr().err == ""


def with_a_value(value):
    draws = tiny_draws()
    draws[0, 3] = value
    return draws


def test_many_chains_that_are_too_short_are_judged_by_their_last_draws():
    right = Y.mean() + np.random.default_rng(1).normal(size=(4000, 3)) / np.sqrt(len(Y))
    flat = lwa.Model(MODEL.log_likelihood, lambda mu: 0.0 * mu, init=0.0)
    found = lwa.certify(flat, Y, {"theta": right}, progress=False)
    assert found.outcome == "pass"
    assert found.chains * found.draws == 4000
    assert lwa.certify(flat, Y, {"theta": right + np.array([0.0, 0.0, 1.0])}, progress=False).outcome == "fail"


@pytest.mark.parametrize(
    ("idata", "message"),
    [
        (None, "NoneType and holds no draws"),
        (np.zeros((2, 500)), "ndarray and holds no draws"),
        ({}, "holds no draws"),
        ({"mu": tiny_draws()}, r"no draws of 'theta'; it has 'mu'"),
        ({"theta": tiny_draws()[..., None]}, r"shape \(2, 500, 1\); \(chains, draws\) is expected"),
        ({"theta": tiny_draws()[:, :20]}, "2 x 20 draws, too few.*at least 100"),
        ({"theta": tiny_draws(chains=60, length=5)}, "60 x 5 draws, too few.*one chain"),
        ({"theta": with_a_value(np.nan)}, "1 values that are NaN or infinite"),
        ({"theta": with_a_value(np.inf)}, "NaN or infinite"),
        ({"theta": tiny_draws() + 0j}, "complex128"),
        ({"theta": np.full((2, 500), 3.0)}, "All draws of theta are the same"),
    ],
)
def test_draws_that_cannot_be_judged(idata, message):
    with pytest.raises(lwa.InputError, match=message):
        lwa.certify(MODEL, Y, idata, **QUIET)


def test_draws_on_a_plane_or_of_different_lengths():
    rng = np.random.default_rng(1)
    draws = {"mu": rng.normal(size=(2, 400)), "beta": rng.normal(size=(2, 400, 3))}
    draws["deep.loading"] = rng.normal(size=(2, 400, 2, 2))
    flat = draws | {"mu": draws["beta"].sum(-1)}
    with pytest.raises(lwa.InputError, match=r"mu.*lie on a plane"):
        lwa.certify(SEVERAL, Y, flat, **QUIET)
    with pytest.raises(lwa.InputError, match="different numbers of chains and draws"):
        lwa.certify(SEVERAL, Y, draws | {"mu": draws["mu"][:1]}, **QUIET)


@pytest.mark.parametrize("points", [0, -1, 3, 2.5, True, "many"])
def test_points_that_will_not_do(points):
    with pytest.raises(lwa.InputError, match="points="):
        lwa.certify(MODEL, Y, {"theta": tiny_draws()}, points=points, **QUIET)


def hidden_root(mu, y):
    """Finite everywhere, but the gradient of the branch not taken is NaN."""
    return -0.5 * (y - mu) ** 2 + jnp.where(mu > 0, 0.0, jnp.sqrt(-jnp.maximum(mu, 0.0)))


def test_gradients_that_jax_cannot_take():
    model = lwa.Model(hidden_root, MODEL.log_prior, init=0.0)
    with pytest.raises(lwa.ModelError, match=r"gradient of log_likelihood is not finite at 300 of 300.*jnp\.where"):
        lwa.certify(model, Y, {"theta": tiny_draws()}, **QUIET)
    prior = lwa.Model(MODEL.log_likelihood, lambda mu: hidden_root(mu, 0.0), init=0.0)
    with pytest.raises(lwa.ModelError, match="gradient of log_prior is not finite"):
        lwa.certify(prior, Y, {"theta": tiny_draws()}, **QUIET)


def test_draws_outside_the_support():
    model = lwa.Model(MODEL.log_likelihood, lambda mu: jnp.where(mu < 3.0, 0.0, -jnp.inf), init=0.0)
    with pytest.raises(lwa.InputError, match=r"log_prior is not finite at \d+ of 300 draws.*positive density"):
        lwa.certify(model, Y, {"theta": tiny_draws()}, **QUIET)


def test_data_and_models_are_checked():
    with pytest.raises(lwa.DataError, match="NaN or infinite"):
        lwa.certify(MODEL, np.append(Y, np.nan), {"theta": tiny_draws()}, **QUIET)
    with pytest.raises(lwa.InputError, match="model is of type"):
        lwa.certify(None, Y, {"theta": tiny_draws()}, **QUIET)
    summed = lwa.Model(lambda mu, y: -0.5 * jnp.sum((y - mu) ** 2), MODEL.log_prior, init=0.0)
    with pytest.raises(lwa.ModelError, match="single number for 5 rows"):
        lwa.certify(summed, Y, {"theta": tiny_draws()}, **QUIET)


def between_modes(mu):
    """Half N(-3, 1), half N(3, 1)."""
    return jnp.logaddexp(-0.5 * (mu - 3) ** 2, -0.5 * (mu + 3) ** 2)


def test_draws_where_the_density_bends_upward_are_condemned():
    """Around the saddle between two modes the slope of the gradient is positive: no Gaussian has that."""
    model = lwa.Model(lambda mu, y: 0.0 * y * mu, between_modes, init=0.0)
    draws = 0.3 * np.random.default_rng(1).normal(size=(4, 500))
    found = lwa.certify(model, Y, {"theta": draws}, **QUIET)
    assert found.outcome == "fail"
    assert np.all(np.isfinite([found.shift, found.shift_error, found.sd_ratio, found.sd_ratio_error]))


def test_exact_draws_of_two_modes_pass_and_are_called_not_gaussian():
    rng = np.random.default_rng(1)
    draws = rng.choice([-3.0, 3.0], (4, 2000)) + rng.normal(size=(4, 2000))
    found = lwa.certify(lwa.Model(lambda mu, y: 0.0 * y * mu, between_modes, init=0.0), Y, {"theta": draws}, **QUIET)
    assert found.outcome != "fail"
    assert "not close to Gaussian" in found.verdict


@pytest.mark.slow
def test_a_fit_certifies_itself():
    """`fit.certify()` is `lwa.certify` with the fit's own model and rows; a loaded run asks for them."""
    from lwa.rivals.problems import simulate_logistic

    model, data, *_ = simulate_logistic(20_000, seed=1, parameters=3)
    options = dict(subset_size=500, draws=500, tune=200, seed=1, progress=False)
    good = lwa.sample(model, data, target="calibrated", **options)
    assert good.certify(progress=False).passed
    wide = lwa.sample(model, data, target="subposterior", **options)
    assert not wide.certify(progress=False).passed


def test_a_loaded_run_asks_for_model_and_data(tmp_path):
    fit = lwa.Result({"theta": np.zeros((2, 4))}, {"lp": np.zeros((2, 4))}, {}, {}, {})
    fit.save(tmp_path / "run")
    with pytest.raises(lwa.InputError, match=r"lwa.certify\(model, data, fit\)"):
        lwa.load(tmp_path / "run").certify()


def test_a_second_look_where_the_first_cannot_tell():
    """Thirty failures and no success: exact draws of a skewed posterior, by its distribution function."""
    model = lwa.Model(lambda t, y: -jax.nn.softplus((1 - 2 * y) * t), lambda t: -0.08 * t**2, init=0.0)
    grid = np.linspace(-15, 5, 40_001)
    log = -30 * np.logaddexp(0, grid) - 0.08 * grid**2
    below = np.cumsum(np.exp(log - log.max()))
    draws = {"theta": np.interp(np.random.default_rng(1).random((4, 10_000)), below / below[-1], grid)}
    first = lwa.certify(model, np.zeros(30), draws, points=300, **QUIET)
    assert (first.outcome, first.points) == ("warn", 300)
    found = lwa.certify(model, np.zeros(30), draws, **QUIET)
    assert found.passed
    assert found.points >= 1200


def test_a_model_in_python_is_called_on_the_callers_thread():
    seen = set()

    def log_likelihood(mu, y):
        seen.add(threading.current_thread())
        return -0.5 * (y - float(mu)) ** 2

    model = lwa.Model(log_likelihood, lambda mu: 0.0, init=0.0)
    lwa.certify(model, Y, {"theta": Y.mean() + 0.1 * np.random.default_rng(1).normal(size=(2, 200))}, **QUIET)
    assert seen == {threading.main_thread()}
