"""Cohorts that workers play, a segment of moves at a time.

A worker gets what a cohort held when its last segment ended and gives back what it holds now. So a worker that dies
costs one segment: another begins it again from there, to the same bits. A worker that played the last one still has the
cohort as it was and goes on with it.
"""

import threading
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.engine.cohort import CohortState, LocalCohort, Moves, restore_cohort
from lwa.engine.problem import Problem
from lwa.executors import Executor, Work


class Segment(NamedTuple):
    """What came of a segment."""

    moves: Moves
    held: CohortState
    name: str  # by which the worker that played it knows the cohort
    invalid: NDArray[Any] | None  # a θ′ without a density, if there was one


class RemoteCohort:
    """A cohort of which this process holds the state between two segments, and an executor plays these."""

    on_device: ClassVar[bool] = False

    def __init__(self, cohort: LocalCohort, executor: Executor, near: float) -> None:
        self.problem, self.chains, self.executor, self.near = cohort.problem, cohort.chains, executor, near
        self.frozen = cohort.frozen
        self.last = cohort.take_snapshot()
        self.page = jax.tree.map(np.empty_like, cohort.get_stored_page())
        self.name = ""
        self.invalid: NDArray[Any] | None = None
        cohort.close()

    @property
    def moves(self) -> int:
        """Played so far."""
        return self.last.moves

    @property
    def state(self) -> Any:
        """θ and what the kernel has learnt."""
        return self.last.state

    def run(self, stop: int) -> Moves:
        """Play up to the `stop`-th move of the run."""
        work = Work(play_segment, (self.problem,), (self.chains, self.last, self.name, self.frozen))
        (segment,) = self.executor.map(work, [stop], [self.near])
        self.last, self.name, self.invalid = segment.held, segment.name, segment.invalid
        return segment.moves

    def freeze(self) -> None:
        """End of tune."""
        self.frozen = True

    def take_snapshot(self) -> CohortState:
        """What it holds now."""
        return self.last

    def resume_from(self, held: CohortState) -> None:
        """Take up where another process was."""
        self.last, self.name = held, ""

    def get_stored_page(self) -> Any:
        """A page as tapes have it in store, to see how such are built."""
        return self.page

    def stop_at(self, state: Any, moves: int) -> None:
        """Be where tune ended, not to move again."""
        self.last = self.last._replace(state=state, moves=moves)

    def find_last_invalid(self) -> NDArray[Any] | None:
        """A θ′ of the last segment whose log target was NaN or +inf."""
        return self.invalid

    def checkpoint(self) -> CohortState | None:
        """Return where the last whole segment ended."""
        return self.last

    def wait_for_compilation(self) -> None:
        """Return at once: workers compile with their first segment."""

    def close(self) -> None:
        """Nothing is open here."""


_COHORTS_LOCK = threading.Lock()
_PLAYING: dict[int, tuple[str, LocalCohort]] = {}  # by the first chain; of the last run that this process saw
_PROBLEM: list[Problem] = []


def play_segment(
    problem: Problem, chains: Sequence[int], held: CohortState, name: str, frozen: bool, stop: int
) -> Segment:
    """On a worker: go on with the cohort that is at hand, or with one made of what it held."""
    with _COHORTS_LOCK:
        if not _PROBLEM or _PROBLEM[0] is not problem:
            for _, cohort in _PLAYING.values():
                cohort.close()
            _PLAYING.clear()
            _PROBLEM[:] = [problem]
        known, at_hand = _PLAYING.pop(chains[0], ("", None))
    if at_hand is None or known != name:
        if at_hand is not None:
            at_hand.close()
        at_hand = restore_cohort(problem, chains, held, frozen=frozen)
    elif frozen and not at_hand.frozen:
        at_hand.freeze()
    moves = at_hand.run(stop)
    now = uuid.uuid4().hex
    invalid = at_hand.find_last_invalid() if np.any(moves.invalid) else None
    segment = Segment(moves, at_hand.take_snapshot(), now, invalid)
    with _COHORTS_LOCK:
        _PLAYING[chains[0]] = now, at_hand
    return segment
