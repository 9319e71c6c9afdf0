"""How the law of θ under Algorithm 1 approaches the mixture Σ_U ν(U) π(θ|Y_U) as L grows: exact and simulated.

python -m experiments.law_of_theta.run
"""

import argparse
from pathlib import Path

import numpy as np

import lwa
from experiments.law_of_theta import exact

HERE = Path(__file__).parent
EPSILON, SCALE, POWER = 2.0, 0.5, exact.N / exact.n
STEPS = (1, 2, 5, 10, 30)


def simulated(L: int, chains: int, draws: int, seed: int) -> np.ndarray:
    """Draws of θ by lwa, a row a chain."""
    model = lwa.Model(
        lambda theta, y: -0.5 * (y - theta) ** 2, lambda theta: -0.5 * (theta / exact.PRIOR_SD) ** 2, init=0.0
    )
    fit = lwa.sample(
        model, exact.Y, subset_size=exact.n, target="powered", summary=lwa.summaries.PerRow(lambda y: y),
        epsilon=EPSILON, draws=draws, tune=0, thinning=1, chains=chains, seed=seed, refresh_steps=L,
        kernel=lwa.kernels.RandomWalk(scale=SCALE), precision="float64", progress=False,
    )  # fmt: skip
    return fit.posterior["theta"][:, 100:]


def table(rows: list[dict[str, float]]) -> str:
    """Markdown."""
    lines = [
        "| L | TV to the mixture, exact | sd of θ, exact | sd of θ, simulated (standard error) |",
        "|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['L']} | {row['tv']:.5f} | {row['sd']:.4f} | {row['simulated']:.4f} ({row['error']:.4f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    grid, mixture = exact.GRID, exact.mixture(EPSILON, POWER)
    laws = {L: exact.stationary(EPSILON, POWER, SCALE, L).sum(0) for L in STEPS}
    draws = {L: simulated(L, given.chains, given.draws, given.seed) for L in STEPS}
    rows = []
    for L, law in laws.items():
        mean = (law * grid).sum()
        sds = draws[L].std(1)
        rows.append(
            {
                "L": L,
                "tv": 0.5 * np.abs(law - mixture).sum(),
                "sd": np.sqrt((law * (grid - mean) ** 2).sum()),
                "simulated": sds.mean(),
                "error": sds.std(ddof=1) / np.sqrt(len(sds)),
            }
        )
    (given.out / "law.md").write_text(table(rows) + "\n")
    print(table(rows))
    draw(given.out, grid, mixture, laws, draws, rows)


def draw(out, grid, mixture, laws, draws, rows) -> None:
    """Densities for L = 1, 2, 30 beside the mixture, and the distance against L."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), gridspec_kw={"width_ratios": [2.2, 1]})
    step = grid[1] - grid[0]
    left.fill_between(grid, mixture / step, color="0.85", label="mixture Σ ν(U) π(θ|Y_U)")
    for colour, L in zip(("tab:red", "tab:orange", "tab:blue"), (1, 2, 30), strict=True):
        left.plot(grid, laws[L] / step, color=colour, label=f"exact law, L = {L}")
        height, edges = np.histogram(draws[L].ravel(), bins=60, range=(-3, 4), density=True)
        left.plot((edges[1:] + edges[:-1]) / 2, height, ".", color=colour, markersize=4, label=f"lwa's draws, L = {L}")
    left.set(xlim=(-3, 4), ylim=(0, None), xlabel="θ", ylabel="density", title="θ's law for three values of L")
    left.legend(fontsize=8, frameon=False)
    right.loglog([row["L"] for row in rows], [row["tv"] for row in rows], "o-", color="0.2")
    right.set(xlabel="L, θ moves after a refresh of U", ylabel="total variation", title="Distance to the mixture")
    right.grid(alpha=0.3, which="both")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out / "law.png", dpi=140)


if __name__ == "__main__":
    main()
