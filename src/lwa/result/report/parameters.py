"""The sections on parameters: table, intervals and densities; whether chains agree, and how long they remember."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from lwa.result.report import pictures
from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, build_section, build_table, fold, tag
from lwa.result.report.numbers import count_decimals, format_fixed, format_short
from lwa.result.report.pictures import MOST_PANELS, OPEN_PANELS

LINES_SHOWN = 25
"""Lines of a table, or of intervals, that are open; the others open when clicked."""
NARROWEST = 0.005
"""The least share of the width that an interval may take; parameters of another scale get their own axis."""


def show_table(data: ReportData) -> Markup:
    """Show the table, one line per parameter."""
    mixing = ["bulk ESS", "tail ESS", "R-hat"] if len(data.worth) == 2 else ["ESS", "R-hat"]
    titles = ["parameter", "mean", "sd", f"{data.percent} % from", "to", *mixing]
    lines = [build_table_line(data, i) for i in range(len(data.names))]
    first, rest = build_table(titles, lines[:LINES_SHOWN]), lines[LINES_SHOWN:]
    note = (
        "ESS: effective sample size, the number of independent draws that these are worth. R-hat: near 1 if chains "
        f"agree. Marked (!): R-hat {data.disagreeing_in_words}, or fewer than {data.few_in_words}. {data.note}"
    )
    more = fold(f"{len(rest):,} more parameters", build_table(titles, rest)) if rest else None
    return build_section("table", "Parameters", first, more, tag("p", note, class_="note"))


def build_table_line(data: ReportData, i: int) -> Markup:
    """Return the line of a parameter, with means to about a hundredth of the sd."""
    low, high = data.interval
    decimals = count_decimals(float(data.table["sd"][i]), 3)
    cells = [tag("td", format_fixed(float(data.table[column][i]), decimals)) for column in ("mean", "sd", low, high)]
    for column in data.worth:
        value = float(data.table[column][i])
        words = f"{int(value)}" if np.isfinite(value) else str(value)
        cells.append(tag("td", words, class_=None if value >= data.few else "flag"))
    rhat = float(data.table["r_hat"][i])
    cells.append(tag("td", format_fixed(rhat, 3), class_="flag" if data.disagreeing[i] else None))
    return tag("tr", tag("th", data.names[i], scope="row"), *cells)


def show_forest(data: ReportData) -> Markup:
    """Show intervals one below the other."""
    low, high = (data.table[column] for column in data.interval)
    quarters = np.stack([find_quartiles(draws) for draws in data.draws])
    ends = np.column_stack([low, high, quarters, data.table["mean"]])
    with np.errstate(invalid="ignore"):  # draws may be infinite
        groups = [draw_group(data, ends, some) for some in group_by_scale(low, high)]
    lines = np.cumsum([count for _, count in groups])
    first = max(1, int((lines <= LINES_SHOWN).sum()))
    shown, rest = [picture for picture, _ in groups[:first]], groups[first:]
    more = fold(f"{sum(count for _, count in rest):,} more parameters", *(picture for picture, _ in rest))
    words = f"The thin line holds {data.percent} % of the draws, the thick line half of them. The mark is the mean."
    return build_section("forest", "Intervals", tag("p", words), *shown, more if rest else None)


def find_quartiles(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the quartiles of the finite draws."""
    finite = draws[np.isfinite(draws)]
    return np.quantile(finite, [0.25, 0.75]) if finite.size else np.full(2, np.nan)


def group_by_scale(low: NDArray[np.float64], high: NDArray[np.float64]) -> Iterator[range]:
    """Yield neighbouring parameters that share an axis; a new axis begins if an interval would be a speck."""
    start = 0
    for i in range(1, len(low) + 1):
        some = slice(start, i + 1)
        span = np.nanmax(high[some], initial=-np.inf) - np.nanmin(low[some], initial=np.inf)
        narrowest = np.nanmin((high - low)[some], initial=np.inf)
        if i == len(low) or i - start == LINES_SHOWN or not narrowest >= NARROWEST * span:
            yield range(start, i)
            start = i


