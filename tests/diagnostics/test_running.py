"""Summaries made while draws come in, against those of all draws at once."""

import jax
import numpy as np
import pytest

from lwa.diagnostics import running
from lwa.diagnostics.running import (
    SKETCH_CELLS,
    SKETCH_REACH,
    ChainMoments,
    collect_moments,
    compute_nested_rhat,
    effective_draws_from_means,
    find_quantiles,
    start_summary,
    update_summary,
)

DRAWS, CHAINS, K = 60, 50, 3
FAR = np.array([0.0, 1e9, -5.0])
"""Means; the second so far from 0 that a sum of squares would have no digit left."""
WIDE = np.array([1.0, 0.5, 1e-4])


def draws_of(seed=0, tails=False):
    """`(draws, chains, k)`: each chain with a mean of its own."""
    rng = np.random.default_rng(seed)
    own = 0.3 * rng.normal(size=(CHAINS, K))
    noise = rng.standard_t(2.0, (DRAWS, CHAINS, K)) if tails else rng.normal(size=(DRAWS, CHAINS, K))
    return FAR + WIDE * (own + noise)


def in_blocks(theta, convert=np.asarray):
    state = start_summary(CHAINS, convert(FAR), convert(WIDE))
    step = jax.jit(update_summary) if convert is not np.asarray else update_summary
    for start, stop in ((0, 1), (1, 8), (8, 8), (8, DRAWS)):
        state = step(state, convert(theta[start:stop]))
    return jax.tree.map(np.asarray, state)


