"""What would be better, and what it would gain."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lwa.cli.forecast.work import pass_seconds, phase_seconds, total_seconds

if TYPE_CHECKING:
    from lwa.cli.fit import Source
    from lwa.cli.forecast.forecast import Forecast

FEWEST, A_PARAMETER = 100, 10
"""Rows of a subset, and rows for each parameter, with which the calibrated target is accurate (docs/accuracy.md)."""
DEAR = 10.0
"""Times as long as the calibrated run that exact=True may take."""
CHEAP = 1.5


def advise(found: "Forecast", source: "Source", options: Mapping[str, Any], *, room: int) -> list[str]:
    """A sentence a choice."""
    told = [on_size(found, options), on_exact(found, options), on_conversion(found, source, room), on_workers(found)]
    return [one for one in [*told, on_budget(found, options)] if one]


def on_size(found: "Forecast", options: Mapping[str, Any]) -> str:
    """Rows of a subset."""
    least = math.ceil(max(FEWEST, A_PARAMETER * found.parameters) / 100) * 100
    n, N = found.subset_size, found.work.rows
    if options["target"] not in ("calibrated", "auto"):
        return f"--target {options['target']} needs subsets as large as time allows; calibrated needs {least:,} rows."
    if n < min(least, N):
        return f"Pass --subset-size {min(least, N)}: {found.parameters} parameters want ten rows each, and 100 in all."
    if n > 10 * least:
        return f"--subset-size {least} would do for {found.parameters} parameters, and moves would cost less."
    return f"--subset-size {n} is enough for {found.parameters} parameters."


def on_exact(found: "Forecast", options: Mapping[str, Any]) -> str:
    """Whether to correct every draw by all rows."""
    one = pass_seconds(found.work, found.costs, "exact", cold=False)
    in_all = phase_seconds(found.work, found.costs)
    without = sum(seconds for phase, seconds in in_all.items() if phase != "exact")
    corrected = without + (found.draws + 1) * one
    if options["exact"]:
        if corrected > DEAR * without:
            return (
                f"Without --exact it takes {spoken(without)} instead of {spoken(corrected)}: calibrated draws, which "
                "the certificate judges, and fit.polish() corrects in a few passes."
            )
        return f"--exact costs {spoken(one)} a draw: affordable here."
    if corrected <= CHEAP * without:
        return f"--exact would leave no error but Monte Carlo: {spoken(corrected)} in place of {spoken(without)}."
    return f"Calibrated draws and their certificate will do; --exact would take {spoken(corrected)}."


def on_conversion(found: "Forecast", source: "Source", room: int) -> str:
    """Whether to convert first."""
    if not found.work.passes["convert"]:
        return "The rows can be read at random as they are: there is nothing to convert."
    took, size = phase_seconds(found.work, found.costs)["convert"], found.work.pass_bytes
    if size > room:
        return (
            f"Converted rows take {in_bytes(size)}, and the cache's disk has {in_bytes(room)} left. Set LWA_CACHE to a "
            "folder on another, or convert into one: lwa convert SOURCE FOLDER."
        )
    where = source.data or source.what
    return (
        f"The first fit converts {where!r}, {spoken(took)} and {in_bytes(size)} in the cache; later ones of the "
        "same columns find it there. Convert all columns once, lwa convert SOURCE FOLDER, where formulas will change."
    )


def on_workers(found: "Forecast") -> str:
    """How many machines would help."""
    if found.workers == 1:
        return "One worker: passes are a small part of the time, and more workers would gain less than a tenth."
    faster = total_seconds(found.work, found.costs, found.workers)
    return f"Up to {found.workers} workers are worth it: {spoken(faster)} in place of {spoken(found.total)}."


def on_budget(found: "Forecast", options: Mapping[str, Any]) -> str:
    """How long tune and sampling may take."""
    if options["budget"] is not None:
        return ""
    in_all = phase_seconds(found.work, found.costs)
    needed = in_all["moves"] + in_all.get("exact", 0.0)
    return f"--budget '{rounded_up(2 * needed)}' leaves room for twice what tune and draws are to take."


def rounded_up(seconds: float) -> str:
    """A budget that one would type."""
    for size, unit in ((1, "s"), (60, "min"), (3600, "h")):
        for count in (1, 2, 5, 10, 20, 30):
            if count * size >= seconds:
                return f"{count} {unit}"
    return f"{math.ceil(seconds / 3600)} h"


def spoken(seconds: float) -> str:
    """A time as one says it."""
    for size, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1e3 * seconds:.2g} ms"


def in_bytes(count: float) -> str:
    """A size as one says it."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
