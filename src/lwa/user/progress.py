"""What a user sees while it runs, and how they stop it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

from lwa.user.stopwatch import Stopwatch


class Display:
    """A bar a phase, on standard error; plain lines where rich is not installed; silent where `shown` is False.

    Its `stages` say where the time goes.
    """

    def __init__(self, shown: bool, stages: Stopwatch | None = None) -> None:
        self.shown, self.bars = shown, rich_bars() if shown else None
        self.stages = stages or Stopwatch()
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> "Display":
        """Begin to draw."""
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state of the bars on the screen."""
        if self.bars is not None:
            self.bars.stop()

    def say(self, text: str) -> None:
        """One line above the bars, if there is anything to say."""
        if not text:
            return
        if self.bars is not None:
            self.bars.console.print(text, highlight=False, markup=False)  # a name such as beta[x] is no markup
        elif self.shown:
            print(text, file=sys.stderr)

    def show(self, phase: str, done: int, total: int, note: str = "") -> None:
        """Move a phase's bar, making it on first use."""
        if self.bars is None:
            return
        if phase not in self.tasks:
            self.tasks[phase] = self.bars.add_task(phase, total=total, note=note)
        self.bars.update(self.tasks[phase], completed=done, total=total, note=note)


def rich_bars() -> Any:
    """Rich's bars; None where it is not installed: a run needs none."""
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    return progress.Progress(
        progress.TextColumn("{task.description:<14}"),
        progress.BarColumn(bar_width=24),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )


@contextmanager
def shown(progress: bool | Display) -> Iterator[Display]:
    """A display of its own, or the one that is already on the screen."""
    display = progress if isinstance(progress, Display) else Display(progress)
    with nullcontext() if display is progress else display:
        yield display


SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""What ends a run early, and what a run that it ended is called."""


class Interruption:
    """Whether Ctrl-C was pressed, or the system asked the process to end, and how to say it."""

    def __init__(self) -> None:
        self.asked = ""


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Ctrl-C and SIGTERM end the run at the next block and keep what is there; a second one acts at once.

    Signals reach the main thread alone: elsewhere this does nothing, and whoever owns the main thread decides. So it is
    where a handler is in place that Python did not install (None), which could not be put back.
    """
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if threading.current_thread() is not threading.main_thread() or None in before.values():
        yield interruption
        return

    def handle(number: int, frame: FrameType | None) -> None:
        interruption.asked = SIGNALS[signal.Signals(number)]
        signal.signal(number, before[signal.Signals(number)])

    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        yield interruption
    finally:
        for number in SIGNALS:
            signal.signal(number, before[number])
