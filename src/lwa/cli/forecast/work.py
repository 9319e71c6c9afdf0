"""The cost model: what a run does, what each part costs, and so what the run costs.

    seconds = start + Σ_passes (max(N · row, bytes / disk) / workers + task · workers) + moves · max(move, gathers)

A pass over N rows computes and reads in parallel, so it costs the longer of the two. If all rows fit into the free
memory, only the first pass reads the disk. Moves read subsets of n rows, whatever N is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

PASS_PURPOSES = {
    "convert": "read the table, write rows that can be read at random",
    "bind": "find levels, values and scales of the formula's columns",
    "survey": "check that all values are finite, fingerprint the data",
    "mode": "find the mode by Newton's method",
    "reach": "measure what rows add within the posterior's reach",
    "leverage": "find the rows that matter most",
    "size": "find how many rows a subset needs",
    "exact": "correct every draw by all rows",
    "certificate": "compare the draws with the posterior of all rows",
}
"""What passes over all rows are for, in the order in which a run makes them."""
TASK_SECONDS = 0.002
"""Seconds per task of a pass that the scheduler needs, one task after the other. This is the only cost that is not
measured: it is typical of a scheduler on the same network."""
CACHED_SHARE = 0.8
"""Share of the free memory that rows may take to be still cached at the next pass."""


@dataclass(frozen=True)
class Workload:
    """What a run does. Its fields are keys of `lwa plan --json`."""

    rows: int  # N
    row_bytes: int
    passes: Mapping[str, int]  # over all rows, by phase
    moves: int  # of each chain
    chains: int
    gathered: float  # rows that a move of one chain reads at random
    source_bytes: int = 0  # that a conversion reads

    @property
    def pass_bytes(self) -> int:
        """Bytes that one pass reads."""
        return self.rows * self.row_bytes

    @property
    def bytes_read(self) -> int:
        """Bytes that all passes read; a conversion reads its source."""
        over_rows = sum(count for phase, count in self.passes.items() if phase != "convert")
        return over_rows * self.pass_bytes + self.source_bytes * self.passes.get("convert", 0)

    @property
    def gathered_rows(self) -> float:
        """Rows that all moves read at random."""
        return self.moves * self.chains * self.gathered


@dataclass(frozen=True)
class Costs:
    """What things cost here, all measured on a sample of the rows. Its fields are keys of `lwa plan --json`."""

    row: Mapping[str, float]  # seconds of computing per row, by phase
    move: float  # seconds of one move of all chains
    gather: float  # seconds per row read at random
    disk: float  # bytes per second
    start: float  # seconds of imports, compilation and all else that does not depend on N
    free: float  # bytes of memory that may cache files


def estimate_pass(work: Workload, costs: Costs, phase: str, *, cold: bool, workers: int = 1) -> float:
    """Return the seconds of one pass; `cold` if its bytes come from the disk."""
    held = work.source_bytes if phase == "convert" else work.pass_bytes
    reading = held / costs.disk if cold else 0.0
    return max(work.rows * costs.row[phase], reading) / workers + (TASK_SECONDS * workers if workers > 1 else 0.0)


def estimate_phases(work: Workload, costs: Costs, workers: int = 1) -> dict[str, float]:
    """Return the seconds of the start, of the passes by phase, and of the moves."""
    stays = work.pass_bytes <= CACHED_SHARE * costs.free * workers
    found, seen = {"start": costs.start}, False
    for phase in PASS_PURPOSES:
        if not (count := work.passes.get(phase, 0)):
            continue
        first = estimate_pass(work, costs, phase, cold=not (stays and seen) or phase == "convert", workers=workers)
        rest = estimate_pass(work, costs, phase, cold=not stays, workers=workers)
        found[phase], seen = first + (count - 1) * rest, True
    found["moves"] = work.moves * estimate_move(work, costs)
    return found


def estimate_move(work: Workload, costs: Costs) -> float:
    """Return the seconds of one move of all chains; a thread of its own reads the rows ahead."""
    return max(costs.move, work.chains * work.gathered * costs.gather)


def estimate_total(work: Workload, costs: Costs, workers: int = 1) -> float:
    """Return the seconds of the whole run."""
    return sum(estimate_phases(work, costs, workers).values())


def find_worthwhile_workers(work: Workload, costs: Costs, most: int = 1024) -> int:
    """Return the fewest workers with which a run takes at most a tenth longer than with the best number of them."""
    taken = [estimate_total(work, costs, count) for count in range(1, most + 1)]
    return next(count for count, seconds in enumerate(taken, 1) if seconds <= 1.1 * min(taken))


def scale_rows(work: Workload, rows: int) -> Workload:
    """Return the workload of this run on another number of rows of the same kind."""
    return replace(work, rows=rows, source_bytes=round(work.source_bytes * rows / work.rows))
