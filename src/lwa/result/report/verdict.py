"""The first section: whether the draws can be trusted, in words and in colour."""

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


def show_verdict(data: ReportData) -> Markup:
    """Show the certificate's verdict, or how to get one."""
    found = data.fit.certificate
    outcome = "none" if found is None else found.outcome
    words = explain_uncertified(data) if found is None else tag("p", found.verdict, id="verdict-words")
    heading = tag("h2", VERDICT_HEADLINES[outcome], id="verdict-headline")
    return tag(
        "section", heading, words, None if found is None else show_details(found), id="verdict", data_outcome=outcome
    )


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
    """Show the shift and sd ratio of every parameter, and mark those out of tolerance."""
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
    head = tag(
        "tr", *(tag("th", words, scope="col") for words in ("parameter", "shift of the mean / sd", "sd / posterior sd"))
    )
    note = (
        f"From the gradient of the log posterior of all {found.rows:,} rows at {found.points:,} draws (R² of a "
        f"straight line: {found.r_squared:.3f}). All error bars hold at once with probability {CONFIDENCE:.0%}. "
        f"Tolerated: means off by {TOLERATED_SHIFT:g} sd, sds off by a factor of {TOLERATED_WIDTH:g}. Of all "
        f"combinations of parameters, the worst is shifted by {found.overall_shift:.3f} ± "
        f"{found.overall_shift_error:.3f} sd. {found.total_variation:.1%} of exact Metropolis-Hastings moves from "
        "these draws are refused."
    )
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *lines)), class_="scroll")
    return fold("What was measured", tag("p", note), table)
