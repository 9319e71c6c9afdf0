"""The two halves of the paper's figure: templates as time passes, and how far the running mean is."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.digits.images import DIGITS
from experiments.exhibit import COLOURS, tidy

MOST_POINTS = 400
"""Of a curve: enough for a line, few enough for a small SVG."""


def template_figure(
    names: Sequence[str], rows: Sequence[str], pictures: np.ndarray, reference: np.ndarray, told: str
) -> Figure:
    """Templates `(method, row, 5, 15, 15)`, a block of columns a method, and the MAP's in a last row of each."""
    shown = np.concatenate([pictures, np.broadcast_to(reference, (len(names), 1, *reference.shape))], axis=1)
    figure = Figure(figsize=(11, 1.12 * len(rows) + 2.3), layout="constrained")
    figure.suptitle(told, fontsize=11)
    for part, name, of_method in zip(figure.subfigures(1, len(names)), names, shown, strict=True):
        part.suptitle(name, fontsize=11)
        axes = part.subplots(len(rows) + 1, len(DIGITS), gridspec_kw={"wspace": 0.03, "hspace": 0.03})
        for line, label, of_row in zip(axes, [*rows, "MAP"], of_method, strict=True):
            for place, picture in zip(line, of_row, strict=True):
                image = place.imshow(picture, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
                place.set(xticks=[], yticks=[])
            line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        for place, digit in zip(axes[-1], DIGITS, strict=True):
            place.set_xlabel(f"digit {digit}", fontsize=9)
    bar = figure.colorbar(image, ax=figure.axes, orientation="horizontal", shrink=0.4, aspect=40, pad=0.02)
    bar.set_label("ink of a pixel (0 is paper, 1 is black; scale cut at 0 and 1)", fontsize=9)
    return figure


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
