"""Where the seconds of a run went, stage by stage."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SHORTEST = 0.05
"""Seconds below which a stage is not worth a word."""


class Stopwatch:
    """Seconds by stage, in the order in which stages were first begun.

    A stage within another takes its seconds out of that one, so that all of them add up to the time that went by.

    Examples
    --------
    >>> from lwa.user.stopwatch import Stopwatch
    >>> stages = Stopwatch()
    >>> with stages("planning"), stages("compiling"):
    ...     pass
    >>> list(stages.seconds)
    ['planning', 'compiling']
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds: dict[str, float] = {}
        self._clock, self._since, self._open = clock, clock(), [""]

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """All that is done within."""
        self._turn()
        self._open.append(stage)
        self.seconds.setdefault(stage, 0.0)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def add(self, stage: str, seconds: float) -> None:
        """Seconds that went by before there was a stopwatch."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @property
    def record(self) -> dict[str, float]:
        """For JSON."""
        return {stage: round(seconds, 3) for stage, seconds in self.seconds.items()}

    def _turn(self) -> None:
        now = self._clock()
        if stage := self._open[-1]:
            self.seconds[stage] += now - self._since
        self._since = now


def in_words(stages: Mapping[str, float]) -> str:
    """One line: all of it, then stage by stage, short ones left out."""
    told = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stages.items() if seconds >= SHORTEST)
    return f"{sum(stages.values()):.1f} s" + (f": {told}" if told else "")


def begun() -> Stopwatch:
    """For a command that has just imported what it needs, which took its first seconds."""
    stages = Stopwatch()
    stages.add("imports", since_the_process_began())
    return stages


def since_the_process_began() -> float:
    """Seconds; 0 where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return 0.0
