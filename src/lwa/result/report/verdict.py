"""What comes first: whether the draws can be trusted, in words and in colour."""

import numpy as np

from lwa.diagnostics.certificate import CONFIDENCE, TOLERATED_SHIFT, TOLERATED_WIDTH, Certificate
from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, fold, tag

VERDICT_HEADLINES = {
    "pass": "Certified",
    "warn": "Cannot tell",
    "fail": "Not draws of the posterior",
    "none": "Not certified",
}


def show_verdict(reading: ReportData) -> Markup:
    """The certificate's, or how to come by one."""
    found = reading.fit.certificate
    outcome = "none" if found is None else found.outcome
    words = explain_uncertified(reading) if found is None else tag("p", found.verdict, id="verdict-words")
    heading = tag("h2", VERDICT_HEADLINES[outcome], id="verdict-headline")
    return tag("section", heading, words, None if found is None else show_details(found), id="verdict", data_outcome=outcome)


def explain_uncertified(reading: ReportData) -> Markup:
    """Why there is no verdict, and what to type for one."""
    words = "Nothing has compared these draws with the posterior of all rows. "
    if reading.told.get("exact") or reading.told.get("polish_passes"):
        words += "Their algorithm is exact, so that only Monte Carlo error is expected, but that was not checked. "
    if reading.fit.origin is None:
        advice, code = "With the model and the data at hand, type ", "lwa.certify(model, data, fit)"
    else:
        advice, code = "Before the next report, type ", "fit.certify()"
    return tag("p", words, advice, tag("code", code), ".", id="verdict-words")


def show_details(found: Certificate) -> Markup:
    """Every parameter's shift and sd ratio, those out of tolerance marked."""
    out_of_shift = np.abs(found.shift) > TOLERATED_SHIFT
    out_of_width = np.abs(np.log(found.sd_ratio)) > np.log(TOLERATED_WIDTH)
    lines = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", f"{found.shift[i]:.3f} ± {found.shift_error[i]:.3f}", class_="flag" if out_of_shift[i] else None),
            tag(
                "td",
                f"{found.sd_ratio[i]:.3f} ± {found.sd_ratio_error[i]:.3f}",
                class_="flag" if out_of_width[i] else None,
            ),
        )
        for i, name in enumerate(found.names)
    ]
    head = tag("tr", *(tag("th", words, scope="col") for words in ("parameter", "shift / sd", "sd ratio")))
    note = (
        f"Gradients of {found.rows:,} rows at {found.points:,} draws, R² {found.r_squared:.3f}. Error bars hold "
        f"together with {CONFIDENCE:.0%}. Tolerated: means off by {TOLERATED_SHIFT:g} sd, sds off by a factor of {TOLERATED_WIDTH:g}. "
        f"Along the worst direction the shift is {found.overall_shift:.3f} ± {found.overall_shift_error:.3f} sd; "
        f"{found.total_variation:.1%} of exact moves are refused."
    )
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *lines)), class_="scroll")
    return fold("What was measured", tag("p", note), table)
