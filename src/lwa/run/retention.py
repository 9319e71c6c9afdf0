"""What is kept of the draws: all of them where memory allows it, else their summary and the last few."""

from dataclasses import dataclass

from lwa.run.settings import NO_END, Settings

SHARE = 0.25
"""Of the memory that is free, that draws may take: whoever looks at them makes copies."""
LAST_BYTES = 2**26
"""What the draws may take that are kept beside a summary, for certificate, report and predictions."""


@dataclass(frozen=True)
class Retention:
    """What a run keeps of its draws."""

    summarised: bool = False
    last: int = NO_END  # draws of each chain that stay, the most recent ones
    room: int = 0  # draws a chain for which memory is set aside at once


@dataclass(frozen=True)
class Memory:
    """What there is, and what a draw takes."""

    draw_bytes: int = 0  # of one draw of one chain, with all that is told of it
    free: float = float("inf")


def retention_of(settings: Settings, memory: Memory, draws: int) -> tuple[Retention, str]:
    """What a run of so many draws a chain keeps, and how to say it; where that is all and little, nothing is said."""
    chain_bytes = settings.chains * max(1, memory.draw_bytes)
    whole, most = draws * chain_bytes, SHARE * memory.free
    on_disk = settings.checkpoint is not None
    many = f"{settings.chains:,} chains x {draws:,} draws"
    if settings.keep == "all" or (settings.keep == "auto" and (whole <= most or on_disk)):
        where = "in the checkpoint's folder" if on_disk else "in memory"
        told = f"{many} are {in_units(whole)}, kept {where}." if whole > LAST_BYTES else ""
        return Retention(room=draws if whole <= most < float("inf") and not on_disk else 0), told
    last = max(1, min(draws, LAST_BYTES // chain_bytes))
    limit = "" if whole <= most else f", and {in_units(most)}, a quarter of what is free, may be used"
    told = (
        f"{many} would be {in_units(whole)}{limit}: they are summarised while they are made, and the last {last:,} of "
        f"each chain are kept, {in_units(last * chain_bytes)}."
    )
    return Retention(summarised=True, last=last, room=min(draws, 2 * last)), told


def in_units(size: float) -> str:
    """Bytes as they are said."""
    for unit, words in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:.3g} {words}"
    return f"{size / 2**10:.3g} KiB"
