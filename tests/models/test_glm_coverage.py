"""Every family recovers what its data were simulated with: 90 % intervals hold the truth in 90 % of the runs."""

import numpy as np
import pytest
from scipy import stats

import lwa

SEEDS = 20
ROWS = 20_000
BETA = np.array([0.3, 0.5, -0.4])
TRUTH = {
    "gaussian": {"sigma": 0.8},
    "student_t": {"sigma": 0.8, "nu": 4.0},
    "bernoulli": {},
    "binomial": {},
    "poisson": {},
    "negative_binomial": {"phi": 2.0},
    "gamma": {"shape": 3.0},
    "categorical": {},
}


def simulated(family, seed):
    rng = np.random.default_rng((seed, len(family)))
    x, group = rng.normal(size=ROWS), rng.choice(["one", "two"], ROWS)
    eta = np.column_stack([np.ones(ROWS), x, group == "two"]) @ BETA
    n = rng.integers(1, 8, ROWS)
    p = 1 / (1 + np.exp(-eta))
    y = {
        "gaussian": lambda: eta + 0.8 * rng.normal(size=ROWS),
        "student_t": lambda: eta + 0.8 * rng.standard_t(4, size=ROWS),
        "bernoulli": lambda: rng.random(ROWS) < p,
        "binomial": lambda: rng.binomial(n, p),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative_binomial": lambda: rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, ROWS)),
        "gamma": lambda: rng.gamma(3.0, np.exp(eta) / 3.0),
        "categorical": lambda: np.array(["no", "yes"])[(rng.random(ROWS) < p).astype(int)],
    }[family]()
    return {"x": x, "group": group, "n": n, "y": y}


@pytest.mark.slow
@pytest.mark.parametrize("family", TRUTH)
def test_intervals_cover(family):
    trials = {"trials": "n"} if family == "binomial" else {}
    covered: dict[str, list[bool]] = {}
    # Bound once: priors are weak, and one model is compiled once, whatever the rows.
    bound = lwa.glm("y ~ x + group", family, **trials).bind(simulated(family, SEEDS))
    for seed in range(SEEDS):
        rows = bound.read(simulated(family, seed))
        fit = lwa.sample(bound.model, rows, subset_size=1000, draws=250, tune=500, chains=4, seed=seed, progress=False)
        draws = {f"beta[{i}]": fit.posterior["beta"].reshape(1000, 3)[:, i] for i in range(3)}
        draws |= {name: fit.posterior[name].ravel() for name in TRUTH[family]}
        truth = dict(zip(draws, [*BETA, *TRUTH[family].values()], strict=True))
        for name, values in draws.items():
            low, high = np.quantile(values, [0.05, 0.95])
            covered.setdefault(name, []).append(low < truth[name] < high)
    # One test for each parameter: at a level of 1e-4 each, all 30 together err in 3 of 1000 suites.
    fewest = stats.binom(SEEDS, 0.9).ppf(1e-4)
    assert {name: sum(hits) for name, hits in covered.items() if sum(hits) < fewest} == {}
    # All of them together are not far too wide either: intervals of seeds are independent, those of a seed are not, so
    # only seeds are counted: in how many does every interval hold?
    every = np.array(list(covered.values())).all(0).sum()
    assert every >= stats.binom(SEEDS, 1 - 0.1 * len(covered)).ppf(1e-4)  # Bonferroni's bound
