"""Small pictures. Lines are SVG that stretches with its box; words are HTML beside it, so they never shrink with it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lwa.result.report import curves
from lwa.result.report.markup import Markup, folded, tag
from lwa.result.report.numbers import ticks

WIDE, HIGH = 300.0, 100.0
"""Of the box that SVG draws in, whatever the size on the page."""
COLOURS = 8
"""Of chains, as the style sheet has them; a ninth chain looks like the first."""
OPEN, MOST = 8, 100
"""Panels that are seen at once, and all that a page holds: others' parameters are in the table and the forest."""


def densities_of(name: str, values: NDArray[np.float64], shown: NDArray[np.int64]) -> Markup:
    """All draws as an area, each chain that is shown as a line."""
    found = curves.densities(values, shown)
    if found is None:
        return still(name)
    x = _across(found.places, found.low, found.high)
    area = _path([0.0, *x, WIDE], _up([0.0, *found.pooled, 0.0], 0.0, 1.05), "area")
    lines = [
        _path(x, _up(chain, 0.0, 1.05), f"line {colour(i)}") for i, chain in enumerate(found.chains)
    ]  # fmt: skip
    return panel(name, _svg(f"Posterior density of {name}", area, *lines), axis(found.low, found.high))


def ranks_of(name: str, values: NDArray[np.float64]) -> Markup:
    """How often each chain has each rank; all lines are at the middle where chains agree."""
    counts = curves.rank_counts(values)
    x = np.repeat(np.linspace(0, WIDE, counts.shape[1] + 1), 2)[1:-1]
    top = max(2.0, 1.05 * counts.max())
    middle = _path([0.0, WIDE], _up([1.0, 1.0], 0.0, top), "rule")
    lines = [_path(x, _up(np.repeat(chain, 2), 0.0, top), f"line {colour(i)}") for i, chain in enumerate(counts)]
    return panel(name, _svg(f"Ranks of {name}, chain by chain", middle, *lines), ends("low", "rank", "high"))


def trace_of(name: str, values: NDArray[np.float64], first: str = "first draw", last: str = "last") -> Markup:
    """Where each chain was."""
    between = curves.bounds(values)
    if between is None:
        return still(name)
    low, high = between
    lines = []
    for i, chain in enumerate(values):
        when, where = curves.trace_points(chain)
        lines.append(_path(WIDE * when, _up(np.clip(where, low, high), low, high), f"line thin {colour(i)}"))
    marks = ticks(low, high, 3)
    labels = [tag("span", words, style=f"bottom:{100 * (at - low) / (high - low):.1f}%") for at, words in marks]
    drawn = tag("div", tag("div", *labels, class_="side"), _svg(f"Trace of {name}", *lines), class_="sided")
    return panel(name, drawn, ends(first, "", last))


def autocorrelation_of(name: str, values: NDArray[np.float64]) -> Markup:
    """ρ from lag 1 on, with what chance leaves at independent draws: ± 2 / √draws."""
    rho = curves.autocorrelation(values)
    if len(rho) < 2:
        return still(name)
    lags = np.arange(1, len(rho))
    low = min(-0.2, 1.05 * rho.min())
    x = WIDE * (lags - 0.5) / len(lags)
    zero, tops = _up([0.0], low, 1.0)[0], _up(rho[1:], low, 1.0)
    bars = " ".join(f"M{tenth(at)} {tenth(zero)}V{tenth(top)}" for at, top in zip(x, tops, strict=True))
    chance = min(1.0, 2.0 / np.sqrt(values.size))
    band = [
        _path([0.0, WIDE], _up([edge, edge], low, 1.0), "rule dashed") for edge in (chance, -chance) if edge > low
    ]  # fmt: skip
    drawn = tag("path", d=bars, class_="line c0 bars", style=f"stroke-width:{max(1.5, 90 / len(lags)):.1f}px")
    rule = _path([0.0, WIDE], [zero, zero], "rule")
    return panel(name, _svg(f"Autocorrelation of {name}", rule, *band, drawn), ends("lag 1", "", str(len(lags))))


def still(name: str) -> Markup:
    """In the place of a picture."""
    return panel(name, tag("p", "All draws are the same, or none is finite.", class_="still"))


def panel(name: str, *parts: object) -> Markup:
    """A picture under its name."""
    return tag("figure", tag("figcaption", name, title=name), *parts, class_="panel")


def panels(figures: Sequence[Markup], left_out: int, what: str) -> Markup:
    """Side by side as the page is wide; the first are seen, the others open when they are asked for."""
    shown, rest = figures[:OPEN], figures[OPEN:]
    more = folded(f"{len(rest)} more {what}", tag("div", *rest, class_="panels")) if rest else None
    note = tag("p", f"{left_out:,} more parameters have no panel here; all are in the table.", class_="note")
    return tag("div", tag("div", *shown, class_="panels"), more, note if left_out else None)


def axis(low: float, high: float) -> Markup:
    """Round numbers below a picture."""
    return tag(
        "div",
        *(tag("span", words, style=f"left:{100 * (at - low) / (high - low):.1f}%") for at, words in ticks(low, high)),
        class_="axis",
        aria_hidden="true",
    )


def ends(left: str, middle: str, right: str) -> Markup:
    """Words below a picture."""
    return tag("div", tag("span", left), tag("span", middle), tag("span", right), class_="ends")


def key_to_chains(shown: NDArray[np.int64]) -> Markup:
    """Which colour is which chain."""
    marks = [tag("span", tag("i", class_=f"dot {colour(i)}"), f"chain {n}") for i, n in enumerate(shown[:COLOURS])]
    more = tag("span", "and so on, colours repeat") if len(shown) > COLOURS else None
    return tag("p", *marks, more, class_="key")


def colour(chain: int) -> str:
    """The class of a chain's colour."""
    return f"c{chain % COLOURS}"


def _svg(label: str, *shapes: Markup) -> Markup:
    return tag(
        "svg", *shapes, viewBox=f"0 0 {WIDE:g} {HIGH:g}", preserveAspectRatio="none", role="img", aria_label=label
    )


def _across(values: NDArray[np.float64], low: float, high: float) -> list[float]:
    return list(WIDE * (values - low) / (high - low))


def _up(values: Sequence[float] | NDArray[np.float64], low: float, high: float) -> list[float]:
    return list(HIGH * (1.0 - (np.asarray(values) - low) / (high - low)))


def _path(x: Sequence[float] | NDArray[np.float64], y: Sequence[float], classes: str) -> Markup:
    """A line through these points; lifted where a value is not finite."""
    parts, drawing = [], False
    for across, up in zip(x, y, strict=True):
        if not np.isfinite(up):
            drawing = False
            continue
        parts.append(f"{'L' if drawing else 'M'}{tenth(across)} {tenth(up)}")
        drawing = True
    return tag("path", d="".join(parts), class_=classes)


def tenth(value: float) -> str:
    """A coordinate to a tenth, as short as it goes."""
    return f"{value:.1f}".removesuffix(".0")


def bars(lines: Sequence[tuple[str, float, str]]) -> Markup:
    """Quantities of one kind side by side: label, size and what to write beside it."""
    longest = max(size for _, size, _ in lines) or 1.0
    return tag(
        "div",
        *(
            tag(
                "div",
                tag("span", label),
                tag("div", tag("i", style=f"width:{100 * size / longest:.2f}%"), class_="bar"),
                tag("span", words, class_="amount"),
            )
            for label, size, words in lines
        ),
        class_="bars-table",
    )
