"""The two halves of the paper's figure: templates as time passes, and how far the running mean is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.digits.images import DIGITS, SIDE
from experiments.exhibit import COLOURS, tidy

MOST_POINTS = 400
"""Of a curve: enough for a line, few enough for a small SVG."""


def template_figure(names: Sequence[str], rows: Sequence[str], pictures: np.ndarray, reference: np.ndarray) -> Figure:
    """Templates `(method, row, 5, 15, 15)`, a panel a method, and the MAP's in the last row of each."""
    shown = np.concatenate([pictures, np.broadcast_to(reference, (len(names), 1, *reference.shape))], axis=1)
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    panels = figure.subplots(1, len(names))
    middles = np.arange(len(rows) + 1) * (SIDE + 1) + (SIDE - 1) / 2
    for axes, name, of_method in zip(panels, names, shown, strict=True):
        image = axes.imshow(mosaic(of_method), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(f"{name}:\nthe running mean, from blank images on", fontsize=11)
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


class Curve(NamedTuple):
    """A chain's running mean: what was spent until each kept state, and d there."""

    name: str
    spent: np.ndarray  # seconds, or rows
    moves: np.ndarray
    d: Mapping[str, np.ndarray]  # by space


def distance_figure(curves: Sequence[Curve], limit: Mapping[str, float], unit: str) -> Figure:
    """d against what was spent and against moves, in pixels, and against what was spent in control points."""
    figure = Figure(figsize=(13, 5), layout="constrained")
    figure.suptitle("How far the running mean of each chain is from the MAP")
    panels = (
        ("pixels", "spent", unit, "Pixels, φ(θ): what is seen"),
        ("pixels", "moves", "transitions", "The same, transition by transition"),
        ("controls", "spent", unit, "Control points, θ: what φ hides included"),
    )
    for axes, (space, along, label, title) in zip(figure.subplots(1, 3), panels, strict=True):
        for colour, curve in zip((COLOURS["full"], COLOURS["lwa"]), curves, strict=True):
            at = getattr(curve, along)
            kept = spread_out(at)
            axes.loglog(at[kept], curve.d[space][kept], color=colour, label=curve.name, linewidth=1.8)
        axes.axhline(
            limit[space], color=COLOURS["lwa_light"], linestyle="--", linewidth=1.2,
            label="where LWA's running mean goes, in closed form",
        )  # fmt: skip
        axes.set(xlabel=label, ylabel=f"d, units of {'ink' if space == 'pixels' else 'θ'}", title=title)
        axes.grid(alpha=0.25)
        tidy(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def spread_out(spent: np.ndarray) -> np.ndarray:
    """Places of some points that are evenly spread on a logarithmic axis, the first and last among them."""
    first = max(spent[0], spent[-1] / 1e5)
    return np.unique(np.searchsorted(spent, np.geomspace(first, spent[-1], MOST_POINTS)).clip(0, len(spent) - 1))
