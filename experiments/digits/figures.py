"""The two halves of the paper's figure: templates as time passes, and how far the running mean is."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.digits.images import DIGITS, SIDE
from experiments.exhibit import COLOURS, tidy

MOST_POINTS = 400
"""Of a curve: enough for a line, few enough for a small SVG."""


def template_figure(
    names: Sequence[str], rows: Sequence[str], pictures: np.ndarray, reference: np.ndarray, told: str
) -> Figure:
    """Templates `(method, row, 5, 15, 15)`, a panel a method, and the MAP's in the last row of each."""
    shown = np.concatenate([pictures, np.broadcast_to(reference, (len(names), 1, *reference.shape))], axis=1)
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    figure.suptitle(told)
    panels = figure.subplots(1, len(names))
    middles = np.arange(len(rows) + 1) * (SIDE + 1) + (SIDE - 1) / 2
    for axes, name, of_method in zip(panels, names, shown, strict=True):
        image = axes.imshow(mosaic(of_method), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(name, fontsize=11)
        axes.set_xticks(middles[: len(DIGITS)], [f"digit {digit}" for digit in DIGITS])
        axes.set_yticks(middles, [*rows, "MAP"])
        axes.tick_params(length=0)
        axes.axhline(len(rows) * (SIDE + 1) - 1, color=COLOURS["truth"], linewidth=2)
    bar = figure.colorbar(image, ax=list(panels), location="bottom", shrink=0.5, aspect=50)
    bar.set_label("ink of a pixel: 0 is paper, 1 is black (cut at both)")
    return figure


def mosaic(pictures: np.ndarray) -> np.ndarray:
    """Pictures `(row, column, 15, 15)` as one, a pixel of nothing between them."""
    framed = np.pad(pictures, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    return framed.swapaxes(1, 2).reshape(len(pictures) * (SIDE + 1), -1)[:-1, :-1]


def distance_figure(
    curves: Mapping[str, tuple[np.ndarray, Mapping[str, np.ndarray]]], floor: Mapping[str, float], unit: str
) -> Figure:
    """d against what was spent, in pixel space and control space; `curves` has spent and d by space, a method each."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    figure.suptitle("How far the running mean of the chain is from the MAP, start included")
    titles = {"pixels": "pixel space, φ(θ)", "controls": "control points, θ"}
    units = {"pixels": "d, ink units (0 to 1)", "controls": "d, units of θ"}
    colours = (COLOURS["full"], COLOURS["lwa"])
    for axes, space in zip(figure.subplots(1, 2), titles, strict=True):
        for colour, (name, (spent, d)) in zip(colours, curves.items(), strict=True):
            kept = spread_out(spent)
            axes.loglog(spent[kept], d[space][kept], color=colour, label=name, linewidth=1.8)
        axes.axhline(
            floor[space], color=COLOURS["lwa_light"], linestyle="--", linewidth=1.2,
            label="where LWA's mean goes, in closed form",
        )  # fmt: skip
        axes.set(xlabel=unit, ylabel=units[space], title=titles[space])
        axes.grid(alpha=0.25, which="both")
        axes.legend(frameon=False, fontsize=9)
        tidy(axes)
    return figure


def spread_out(spent: np.ndarray) -> np.ndarray:
    """Places of a few hundred points that are evenly spread on a logarithmic axis, the first and last among them."""
    first = max(spent[0], spent[-1] / 1e5)
    return np.unique(np.searchsorted(spent, np.geomspace(first, spent[-1], MOST_POINTS)).clip(0, len(spent) - 1))
