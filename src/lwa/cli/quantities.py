"""Times and sizes as text."""

import math


def format_seconds(seconds: float) -> str:
    """Return a time in the unit that reads well, from microseconds to days."""
    for size, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    if seconds >= 0.1:
        return f"{seconds:.1f} s"
    return f"{1e3 * seconds:.2g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def format_bytes(count: float) -> str:
    """Return a size in the unit that reads well, from bytes to terabytes."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def round_budget(seconds: float) -> str:
    """Return the next longer round time, as one would type it after --budget."""
    for size, unit in ((1, "s"), (60, "min"), (3600, "h")):
        for count in (1, 2, 5, 10, 20, 30):
            if count * size >= seconds:
                return f"{count} {unit}"
    return f"{math.ceil(seconds / 3600)} h"
