"""Proposition 1: KL(π‖π_U), the paper's bound and a finite one, by quadrature for two exponential families.

python -m experiments.proposition.run --scale paper
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from experiments.exhibit import Out, command
from experiments.proposition import figures
from experiments.proposition.bounds import finite_bound, paper_bound, psi, signed_bound
from experiments.proposition.quadrature import GAUSSIAN, PROBIT, Array, Problem, kl

N = 10_000
PROBLEMS = (Problem(PROBIT, N, 0.84), Problem(GAUSSIAN, N, 1.0))
"""The data of the probit exhibit; and Gaussian ones of the same number, of variance 1 and mean θ* = 1."""
COMPACT = (-3.0, 5.0)
"""Θ for the paper's bound: θ* ± 4, that is ± 4γ or ± 4 sds of a row."""
OTHER_COMPACT = ((0.9, 1.1), (0.5, 1.5), (0.0, 2.0), COMPACT)
"""How the paper's bound depends on Θ."""
SHOWN_N = 100
TABLE_N, TABLE_R = (100, 1000), (0.0, 0.01, 0.04, 0.07, 0.1, 0.2)
MOST_R = 0.15
"""Checks go up to here: from 1 - 0.84 = 0.16 on the finite bound of the probit model is infinite."""


@dataclass(frozen=True)
class Size:
    """How fine the grids of n and of r(U) are."""

    sizes: int
    mismatches: int
    curve: int


SIZES = {"paper": Size(sizes=16, mismatches=31, curve=101), "small": Size(sizes=4, mismatches=6, curve=41)}


class Checked(NamedTuple):
    """One model at all n (rows) and all ξ_U (columns, rising, 0 in the middle)."""

    name: str
    n: Array
    xi: Array
    kl: Array
    signed: Array
    finite: Array
    kl_compact: Array
    paper: Array


class Findings(NamedTuple):
    checked: list[Checked]
    psi_by_Theta: Array
    """Ψ at n = 100: models, then Θ as in `OTHER_COMPACT`, then the real line."""


def run(size: Size, seed: int, out: Out) -> Findings:
    """Nothing here is random: the seed is not used."""
    with out.stage("bounds over all n and ξ"):
        checked = [check(problem, size) for problem in PROBLEMS]
    with out.stage("Ψ for other Θ"):
        found = Findings(checked, np.array([psis(problem) for problem in PROBLEMS]))
    with out.stage("figure and tables"):
        bounds_table(out)
        checks_table(out, found.checked)
        psi_table(out, found.psi_by_Theta)
        by_mismatch = [against_mismatch(problem, size.curve) for problem in PROBLEMS]
        by_size = [against_size(problem, size.curve) for problem in PROBLEMS]
        out.figure("bounds", figures.bounds(by_mismatch, by_size, SHOWN_N, COMPACT))
    return found


def check(problem: Problem, size: Size) -> Checked:
    """KL and bounds for every pair of n and ξ_U."""
    compact = replace(problem, Theta=COMPACT)
    n = np.unique(np.geomspace(1, 0.9 * N, size.sizes).round().astype(int))
    r = np.linspace(0.0, MOST_R, size.mismatches)
    xi = np.concatenate([-r[:0:-1], r])
    values = np.array([[at(problem, compact, rows, one) for one in xi] for rows in n])
    return Checked(problem.family.name, n, xi, *np.moveaxis(values, -1, 0))


def at(problem: Problem, compact: Problem, n: int, xi: float) -> tuple[float, ...]:
    """The fields of `Checked` from `kl` on: the paper's bound is held against KL on the same compact Θ."""
    return (
        divergence(problem, n, xi),
        signed_bound(problem, n, xi),
        finite_bound(problem, n, xi),
        divergence(compact, n, xi),
        paper_bound(compact, n, xi),
    )


