"""Whether the draws can be trusted: the verdict, which comes first, and the warnings, with what to do about them."""

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.certificate import (
    CONFIDENCE,
    TOLERATED_SHIFT,
    TOLERATED_SKEWNESS,
    TOLERATED_TAIL,
    TOLERATED_WIDTH,
    Certificate,
)
from lwa.diagnostics.shapes import TAIL
from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, build_section, build_table, fold, tag

VERDICT_HEADLINES = {
    "pass": "Certified", "warn": "Cannot tell", "fail": "Not draws of the posterior", "none": "Not certified",
}  # fmt: skip
MOST_NAMED = 5
"""Parameters that a warning names; it only counts the others."""


def show_verdict(data: ReportData) -> Markup:
    """Show the certificate's verdict, or how to get one."""
    found = data.fit.certificate
    outcome = "none" if found is None else found.outcome
    parts = [tag("h2", VERDICT_HEADLINES[outcome], id="verdict-headline")]
    if found is None:
        parts.append(explain_uncertified(data))
    else:
        parts += [tag("p", found.verdict, id="verdict-words"), tag("p", found.meaning), show_details(found)]
    return tag("section", *parts, id="verdict", data_outcome=outcome)


def explain_uncertified(data: ReportData) -> Markup:
    """Return why there is no verdict, and what to type for one."""
    words = "These draws have not been compared with the posterior of all rows. "
    if data.attributes.get("exact") or data.attributes.get("polish_passes"):
        words += "Their algorithm is exact, so only Monte Carlo error is expected, but this was not checked. "
    if data.fit.origin is None:
        advice, code = "To compare them, pass the model and the data: ", "lwa.certify(model, data, fit)"
    else:
        advice, code = "To compare them, run this before the report: ", "fit.certify()"
    return tag("p", words, advice, tag("code", code), ".", id="verdict-words")


def show_details(found: Certificate) -> Markup:
    """Show what was measured of every parameter, and mark what is out of tolerance."""
    flags = (
        np.abs(found.shift) > TOLERATED_SHIFT,
        np.abs(found.log_ratio) > np.log(TOLERATED_WIDTH),
        np.abs(found.skewness) > TOLERATED_SKEWNESS,
        (np.abs(found.outside - TAIL) > TOLERATED_TAIL).any(1),
    )
    cells = [
        [tag("td", cell, class_="flag" if out[i] else None) for cell, out in zip(found.cells(i), flags, strict=True)]
        for i in range(len(found.names))
    ]
    note = (
        f"{found.source}. R² of a straight line through the gradients: {found.r_squared:.3f}. All error bars hold at "
        f"once with probability {CONFIDENCE:.0%}. Tolerated: means off by {TOLERATED_SHIFT:g} sd, sds by a factor of "
        f"{TOLERATED_WIDTH:g}, skewness by {TOLERATED_SKEWNESS:g}, and {100 * (TAIL - TOLERATED_TAIL):.0f} to "
        f"{100 * (TAIL + TOLERATED_TAIL):.0f} % of the posterior beyond each end of a 90 % interval. Of all "
        f"combinations of parameters, the worst is shifted by {found.overall_shift:.3f} ± "
        f"{found.overall_shift_error:.3f} sd. "
        f"{found.total_variation:.1%} of exact Metropolis-Hastings moves from these draws are refused."
    )
    named = zip(found.names, cells, strict=True)
    lines = [tag("tr", tag("th", name, scope="row"), *line) for name, line in named]
    table = build_table(
        ["parameter", "shift of the mean / sd", "sd / posterior sd", "skewness, error", "beyond 90 % ends"], lines
    )
    return fold("What was measured", tag("p", note), table)


def list_warnings(data: ReportData) -> list[str]:
    """Return the warnings of the run, and those that its table gives rise to."""
    warnings = [str(words) for words in data.attributes.get("warnings", [])]
    if not data.table:
        return [*warnings, "No draws were kept. Pass a larger budget, or more draws."]
    if data.disagreeing.any():
        names = list_names(data.names, data.disagreeing)
        warnings.append(
            f"Chains disagree on {names}: R-hat is {data.disagreeing_in_words}. "
            "Pass a longer tune and more draws. If traces stay apart, the posterior may have several modes."
        )
    scarce = data.scarce & ~data.disagreeing
    if scarce.any():
        names = list_names(data.names, scarce)
        warnings.append(f"{names}: fewer than {data.few_in_words}, so intervals are rough. Pass more draws.")
    return warnings


def list_names(names: list[str], marked: NDArray[np.bool_]) -> str:
    """Return the first marked names, and how many more there are."""
    some = [names[i] for i in np.flatnonzero(marked)]
    return ", ".join(some[:MOST_NAMED]) + (f" and {len(some) - MOST_NAMED:,} more" if len(some) > MOST_NAMED else "")


def show_warnings(data: ReportData) -> Markup:
    """Show all warnings, or that there are none."""
    warnings = list_warnings(data)
    body = tag("ul", *(tag("li", words) for words in warnings)) if warnings else tag("p", "None.")
    return build_section("warnings", "Warnings", body, class_="warned" if warnings else None)
