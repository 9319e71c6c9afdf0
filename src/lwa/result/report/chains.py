"""Chains: whether they agree, how they moved, and how long they remember."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lwa.result.report.data import Reading
from lwa.result.report.markup import Markup, join, tag
from lwa.result.report.numbers import short
from lwa.result.report.pictures import MOST, OPEN, autocorrelation_of, key_to_chains, panels, ranks_of, trace_of


def chosen(reading: Reading) -> list[int]:
    """Which parameters have panels, and in which order: the table's where all are seen, else the worst first."""
    if len(reading.names) <= OPEN:
        return list(range(len(reading.names)))
    return [int(i) for i in reading.worst_first[:MOST]]


def drawn(reading: Reading, picture: Callable[[str, NDArray[np.float64]], Markup], what: str) -> Markup:
    """A panel for each of them."""
    some = [picture(reading.names[i], reading.draws[i][reading.shown]) for i in chosen(reading)]
    return panels(some, len(reading.names) - len(some), what)


def order_in_words(reading: Reading) -> str:
    """What to say of the order."""
    return " Parameters that mixed worst come first." if len(reading.names) > OPEN else ""


def ranks_and_traces(reading: Reading) -> Markup:
    """Whether chains agree."""
    parts = [tag("h2", "Chains")]
    if reading.chains > 1:
        words = (
            "Ranks: how often each chain's draws are low, middling or high among the draws of all. Chains that "
            "agree are level." + reading.shown_in_words + order_in_words(reading)
        )
        parts += [tag("p", words), key_to_chains(reading.shown), drawn(reading, ranks_of, "rank plots")]
    words = "Traces: the draws in the order in which they were made. None should drift or stay apart."
    return tag("section", *parts, tag("p", words), drawn(reading, trace_of, "traces"), id="chains")


def autocorrelations(reading: Reading) -> Markup:
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
            f"{short(float(worst[least]))}."
        )
    return tag(
        "section",
        tag("h2", "Autocorrelation"),
        tag("p", join(*words), order_in_words(reading)),
        drawn(reading, autocorrelation_of, "autocorrelations"),
        id="autocorrelation",
    )
