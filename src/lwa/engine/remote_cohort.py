"""Cohorts that workers play, a segment of moves at a time.

A worker receives the cohort's snapshot from the end of its last segment and returns a new one. If it dies, another
repeats the segment from the same snapshot, with the same bits. A worker that played the last segment still has the
cohort and continues with it.
"""

import threading
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from lwa.algorithm import State
from lwa.engine.cohort import CohortState, LocalCohort, Moves, restore_cohort
from lwa.engine.problem import Problem
from lwa.executors import Executor, Work


class Segment(NamedTuple):
    """The result of a segment."""

    moves: Moves
    held: CohortState
    name: str  # by which the worker that played it finds the cohort again
    invalid: NDArray[Any] | None  # a θ′ whose log target was NaN or +inf, if there was one


class RemoteCohort:
    """A cohort whose segments an executor plays; this process holds its state between them."""

    on_device: ClassVar[bool] = False

    def __init__(self, cohort: LocalCohort, executor: Executor, near: float) -> None:
        self.problem, self.chains, self.executor, self.near = cohort.problem, cohort.chains, executor, near
        self.frozen = cohort.frozen
        self.last = cohort.take_snapshot()
        self.page: PyTree = jax.tree.map(np.empty_like, cohort.get_stored_page())
        self.name = ""
        self.invalid: NDArray[Any] | None = None
        cohort.close()

    @property
    def moves(self) -> int:
        """Moves played so far."""
        return self.last.moves

    @property
    def state(self) -> State:
        """θ and what the kernel has learnt."""
        return self.last.state

    def run(self, stop: int) -> Moves:
        """Play up to the `stop`-th move of the run."""
        work = Work(play_segment, (self.problem,), (self.chains, self.last, self.name, self.frozen))
        (segment,) = self.executor.map(work, [stop], [self.near])
        self.last, self.name, self.invalid = segment.held, segment.name, segment.invalid
        return segment.moves

    def freeze(self) -> None:
        """End tune: the kernel learns nothing from here on."""
        self.frozen = True

    def take_snapshot(self) -> CohortState:
        """Return what the next moves depend on."""
        return self.last

    def resume_from(self, held: CohortState) -> None:
        """Continue from a snapshot, which may be another process's."""
        self.last, self.name = held, ""

    def get_stored_page(self) -> PyTree:
        """Return a page with the shapes and types of those that tapes store."""
        return self.page

    def stop_at(self, state: State, moves: int) -> None:
        """Set the state in which tune ended."""
        self.last = self.last._replace(state=state, moves=moves)

    def find_last_invalid(self) -> NDArray[Any] | None:
        """Return a θ′ of the last segment whose log target was NaN or +inf, if there was one."""
        return self.invalid

    def checkpoint(self) -> CohortState | None:
        """Return the snapshot from the end of the last segment."""
        return self.last

    def wait_for_compilation(self) -> None:
        """Return at once: workers compile with their first segment."""

    def close(self) -> None:
        """Do nothing: nothing is open in this process."""


_COHORTS_LOCK = threading.Lock()
_PLAYING: dict[int, tuple[str, LocalCohort]] = {}  # by the first chain; of the last run that this process played
_PROBLEM: list[Problem] = []


def play_segment(
    problem: Problem, chains: Sequence[int], held: CohortState, name: str, frozen: bool, stop: int
) -> Segment:
    """Play a segment on a worker, with the cohort that it still has, or with one restored from the snapshot."""
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
