"""The cost model: what a run does, what each of these things costs, and so what the run costs.

    seconds = start + Σ_passes (max(N · row, bytes / disk) / workers + task · workers) + moves · max(move, gathers)

A pass over N rows computes and reads side by side, so that it costs whichever takes longer; where all rows fit into the
memory that is free, only the first pass reads the disk. Moves read subsets of n rows, whatever N is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

PHASES = {
    "convert": "read the source, write rows that can be read at random",
    "bind": "levels, values and scales of the formula's columns",
    "survey": "are all values finite, which data are they",
    "mode": "Newton's method: gradient and curvature",
    "leverage": "which rows matter most",
    "size": "how many rows subsets need",
    "exact": "the log posterior of every chain's proposal",
    "certificate": "gradients at hundreds of draws",
}
"""What passes over all rows are for, in the order in which they are made."""
TASK = 0.002
"""Seconds that one task of a pass costs whoever hands tasks out and adds up what they bring, one after the other. This
alone is not measured: it is what a scheduler on the same network takes."""
SAME_DISK = 0.8
"""Of the free memory that rows may take to be still there at the next pass."""


@dataclass(frozen=True)
class Work:
    """What a run does."""

    rows: int  # N
    row_bytes: int
    passes: Mapping[str, int]  # over all rows, by phase
    moves: int  # of each chain
    chains: int
    gathered: float  # rows that a move of one chain brings in from everywhere
    source_bytes: int = 0  # that a conversion reads

    @property
    def pass_bytes(self) -> int:
        """That one pass reads."""
        return self.rows * self.row_bytes

    @property
    def bytes_read(self) -> int:
        """By all passes; a conversion reads its source."""
        over_rows = sum(count for phase, count in self.passes.items() if phase != "convert")
        return over_rows * self.pass_bytes + self.source_bytes * self.passes.get("convert", 0)

    @property
    def gathered_rows(self) -> float:
        """By all moves."""
        return self.moves * self.chains * self.gathered


@dataclass(frozen=True)
class Costs:
    """What things cost on one machine; all of them are measured, on some of the rows."""

    row: Mapping[str, float]  # seconds of computing a row, by phase
    move: float  # seconds of one move of all chains
    gather: float  # seconds a row that is read at random
    disk: float  # bytes a second
    start: float  # seconds of imports, compilation and whatever else does not depend on N
    free: float  # bytes of memory that files may be kept in


def pass_seconds(work: Work, costs: Costs, phase: str, *, cold: bool, workers: int = 1) -> float:
    """Of one pass; `cold` where its bytes come from the disk."""
    held = work.source_bytes if phase == "convert" else work.pass_bytes
    reading = held / costs.disk if cold else 0.0
    return max(work.rows * costs.row[phase], reading) / workers + (TASK * workers if workers > 1 else 0.0)


def phase_seconds(work: Work, costs: Costs, workers: int = 1) -> dict[str, float]:
    """Of all passes by phase, in the order in which they are made, then of the moves."""
    stays = work.pass_bytes <= SAME_DISK * costs.free * workers
    found, seen = {"start": costs.start}, False
    for phase in PHASES:
        count = work.passes.get(phase, 0)
        if not count:
            continue
        first = pass_seconds(work, costs, phase, cold=not (stays and seen) or phase == "convert", workers=workers)
        rest = pass_seconds(work, costs, phase, cold=not stays, workers=workers)
        found[phase], seen = first + (count - 1) * rest, True
    found["moves"] = work.moves * move_seconds(work, costs)
    return found


def move_seconds(work: Work, costs: Costs) -> float:
    """One move of all chains: rows are gathered a page ahead, on a thread of its own."""
    return max(costs.move, work.chains * work.gathered * costs.gather)


def total_seconds(work: Work, costs: Costs, workers: int = 1) -> float:
    """Of the whole run."""
    return sum(phase_seconds(work, costs, workers).values())


def worthwhile_workers(work: Work, costs: Costs, most: int = 1024) -> int:
    """The fewest workers with which a run takes at most a tenth longer than with any number of them."""
    taken = [total_seconds(work, costs, count) for count in range(1, most + 1)]
    return next(count for count, seconds in enumerate(taken, 1) if seconds <= 1.1 * min(taken))


def with_rows(work: Work, rows: int) -> Work:
    """The same run on another number of rows of the same kind."""
    return replace(work, rows=rows, source_bytes=round(work.source_bytes * rows / work.rows))
