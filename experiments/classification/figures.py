"""The rows of both classes, and four scenarios in time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from numpy.typing import NDArray

from experiments.classification.model import SHARE, bayes_error
from experiments.classification.paths import Scenario
from experiments.exhibit import COLOURS, tidy

SHOWN = 2000
"""Rows of each class in the picture."""
LABELS = {"lwa": "LWA-MCMC", "rival": "MHSubLhd"}
DASHES = {"lwa": "-", "rival": "--"}
FINE = 250
"""Times at which a path is drawn."""


def observations(rows: Mapping[str, Any], theta: NDArray[np.float64]) -> Figure:
    """Some rows, and two ellipses of each class that hold half and 99 % of its rows."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    label = np.asarray(rows["class"][: 10 * SHOWN])
    for j, colour in enumerate((COLOURS["lwa_light"], COLOURS["full"])):
        own = np.flatnonzero(label == j)[:SHOWN]
        axes.scatter(
            rows["y1"][own],
            rows["y2"][own],
            s=3,
            color=colour,
            alpha=0.4,
            lw=0,
            rasterized=True,
            label=f"class {j + 1}",
        )
        for share, style in ((0.5, "-"), (0.99, ":")):
            across = 2 * theta[4 + j] * np.sqrt(SHARE) * np.sqrt(-2 * np.log(1 - share))
            axes.add_patch(Ellipse(theta[2 * j : 2 * j + 2], *across, fill=False, ec="black", ls=style, lw=1))
    handles = [Line2D([], [], color="black", ls=style, lw=1) for style in ("-", ":")]
    handles[:0] = axes.collections
    names = ["class 1", "class 2", "half of a class", "99 % of a class"]
    axes.legend(handles, names, frameon=False, loc="upper center", ncols=4, fontsize=8, markerscale=3)
    axes.set(
        xlabel="first coordinate of Y", ylabel="second coordinate of Y", aspect="equal", ylim=(-0.9, 1.15),
        title=f"Two classes that hardly overlap: {SHOWN:,} rows of each",
    )  # fmt: skip
    tidy(axes)
    return figure


def scenarios(found: Sequence[Scenario]) -> Figure:
    """A row a scenario: paths, error on training data, error on test data, all against time."""
    figure = Figure(figsize=(10, 2.5 * len(found) + 0.6), layout="constrained")
    grid = figure.subplots(len(found), 3, squeeze=False, sharex=True)
    for number, (scenario, axes) in enumerate(zip(found, grid, strict=True), start=1):
        paths(axes[0], scenario)
        axes[0].set_ylabel(f"scenario {number}\nparameter")
        for one, purpose in zip(axes[1:], ("train", "test"), strict=True):
            errors(one, scenario, purpose)
    for axes, title in zip(grid[0], ("Sample paths", "Error on training data", "Error on test data"), strict=True):
        axes.set_title(title)
    for axes in grid[-1]:
        axes.set_xlabel("seconds since the first transition")
    figure.suptitle("From the same starts: LWA-MCMC and MHSubLhd in time", fontsize=13)
    styles = {name: {"color": COLOURS[name], "ls": DASHES[name]} for name in LABELS}
    handles = [Line2D([], [], **styles[name]) for name in LABELS] + [Line2D([], [], color=COLOURS["truth"], lw=1)]
    figure.legend(
        handles,
        [*LABELS.values(), "the truth; smallest error there is"],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    tidy(*grid.ravel())
    return figure


def paths(axes: Any, scenario: Scenario) -> None:
    """First coordinates of both means, and both σ, of both samplers."""
    times = np.geomspace(scenario.times[0], scenario.times[-1], FINE)
    for name, path in scenario.paths.items():
        for entry in (0, 2, 4, 5):
            axes.step(
                times, path.theta[path.at(times), entry], where="post", color=COLOURS[name], ls=DASHES[name], lw=0.9
            )
    for value, label in ((-1.0, "μ₁₁"), (1.0, "μ₂₁"), (scenario.sigma, "σ₁, σ₂")):
        axes.axhline(value, color=COLOURS["truth"], lw=0.8, zorder=0)
        axes.annotate(
            label, (1.0, value), xycoords=("axes fraction", "data"), xytext=(2, 0), textcoords="offset points",
            va="center", fontsize=8, color=COLOURS["truth"],
        )  # fmt: skip
    axes.set_xscale("log")


def errors(axes: Any, scenario: Scenario, purpose: str) -> None:
    """Error of the real-time classifier."""
    for name in scenario.paths:
        axes.step(
            scenario.times, scenario.errors[name, purpose], where="post", color=COLOURS[name], ls=DASHES[name], lw=1.2
        )
    axes.axhline(bayes_error(scenario.sigma), color=COLOURS["truth"], lw=0.8, zorder=0)
    axes.set(xscale="log", yscale="log", ylabel="error rate")
