"""Small pictures. Lines are SVG that stretches with its box; words are HTML beside it, so that they never shrink."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lwa.result.report import curves
from lwa.result.report.markup import Markup, fold, tag
from lwa.result.report.numbers import place_ticks

BOX_WIDTH, BOX_HEIGHT = 300.0, 100.0
"""The box that SVG draws in, whatever its size on the page."""
CHAIN_COLOURS = 8
"""Colours in the style sheet; a ninth chain looks like the first."""
OPEN_PANELS, MOST_PANELS = 8, 100
"""Panels that are open, and panels of a page in all: further parameters are only in the table and the intervals."""


def draw_densities(name: str, values: NDArray[np.float64], shown: NDArray[np.int64]) -> Markup:
    """Draw the density of all draws as an area, and of each chain shown as a line."""
    found = curves.estimate_densities(values, shown)
    if found is None:
        return draw_nothing(name)
    x = BOX_WIDTH * (found.places - found.low) / (found.high - found.low)
    area = _path([0.0, *x, BOX_WIDTH], _scale_up([0.0, *found.pooled, 0.0], 0.0, 1.05), "area")
    lines = [_path(x, _scale_up(chain, 0.0, 1.05), f"line {find_colour(i)}") for i, chain in enumerate(found.chains)]
    return build_panel(name, _svg(f"Posterior density of {name}", area, *lines), draw_axis(found.low, found.high))


def draw_ranks(name: str, values: NDArray[np.float64]) -> Markup:
    """Draw how often each chain has each rank; all lines are level if chains agree."""
    counts = curves.count_ranks(values)
    x = np.repeat(np.linspace(0, BOX_WIDTH, counts.shape[1] + 1), 2)[1:-1]
    top = max(2.0, 1.05 * counts.max())
    middle = _path([0.0, BOX_WIDTH], _scale_up([1.0, 1.0], 0.0, top), "rule")
    steps = [_scale_up(np.repeat(chain, 2), 0.0, top) for chain in counts]
    lines = [_path(x, y, f"line {find_colour(i)}") for i, y in enumerate(steps)]
    drawn = _svg(f"Ranks of {name}, chain by chain", middle, *lines)
    return build_panel(name, drawn, write_below("low", "rank", "high"))


def draw_trace(name: str, values: NDArray[np.float64], first: str = "first draw", last: str = "last") -> Markup:
    """Draw where each chain was."""
    between = curves.find_bounds(values)
    if between is None:
        return draw_nothing(name)
    low, high = between
    lines = []
    for i, chain in enumerate(values):
        when, where = curves.thin_trace(chain)
        y = _scale_up(np.clip(where, low, high), low, high)
        lines.append(_path(BOX_WIDTH * when, y, f"line thin {find_colour(i)}"))
    marks = place_ticks(low, high, 5)
    labels = [tag("span", words, style=f"bottom:{100 * (at - low) / (high - low):.1f}%") for at, words in marks]
    drawn = tag("div", *labels, class_="side"), _svg(f"Trace of {name}", *lines), tag("span")
    return build_panel(name, tag("div", *drawn, write_below(first, "", last), class_="sided"))


def draw_autocorrelation(name: str, values: NDArray[np.float64]) -> Markup:
    """Draw ρ from lag 1 on, and the range of independent draws by chance: ± 2 / √draws."""
    rho = curves.autocorrelation(values)
    if len(rho) < 2:
        return draw_nothing(name)
    lags = np.arange(1, len(rho))
    low = min(-0.2, 1.05 * rho.min())
    x = BOX_WIDTH * (lags - 0.5) / len(lags)
    zero, tops = _scale_up([0.0], low, 1.0)[0], _scale_up(rho[1:], low, 1.0)
    ends = zip(x, tops, strict=True)
    bars = " ".join(f"M{format_tenth(at)} {format_tenth(zero)}V{format_tenth(top)}" for at, top in ends)
    chance = min(1.0, 2.0 / np.sqrt(values.size))
    edges = [edge for edge in (chance, -chance) if edge > low]
    band = [_path([0.0, BOX_WIDTH], _scale_up([edge, edge], low, 1.0), "rule dashed") for edge in edges]
    drawn = tag("path", d=bars, class_="line c0 bars", style=f"stroke-width:{max(1.5, 90 / len(lags)):.1f}px")
    rule = _path([0.0, BOX_WIDTH], [zero, zero], "rule")
    picture = _svg(f"Autocorrelation of {name}", rule, *band, drawn)
    return build_panel(name, picture, write_below("lag 1", "", str(len(lags))))


def draw_nothing(name: str) -> Markup:
    """Return a sentence in place of a picture."""
    return build_panel(name, tag("p", "All draws are the same, or none is finite.", class_="still"))


def build_panel(name: str, *parts: object) -> Markup:
    """Return a picture under its name."""
    return tag("figure", tag("figcaption", name, title=name), *parts, class_="panel")


def build_panels(figures: Sequence[Markup], parameters: int, what: str) -> Markup:
    """Return panels side by side, as wide as the page allows; all but the first open when clicked."""
    shown, rest, left_out = figures[:OPEN_PANELS], figures[OPEN_PANELS:], parameters - len(figures)
    more = fold(f"{len(rest)} more {what}", tag("div", *rest, class_="panels")) if rest else None
    note = tag("p", f"{left_out:,} more parameters have no panel here; all are in the table.", class_="note")
    return tag("div", tag("div", *shown, class_="panels"), more, note if left_out else None)


def draw_axis(low: float, high: float) -> Markup:
    """Return round numbers below a picture."""
    labels = []
    for at, words in place_ticks(low, high):
        share = 100 * (at - low) / (high - low)
        side = "first" if share < 6 else "last" if share > 94 else None  # these stay inside the picture
        labels.append(tag("span", words, class_=side, style=f"left:{share:.1f}%"))
    return tag("div", *labels, class_="axis", aria_hidden="true")


def write_below(left: str, middle: str, right: str) -> Markup:
    """Return three words below a picture."""
    return tag("div", tag("span", left), tag("span", middle), tag("span", right), class_="ends")


def list_chain_colours(shown: NDArray[np.int64]) -> Markup:
    """Return the colour of each chain shown."""
    dots = [tag("i", class_=f"dot {find_colour(i)}") for i in range(CHAIN_COLOURS)]
    marks = [tag("span", dot, f"chain {chain}") for dot, chain in zip(dots, shown, strict=False)]
    more = tag("span", "and so on, colours repeat") if len(shown) > CHAIN_COLOURS else None
    return tag("p", *marks, more, class_="key")


def find_colour(chain: int) -> str:
    """Return the CSS class of a chain's colour."""
    return f"c{chain % CHAIN_COLOURS}"


