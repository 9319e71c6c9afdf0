"""What a run may cost: seconds, or rows read."""

import re
import time
from dataclasses import dataclass
from numbers import Real

from lwa.errors import InputError

UNITS = {"s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60}
UNITS |= {"h": 3600, "hour": 3600, "hours": 3600}


@dataclass(frozen=True)
class RowReads:
    """A budget in rows read by the log-likelihood, over all chains and moves of tune and sampling."""

    count: int

    def __post_init__(self) -> None:
        """Refuse a budget that buys nothing."""
        if not is_positive(self.count):
            raise InputError(
                f"RowReads({self.count!r}) must hold a positive number. Pass lwa.RowReads(10**9), for example."
            )


@dataclass(frozen=True)
class Budget:
    """Limits of tune and sampling; infinite where there is none."""

    seconds: float = float("inf")
    rows: float = float("inf")


class Meter:
    """What has been spent of a budget since `Meter` was made."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.rows = 0
        self.start = time.monotonic()

    def share(self) -> float:
        """The fraction that is spent, 1 or more when it is used up."""
        return max((time.monotonic() - self.start) / self.budget.seconds, self.rows / self.budget.rows)

    def seconds_left(self, share: float = 1.0) -> float:
        """Until that share of the time is spent."""
        return share * self.budget.seconds - (time.monotonic() - self.start)

    def rows_left(self, share: float = 1.0) -> float:
        """Until that share of the row reads is spent."""
        return share * self.budget.rows - self.rows


def is_positive(value: object) -> bool:
    """Whether it is a number above zero, Python's or NumPy's."""
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) > 0


def as_budget(budget: object) -> Budget:
    """From "10 min", seconds, `RowReads` or None."""
    if isinstance(budget, Budget):
        return budget
    if budget is None:
        return Budget()
    if isinstance(budget, RowReads):
        return Budget(rows=budget.count)
    if isinstance(budget, Real) and is_positive(budget):
        return Budget(seconds=float(budget))
    if isinstance(budget, str) and (parts := re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zA-Z]*)\s*", budget)):
        seconds = float(parts[1]) * UNITS.get(parts[2].lower() or "s", 0)
        if seconds > 0:
            return Budget(seconds=seconds)
    raise InputError(
        f"budget={budget!r} is not understood. Pass seconds (60), a time ('90 s', '10 min', '2 h') or "
        "lwa.RowReads(10**9)."
    )
