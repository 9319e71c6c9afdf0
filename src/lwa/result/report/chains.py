"""The sections on chains: whether they agree, how they moved, and how long they remember."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, join_markup, tag
from lwa.result.report.numbers import format_short
from lwa.result.report.pictures import (
    MOST_PANELS,
    OPEN_PANELS,
    build_panels,
    draw_autocorrelation,
    draw_ranks,
    draw_trace,
    list_chain_colours,
)


def choose_parameters(data: ReportData) -> list[int]:
    """Return the parameters that have panels: all, in the table's order, if they are few; else the worst first."""
    if len(data.names) <= OPEN_PANELS:
        return list(range(len(data.names)))
    return [int(i) for i in data.worst_first[:MOST_PANELS]]


def draw_panels(data: ReportData, picture: Callable[[str, NDArray[np.float64]], Markup], what: str) -> Markup:
    """Draw a panel for each chosen parameter."""
    some = [picture(data.names[i], data.draws[i][data.shown]) for i in choose_parameters(data)]
    return build_panels(some, len(data.names) - len(some), what)


def describe_order(data: ReportData) -> str:
    """Return a sentence on the order of panels, if it is not that of the table."""
    return " Parameters that mixed worst come first." if len(data.names) > OPEN_PANELS else ""


def show_chains(data: ReportData) -> Markup:
    """Show ranks and traces: whether chains agree."""
    parts = [tag("h2", "Chains")]
    if data.chains > 1:
        words = (
            "Ranks: how often each chain's draws are low, medium or high among the draws of all chains. If chains "
            "agree, all lines are level." + data.shown_in_words + describe_order(data)
        )
        parts += [tag("p", words), list_chain_colours(data.shown), draw_panels(data, draw_ranks, "rank plots")]
    words = "Traces: the draws in the order in which they were made. No chain should drift or stay apart."
    return tag("section", *parts, tag("p", words), draw_panels(data, draw_trace, "traces"), id="chains")


def show_autocorrelations(data: ReportData) -> Markup:
    """Show autocorrelations: how long chains remember."""
    thinning = data.attributes.get("thinning", 1)
    kept = "every step" if thinning == 1 else f"one step in {thinning:,}"
    worst = data.table["ess_bulk"]
    total = data.draws.shape[1] * data.draws.shape[2]
    words = [f"Correlation between kept draws ({kept}). Independent draws stay mostly within the dashed lines."]
    if np.isfinite(worst).any():
        least = int(np.nanargmin(worst))
        words.append(
            f" {data.names[least]} mixed worst: its {total:,} draws are worth {format_short(float(worst[least]))} "
            "independent draws."
        )
    return tag(
        "section",
        tag("h2", "Autocorrelation"),
        tag("p", join_markup(*words), describe_order(data)),
        draw_panels(data, draw_autocorrelation, "autocorrelations"),
        id="autocorrelation",
    )
