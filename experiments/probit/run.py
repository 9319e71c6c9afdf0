"""Probit: how far sub-posteriors are from the full posterior, by mismatch of their statistic and by size.

python -m experiments.probit.run --scale paper
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.exhibit import Out, command
from experiments.probit import figures
from experiments.probit.chains import draw, estimate, ratio
from experiments.probit.model import problem, simulate, subset
from experiments.proposition.quadrature import Array, kl

ROWS, ONES = 10_000, 8_400
"""ΣY is fixed so that subsets of 50 and of 100 rows can match its mean; its expectation is 10,000 Φ(1) = 8,413."""
N_SUBSET = 100
PAPER = {0.01: 1.13, 0.04: 1.39, 0.07: 1.87, 0.1: 2.76}
"""r(U) and KL/KL* as the paper prints them."""
SIGNS = (1, -1)
"""More ones than all rows have, and fewer."""
OPTIMAL = (50, 100, 1000, 5000)
"""Sizes of the optimal subsets."""


@dataclass(frozen=True)
class Size:
    """Draws are all that differs: the data are small as they are."""

    chains: int
    draws: int


SIZES = {"paper": Size(chains=64, draws=5_000), "small": Size(chains=16, draws=1_000)}


class Findings(NamedTuple):
    """KL/KL* by r(U), as in `PAPER`, and sign, as in `SIGNS`; then vectors by size, `OPTIMAL` and N."""

    exact: Array
    from_chains: Array
    errors: Array
    kl_by_size: Array
    means: Array
    sds: Array
    means_of_draws: Array
    sds_of_draws: Array
    errors_of_means: Array
    """Standard errors of the draws' means, from those of single chains."""


def run(size: Size, seed: int, out: Out) -> Findings:
    """Quadrature, chains, a figure and two tables."""
    rng = np.random.default_rng(seed)
    y, posed = simulate(ROWS, ONES, rng), problem(ROWS, ONES)
    mismatches = [0.0] + [sign * r for r in PAPER for sign in SIGNS]
    subsets = {(N_SUBSET, xi) for xi in mismatches} | {(n, 0.0) for n in OPTIMAL}

    with out.stage("the full posterior, all rows a step"):
        full = draw(y, size.chains, size.draws, seed=1000 * seed)
    with out.stage(f"{len(subsets)} sub-posteriors"):
        draws = {}
        for number, (n, xi) in enumerate(sorted(subsets), start=1):
            U = subset(y, n, round(n * (posed.mean + xi)), rng)
            draws[n, xi] = draw(y[U], size.chains, size.draws, seed=1000 * seed + number)
    with out.stage("divergences, figure and tables"):
        laws = {one: posed.sub(*one) for one in subsets}
        exact = {one: kl(posed.full, laws[one]) for one in subsets}
        estimates = {one: estimate(posed, *one, full, draws[one]) for one in subsets}
        best = (N_SUBSET, 0.0)
        grid = [[(N_SUBSET, sign * r) for sign in SIGNS] for r in PAPER]
        simulated = np.array([[ratio(estimates[one], estimates[best]) for one in row] for row in grid])
        by_size = [laws[n, 0.0] for n in OPTIMAL] + [posed.full]
        drawn = [draws[n, 0.0] for n in OPTIMAL] + [full]
        found = Findings(
            exact=np.array([[exact[one] / exact[best] for one in row] for row in grid]),
            from_chains=simulated[..., 0],
            errors=simulated[..., 1],
            kl_by_size=np.array([exact[n, 0.0] for n in OPTIMAL] + [0.0]),
            means=np.array([law.mean for law in by_size]),
            sds=np.array([law.sd for law in by_size]),
            means_of_draws=np.array([one.mean() for one in drawn]),
            sds_of_draws=np.array([one.std() for one in drawn]),
            errors_of_means=np.array([one.mean(1).std(ddof=1) / np.sqrt(size.chains) for one in drawn]),
        )
        kl_table(out, found)
        sizes_table(out, found, [estimates[n, 0.0].kl() for n in OPTIMAL] + [0.0])
        out.figure(
            "probit",
            figures.probit(
                (posed.full, full),
                {xi: (laws[N_SUBSET, xi], draws[N_SUBSET, xi]) for xi in mismatches},
                {n: (laws[n, 0.0], draws[n, 0.0]) for n in OPTIMAL},
                N_SUBSET,
            ),
        )
    return found


def kl_table(out: Out, found: Findings) -> None:
    """KL/KL* by r(U), the paper's beside ours."""
    header = ["r(U)", "paper"]
    for told in ("more ones", "fewer ones"):
        header += [f"{told}, quadrature", f"{told}, chains", "standard error"]
    rows = []
    for i, (r, printed) in enumerate(PAPER.items()):
        row = [r, printed]
        for j in range(len(SIGNS)):
            row += [found.exact[i, j], found.from_chains[i, j], found.errors[i, j]]
        rows.append(row)
    out.table("kl", header, rows)


def sizes_table(out: Out, found: Findings, from_chains: list[float]) -> None:
    """The optimal sub-posteriors beside the full posterior."""
    header = ["n", "ones", "KL, quadrature", "KL, chains", "mean", "mean of draws", "sd", "sd of draws"]
    moments = np.stack([found.means, found.means_of_draws, found.sds, found.sds_of_draws], axis=1)
    told = [[f"{value:.4f}" for value in row] for row in moments]
    sizes = zip((*OPTIMAL, ROWS), found.kl_by_size, from_chains, told, strict=True)
    out.table("sizes", header, [[n, n * ONES // ROWS, of, to, *row] for n, of, to, row in sizes])


if __name__ == "__main__":
    command("probit", run, SIZES, __doc__)
