"""The section on rows: which of them the subsets held, how far subsets were from all rows, and what was read."""

import numpy as np

from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, build_section, fold, list_facts, tag
from lwa.result.report.numbers import format_share, format_short
from lwa.result.report.pictures import draw_quantities, draw_trace


def show_rows(data: ReportData) -> Markup:
    """Show the subsets of an lwa run, or the rows that a rival read per step."""
    reads = describe_reads(data)
    if data.rival:
        return build_section("rows", "Rows read", describe_rival(data), reads)
    words = tag("p", "At each step a chain scores only a subset of the rows.")
    parts = [words, describe_subsets(data), show_distances(data) if data.fit.draws else None]
    return build_section("rows", "Subsets and rows", *parts, tag("h3", "Rows read"), reads)


def describe_subsets(data: ReportData) -> Markup:
    """Return the size of subsets, how often they changed, and how many rows they have covered."""
    attributes = data.attributes
    n, units = int(attributes.get("subset_size") or 0), name_units(data)
    N = int(attributes.get("units_in_all") or attributes.get("rows") or 0)
    size = f"{n:,} of {N:,} {units} ({format_share(n / N)})" if N else f"{n:,} {units}"
    known: list[tuple[str, object]] = [("Subset size", size)]
    if units == "groups":
        known.append(("Groups", f"a subset holds whole groups; there are {N:,}, of {attributes['rows']:,} rows"))
    changed = data.fit.sample_stats.get("subset_accepted", np.empty(0))
    if changed.size:
        exact = attributes.get("exact")
        what = "proposed changes of the subset were accepted" if exact else f"steps bring in new {units}"
        known.append(("Changes of the subset", f"{format_share(float(np.mean(changed)))} of {what}"))
    renewed = "none: each chain keeps its subset"
    if renewal := attributes.get("subset_renewal_moves"):
        renewed = f"all {units} of a subset are replaced in about {format_short(renewal)} steps, at best"
    known.append(("Renewal", renewed))
    known.append((f"Distinct {units} visited", describe_distinct_rows(data, n, N, renewal)))
    if attributes.get("leverage"):
        known.append(("Drawn by", "influence: rows that matter more come more often and count less"))
    if passes := attributes.get("polish_passes"):
        rate = format_share(attributes["polish_acceptance"])
        known.append(("Polished", f"{passes} passes over all rows, {rate} of corrections accepted"))
    return list_facts(known)


def describe_distinct_rows(data: ReportData, n: int, N: int, renewal: float | None) -> Markup:
    """Return the expected number of distinct rows, and how it is computed."""
    if data.attributes.get("exact") or data.attributes.get("polish_passes"):
        return tag("span", f"all {N:,}: a pass over all rows decided every kept draw")
    steps, units = data.fit.draws * int(data.attributes.get("thinning") or 1), name_units(data)
    renewals = steps / renewal if renewal else 0.0
    expected = expected_distinct_rows(N, n, data.chains, renewals)
    how = (
        f"This is an expected value, not a count. Each of {data.chains:,} chains begins with n = {n:,} of N = {N:,} "
        f"{units}. In {steps:,} steps it renews them {format_short(renewals)} times, each time with n more, drawn at "
        f"random. A given one of the {units} is missed with probability "
        "((1 - n/N) (1 - 1/N)^(n × renewals))^chains. The true number is smaller if some are drawn more often than "
        "others, if windows overlap, or if n is a large part of N: then some that are drawn are in the subset already."
    )
    share = f" ({format_share(expected / N)})" if N else ""
    return tag("div", f"at most about {format_short(expected)} of {N:,}{share}", fold("How this is computed", how))


def expected_distinct_rows(N: int, n: int, chains: int, renewals: float) -> float:
    """Return the expected number of rows held by some subset: n of N at each chain's start, n more at each renewal."""
    if n >= N:
        return float(N)
    return float(-N * np.expm1(chains * (np.log1p(-n / N) + renewals * n * np.log1p(-1.0 / N))))


def name_units(data: ReportData) -> str:
    """Return what a subset is a set of: rows, whole groups, or the steps of a window."""
    return str(data.attributes.get("units", "rows"))


def show_distances(data: ReportData) -> Markup:
    """Show ‖S̄(Y_U) - s_N‖ beside that of a subset drawn at random; or say why there is none."""
    heading = tag("h3", "Distance between subset and all rows")
    found = data.fit.sample_stats.get("subset_distance", np.full((1, 1), np.nan))
    if not data.attributes.get("informed", True) or not np.isfinite(found).any():
        words = "Subsets are drawn at random, with no preference for those that resemble all rows"
        if data.attributes.get("transport"):
            words += ": lwa corrects the gradient and the curvature of each subset to those of all rows"
        return tag("div", heading, tag("p", f"{words}."))
    typical, random = float(np.nanmean(found)), data.attributes.get("random_subset_distance")
    lines = [("these subsets", typical, format_short(typical))]
    words = "The distance between the summary statistics of a subset and those of all rows. "
    if random is not None:
        lines.append(("drawn at random", random, format_short(random)))
        ratio = f"{format_short(random / typical)} times as large" if typical > 0 else "larger"
        words += f"For subsets drawn at random it is {ratio}. "
    epsilon = data.attributes.get("epsilon")  # a number, or the word that stands for one
    number = format_short(epsilon) if isinstance(epsilon, float | int) else str(epsilon)
    words += f"The bandwidth ε = {number} sets how strongly chains prefer subsets that are close to all rows."
    picture = tag("div", draw_trace("distance", np.asarray(found, np.float64)[data.shown]), class_="panels")
    return tag("div", heading, tag("p", words), draw_quantities(lines), picture)


def describe_reads(data: ReportData) -> Markup:
    """Return how many rows the log-likelihood read, beside Metropolis-Hastings on all rows."""
    read, N, moves = (int(data.attributes.get(name) or 0) for name in ("rows_read", "rows", "moves"))
    full = N * moves * data.chains
    if not (read and full):
        return tag("p", "This run did not record how many rows it read.")
    words = (
        f"{read:,} row evaluations in {moves:,} steps of {data.chains} chains, tuning included: "
        f"{format_short(read / (moves * data.chains))} per step. Scoring all {N:,} rows at each step would have taken "
        f"{full:,}, {format_short(full / read)} times as many."
    )
    lines = [("this run", float(read), f"{read:.3g}"), ("all rows at each step", float(full), f"{full:.3g}")]
    return tag("div", tag("p", words), draw_quantities(lines))


def describe_rival(data: ReportData) -> Markup:
    """Return the name of the algorithm, whether it is exact, and the rows that it read per step."""
    attributes = data.attributes
    law = "the posterior" if attributes.get("exact") else "an approximation of the posterior"
    method = f"{attributes['method']} ({attributes.get('paper', 'no paper')})"
    known: list[tuple[str, object]] = [("Method", method), ("Draws are of", law)]
    rows = data.fit.sample_stats.get("n_rows_read", np.empty(0))
    if rows.size:
        each = rows / int(attributes.get("thinning") or 1)
        low, middle, high = map(format_short, np.quantile(each, [0.05, 0.5, 0.95]))
        known.append(("Rows per step", f"{middle} (median); {low} to {high} for nine of ten draws"))
    varies = rows.size > 1 and rows.min() < rows.max()
    picture = draw_trace("rows read per kept draw", rows[data.shown].astype(np.float64)) if varies else None
    return tag("div", list_facts(known), tag("div", picture, class_="panels"))