@pytest.mark.parametrize("on", ["host", "device"])
def test_moments_are_those_of_all_draws(on):
    theta = draws_of()
    with jax.enable_x64(True):
        state = in_blocks(theta, np.asarray if on == "host" else jax.numpy.asarray).moments
    deviation = theta - theta.mean(0)
    assert state.count == DRAWS
    np.testing.assert_allclose(state.mean - FAR, theta.mean(0) - FAR, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(state.squares, (deviation**2).sum(0), rtol=1e-6)
    np.testing.assert_allclose(running.pooled_variance(state), theta.reshape(-1, K).var(0, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(running.pooled_mean(state), theta.mean((0, 1)), rtol=1e-14)


@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize("on", ["host", "device"])
def test_quantiles_are_right_to_a_cell(on, tails):
    """... within reach; beyond it they stay between the last cell and the most extreme draw."""
    theta = draws_of(tails=tails)
    with jax.enable_x64(True):
        sketch = in_blocks(theta, np.asarray if on == "host" else jax.numpy.asarray).sketch
    assert sketch.cells.sum() == theta.size
    shares = [0.0, 0.001, 0.055, 0.25, 0.5, 0.945, 0.999, 1.0]
    found, flat = find_quantiles(sketch, shares), theta.reshape(-1, K)
    expected = np.quantile(flat, shares, axis=0, method="lower")
    inside = np.abs(expected - FAR) < SKETCH_REACH * WIDE
    assert inside[2:6].all()
    error = np.abs(found - expected) / WIDE
    assert error[inside].max() <= 2 * SKETCH_REACH / SKETCH_CELLS
    assert 2 * SKETCH_REACH / SKETCH_CELLS < 0.005
    assert ((found >= flat.min(0)) & (found <= flat.max(0))).all()
    assert (np.diff(found, axis=0) >= 0).all()


def test_what_is_no_number_is_said():
    theta = draws_of()
    theta[3, 4, 1] = np.nan
    state = in_blocks(theta)
    assert np.isnan(find_quantiles(state.sketch, [0.5])[0]).tolist() == [False, True, False]
    assert np.isnan(running.pooled_mean(state.moments)).tolist() == [False, True, False]


def test_scales_of_what_does_not_vary_and_of_stray_chains():
    values = np.random.default_rng(1).normal(size=(1000, 3)) * [1.0, 0.0, 1.0] + [0, 7, 0]
    values[:50, 2] = 1e6
    values[0, 0] = np.inf
    centre, scale = running.find_scales(values)
    np.testing.assert_allclose(centre, [0, 7, 0], atol=0.15)
    assert 0.8 < scale[0] < 1.2
    assert scale[1] > 0
    assert 0.8 < scale[2] < 1.2


def test_moments_of_draws_that_are_there(monkeypatch):
    theta = np.swapaxes(draws_of(), 0, 1)
    posterior = {"a": theta[..., 0], "b": theta[..., 1:]}
    whole = collect_moments(posterior)
    monkeypatch.setattr(running, "NUMBERS_AT_ONCE", 7 * DRAWS)  # some chains at a time
    some = collect_moments(posterior)
    for one in (whole, some):
        assert one.count == DRAWS
        np.testing.assert_allclose(one.mean, theta.mean(1), rtol=1e-14)
        np.testing.assert_allclose(one.squares, ((theta - theta.mean(1, keepdims=True)) ** 2).sum(1), rtol=1e-6)


def test_effective_draws_of_an_autoregression():
    """(1 - ρ) / (1 + ρ) of the draws, within what is said of the error."""
    rng, rho, chains, draws = np.random.default_rng(2), 0.8, 2000, 200
    theta = np.empty((draws, chains, 1))
    theta[0] = rng.normal(size=(chains, 1))
    for t in range(1, draws):
        theta[t] = rho * theta[t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=(chains, 1))
    found, error = effective_draws_from_means(collect_moments({"x": np.swapaxes(theta, 0, 1)}))
    assert error == pytest.approx(np.sqrt(2 / 1999))
    # At finite length the mean of a chain varies by (1 + ρ)/(1 - ρ) (1 - 2 ρ/(draws (1 - ρ²)) + ...) / draws.
    exact = chains * draws * (1 - rho) / (1 + rho) / (1 - 2 * rho / (draws * (1 - rho**2)))
    assert found[0] == pytest.approx(exact, rel=4 * error)


def test_effective_draws_of_next_to_nothing():
    assert np.isnan(effective_draws_from_means(collect_moments({"x": np.ones((1, 9))}))[0]).all()
    assert np.isnan(effective_draws_from_means(collect_moments({"x": np.ones((5, 9))}))[0]).all()
    assert (
        effective_draws_from_means(collect_moments({"x": np.arange(5.0)[:, None]}))[0] == 5
    )  # one draw a chain: each is worth one


# Nested R-hat


def by_definition(values, superchains):
    """Of `(chains, draws)`, in the paper's own sums."""
    groups = np.split(values, superchains)
    between = np.var([group.mean() for group in groups], ddof=1)
    within = []
    for group in groups:
        means = group.mean(1)
        among = np.var(means, ddof=1) if len(group) > 1 else 0.0
        inside = np.mean(np.var(group, axis=1, ddof=1)) if group.shape[1] > 1 else 0.0
        within.append(among + inside)
    return np.sqrt(1 + between / np.mean(within))


@pytest.mark.parametrize(("superchains", "draws"), [(4, 30), (4, 1), (2, 5), (64, 30), (16, 2)])
def test_nested_rhat_is_its_definition(superchains, draws):
    values = np.random.default_rng(3).normal(size=(64, draws)) + np.arange(64)[:, None] / 50
    found = compute_nested_rhat(collect_moments({"x": values}), superchains).rhat
    np.testing.assert_allclose(found, [by_definition(values, superchains)], rtol=1e-12)


@pytest.mark.parametrize("draws", [1, 10])
def test_nested_rhat_of_independent_draws_is_what_chance_leaves(draws):
    """B is χ² / (K - 1) of Var / (M draws), over 300 scalars on average and at the most."""
    k, chains, superchains = 300, 256, 16
    values = np.random.default_rng(4).normal(size=(chains, draws, k))
    found = compute_nested_rhat(collect_moments({"x": values}), superchains)
    ratio = found.between / found.chance
    assert ratio.mean() == pytest.approx(1, abs=4 * np.sqrt(2 / 15 / k))
    expected = np.sqrt(1 + 1 / (chains / superchains * draws))
    assert found.rhat.mean() == pytest.approx(expected, abs=0.005)
    assert ratio.max() < 4


def test_superchains_that_are_stuck_are_seen_where_chains_of_any_length_look_settled():
    """Each chain moves about its start as if it were there; only superchains tell."""
    rng, superchains, chains, draws = np.random.default_rng(5), 16, 256, 20
    starts = rng.normal(size=superchains)[running.assign_superchains(chains, superchains)]
    stuck = starts[:, None] + 0.5 * rng.normal(size=(chains, draws))
    settled = rng.normal(size=(chains, draws))
    assert compute_nested_rhat(collect_moments({"x": stuck}), superchains).rhat[0] > 1.5
    assert compute_nested_rhat(collect_moments({"x": settled}), superchains).rhat[0] < 1.01


def test_superchains_of_unequal_sizes_are_neighbours():
    group = running.assign_superchains(70, 16)
    assert (np.diff(group) >= 0).all()
    assert set(np.bincount(group)) == {4, 5}
    values = np.random.default_rng(6).normal(size=(70, 5, 1))
    assert 1 <= compute_nested_rhat(collect_moments({"x": values}), 16).rhat[0] < 1.2


def test_few_chains_are_superchains_of_their_own():
    assert [running.count_superchains(chains) for chains in (4, 64, 65, 4096)] == [4, 64, 16, 16]
    assert compute_nested_rhat(ChainMoments(np.array(5), np.zeros((1, 1)), np.ones((1, 1))), 1).rhat == 1
