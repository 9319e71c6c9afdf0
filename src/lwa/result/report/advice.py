"""The section on warnings: each with what to do about it."""

from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, tag

MOST_NAMED = 5
"""Parameters that a warning names; it only counts the others."""


def list_warnings(data: ReportData) -> list[str]:
    """Return the warnings of the run, and those that its table gives rise to."""
    warnings = [str(words) for words in data.attributes.get("warnings", [])]
    if not data.table:
        return [*warnings, "No draws were kept. Pass a larger budget, or more draws."]
    if data.disagreeing.any():
        names = list_names([name for name, bad in zip(data.names, data.disagreeing, strict=True) if bad])
        warnings.append(
            f"Chains disagree on {names}: R-hat is {data.disagreeing_in_words}. "
            "Pass a longer tune and more draws. If traces stay apart, the posterior may have several modes."
        )
    scarce = data.scarce & ~data.disagreeing
    if scarce.any():
        names = list_names([name for name, bad in zip(data.names, scarce, strict=True) if bad])
        warnings.append(
            f"There are fewer than {data.few_in_words} of {names}, so intervals are rough. Pass more draws."
        )
    return warnings


def list_names(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def show_warnings(data: ReportData) -> Markup:
    """Show all warnings, or that there are none."""
    warnings = list_warnings(data)
    body = tag("ul", *(tag("li", words) for words in warnings)) if warnings else tag("p", "None.")
    return tag("section", tag("h2", "Warnings"), body, id="warnings", class_="warned" if warnings else None)
