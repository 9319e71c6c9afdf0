"""exact=True: the full posterior, whatever the surrogate."""

import jax
import numpy as np
import pytest
from scipy import stats

import lwa
from experiments.law_of_theta import exact as tiny
from lwa.rows import as_rows
from lwa.subsets import Fixed, Swap
from lwa.targets.reference import compute_log_posterior
from tests.support import SHORT_RUN
from tests.tiny import MEAN, MODEL, PRIOR_SD, SUBSETS, N, Y, n


@pytest.mark.parametrize("power", [1.0, N / n], ids=["subposterior", "powered"])
@pytest.mark.parametrize("K", [1, 3])
def test_the_correction_leaves_the_full_posterior_invariant(power, K):
    """Enumerated: for each of the 56 subsets, K moves on π_U and one decision are reversible for π, to 1e-12."""
    grid = np.linspace(-4.0, 5.0, 91)
    full = tiny.log_target(frozenset(range(N)), 1.0, grid)
    pi = np.exp(full - full.max())
    pi /= pi.sum()
    for U in SUBSETS[::5]:
        moves = np.linalg.matrix_power(tiny.theta_kernel(U, power, 0.5, grid), K)
        surrogate = tiny.log_target(U, power, grid)
        log_ratio = full[None, :] - full[:, None] + surrogate[:, None] - surrogate[None, :]
        kernel = moves * np.exp(np.minimum(0.0, log_ratio))
        np.fill_diagonal(kernel, 0.0)
        np.fill_diagonal(kernel, 1.0 - kernel.sum(1))
        flow = pi[:, None] * kernel
        np.testing.assert_allclose(flow, flow.T, atol=1e-12)


@pytest.mark.slow
@SHORT_RUN  # chains on one subset each differ in how often they are corrected
@pytest.mark.parametrize(
    ("target", "move"),
    [
        ("powered", Fixed()),
        *((target, Swap(1)) for target in ("powered", "subposterior", "calibrated")),
    ],
)
def test_draws_are_those_of_the_full_posterior(target, move):
    """Conjugate: Normal(Σy / P, 1/P), P = N + 1/PRIOR_SD², which no surrogate but the calibrated one has by itself."""
    summary = MEAN if target != "calibrated" else lwa.summaries.PerRow(lambda y: y)
    fit = lwa.sample(
        MODEL, Y, subset_size=n, target=target, exact=True, summary=summary, epsilon=2.0, subset_move=move, draws=300,
        tune=500, thinning=3, chains=32, seed=7, precision="float64", progress=False,
    )  # fmt: skip
    precision = N + 1 / PRIOR_SD**2
    z = (fit.posterior["theta"][:, 50:] - Y.sum() / precision) * np.sqrt(precision)
    assert stats.ttest_1samp(z.mean(1), 0.0).pvalue > 1e-4
    assert stats.ttest_1samp((z**2).mean(1), 1.0).pvalue > 1e-4
    told = fit.sample_stats
    assert (told["n_rows_read"] == 3 * n + N).all()
    assert 0.0 < told["accepted"].mean() <= 1.0
    if target == "calibrated":  # exact for a Gaussian: nothing is left to correct
        assert told["acceptance_rate"].min() > 1 - 1e-6


def test_the_streamed_posterior_is_the_posterior():
    thetas = np.linspace(-1, 2, 5)[:, None]
    with jax.enable_x64(True):
        found = compute_log_posterior(MODEL, as_rows(Y), thetas)
    expected = [tiny.log_target(frozenset(range(N)), 1.0, theta)[0] for theta in thetas]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_same_seed_same_exact_draws():
    options = dict(
        target="powered", subset_size=n, exact=True, summary=MEAN, draws=30, tune=0, thinning=2, seed=3, progress=False
    )
    one, two = (lwa.sample(MODEL, Y, **options).posterior["theta"] for _ in range(2))
    assert np.array_equal(one, two)
    with pytest.warns(lwa.LwaWarning, match="budget was spent after 5 of 30"):
        few = lwa.sample(MODEL, Y, **options, budget=lwa.RowReads(5 * 4 * (2 * n + N)))
    assert np.array_equal(few.posterior["theta"], one[:, :5])


def test_exact_must_be_yes_or_no():
    with pytest.raises(lwa.InputError, match="exact='yes' must be True or False"):
        lwa.sample(MODEL, Y, subset_size=n, exact="yes", progress=False)


def test_draws_made_before_the_data_failed_are_kept():
    """Rows that fail on the twentieth pass: the draws before it are those of the whole run."""

    class Failing:
        def __init__(self):
            self.rows, self.passes = as_rows(Y), 0

        def __len__(self):
            return N

        def take(self, indices):
            return self.rows.take(indices)

        def blocks(self, size):
            self.passes += 1
            if self.passes == 20:
                raise lwa.DataError("the disk is gone")
            return self.rows.blocks(size)

    options = dict(
        target="powered", subset_size=n, exact=True, summary=MEAN, draws=30, tune=0, thinning=2, seed=3, progress=False
    )
    whole = lwa.sample(MODEL, Y, **options).posterior["theta"]
    with pytest.warns(lwa.LwaWarning, match="DataError after .* the disk is gone"):
        part = lwa.sample(MODEL, Failing(), **options).posterior["theta"]
    assert 0 < part.shape[1] < 30
    assert np.array_equal(part, whole[:, : part.shape[1]])
