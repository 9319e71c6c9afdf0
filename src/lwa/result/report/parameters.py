"""Parameters: the table, the forest and the densities."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, fold, tag
from lwa.result.report.numbers import count_decimals, format_fixed
from lwa.result.report.pictures import MOST_PANELS, build_panels, draw_axis, draw_densities, list_chain_colours

LINES_SHOWN = 25
"""Parameters of a table or a forest that are seen at once."""
NARROWEST = 0.005
"""The least share of a forest's width that an interval may take; parameters of another scale get their own."""


def show_table(reading: ReportData) -> Markup:
    """ArviZ's numbers, one line a parameter."""
    mixing = ["bulk ESS", "tail ESS", "R-hat"] if len(reading.worth) == 2 else ["ESS", "R-hat"]
    titles = ["parameter", "mean", "sd", f"{reading.percent} % from", "to", *mixing]
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in titles)))
    lines = [build_line(reading, i) for i in range(len(reading.names))]

    def part(some: list[Markup]) -> Markup:
        return tag("div", tag("table", head, tag("tbody", *some)), class_="scroll")

    rest = lines[LINES_SHOWN:]
    note = (
        f"ESS: effective draws. Marked (!): R-hat {reading.disagreeing_in_words}, or fewer than "
        f"{reading.few_in_words}. {reading.note}"
    )
    more = fold(f"{len(rest):,} more parameters", part(rest)) if rest else None
    return tag("section", tag("h2", "Parameters"), part(lines[:LINES_SHOWN]), more, tag("p", note, class_="note"), id="table")


def build_line(reading: ReportData, i: int) -> Markup:
    """A parameter's: means to about a hundredth of the sd."""
    low, high = reading.interval
    decimals = count_decimals(float(reading.table["sd"][i]), 3)
    cells = [tag("td", format_fixed(float(reading.table[column][i]), decimals)) for column in ("mean", "sd", low, high)]
    for column in reading.worth:
        value = float(reading.table[column][i])
        words = f"{int(value)}" if np.isfinite(value) else str(value)
        cells.append(tag("td", words, class_=None if value >= reading.few else "flag"))
    rhat = float(reading.table["r_hat"][i])
    cells.append(tag("td", format_fixed(rhat, 3), class_="flag" if reading.disagreeing[i] else None))
    return tag("tr", tag("th", reading.names[i], scope="row"), *cells)


def show_forest(reading: ReportData) -> Markup:
    """Intervals one below the other."""
    low, high = (reading.table[column] for column in reading.interval)
    quarters = np.stack([find_quartiles(draws) for draws in reading.draws])
    ends = np.column_stack([low, high, quarters, reading.table["mean"]])
    with np.errstate(invalid="ignore"):  # draws may be infinite
        groves = [draw_group(reading, ends, some) for some in group_by_scale(low, high)]
    shown: list[Markup] = []
    lines = 0
    for trees, count in groves:
        if lines and lines + count > LINES_SHOWN:
            break
        shown.append(trees)
        lines += count
    rest = groves[len(shown) :]
    more = fold(f"{sum(count for _, count in rest):,} more parameters", *(trees for trees, _ in rest))
    words = (
        f"The thin line is the {reading.percent} % interval, the thick one holds half of the draws, "
        "the mark is the mean."
    )
    return tag("section", tag("h2", "Intervals"), tag("p", words), *shown, more if rest else None, id="forest")


def find_quartiles(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Between which half of the finite draws lie."""
    finite = draws[np.isfinite(draws)]
    return np.quantile(finite, [0.25, 0.75]) if finite.size else np.full(2, np.nan)


def group_by_scale(low: NDArray[np.float64], high: NDArray[np.float64]) -> Iterator[range]:
    """Parameters next to each other that one axis suits; where an interval would be a speck, a new one begins."""
    start = 0
    for i in range(1, len(low) + 1):
        some = slice(start, i + 1)
        span = np.nanmax(high[some], initial=-np.inf) - np.nanmin(low[some], initial=np.inf)
        narrowest = np.nanmin((high - low)[some], initial=np.inf)
        if i == len(low) or i - start == LINES_SHOWN or not narrowest >= NARROWEST * span:
            yield range(start, i)
            start = i


def draw_group(reading: ReportData, ends: NDArray[np.float64], some: range) -> tuple[Markup, int]:
    """Parameters that share an axis, and how many."""
    known = ends[some.start : some.stop]
    known = known[np.isfinite(known)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    margin = 0.04 * (high - low) or 0.5
    low, high = low - margin, high + margin
    trees = [draw_interval(reading.names[i], 100 * (ends[i] - low) / (high - low)) for i in some]
    below = tag("div", tag("span"), draw_axis(low, high), class_="tree")
    return tag("div", *trees, below, class_="forest"), len(some)


def draw_interval(name: str, at: NDArray[np.float64]) -> Markup:
    """One interval; places are in per cent of the width."""
    marks = []
    if np.isfinite(at).all():
        low, high, quarter, three_quarters, mean = at
        marks = [
            tag("i", class_="whole", style=f"left:{low:.2f}%;width:{high - low:.2f}%"),
            tag("i", class_="half", style=f"left:{quarter:.2f}%;width:{three_quarters - quarter:.2f}%"),
            tag("i", class_="mean", style=f"left:{mean:.2f}%"),
        ]
    return tag("div", tag("span", name, class_="name", title=name), tag("div", *marks, class_="track"), class_="tree")


def show_densities(reading: ReportData) -> Markup:
    """One panel a parameter."""
    some = [
        draw_densities(name, draws, reading.shown)
        for name, draws in zip(reading.names[:MOST_PANELS], reading.draws, strict=False)
    ]
    words = "The area is all draws together, the lines are the chains: they should lie on each other."
    return tag(
        "section",
        tag("h2", "Posterior densities"),
        tag("p", words + reading.shown_in_words),
        list_chain_colours(reading.shown),
        build_panels(some, len(reading.names) - len(some), "densities"),
        id="densities",
    )
