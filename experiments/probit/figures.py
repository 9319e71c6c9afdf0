"""Densities by quadrature, and histograms of the chains' draws on top of them."""

from collections.abc import Mapping

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.exhibit import COLOURS, tidy
from experiments.proposition.quadrature import Array, Law


def probit(
    full: tuple[Law, Array],
    mismatched: Mapping[float, tuple[Law, Array]],
    optimal: Mapping[int, tuple[Law, Array]],
    rows: int,
) -> Figure:
    """Sub-posteriors of so many rows by ξ_U (top), and the optimal ones by n (bottom); each a law and its draws."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    top, bottom = figure.subplots(2)

    largest = max(abs(xi) for xi in mismatched)
    for xi in sorted(mismatched, key=lambda xi: (abs(xi), xi)):
        colour = colormaps["YlOrRd"](0.35 + 0.6 * abs(xi) / largest) if xi else COLOURS["truth"]
        told = "r(U) = 0, optimal" if xi == 0 else f"r(U) = {abs(xi):.2g}, {'more' if xi > 0 else 'fewer'} ones"
        both(top, *mismatched[xi], colour, told, "--" if xi < 0 else "-")
    both(top, *full, COLOURS["full"], "full posterior \n(peak cut off)")
    top.set(ylim=(0, 1.35 * max(np.exp(law.log_density).max() for law, _ in mismatched.values())), xlim=(0.1, 2.1))
    top.set_title(f"Sub-posteriors of {rows} rows: the larger r(U), the further from the full posterior")

    shades = colormaps["YlOrRd"](np.linspace(0.35, 0.95, len(optimal)))
    for colour, n in zip(shades, sorted(optimal), strict=True):
        both(bottom, *optimal[n], colour, f"n = {n:,}, r(U) = 0")
    both(bottom, *full, COLOURS["full"], "full posterior")
    bottom.set(xlim=(0.4, 1.6), ylim=(0, None))
    bottom.set_title("Optimal sub-posteriors: the centre stays, the width shrinks with n")
    for axes in (top, bottom):
        axes.set(xlabel="θ (in units of γ)", ylabel="density")
        axes.legend(
            frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5), alignment="left", title_fontsize=9,
            title="lines: quadrature\ndots: draws by lwa\n",
        )  # fmt: skip
    tidy(top, bottom)
    return figure


def both(axes: Axes, law: Law, draws: Array, colour, told: str, style: str = "-") -> None:
    """The density as a line, a histogram of the draws as dots."""
    near = np.abs(law.theta - law.mean) < 5 * law.sd
    axes.plot(law.theta[near][::6], np.exp(law.log_density[near][::6]), style, color=colour, label=told, lw=1.6)
    edges = np.linspace(law.mean - 3.5 * law.sd, law.mean + 3.5 * law.sd, 36)
    height = np.histogram(draws, edges)[0] / (draws.size * np.diff(edges))
    axes.plot((edges[1:] + edges[:-1]) / 2, height, ".", color=colour, markersize=4)
