"""What a run shows while it goes on: its bars, its stopwatch, and how Ctrl-C ends it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHORTEST_STAGE = 0.05
"""Seconds below which `format_stages` leaves a stage out."""


class Stopwatch:
    """Seconds per stage, in the order in which stages first began.

    A stage inside another takes its seconds out of the outer one, so the stages add up to the time that went by.

    Examples
    --------
    >>> from lwa.user.progress import Stopwatch
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
        """Count the time of the `with` block as this stage."""
        self._turn()
        self._open.append(stage)
        self.seconds.setdefault(stage, 0.0)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @property
    def record(self) -> dict[str, float]:
        """Seconds per stage, rounded, as a run saves them."""
        return {stage: round(seconds, 3) for stage, seconds in self.seconds.items()}

    def _turn(self) -> None:
        now = self._clock()
        if stage := self._open[-1]:
            self.seconds[stage] += now - self._since
        self._since = now


def format_stages(stages: Mapping[str, float]) -> str:
    """Return one line: the seconds in total, then per stage, without the shortest ones."""
    listed = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stages.items() if seconds >= SHORTEST_STAGE)
    return f"{sum(stages.values()):.1f} s" + (f": {listed}" if listed else "")


def start_stopwatch() -> Stopwatch:
    """Start the stopwatch of a command. Its first stage is the time since the process began, 0 if that is unknown."""
    stages, age = Stopwatch(), 0.0
    with suppress(OSError, AttributeError, IndexError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    stages.add("imports", age)
    return stages


class Display:
    """One progress bar per phase, on standard error; nothing if `shown` is False. `stages` record the time."""

    def __init__(self, shown: bool, stages: Stopwatch | None = None) -> None:
        self.bars = make_bars() if shown else None
        self.stages = stages or Stopwatch()
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Display":
        """Start to draw the bars."""
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and leave the last state of the bars on the screen."""
        if self.bars is not None:
            self.bars.stop()

    def say(self, text: str) -> None:
        """Print one line above the bars, unless it is empty."""
        if text and self.bars is not None:
            self.bars.console.print(text, highlight=False, markup=False)  # a name such as beta[x] is no markup

    def show(self, phase: str, done: int, total: int, note: str = "") -> None:
        """Move the bar of a phase; its first call makes the bar."""
        if self.bars is None:
            return
        if phase not in self.tasks:
            self.tasks[phase] = self.bars.add_task(phase, total=total, note=note)
        self.bars.update(self.tasks[phase], completed=done, total=total, note=note)


def make_bars() -> "Progress":
    """Return the bars of a display, drawn by rich."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description:<14}"), progress.BarColumn(bar_width=24), progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(), progress.TimeRemainingColumn(), progress.TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    return progress.Progress(*columns, console=Console(stderr=True))


@contextmanager
def open_display(progress: bool | Display) -> Iterator[Display]:
    """Yield a new display, or the given one if it is already on the screen."""
    display = progress if isinstance(progress, Display) else Display(progress)
    with nullcontext() if display is progress else display:
        yield display


REASONS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""Signals that end a run early, and how the run then says why it stopped."""


@dataclass
class Interruption:
    """Whether Ctrl-C was pressed or the system asked the process to end: `asked` is then one of `REASONS`, else ""."""

    asked: str = ""


@contextmanager
def catch_interrupts() -> Iterator[Interruption]:
    """Let Ctrl-C and SIGTERM end a run at its next block, with what it has; a second signal acts at once.

    Only the main thread receives signals: in another thread this does nothing. Nor does it if a handler is in place
    that Python did not install (None), since that could not be restored.
    """
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in REASONS}
    if threading.current_thread() is not threading.main_thread() or None in before.values():
        yield interruption
        return

    def handle(number: int, frame: FrameType | None) -> None:
        interruption.asked = REASONS[signal.Signals(number)]
        signal.signal(number, before[signal.Signals(number)])

    for number in REASONS:
        signal.signal(number, handle)
    try:
        yield interruption
    finally:
        for number in REASONS:
            signal.signal(number, before[number])
