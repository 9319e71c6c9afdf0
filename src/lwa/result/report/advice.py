"""What a reader should know before they trust the draws, each with what to do about it."""

from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, tag

MOST_NAMED = 5
"""Parameters that a warning names; it counts the others."""


def collect_warnings(reading: ReportData) -> list[str]:
    """The run's own, and what its table shows."""
    told = [str(words) for words in reading.told.get("warnings", [])]
    if not reading.table:
        return [*told, "No draws were kept. Pass a larger budget, or more draws."]
    if reading.disagreeing.any():
        names = list_names([name for name, bad in zip(reading.names, reading.disagreeing, strict=True) if bad])
        told.append(
            f"Chains disagree on {names}: R-hat is {reading.disagreeing_in_words}. "
            "Pass a longer tune and more draws; where traces stay apart, the posterior may have several modes."
        )
    scarce = reading.scarce & ~reading.disagreeing
    if scarce.any():
        names = list_names([name for name, bad in zip(reading.names, scarce, strict=True) if bad])
        told.append(
            f"There are fewer than {reading.few_in_words} of {names}, so that intervals are rough. Pass more draws."
        )
    return told


def list_names(names: list[str]) -> str:
    """The first of them, and how many more."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def show_warnings(reading: ReportData) -> Markup:
    """All warnings, or that there are none."""
    told = collect_warnings(reading)
    body = tag("ul", *(tag("li", words) for words in told)) if told else tag("p", "Nothing to warn of.")
    return tag("section", tag("h2", "Warnings"), body, id="warnings", class_="warned" if told else None)
