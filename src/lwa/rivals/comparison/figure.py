"""The figure of a comparison: error against time, and rows per step."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lwa.rivals.comparison.table import Comparison, Line

type Colour = tuple[float, float, float]


def draw_figure(comparison: "Comparison", path: Path) -> Path:
    """Draw two panels. Each method has one colour, lwa is drawn heavier, approximate methods are dashed."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    lines = comparison.ran
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.45, 1])
    palette = [*colormaps["tab10"].colors, *colormaps["Dark2"].colors]  # type: ignore[attr-defined]
    colours = dict(zip([line.method for line in lines], palette[: len(lines)], strict=True))
    ends = []
    for line in lines:
        if line.curve:
            seconds, errors = (np.array(one) for one in zip(*line.curve, strict=True))
            own = line.method.startswith("lwa")
            left.loglog(
                seconds, errors, color=colours[line.method], linewidth=2.6 if own else 1.5,
                linestyle="-" if line.exact or own else (0, (5, 1.5)), zorder=3 if own else 2,
            )  # fmt: skip
            ends.append((line.method, seconds[-1], errors[-1]))
    label_ends(left, ends, colours)
    left.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    left.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    left.xaxis.set_minor_formatter(NullFormatter())
    left.set_xlabel("seconds since the call")
    left.set_ylabel("error, posterior sds (means and sds, root mean square)")
    left.set_title("Error against time", loc="left")
    left.grid(alpha=0.3, which="both", linewidth=0.5)
    draw_bars(right, lines, colours, comparison.rows)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    return path


def label_ends(axes: "Axes", ends: list[tuple[str, float, float]], colours: dict[str, Colour]) -> None:
    """Write names beside the ends of curves, pushed apart if they would overlap."""
    if not ends:
        return
    low, high = axes.get_ylim()
    span = np.log(high / low)
    ordered = sorted(ends, key=lambda end: end[2])
    heights = np.log([end[2] for end in ordered]) - np.log(low)
    gap = span / 24
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    heights -= max(0.0, heights[-1] - span)
    for i in range(len(heights) - 2, -1, -1):
        heights[i] = min(heights[i], heights[i + 1] - gap)
    right = max(end[1] for end in ends)
    for (method, _, _), height in zip(ordered, heights, strict=True):
        axes.annotate(
            method, (right, low * np.exp(height)), xytext=(6, 0), textcoords="offset points", va="center",
            fontsize=8.5, color=colours[method], annotation_clip=False,
        )  # fmt: skip


def draw_bars(axes: "Axes", lines: "list[Line]", colours: dict[str, Colour], rows: int) -> None:
    """Draw rows per step, with N for scale."""
    ordered = sorted(lines, key=lambda line: -line.rows_per_step)
    names = [line.method for line in ordered]
    reads = [line.rows_per_step for line in ordered]
    axes.barh(names, reads, color=[colours[name] for name in names], height=0.65)
    axes.set_xscale("log")
    axes.axvline(rows, color="0.3", linewidth=1, linestyle=":")
    axes.annotate(
        f"N = {rows:,}", (rows, len(names) - 0.45), fontsize=8.5, color="0.3", ha="center", annotation_clip=False
    )
    for i, read in enumerate(reads):
        axes.annotate(f"{read:,.0f}", (read, i), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(min([*reads, rows]) / 3, max([*reads, rows]) * 6)
    axes.set_title("Rows read per step", loc="left")
    axes.tick_params(axis="y", length=0, labelsize=8.5)
