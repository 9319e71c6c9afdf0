"""R: how a new subset is proposed. Proposals are drawn a whole page at a time, independently of the current subset."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.user.validate import is_real, is_whole

type Proposals = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The slots, in ascending order, and the rows that come in, each `(size, k)`."""
NO_ORDER = (
    "subset_move={} moves windows of ordered data, but these rows have no order. Pass lwa.Model(..., ordered=True) if "
    "they have, else subset_move=lwa.subsets.Swap(1)."
)


class Move(ABC):
    """R(U, ·), symmetric: R(U, U') = R(U', U), except for `Window`, whose ratio `subsets/windows/law.py` has."""

    exchange: ClassVar[bool]
    """Whether incoming rows must be new to the subset; if one is not, the proposal leaves the subset as it is."""
    weighted: ClassVar[bool]
    """Whether Φ decides on proposals; if not, all are accepted."""
    every: int = 1
    """A new subset is proposed at one transition in `every`."""

    @abstractmethod
    def replaced(self, n: int) -> int:
        """Return how many of the n slots one proposal replaces."""

    @abstractmethod
    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """Draw `size` proposals of `replaced(n)` rows each."""


@dataclass(frozen=True)
class Swap(Move):
    """Exchange k rows of the subset, chosen uniformly, for k rows drawn uniformly from all N rows.

    A proposal with a row that the subset already has leaves it as it is, so R(U, U') = k! / (C(n,k) N^k) both ways. A
    new subset is proposed at one transition in `every`.
    """

    k: int = 1
    every: int = 1
    exchange: ClassVar[bool] = True
    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check k and every."""
        if not is_whole(self.k, least=1):
            raise InputError(
                f"Swap(k={self.k!r}) must exchange at least one row. Pass a whole number, Swap(1) for one."
            )
        require_every(self, "Swap(1, every=4)")

    def replaced(self, n: int) -> int:
        """Return k, which must not exceed n."""
        if self.k > n:
            raise InputError(
                f"Swap({self.k}) exchanges more rows than subset_size={n} has. Pass Swap(k) with k <= {n}.",
                advice={"subset_move": Swap(n)},
            )
        return self.k

    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """Draw slots by Floyd's algorithm (a uniform k-subset of n without an O(n) shuffle), rows independently."""
        slots = np.empty((size, self.k), np.int32)
        for i, j in enumerate(range(n - self.k, n)):
            slot = rng.integers(j + 1, size=size, dtype=np.int32)
            slots[:, i] = np.where((slots[:, :i] == slot[:, None]).any(1), j, slot)
        return np.sort(slots, axis=1), rng.integers(N, size=(size, self.k))


@dataclass(frozen=True)
class Free(Move):
    """Draw a new uniform subset at each step, whatever its statistics: subsets are i.i.d. uniform (ε → ∞)."""

    exchange: ClassVar[bool] = False
    weighted: ClassVar[bool] = False

    def replaced(self, n: int) -> int:
        """Return n: every slot is replaced."""
        return n

    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """Draw subsets; those with a repeated row are drawn again as a whole, so all are uniform over distinct rows."""
        slots = np.broadcast_to(np.arange(n, dtype=np.int32), (size, n))
        if n * n > N:  # repeats would be the rule: draw each without replacement
            return slots, np.stack([rng.choice(N, n, replace=False) for _ in range(size)])
        rows = rng.integers(N, size=(size, n))
        while (again := (np.diff(np.sort(rows, axis=1), axis=1) == 0).any(1)).any():
            rows[again] = rng.integers(N, size=(int(again.sum()), n))
        return slots, rows


@dataclass(frozen=True)
class Fixed(Move):
    """Keep one uniform subset, drawn before the first step (ε → 0)."""

    exchange: ClassVar[bool] = True
    weighted: ClassVar[bool] = False

    def replaced(self, n: int) -> int:
        """Return 0: no slot is replaced."""
        return 0

    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """Return proposals that bring in no row."""
        return np.empty((size, 0), np.int32), np.empty((size, 0), np.int64)


@dataclass(frozen=True)
class Window(Move):
    """Move a window of n consecutive rows, for ordered data, to a window near the current one or to one anywhere.

    The paper's eq. (def_R), with n' summed over: R(x, x') = ω e^{-λ|x-x'|} / Z(x) + (1-ω) h(x'), where x numbers the
    windows of all series, one series after the other.

    Parameters
    ----------
    local
        ω, the share of proposals near the current window.
    rate
        λ: a local proposal is about 1/λ rows away.
    lead_in
        Rows before a window that are read but not scored, so that its first rows have a past; with `"auto"`, lwa
        chooses their number.
    every
        A new window is proposed at one transition in `every`.

    Examples
    --------
    >>> import lwa
    >>> move = lwa.subsets.Window(local=0.9, rate=0.1)
    """

    local: float = 0.9
    rate: float = 0.1
    lead_in: int | Literal["auto"] = "auto"
    every: int = 1
    exchange: ClassVar[bool] = False
    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check that every option is in its range."""
        if not is_real(self.local) or not 0 <= self.local <= 1:
            raise InputError(
                f"Window(local={self.local!r}) must be a probability, from 0 to 1. Pass Window(local=0.9), for example."
            )
        if not is_real(self.rate) or not 0 < self.rate < math.inf:
            raise InputError(
                f"Window(rate={self.rate!r}) must be a positive number, one over the typical distance of a local move. "
                "Pass Window(rate=0.1) for moves of about 10 rows."
            )
        if self.lead_in != "auto" and not is_whole(self.lead_in, least=0):
            raise InputError(
                f"Window(lead_in={self.lead_in!r}) must be 'auto' or a whole number of rows >= 0. Pass "
                "Window(lead_in='auto'), for example."
            )
        require_every(self, "Window(every=4)")

    def replaced(self, n: int) -> int:
        """Return 1: the window is one slot."""
        return 1

    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """Raise: rows without order have no windows."""
        raise InputError(NO_ORDER.format(self))


def require_every(move: Move, example: str) -> None:
    """Raise unless `every` is a whole number of at least 1."""
    if not is_whole(move.every, least=1):
        name = type(move).__name__
        raise InputError(f"{name}(every={move.every!r}) must be a whole number >= 1. Pass {example}, for example.")


def as_move(move: object, *, ordered: bool = False) -> Move | None:
    """Return a move; None, the default, leaves the choice to lwa."""
    if isinstance(move, Swap) and ordered:
        raise InputError(
            f"subset_move={move} exchanges single rows, but these rows are ordered, so each subset is a "
            "window of them. Pass subset_move=lwa.subsets.Window(), Free() or Fixed(), or leave it out."
        )
    if isinstance(move, Window) and not ordered:
        raise InputError(NO_ORDER.format(move))
    if move is None or isinstance(move, Move):
        return move
    raise InputError(
        f"subset_move={move!r} is not known. Valid: lwa.subsets.Swap(k), lwa.subsets.Window(), lwa.subsets.Free(), "
        "lwa.subsets.Fixed(). Pass subset_move=lwa.subsets.Swap(1), for example."
    )
