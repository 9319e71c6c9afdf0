"""Chains: whether they agree, how they moved, and how long they remember."""

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


def choose_parameters(reading: ReportData) -> list[int]:
    """Which parameters have panels, and in which order: the table's where all are seen, else the worst first."""
    if len(reading.names) <= OPEN_PANELS:
        return list(range(len(reading.names)))
    return [int(i) for i in reading.worst_first[:MOST_PANELS]]


def draw_panels(reading: ReportData, picture: Callable[[str, NDArray[np.float64]], Markup], what: str) -> Markup:
    """A panel for each of them."""
    some = [picture(reading.names[i], reading.draws[i][reading.shown]) for i in choose_parameters(reading)]
    return build_panels(some, len(reading.names) - len(some), what)


def describe_order(reading: ReportData) -> str:
    """What to say of the order."""
    return " Parameters that mixed worst come first." if len(reading.names) > OPEN_PANELS else ""


def show_chains(reading: ReportData) -> Markup:
    """Whether chains agree."""
    parts = [tag("h2", "Chains")]
    if reading.chains > 1:
        words = (
            "Ranks: how often each chain's draws are low, middling or high among the draws of all. Chains that "
            "agree are level." + reading.shown_in_words + describe_order(reading)
        )
        parts += [tag("p", words), list_chain_colours(reading.shown), draw_panels(reading, draw_ranks, "rank plots")]
    words = "Traces: the draws in the order in which they were made. None should drift or stay apart."
    return tag("section", *parts, tag("p", words), draw_panels(reading, draw_trace, "traces"), id="chains")


def show_autocorrelations(reading: ReportData) -> Markup:
    """How long chains remember."""
    thinning = reading.told.get("thinning", 1)
    kept = "every transition is kept" if thinning == 1 else f"one transition in {thinning:,} is kept"
    worst = reading.table["ess_bulk"]
    total = reading.draws.shape[1] * reading.draws.shape[2]
    words = [f"Between kept draws; {kept}. Dashed: what chance leaves of independent draws."]
    if np.isfinite(worst).any():
        least = int(np.nanargmin(worst))
        words.append(
            f" Of {total:,} draws, those of {reading.names[least]} are worth the fewest independent ones: "
            f"{format_short(float(worst[least]))}."
        )
    return tag(
        "section",
        tag("h2", "Autocorrelation"),
        tag("p", join_markup(*words), describe_order(reading)),
        draw_panels(reading, draw_autocorrelation, "autocorrelations"),
        id="autocorrelation",
    )
