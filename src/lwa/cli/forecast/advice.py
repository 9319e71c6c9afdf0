"""What to change about a planned run, and what that would gain."""

import math
from typing import TYPE_CHECKING

from lwa.cli.forecast.work import estimate_pass, estimate_phases, estimate_total
from lwa.cli.options import SampleOptions
from lwa.cli.quantities import format_bytes, format_seconds, round_budget
from lwa.cli.source import Source

if TYPE_CHECKING:
    from lwa.cli.forecast.forecast import Forecast

FEWEST_SUBSET_ROWS, ACCURATE_ROWS_PER_PARAMETER = 100, 10
"""Rows of a subset, and rows per parameter, with which the calibrated target is accurate (docs/accuracy.md)."""
EXPENSIVE = 10.0
"""A run with --exact that takes this many times as long is not worth it: the advice is to leave --exact out."""
AFFORDABLE = 1.5
"""A run with --exact that takes up to this many times as long is recommended."""


def advise(found: "Forecast", source: Source, options: SampleOptions, *, room: int) -> list[str]:
    """Return one sentence per choice; `room` is the free bytes on the disk of the cache."""
    advice = [
        advise_on_size(found, options),
        advise_on_exact(found, options),
        advise_on_conversion(found, source, room),
        advise_on_workers(found),
        advise_on_budget(found, options),
    ]
    return [sentence for sentence in advice if sentence]


def advise_on_size(found: "Forecast", options: SampleOptions) -> str:
    """Advise on the rows per subset."""
    least = math.ceil(max(FEWEST_SUBSET_ROWS, ACCURATE_ROWS_PER_PARAMETER * found.parameters) / 100) * 100
    n, N = found.subset_size, found.work.rows
    if options["target"] not in ("calibrated", "auto"):
        wanted = f"--target calibrated needs only {least:,} rows per subset."
        return f"--target {options['target']} needs subsets as large as time allows; {wanted}"
    if n < min(least, N):
        return (
            f"Pass --subset-size {min(least, N)}: accurate draws of {found.parameters} parameters need ten rows per "
            "parameter, and at least 100."
        )
    if n > 10 * least:
        return f"--subset-size {least} is enough for {found.parameters} parameters, and steps would take less time."
    return f"--subset-size {n} is enough for {found.parameters} parameters."


def advise_on_exact(found: "Forecast", options: SampleOptions) -> str:
    """Advise on correcting every draw by all rows."""
    one = estimate_pass(found.work, found.costs, "exact", cold=False)
    in_all = estimate_phases(found.work, found.costs)
    without = sum(seconds for phase, seconds in in_all.items() if phase != "exact")
    corrected = without + (found.draws + 1) * one
    if options["exact"]:
        if corrected > EXPENSIVE * without:
            return (
                f"Leave --exact out: the fit takes {format_seconds(without)} instead of {format_seconds(corrected)}. "
                "The certificate measures the error that remains, and fit.polish() corrects it in a few passes."
            )
        return f"--exact takes {format_seconds(one)} per draw: affordable here."
    if corrected <= AFFORDABLE * without:
        return (
            f"Pass --exact: it leaves no error but Monte Carlo error, in {format_seconds(corrected)} instead of "
            f"{format_seconds(without)}."
        )
    return f"--exact would take {format_seconds(corrected)}. Without it, the certificate measures the remaining error."


def advise_on_conversion(found: "Forecast", source: "Source", room: int) -> str:
    """Advise on converting the table first."""
    if not found.work.passes["convert"]:
        return "There is nothing to convert: the rows can be read at random as they are."
    took, size = estimate_phases(found.work, found.costs)["convert"], found.work.pass_bytes
    if size > room:
        return (
            f"The converted rows take {format_bytes(size)}, but the disk of the cache has only {format_bytes(room)} "
            "left. Set LWA_CACHE to a folder on another disk, or convert to one: lwa convert SOURCE FOLDER."
        )
    return (
        f"The first fit converts {source.table!r}, which takes {format_seconds(took)} and {format_bytes(size)} in the "
        "cache; later fits with the same columns reuse it. If formulas will change, convert all columns once: "
        "lwa convert SOURCE FOLDER."
    )


def advise_on_workers(found: "Forecast") -> str:
    """Advise on the number of Dask workers."""
    if found.workers == 1:
        return "More workers (--dask) would save less than a tenth of the time."
    faster = estimate_total(found.work, found.costs, found.workers)
    return (
        f"Up to {found.workers} workers (--dask) are worth it: {format_seconds(faster)} instead of "
        f"{format_seconds(found.total)}."
    )


def advise_on_budget(found: "Forecast", options: SampleOptions) -> str:
    """Advise on the time for tuning and sampling."""
    if options["budget"] is not None:
        return ""
    in_all = estimate_phases(found.work, found.costs)
    needed = in_all["moves"] + in_all.get("exact", 0.0)
    return f"--budget '{round_budget(2 * needed)}' is a safe time limit: twice what sampling should take, or more."
