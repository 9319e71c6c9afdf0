"""Rows drawn by influence: every row counts once on average, decisive ones always, and the variance is as predicted."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.data.data import lay_out
from lwa.models.likelihood import find_likelihood
from lwa.rows import as_rows
from lwa.subsets.influence import find_influence
from lwa.subsets.pieces import CELL, lay_out_pieces
from lwa.targets.reference import PAIRS, draw_reach, find_reference, sum_remainders


class Stratified:
    """In place of a generator: uniform numbers at the midpoints of k equal parts, one part after the other."""

    def __init__(self, k):
        self.k, self.at = k, 0

    def random(self, size):
        self.at += 1
        return np.full(size, (self.at - 0.5) / self.k)


def lay_out_sizes(N, strata):
    """Rows some of which outweigh many others, in as many strata; the last stratum has two rows."""
    rng = np.random.default_rng(1)
    size = rng.pareto(1.1, N)
    stratum = rng.integers(0, strata, N)
    stratum[stratum == strata - 1] = 0
    stratum[[17, 93]] = strata - 1
    return lay_out_pieces((0.2 + 0.8 * size / size.mean()).astype(np.float32), stratum.astype(np.uint16), strata)


@pytest.mark.parametrize("strata", [1, 6])
@pytest.mark.parametrize("n", [1, 5, 40, 150, 199])
def test_every_row_counts_once_on_average(n, strata):
    """Weights of draws over a grid of uniform numbers, which integrates each piece but for the rows at its ends."""
    N, k = 200, 4000
    chosen = lay_out_sizes(N, strata).cut(n)
    grid, total = Stratified(k), np.zeros(N)
    for _ in range(k):
        drawn = chosen.draw(grid, np.arange(n))
        np.add.at(total, drawn, N / n * chosen.counts(drawn))
    weight = N / n * chosen.counts(np.arange(N))
    np.testing.assert_allclose(total / k, 1.0, atol=2.5 * weight.max() / k)
    sure = np.isin(np.arange(N), chosen.sure)
    np.testing.assert_allclose(total[sure], k, rtol=1e-12)  # in every subset, exactly once
    assert (weight[~sure] > 1.0).all()  # of the others, none is certain
    assert n - len(chosen.sure) >= 1


@pytest.mark.parametrize("strata", [1, 6])
@pytest.mark.parametrize("n", [20, 80])
def test_the_variance_over_subsets_is_that_of_draws(n, strata):
    """`vary` takes the pieces of a stratum for equal parts of it: no less than the variance, and hardly more.

    Each slot's law is exact on the grid, and slots are independent, so variances add up.
    """
    N, k = 2000, 1000
    chosen, grid = lay_out_sizes(N, strata).cut(n), Stratified(k)
    terms = np.random.default_rng(3).normal(1.0, 0.3, size=N)
    drawn = np.stack([chosen.draw(grid, np.arange(n)) for _ in range(k)])
    exact = (N / n * chosen.counts(drawn) * terms[drawn]).var(0).sum()
    found = chosen.vary(np.arange(N), np.ones(N), terms[None])[0]
    assert 0.98 * exact < found < 1.25 * exact


def test_rows_past_the_last_whole_cell_are_drawn():
    size = np.full(CELL + 3, 1.0, np.float32)
    chosen = lay_out_pieces(size, np.zeros(len(size), np.uint16), 1).cut(5)
    rng = np.random.default_rng(0)
    seen = {int(row) for _ in range(200) for row in chosen.draw(rng, np.arange(5))}
    assert seen == set(range(CELL + 3))


def poisson(**options):
    """Counts with log mean a + b x and exposure e; the prior is flat but for a little."""
    return lwa.Model(
        lambda t, r: r["y"] * (t[0] + t[1] * r["x"]) - r["e"] * jnp.exp(t[0] + t[1] * r["x"]),
        lambda t: -0.005 * jnp.sum(t**2), jnp.zeros(2), **options,
    )  # fmt: skip


def counts(N=4000, walls=2):
    """Rare counts, and some rows far out at which none was counted though the model would soon expect many."""
    rng = np.random.default_rng(5)
    x, e = rng.normal(size=N), np.full(N, 400 / N)
    x[:walls], e[:walls] = 35.0, 0.3
    y = rng.poisson(e * np.exp(-0.1 * x)).astype(float)
    y[:walls] = 0
    return {"x": x, "y": y, "e": e}


@pytest.fixture(scope="module")
def located():
    with jax.enable_x64(True):
        layout = lay_out(poisson(), counts())
        yield layout, find_reference(layout.model, layout.full, np.zeros(2), 1)


def test_remainders_are_what_is_left_of_a_poisson_term(located):
    """T = -e exp(η)(exp(t) - 1 - t - t²/2), whatever computes it."""
    layout, reference = located
    batch = layout.full.take(np.arange(50, 90))
    points = draw_reach(reference, 3)
    eta = reference.theta[0] + reference.theta[1] * batch["x"]
    t = points.away @ np.stack([np.ones(40), batch["x"]])
    exact = np.concatenate([-batch["e"] * np.exp(eta) * (np.expm1(s * t) - s * t - t**2 / 2) for s in (1, -1)])
    found = find_likelihood(layout.model).expand_rows(*points, batch, 64)
    np.testing.assert_allclose(found, exact, atol=1e-12)
    in_python = lwa.Model(
        lambda t, r: r["y"] * (t[0] + t[1] * r["x"]) - r["e"] * np.exp(t[0] + t[1] * r["x"]),
        lambda t: -0.005 * float(np.sum(np.square(t))), np.zeros(2),
    )  # fmt: skip
    layout = lay_out(in_python, counts())
    assert layout.model.in_python
    np.testing.assert_allclose(find_likelihood(layout.model).expand_rows(*points, batch), exact, atol=1e-6)


def test_remainders_of_a_formula_are_those_of_the_same_model_written_out():
    rng = np.random.default_rng(2)
    data = {"x": rng.normal(size=300), "y": rng.poisson(1.0, 300).astype(float), "e": np.ones(300)}
    with jax.enable_x64(True):
        formula = lay_out(lwa.glm("y ~ x", family="poisson"), {"x": data["x"], "y": data["y"]})
        layout = lay_out(poisson(), data)
        reference = find_reference(layout.model, layout.full, np.zeros(2), 1)
        points = draw_reach(reference, 1)
        assert formula.model.predictors is not None
        rows = formula.full.take(np.arange(300))
        found = find_likelihood(formula.model).expand_rows(*points, rows, 512)
        other = find_likelihood(layout.model).expand_rows(*points, layout.full.take(np.arange(300)), 512)
    np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-12)


def test_the_variance_over_subsets_by_enumeration():
    """All 56 subsets of 3 of 8 rows: the variance of (8/3) Σ_U T_k is what the sums over all rows say."""
    rng = np.random.default_rng(1)
    data = {"x": rng.normal(size=8), "y": rng.poisson(2.0, 8).astype(float), "e": np.ones(8)}
    with jax.enable_x64(True):
        layout = lay_out(poisson(), data)
        reference = find_reference(layout.model, layout.full, np.zeros(2), 1)
        sums = sum_remainders(layout.model, layout.full, reference, 1)
        terms = find_likelihood(layout.model).expand_rows(*draw_reach(reference, 1), data, 16)
    estimates = np.array([8 / 3 * terms[:, list(U)].sum(1) for U in combinations(range(8), 3)])
    np.testing.assert_allclose(sums.vary(3), estimates.var(0) * 7 / 8, rtol=1e-9)  # N - n for (N - n) N/(N - 1)
    assert len(sums.total) == 2 * PAIRS


def test_rows_that_matter_far_out_are_in_every_subset(located):
    """At θ̂ a wall row has 2 % of the curvature; some sds out nothing else counts."""
    layout, reference = located
    chosen = find_influence(layout.model, layout.full, reference, 1).cut(100)
    assert {0, 1} <= set(chosen.sure.tolist())
    few = layout.full.take(np.arange(100))
    bend = find_likelihood(layout.model).measure_rows(reference.theta, few, reference.factor, 128)[0]
    assert bend[0] < 0.02 * 2  # of the trace of H_N, whitened: d


def test_a_row_that_excludes_a_point_leaves_the_others_their_share():
    """A density of zero within reach counts as decisive, and not as all there is."""
    y = np.random.default_rng(0).exponential(size=500)
    model = lwa.Model(lambda t, y: jnp.where(y < t + 40.0, -y * jnp.exp(t) + t, -jnp.inf), lambda t: -0.5 * t**2, 0.0)
    with jax.enable_x64(True):
        layout = lay_out(model, y)
        reference = find_reference(layout.model, layout.full, np.zeros(1), 1)
        found = find_influence(layout.model, as_rows(np.append(y, 39.99)), reference, 1)
    assert np.isfinite(found.size).all()
    assert found.size[:500].min() > 0.15