def psis(problem: Problem) -> list[float]:
    """Ψ for each Θ, and for the real line, where it warns that it is infinite."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The likelihood of the .* has infimum 0")
        return [psi(replace(problem, Theta=Theta), SHOWN_N) for Theta in (*OTHER_COMPACT, None)]


def against_mismatch(problem: Problem, points: int) -> figures.Curves:
    """At n = 100, up to r(U) = 0.2; the probit model has no mean above 1."""
    compact, r = replace(problem, Theta=COMPACT), np.linspace(0.0, 0.2, points)
    room = 1 - problem.mean if problem.family is PROBIT else np.inf
    return figures.Curves(
        problem.family.name,
        r,
        np.array([divergence(problem, SHOWN_N, one) if one <= room else np.nan for one in r]),
        np.array([divergence(problem, SHOWN_N, -one) for one in r]),
        np.array([finite_bound(problem, SHOWN_N, one) for one in r]),
        np.array([paper_bound(compact, SHOWN_N, one) for one in r]),
        room if np.isfinite(room) else None,
    )


def against_size(problem: Problem, points: int) -> figures.Curves:
    """At r(U) = 0, for n from 1 to 9,000."""
    compact, n = replace(problem, Theta=COMPACT), np.geomspace(1, 0.9 * N, points)
    divergences = np.array([divergence(problem, rows, 0.0) for rows in n])
    return figures.Curves(
        problem.family.name,
        n,
        divergences,
        divergences,
        np.array([finite_bound(problem, rows, 0.0) for rows in n]),
        np.array([paper_bound(compact, rows, 0.0) for rows in n]),
    )


def divergence(problem: Problem, n: float, xi: float) -> float:
    return kl(problem.full, problem.sub(n, xi))


def bounds_table(out: Out) -> None:
    """A few n and r(U), for both signs."""
    header = ["model", "n", "r(U)", "KL, ξ > 0", "KL, ξ < 0", "finite bound", f"paper's bound, Θ = {told(COMPACT)}"]
    rows = []
    for problem in PROBLEMS:
        compact = replace(problem, Theta=COMPACT)
        for n in TABLE_N:
            for r in TABLE_R:
                possible = problem.family is not PROBIT or problem.mean + r <= 1
                above = divergence(problem, n, r) if possible else np.nan
                below = divergence(problem, n, -r)
                row = [problem.family.name, n, r, above, below]
                rows.append([*row, finite_bound(problem, n, r), paper_bound(compact, n, r)])
    out.table("bounds", header, rows)


def checks_table(out: Out, checked: list[Checked]) -> None:
    """Whether each bound holds, is least at ξ_U = 0 and grows with |ξ_U|, at all pairs."""
    header = [
        "model",
        "bound",
        "pairs of n and ξ",
        "holds",
        "least at ξ = 0",
        "ordered by r(U)",
        "least gap",
        "largest gap",
    ]
    rows: list[list[Any]] = []
    for one in checked:
        rows.append([one.name, "none: KL itself", one.kl.size, "", *shape(one.kl), "", ""])
        for name, bound, of in (
            ("the paper's", one.paper, one.kl_compact), ("finite", one.finite, one.kl), ("signed", one.signed, one.kl)
        ):  # fmt: skip
            gap = bound - of
            rows.append([one.name, name, gap.size, yes(holds(bound, of)), *shape(bound), gap.min(), gap.max()])
    out.table("checks", header, rows)


def holds(bound: Array, divergences: Array) -> bool:
    """At every pair, up to rounding of numbers of this size."""
    return bool((bound - divergences >= -1e-12 * np.abs(bound)).all())


def least_at_zero(bound: Array) -> bool:
    """At every n."""
    return bool((bound.argmin(1) == bound.shape[1] // 2).all())


def ordered(bound: Array) -> bool:
    """Between any two ξ_U the one that is nearer 0 has the lower bound, whatever their signs."""
    middle = bound.shape[1] // 2
    below, above = bound[:, middle::-1], bound[:, middle:]
    return bool((np.maximum(below, above)[:, :-1] <= np.minimum(below, above)[:, 1:]).all())


def shape(bound: Array) -> tuple[str, str]:
    """Parts (ii) and (iii) of the proposition."""
    return yes(least_at_zero(bound)), yes(ordered(bound))


def yes(true: bool) -> str:
    return "yes" if true else "no"


def psi_table(out: Out, values: Array) -> None:
    """Ψ, by which the paper's bound lies above everything else, for several Θ."""
    names = [told(Theta) for Theta in OTHER_COMPACT] + ["ℝ"]
    rows = [[name, *values[:, i]] for i, name in enumerate(names)]
    out.table("psi", ["Θ", *(f"Ψ, {problem.family.name}" for problem in PROBLEMS)], rows)


def told(Theta: tuple[float, float]) -> str:
    return f"[{Theta[0]:g}, {Theta[1]:g}]"


if __name__ == "__main__":
    command("proposition", run, SIZES, __doc__)
