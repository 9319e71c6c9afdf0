"""Limits of a run: seconds, rows read, memory for its draws."""

import re
from dataclasses import dataclass

from lwa.backend.machine import read_free_memory
from lwa.errors import InputError
from lwa.user.validate import is_real

NO_LIMIT = 2**62
"""Draws per chain that are kept if nothing limits them."""
DRAWS_SHARE = 0.25
"""Share of the free memory that draws may take: looking at them makes copies."""
LAST_BYTES = 2**26
"""Bytes of draws that are always kept: beside a summary, for certificate, report and predictions."""
UNITS = {"s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60}
UNITS |= {"h": 3600, "hour": 3600, "hours": 3600}


@dataclass(frozen=True)
class RowReads:
    """A budget in rows read by the log-likelihood, over all chains and moves of tune and sampling."""

    count: int

    def __post_init__(self) -> None:
        """Raise unless the budget is positive."""
        if not is_real(self.count) or self.count <= 0:
            raise InputError(f"RowReads({self.count!r}) must hold a positive number. Pass lwa.RowReads(10**9), say.")


@dataclass(frozen=True)
class Budget:
    """Limits of tune and sampling; infinite if there is none."""

    seconds: float = float("inf")
    rows: float = float("inf")


def as_budget(budget: object) -> Budget:
    """Return the budget that "10 min", seconds, `RowReads` or None stand for."""
    if isinstance(budget, Budget):
        return budget
    if budget is None:
        return Budget()
    if isinstance(budget, RowReads):
        return Budget(rows=budget.count)
    if is_real(budget) and budget > 0:
        return Budget(seconds=float(budget))
    if isinstance(budget, str) and (parts := re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zA-Z]*)\s*", budget)):
        seconds = float(parts[1]) * UNITS.get(parts[2].lower() or "s", 0)
        if seconds > 0:
            return Budget(seconds=seconds)
    raise InputError(
        f"budget={budget!r} is not understood. Pass seconds (60), a time ('90 s', '10 min', '2 h') or "
        "lwa.RowReads(10**9)."
    )


@dataclass(frozen=True)
class Retention:
    """What a run keeps of its draws."""

    summarised: bool = False
    last: int = NO_LIMIT  # draws per chain that stay, the most recent ones
    room: int = 0  # draws per chain for which memory is set aside at once


def decide_retention(draws: int, draw_bytes: int, *, chains: int, keep: str, on_disk: bool) -> tuple[Retention, str]:
    """Return what a run of `draws` draws per chain keeps, and a sentence about it, empty if everything fits easily."""
    chain_bytes = chains * max(1, draw_bytes)
    whole = draws * chain_bytes
    most = DRAWS_SHARE * read_free_memory() if whole > LAST_BYTES else float(LAST_BYTES)
    many = f"{chains:,} chains x {draws:,} draws"
    if keep == "all" or (keep == "auto" and (whole <= most or on_disk)):
        where = "in the checkpoint's folder" if on_disk else "in memory"
        words = f"{many} are {describe_bytes(whole)}, kept {where}." if whole > LAST_BYTES else ""
        return Retention(room=draws if whole <= most < float("inf") and not on_disk else 0), words
    last = max(1, min(draws, LAST_BYTES // chain_bytes))
    limit = "" if whole <= most else f", and {describe_bytes(most)}, a quarter of what is free, may be used"
    words = (
        f"{many} would be {describe_bytes(whole)}{limit}: they are summarised while they are made, and the last "
        f"{last:,} of each chain are kept, {describe_bytes(last * chain_bytes)}."
    )
    return Retention(summarised=True, last=last, room=min(draws, 2 * last)), words


def describe_bytes(size: float) -> str:
    """Return a number of bytes in words."""
    for unit, words in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:.3g} {words}"
    return f"{size / 2**10:.3g} KiB"
