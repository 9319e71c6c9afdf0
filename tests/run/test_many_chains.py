"""Thousands of chains in one call: short, summarised, certified, and right."""

import numpy as np
import pytest

import lwa
from lwa.run import budget
from lwa.subsets.tape import ADAPT_EVERY, MOST_MOVES, count_page_moves
from tests.support import log_likelihood, log_prior

N = 100_000


@pytest.mark.slow
def test_4096_chains_of_20_draws(monkeypatch):
    """A normal mean, whose posterior is known."""
    monkeypatch.setattr(budget, "LAST_BYTES", 2**21)
    y = np.random.default_rng(0).normal(3.0, 1.0, N)
    model = lwa.Model(log_likelihood, log_prior, init=0.0)
    fit = lwa.sample(
        model, y, subset_size=100, chains=4096, draws=20, tune=200, keep="summary", seed=1, progress=False
    )  # fmt: skip
    assert fit.attributes["warnings"] == []
    assert fit.attributes["superchains"] == 16
    assert fit.attributes["draws_summarised"] == 20
    assert 1 <= fit.draws < 20
    mean, sd = y.sum() / (N + 0.01), (N + 0.01) ** -0.5
    table = fit.summary()
    ess = table["ess"][0]
    assert ess > 0.5 * 4096 * 20
    assert abs(table["mean"][0] - mean) < 4 * sd / np.sqrt(ess)
    assert table["sd"][0] == pytest.approx(sd, rel=0.02)
    for column, score in (("eti89_lb", -1.598), ("median", 0.0), ("eti89_ub", 1.598)):
        assert table[column][0] == pytest.approx(mean + score * sd, abs=0.03 * sd)
    assert 1.0 <= table["nested_r_hat"][0] < 1.002
    assert fit.certify(progress=False).outcome == "pass"


@pytest.mark.parametrize("entry", [10, 1000, 10**5, 10**8])
def test_pages_of_many_chains_are_shorter_and_those_of_few_as_they_were(entry):
    few = [count_page_moves(entry, chains) for chains in (1, 4, 64)]
    assert len(set(few)) == 1
    before = few[0]
    for chains in (65, 256, 4096, 65_536):
        moves = count_page_moves(entry, chains)
        assert moves <= before <= MOST_MOVES
        assert moves & (moves - 1) == 0
        assert moves <= ADAPT_EVERY or moves * entry * chains <= 2**28
        before = moves
