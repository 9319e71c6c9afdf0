"""Few long chains: the worst parameter is found, its numbers are ArviZ's, and sound chains are left alone."""

import arviz_stats
import numpy as np
import pytest
import xarray
from scipy.signal import lfilter

from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.long_chains import MOST_JUDGED, compute_rhat, find_slow_chains, rank_normalise


def autoregressions(tau, draws, k=1, *, chains=4, seed=0):
    """AR(1) chains, stationary, with autocorrelation time τ = (1 + ρ) / (1 - ρ)."""
    rho, before = (tau - 1) / (tau + 1), 20 * int(tau)
    noise = np.random.default_rng(seed).normal(size=(chains, before + draws, k))
    return lfilter([np.sqrt(1 - rho**2)], [1, -rho], noise, axis=1)[:, before:]


def judge(values):
    return find_slow_chains({"x": values}, [f"x[{i}]" for i in range(values.shape[2])], values.shape[1])


def test_numbers_are_arvizs():
    values = autoregressions(6, 500, 3)
    values[0, :, 1] += 0.5
    values[1, :, 2] *= 3
    data = xarray.Dataset({"x": (("chain", "draw", "k"), values)})
    np.testing.assert_allclose(compute_rhat(values), arviz_stats.rhat(data, method="rank").x, rtol=1e-4)  # ties
    np.testing.assert_allclose(effective_draws(rank_normalise(values)), arviz_stats.ess(data).x, rtol=0.02)


@pytest.mark.parametrize(("tau", "draws"), [(1, 50), (2, 100), (3, 250), (4, 1000), (20, 5000)])
def test_sound_chains_are_left_alone(tau, draws):
    assert [judge(autoregressions(tau, draws, 10, seed=seed)) for seed in range(20)] == [None] * 20


@pytest.mark.parametrize("tau", [25, 60])
def test_slow_chains_are_reported_with_how_much_longer_is_enough(tau):
    found = judge(autoregressions(tau, 1000, seed=1))
    assert found.agree
    assert found.worth == pytest.approx(4000 / tau, rel=0.4)
    assert judge(autoregressions(tau, int(1000 * found.lacking), seed=2)) is None


def test_chains_that_part_in_place_or_in_spread():
    values = autoregressions(1, 1000, 3)
    assert judge(values) is None
    values[0, :, 1] += 1.5
    apart = judge(values)
    assert (apart.name, apart.agree) == ("x[1]", False)
    wide = autoregressions(1, 1000, 3)
    wide[0, :, 2] *= 8
    assert (judge(wide).name, judge(wide).agree) == ("x[2]", False)


def test_a_chain_that_stands_still():
    values = autoregressions(1, 200)
    values[2] = 5.0
    assert not judge(values).agree


def test_one_slow_parameter_among_many():
    values = autoregressions(1, 400, 10 * MOST_JUDGED)
    values[..., 200] = autoregressions(80, 400)[..., 0]
    assert judge(values).name == "x[200]"
    part = {"a": values[..., :150].reshape(4, 400, 15, 10), "b": values[..., 150:]}
    assert find_slow_chains(part, [str(i) for i in range(320)], 400).name == "200"


def test_what_does_not_vary_or_is_not_finite_is_left_out():
    values = autoregressions(1, 100, 4)
    values[..., 0], values[..., 1] = 2.0, values[..., 1] > 0
    values[0, 0, 2] = np.inf
    assert judge(values) is None
    assert judge(values[..., [0, 2]]) is None


def test_few_draws_are_not_judged():
    assert judge(autoregressions(100, 49)) is None


def test_of_more_draws_than_are_kept():
    """The last 200 of 20,000 draws per chain, each worth a twentieth: 4000 in all."""
    values = autoregressions(20, 200)
    assert find_slow_chains({"x": values}, ["x"], 200) is not None
    assert find_slow_chains({"x": values}, ["x"], 20_000) is None
