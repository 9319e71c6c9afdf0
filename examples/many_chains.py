"""Thousands of short chains: a logistic regression, summarised while its draws are made, and certified.

Run it from the repository: `python examples/many_chains.py`. What it prints is in docs/many_chains.md.
"""

import argparse

import lwa
from lwa.rivals.problems import simulate_logistic


def main() -> None:
    """Fit, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--chains", type=int, default=4096)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--tune", type=int, default=200)
    parser.add_argument("--keep", default="summary")
    asked = parser.parse_args()
    model, data, *_ = simulate_logistic(asked.rows, seed=1, parameters=5)
    fit = lwa.sample(
        model, data, subset_size=100, chains=asked.chains, draws=asked.draws, tune=asked.tune, keep=asked.keep, seed=1
    )
    print(fit)
    print(fit.summary())
    print(fit.certify().verdict)


if __name__ == "__main__":
    main()