def _svg(label: str, *shapes: Markup) -> Markup:
    box = f"0 0 {BOX_WIDTH:g} {BOX_HEIGHT:g}"
    return tag("svg", *shapes, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label)


def _scale_up(values: Sequence[float] | NDArray[np.float64], low: float, high: float) -> list[float]:
    return list(BOX_HEIGHT * (1.0 - (np.asarray(values) - low) / (high - low)))


def _path(x: Sequence[float] | NDArray[np.float64], y: Sequence[float], classes: str) -> Markup:
    """Return a line through these points, with a gap wherever a value is not finite."""
    parts, drawing = [], False
    for across, up in zip(x, y, strict=True):
        if not np.isfinite(up):
            drawing = False
            continue
        parts.append(f"{'L' if drawing else 'M'}{format_tenth(across)} {format_tenth(up)}")
        drawing = True
    return tag("path", d="".join(parts), class_=classes)


def format_tenth(value: float) -> str:
    """Return a coordinate to a tenth, as short as possible."""
    return f"{value:.1f}".removesuffix(".0")


def draw_quantities(lines: Sequence[tuple[str, float, str]]) -> Markup:
    """Draw quantities of one kind as bars: label, size and the words beside it."""
    longest = max(size for _, size, _ in lines) or 1.0
    bars = [tag("div", tag("i", style=f"width:{100 * size / longest:.2f}%"), class_="bar") for _, size, _ in lines]
    shown = [
        tag("div", tag("span", label), bar, tag("span", words, class_="amount"))
        for bar, (label, _, words) in zip(bars, lines, strict=True)
    ]
    return tag("div", *shown, class_="bars-table")
