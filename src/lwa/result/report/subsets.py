"""Rows: which of them the chains have seen, how far their subsets were from all of them, and what was read."""

import numpy as np

from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, fold, list_facts, tag
from lwa.result.report.numbers import format_share, format_short
from lwa.result.report.pictures import draw_bars, draw_trace


def show_rows(reading: ReportData) -> Markup:
    """The subsets' for lwa, what a step read for a rival."""
    if reading.rival:
        return tag("section", tag("h2", "Rows read"), describe_rival(reading), describe_reads(reading), id="rows")
    return tag(
        "section",
        tag("h2", "Subsets and rows"),
        describe_subsets(reading),
        show_distances(reading) if reading.fit.draws else None,
        tag("h3", "Rows read"),
        describe_reads(reading),
        id="rows",
    )


def describe_subsets(reading: ReportData) -> Markup:
    """How large U is, how it moved and how many rows it has shown."""
    told = reading.told
    n, N, units = int(told.get("subset_size") or 0), count_units(reading), name_units(reading)
    size = f"{n:,} of {N:,} {units} ({format_share(n / N)})" if N else f"{n:,} {units}"
    known: list[tuple[str, object]] = [("Subset size", size)]
    if units == "groups":
        known.append(("Groups", f"a subset holds whole groups; there are {N:,}, of {told['rows']:,} rows"))
    changed = reading.fit.sample_stats.get("subset_accepted", np.empty(0))
    if changed.size:
        of_what = "proposals of a new subset accepted" if told.get("exact") else f"transitions bring in new {units}"
        known.append(("Refresh rate", f"{format_share(float(np.mean(changed)))} of {of_what}"))
    renewal = told.get("subset_renewal_moves")
    known.append(
        ("Renewal", f"at best, all {units} of a subset are exchanged in about {format_short(renewal)} transitions")
        if renewal
        else ("Renewal", "none: each chain keeps its subset")
    )
    known.append((f"Distinct {units} visited", describe_distinct_rows(reading, n, N, renewal)))
    if told.get("leverage"):
        known.append(("Drawn by", "leverage: rows that carry more of the curvature come more often and count less"))
    if passes := told.get("polish_passes"):
        known.append(
            ("Polished", f"{passes} passes over all rows, {format_share(told['polish_acceptance'])} of corrections accepted")
        )
    return list_facts(known)


def describe_distinct_rows(reading: ReportData, n: int, N: int, renewal: float | None) -> Markup:
    """The estimate, and how it was come by."""
    if reading.told.get("exact") or reading.told.get("polish_passes"):
        return tag("span", f"all {N:,}: every kept draw was decided by a pass over all rows")
    transitions = reading.fit.draws * int(reading.told.get("thinning") or 1)
    renewals = transitions / renewal if renewal else 0.0
    units = name_units(reading)
    expected = expected_distinct_rows(N, n, reading.chains, renewals)
    how = (
        f"Expected, not counted: {reading.chains} chains begin with {n:,} {units} each and bring in {n:,} more "
        f"{format_short(renewals)} times in {transitions:,} transitions, each drawn from {N:,}, so that one is missed with "
        "probability ((1 - n/N) (1 - 1/N)^(n × renewals))^chains. It is fewer where they come with unequal chances, "
        "where windows overlap, and where n is no small part of N: a proposal that brings what U has already changes "
        "nothing."
    )
    return tag(
        "div", f"at most about {format_short(expected)} of {N:,} ({format_share(expected / N) if N else ''})", fold("How", how)
    )


def expected_distinct_rows(N: int, n: int, chains: int, renewals: float) -> float:
    """How many rows are expected in some U, where n N⁻¹ of them are in at first and n more come in at each renewal."""
    if n >= N:
        return float(N)
    return float(-N * np.expm1(chains * (np.log1p(-n / N) + renewals * n * np.log1p(-1.0 / N))))


def name_units(reading: ReportData) -> str:
    """What a subset is a set of: rows, whole groups, or the steps of a window."""
    return str(reading.told.get("units", "rows"))


def count_units(reading: ReportData) -> int:
    """How many of them the data have."""
    return int(reading.told.get("units_in_all") or reading.told.get("rows") or 0)


def show_distances(reading: ReportData) -> Markup:
    """‖S̄(Y_U) - s_N‖ against what a subset drawn at random has; or why there are none."""
    heading = tag("h3", "Distance from all rows")
    found = reading.fit.sample_stats.get("subset_distance", np.full((1, 1), np.nan))
    if not reading.told.get("informed", True) or not np.isfinite(found).any():
        way = (
            "each is given the gradient and the curvature of all rows, so that none need resemble them"
            if reading.told.get("transport")
            else "they are taken as they come"
        )
        words = f"No statistic compares subsets here: all weigh the same, drawn at random, and {way}."
        return tag("div", heading, tag("p", words))
    typical, random = float(np.nanmean(found)), reading.told.get("random_subset_distance")
    lines = [("these subsets", typical, format_short(typical))]
    words = ""
    if random is not None:
        lines.append(("drawn at random", random, format_short(random)))
        ratio = f"{format_short(random / typical)} times as far" if typical > 0 else "further"
        words = f"Subsets drawn at random are {ratio} from all rows as these are, by the statistic they are chosen by. "
    words += f"The bandwidth ε is {format_number(reading.told.get('epsilon'))}."
    picture = tag("div", draw_trace("distance", np.asarray(found, np.float64)[reading.shown]), class_="panels")
    return tag("div", heading, tag("p", words), draw_bars(lines), picture)


def format_number(value: object) -> str:
    """A number, or what stands for one."""
    return format_short(value) if isinstance(value, float | int) else str(value)


def describe_reads(reading: ReportData) -> Markup:
    """What the log-likelihood read, beside Metropolis-Hastings on all rows."""
    told = reading.told
    read, N, moves = (int(told.get(name) or 0) for name in ("rows_read", "rows", "moves"))
    full = N * moves * reading.chains
    if not (read and full):
        return tag("p", "This run does not say how many rows it read.")
    words = (
        f"{read:,} row evaluations in {moves:,} steps of {reading.chains} chains, tune included: "
        f"{format_short(read / (moves * reading.chains))} a step. Scoring all {N:,} rows at each step would have taken "
        f"{full:,}, {format_short(full / read)} times as many."
    )
    lines = [("read", float(read), f"{read:.3g}"), ("N × steps", float(full), f"{full:.3g}")]
    return tag("div", tag("p", words), draw_bars(lines))


def describe_rival(reading: ReportData) -> Markup:
    """Which algorithm, and what it says of its steps."""
    told = reading.told
    law = "the posterior" if told.get("exact") else "near the posterior: the method is approximate"
    known: list[tuple[str, object]] = [
        ("Method", f"{told['method']} ({told.get('paper', 'no paper')})"),
        ("Draws are of", law),
    ]
    rows = reading.fit.sample_stats.get("n_rows_read", np.empty(0))
    if rows.size:
        each = rows / int(told.get("thinning") or 1)
        low, middle, high = np.quantile(each, [0.05, 0.5, 0.95])
        known.append(("Rows a step", f"{format_short(middle)} as a rule, {format_short(low)} to {format_short(high)} in nine of ten draws"))
    varies = rows.size > 1 and rows.min() < rows.max()
    picture = draw_trace("rows read a kept draw", rows[reading.shown].astype(np.float64)) if varies else None
    return tag("div", list_facts(known), tag("div", picture, class_="panels"))
