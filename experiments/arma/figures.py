"""The exhibit's figures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

from experiments.arma.model import NAMES, TRUTH
from experiments.arma.paths import NEAR, Path, shown
from experiments.arma.posterior import Moments
from experiments.arma.runs import GRIDS, Runs
from experiments.exhibit import COLOURS, tidy

REACH = (0.55, 0.55, 1.1)
"""Half the width of the axes around θ*, for sub-posteriors of 100 steps."""


BAND = "20–80 % of the runs"


def truth_line(axes: Any, i: int, *, across: bool = True) -> None:
    """θ*, in the colour it has everywhere."""
    draw = axes.axhline if across else axes.axvline
    draw(TRUTH[i], color=COLOURS["truth"], linewidth=1.5, label="truth θ*")


def paths_figure(paths: Mapping[str, Path], colours: Mapping[str, str], budget: str) -> Figure:
    """A panel a parameter: the chains against seconds since the call."""
    figure = Figure(figsize=(9, 8), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    for i, axes in enumerate(panels):
        axes.axhspan(TRUTH[i] - NEAR, TRUTH[i] + NEAR, color=COLOURS["truth"], alpha=0.12, linewidth=0)
        for above, (name, path) in enumerate(reversed(paths.items())):  # the narrowest on top
            at = shown(path)
            given = {"color": colours[name], "linewidth": 1.0, "label": name, "zorder": 2 + 0.1 * above}
            axes.plot(path.seconds[at], path.theta[at, i], **given)
        truth_line(axes, i)
        axes.set(xscale="log", ylabel=f"{NAMES[i]}")
    panels[-1].set_xlabel("seconds since the first transition (log scale)")
    panels[0].legend(frameon=False, fontsize=9, ncols=2, loc="lower right")
    tidy(*panels)
    figure.suptitle(f"One chain each from the same start, {budget}: θ against time (shaded: near θ*)")
    return figure


def boxplots_figure(boxes: Mapping[int, Runs]) -> Figure:
    """A panel a parameter: boxes of all draws, and of the runs' means, for each n."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for i, axes in enumerate(panels):
        for at, runs in enumerate(boxes.values()):
            low, first, median, third, high = runs.quantiles[i]
            drawn = {"whislo": low, "q1": first, "med": median, "q3": third, "whishi": high}
            box(axes, [drawn], at - 0.18, COLOURS["lwa"], "all draws (whiskers: 5 % and 95 %)" if at == 0 else None)
            low, first, median, third, high = np.quantile(runs.means[:, i], [0.05, 0.25, 0.5, 0.75, 0.95])
            drawn = {"whislo": low, "q1": first, "med": median, "q3": third, "whishi": high}
            box(axes, [drawn], at + 0.18, COLOURS["grey"], "means of the runs" if at == 0 else None)
        truth_line(axes, i)
        axes.set(title=NAMES[i], xlabel="n, steps of a window", ylabel=NAMES[i])
        axes.set_xticks(range(len(boxes)), [f"{n:,}" for n in boxes])
    tidy(*panels)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    count = len(next(iter(boxes.values())).means)
    figure.suptitle(f"{count} runs each under the same budget, ε = 1: the spread shrinks with n")
    return figure


def box(axes: Any, stats: list[dict[str, float]], at: float, colour: str, label: str | None) -> None:
    """One box of given quantiles."""
    axes.bxp(
        stats, positions=[at], widths=0.28, showfliers=False, patch_artist=True, label=label,
        boxprops={"facecolor": colour, "alpha": 0.5}, medianprops={"color": "black"},
    )  # fmt: skip


def densities_figure(rows: Mapping[str, Runs], title: str) -> Figure:
    """A row a setup, a column a parameter: mean density over the runs and its band from 20 % to 80 %."""
    figure = Figure(figsize=(10, 1.0 + 2.0 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), 3, sharex="col", squeeze=False)
    for (name, runs), line in zip(rows.items(), panels, strict=True):
        for i, axes in enumerate(line):
            inside = np.abs(GRIDS[NAMES[i]] - TRUTH[i]) <= REACH[i]
            grid, density = GRIDS[NAMES[i]][inside], runs.density[i][:, inside]
            low, high = np.quantile(density, [0.2, 0.8], axis=0)
            axes.fill_between(grid, low, high, color=COLOURS["lwa_light"], alpha=0.5, linewidth=0, label=BAND)
            axes.plot(grid, density.mean(0), color=COLOURS["lwa"], label="mean density")
            axes.axvline(runs.mean[i], color=COLOURS["full"], linestyle="--", label="mean of the mean density")
            truth_line(axes, i, across=False)
            axes.set(xlim=(TRUTH[i] - REACH[i], TRUTH[i] + REACH[i]), ylim=(0, None))
        line[0].set_ylabel(f"{name}\ndensity")
    for i, axes in enumerate(panels[-1]):
        axes.set_xlabel(NAMES[i])
    tidy(*panels.ravel())
    handles = panels[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(title)
    return figure


def calibrated_figure(full: Moments, calibrated: np.ndarray, sub: Runs, n: int) -> Figure:
    """A column a parameter: above on the scale of the paper's sub-posterior, below on that of the full posterior."""
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    panels = figure.subplots(2, 3)
    for i, (wide, close) in enumerate(panels.T):
        draws = calibrated[..., i].ravel()
        for axes, reach in ((wide, 4 * sub.sd[i]), (close, 4.5 * full.sd[i])):
            grid = np.linspace(full.mean[i] - reach, full.mean[i] + reach, 801)
            height = norm.pdf(grid, full.mean[i], full.sd[i])
            axes.plot(grid, height, color=COLOURS["full"], linewidth=2.2, label="full posterior (quadrature)")
            bins = np.linspace(full.mean[i] - 4.5 * full.sd[i], full.mean[i] + 4.5 * full.sd[i], 61)
            axes.hist(draws, bins, density=True, histtype="step", color=COLOURS["lwa"], label=f"calibrated, n = {n:,}")
            curve = np.interp(grid, GRIDS[NAMES[i]], sub.density[i].mean(0))
            axes.plot(grid, curve, color=COLOURS["lwa_light"], linewidth=2, label=f"paper's sub-posterior, n = {n:,}")
            truth_line(axes, i, across=False)
            axes.set(xlim=(grid[0], grid[-1]))
        wide.set(title=NAMES[i], ylim=(0, 1.3 * sub.density[i].mean(0).max()))
        close.set(xlabel=NAMES[i], ylim=(0, None))
        close.locator_params(axis="x", nbins=4)
        close.ticklabel_format(axis="x", useOffset=False)
    panels[0, 0].set_ylabel("density, cut off\n(scale of the sub-posterior)")
    panels[1, 0].set_ylabel("density\n(scale of the full posterior)")
    tidy(*panels.ravel())
    handles = panels[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle("The calibrated target draws the full posterior; the sub-posterior of n steps is far wider")
    return figure