def draw_group(data: ReportData, ends: NDArray[np.float64], some: range) -> tuple[Markup, int]:
    """Draw the intervals of parameters that share an axis, and return how many there are."""
    known = ends[some.start : some.stop]
    known = known[np.isfinite(known)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    margin = 0.04 * (high - low) or 0.5
    low, high = low - margin, high + margin
    lines = [draw_interval(data.names[i], 100 * (ends[i] - low) / (high - low)) for i in some]
    below = tag("div", tag("span"), pictures.draw_axis(low, high), class_="tree")
    return tag("div", *lines, below, class_="forest"), len(some)


def draw_interval(name: str, at: NDArray[np.float64]) -> Markup:
    """Draw one interval; places are in per cent of the width."""
    marks = []
    if np.isfinite(at).all():
        low, high, quarter, three_quarters, mean = at
        marks = [
            tag("i", class_="whole", style=f"left:{low:.2f}%;width:{high - low:.2f}%"),
            tag("i", class_="half", style=f"left:{quarter:.2f}%;width:{three_quarters - quarter:.2f}%"),
            tag("i", class_="mean", style=f"left:{mean:.2f}%"),
        ]
    return tag("div", tag("span", name, class_="name", title=name), tag("div", *marks, class_="track"), class_="tree")


def show_densities(data: ReportData) -> Markup:
    """Show the posterior density of each parameter."""
    count = min(MOST_PANELS, len(data.names))
    some = [pictures.draw_densities(data.names[i], data.draws[i], data.shown) for i in range(count)]
    words = "The area shows all draws together, the lines single chains. If chains agree, the lines coincide."
    key, panels = pictures.list_chain_colours(data.shown), pictures.build_panels(some, len(data.names), "densities")
    return build_section("densities", "Posterior densities", tag("p", words + data.shown_in_words), key, panels)


def choose_parameters(data: ReportData) -> list[int]:
    """Return the parameters that have panels: all, in the table's order, if they are few; else the worst first."""
    if len(data.names) <= OPEN_PANELS:
        return list(range(len(data.names)))
    return [int(i) for i in data.worst_first[:MOST_PANELS]]


def draw_panels(data: ReportData, picture: Callable[[str, NDArray[np.float64]], Markup], what: str) -> Markup:
    """Draw a panel for each chosen parameter."""
    some = [picture(data.names[i], data.draws[i][data.shown]) for i in choose_parameters(data)]
    return pictures.build_panels(some, len(data.names), what)


def describe_order(data: ReportData) -> str:
    """Return a sentence on the order of panels, if it is not that of the table."""
    return " Parameters that mixed worst come first." if len(data.names) > OPEN_PANELS else ""


def show_chains(data: ReportData) -> Markup:
    """Show ranks and traces: whether chains agree."""
    parts = []
    if data.chains > 1:
        words = (
            "Ranks: how often each chain's draws are low, medium or high among the draws of all chains. If chains "
            "agree, all lines are level." + data.shown_in_words + describe_order(data)
        )
        panels = draw_panels(data, pictures.draw_ranks, "rank plots")
        parts = [tag("p", words), pictures.list_chain_colours(data.shown), panels]
    words = "Traces: the draws in the order in which they were made. No chain should drift or stay apart."
    traces = draw_panels(data, pictures.draw_trace, "traces")
    return build_section("chains", "Chains", *parts, tag("p", words), traces)


def show_autocorrelations(data: ReportData) -> Markup:
    """Show autocorrelations: how long chains remember."""
    worth, total = data.table["ess_bulk"], data.draws[0].size
    words = f"Correlation between kept draws ({data.kept}). Independent draws stay mostly within the dashed lines."
    if np.isfinite(worth).any():
        worst = int(np.nanargmin(worth))
        alike = format_short(float(worth[worst]))
        words += f" {data.names[worst]} mixed worst: its {total:,} draws are worth {alike} independent draws."
    panels = draw_panels(data, pictures.draw_autocorrelation, "autocorrelations")
    return build_section("autocorrelation", "Autocorrelation", tag("p", words + describe_order(data)), panels)
