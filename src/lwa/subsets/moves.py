"""R: how a new subset is proposed. Proposals are drawn whatever the state of U, a whole page at a time."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError

type Proposals = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The slots, ascending, and the rows that come in, each `(size, k)`."""


class Move(ABC):
    """R(U, ·), symmetric: R(U, U') = R(U', U)."""

    exchange: ClassVar[bool]
    """Whether incoming rows must be new to U (else the proposal is a self-loop)."""
    weighted: ClassVar[bool]
    """Whether proposals are accepted by Φ; others are always accepted."""
    every: int = 1
    """U' is proposed at one transition in so many; at the others U is left alone."""

    @abstractmethod
    def replaced(self, n: int) -> int:
        """How many of the n slots one proposal replaces."""

    @abstractmethod
    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """`size` proposals of `replaced(n)` rows each."""


@dataclass(frozen=True)
class Swap(Move):
    """Exchange k rows of U, chosen uniformly, for k rows drawn uniformly from all N, at one transition in `every`.

    A proposal that brings a row which is in U already leaves U as it is, so R(U, U') = k! / (C(n,k) N^k) both ways.
    """

    k: int = 1
    every: int = 1
    exchange: ClassVar[bool] = True
    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a k that exchanges nothing."""
        if not isinstance(self.k, int | np.integer) or isinstance(self.k, bool) or self.k < 1:
            raise InputError(
                f"Swap(k={self.k!r}) must exchange at least one row. Pass a whole number, Swap(1) for one."
            )
        if not isinstance(self.every, int | np.integer) or isinstance(self.every, bool) or self.every < 1:
            raise InputError(
                f"Swap(every={self.every!r}) must be a whole number >= 1. Pass Swap(1, every=4), for example."
            )

    def replaced(self, n: int) -> int:
        """k, which cannot exceed n."""
        if self.k > n:
            raise InputError(
                f"Swap({self.k}) exchanges more rows than subset_size={n} has. Pass Swap(k) with k <= {n}."
            )
        return self.k

    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """Slots by Floyd's algorithm (a uniform k-subset of n without an O(n) shuffle), rows independently."""
        slots = np.empty((size, self.k), np.int32)
        for i, j in enumerate(range(n - self.k, n)):
            slot = rng.integers(j + 1, size=size, dtype=np.int32)
            slots[:, i] = np.where((slots[:, :i] == slot[:, None]).any(1), j, slot)
        return np.sort(slots, axis=1), rng.integers(N, size=(size, self.k))


@dataclass(frozen=True)
class Free(Move):
    """A fresh uniform U at each step, whatever its statistics: the chain's law is i.i.d. uniform (ε → ∞)."""

    exchange: ClassVar[bool] = False
    weighted: ClassVar[bool] = False

    def replaced(self, n: int) -> int:
        """All n."""
        return n

    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """Subsets with a repeated row are drawn again whole, so the rest stay uniform over the distinct ones."""
        slots = np.broadcast_to(np.arange(n, dtype=np.int32), (size, n))
        if n * n > N:  # repeats would be the rule: draw each without replacement
            return slots, np.stack([rng.choice(N, n, replace=False) for _ in range(size)])
        rows = rng.integers(N, size=(size, n))
        while (again := (np.diff(np.sort(rows, axis=1), axis=1) == 0).any(1)).any():
            rows[again] = rng.integers(N, size=(int(again.sum()), n))
        return slots, rows


@dataclass(frozen=True)
class Fixed(Move):
    """The identity: one uniform U, chosen before the first step and kept (ε → 0)."""

    exchange: ClassVar[bool] = True
    weighted: ClassVar[bool] = False

    def replaced(self, n: int) -> int:
        """None."""
        return 0

    def propose(self, rng: np.random.Generator, size: int, n: int, N: int) -> Proposals:
        """Nothing comes in."""
        return np.empty((size, 0), np.int32), np.empty((size, 0), np.int64)


def as_move(move: object) -> Move | None:
    """R as given; None, by default, leaves it to lwa."""
    if move is None or isinstance(move, Move):
        return move
    raise InputError(
        f"subset_move={move!r} is not known. Valid: lwa.subsets.Swap(k), lwa.subsets.Free(), lwa.subsets.Fixed(). "
        "Pass subset_move=lwa.subsets.Swap(1), for example."
    )
