"""Write a run to disk while it samples: draws as they come, the state of all chains every few seconds."""

import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.algorithm import Subset
from lwa.diagnostics.running import RunningSummary
from lwa.engine.cohort import Cohort, CohortState
from lwa.engine.exact import build_surrogates
from lwa.engine.recorder import Recorder
from lwa.errors import RunFolderError
from lwa.run.begin import Run
from lwa.run.conclude import name_variables
from lwa.run.draws import RunState, begin_summary, blank_kept, build_recorder, take_last_draws
from lwa.run.loop import BlockRunner
from lwa.storage.generations import Arrays, Generation, write_generation
from lwa.storage.run_folder import MANIFEST
from lwa.storage.stream import STREAM_FILE, Stream, build_record, load_stream
from lwa.subsets.tape import Queue, Written

STATE_SECONDS = 5.0
"""Least seconds between two states."""
STATE_SHARE = 0.01
"""Largest share of the time that may be spent on writing them."""
COUNTERS = ("position", "invalid", "refreshed", "transitions", "infeasible", "furthest", "accepted")
"""Attributes of a `BlockRunner` that a state holds."""


@dataclass
class Folder:
    """A run's folder, and the state from which the run is resumed, if it is."""

    path: Path
    run: Run
    description: dict[str, Any]
    begun: Generation | None = None
    stream: Stream = field(init=False)
    number: int = field(default=0, init=False)
    due: float = field(default=0.0, init=False)  # when the next state is written
    failed: str = field(default="", init=False)  # why the last state is not on disk

    def __post_init__(self) -> None:
        """Open a stream without draws."""
        none = name_variables(self.run, blank_kept(self.run))
        self.stream = Stream(self.path / STREAM_FILE, build_record(none), self.run.settings.chains)

    def load_state(self, runner: BlockRunner, state: RunState) -> None:
        """Restore the checkpoint. A new run writes its first state at once, so that an unusable folder fails early."""
        if self.begun is None:
            self.write_state(runner, state)
        else:
            try:
                self._load(self.begun, runner, state)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise RunFolderError(
                    f"State {self.begun.number} of {self.path} is not lwa's own ({type(error).__name__}: {error}). "
                    "Begin the run anew in another folder."
                ) from error
        self.due = time.monotonic() + STATE_SECONDS

    def _load(self, begun: Generation, runner: BlockRunner, state: RunState) -> None:
        """Set the runner, the run's state and all cohorts to a generation's."""
        head, arrays = begun.head, begun.arrays
        self.number = begun.number
        fresh, self.stream = self.stream, load_stream(self.path, head["stream"])
        if (self.stream.record, self.stream.chains) != (fresh.record, fresh.chains):
            raise ValueError("its draws are those of another model")
        for name in COUNTERS:
            setattr(runner, name, head[name])
        runner.blocks = replace(runner.blocks, moves=head["block"])
        runner.clock = [(draws, at) for draws, at in head["clock"]]
        runner.meter.rows = head["rows"]
        runner.meter.start -= head["seconds"]
        state.tune_clock = [(draws, at) for draws, at in head["tune_clock"]]
        state.tuned, state.thinning = head["tuned"], head["thinning"]
        if state.path is not None:
            unpack_recorder(state.path, "path", arrays, self.run)
        if state.tuned is None:
            state.memory = deque([arrays["memory"]] if len(arrays["memory"]) else [])
        else:
            state.retention, _ = self.run.decide_retention(self.run.settings.draws)
            state.recorder = build_recorder(self.run, state.thinning, state.retention.room)
            unpack_recorder(state.recorder, "draws", arrays, self.run)
            state.running = unpack_summary(state, arrays, self.run)
            for cohort in self.run.cohorts:
                cohort.freeze()
        unpack = unpack_tuned_cohort if head["surrogates"] else unpack_cohort
        for number, cohort in enumerate(self.run.cohorts):
            unpack(cohort, f"cohort{number}", head["cohorts"][number], arrays)
        if head["surrogates"]:
            unpack_surrogates(state, self.run, arrays)

    def after_block(self, runner: BlockRunner, state: RunState) -> None:
        """Write a state if the last one is old enough."""
        began = time.monotonic()
        if began < self.due:
            return
        self.write_state(runner, state)
        ended = time.monotonic()
        self.due = ended + max(STATE_SECONDS, (ended - began) / STATE_SHARE)

    def finish(self, runner: BlockRunner, state: RunState) -> dict[str, NDArray[Any]]:
        """Write the last state and return all draws: views of their file, or copies if the disk is full."""
        try:
            self.write_state(runner, state)
        except RunFolderError as error:
            self.failed = str(error)
        if state.retention.summarised:
            return name_variables(self.run, take_last_draws(state, self.run))
        stored, left = self.stream.variables(), self._count_ready(state)
        if left == 0:
            return stored
        unwritten = self._take_first(state, left)
        return {name: np.concatenate([values, unwritten[name]], axis=1) for name, values in stored.items()}

    def write_state(self, runner: BlockRunner, state: RunState) -> None:
        """Write the new draws, then the state, which says how many of them count.

        A torn run has no valid state, but its draws are written: the manifest counts them. Resuming from the state
        before makes them again.
        """
        try:
            self._write_draws(state)
            if not state.torn:
                write_generation(self.path, self.number + 1, *self._pack(runner, state))
                self.number += 1
                (self.path / MANIFEST).unlink(missing_ok=True)  # of the run as it was when it last stopped
        except OSError as error:
            resume = f"Make room, then lwa.resume({str(self.path)!r}, model, data) goes on from the one before."
            raise RunFolderError(
                f"Cannot write a checkpoint to {self.path}: {error.strerror or error}. "
                + (resume if self.number else "Pass another folder.")
            ) from error

    def _write_draws(self, state: RunState) -> None:
        """Append the draws that every chain has to the stream."""
        ready = self._count_ready(state)
        if ready and state.recorder is not None:
            self.stream.append(self._take_first(state, ready))
            state.recorder.drop(ready)  # only now that they are on disk

    def _count_ready(self, state: RunState) -> int:
        """Return how many draws per chain are complete and still have to be written."""
        if state.tuned is None or state.retention.summarised:
            return 0
        return max(0, min(self.run.settings.draws, state.draws) - self.stream.draws)

    def _take_first(self, state: RunState, draws: int) -> dict[str, NDArray[Any]]:
        """Return the first `draws` draws in memory, by "group/name"."""
        assert state.recorder is not None
        return name_variables(self.run, state.recorder.slice_draws(0, draws))

    def _pack(self, runner: BlockRunner, state: RunState) -> tuple[dict[str, Any], Arrays]:
        """Return everything that resuming needs: what JSON holds, and arrays."""
        arrays: Arrays = {}
        if state.path is not None:
            pack_recorder(state.path, "path", arrays)
        if state.tuned is None:
            empty = np.empty((0, self.run.settings.chains, self.run.problem.target.model.dimension))
            arrays["memory"] = np.concatenate(state.memory) if state.memory else empty
        else:
            assert state.recorder is not None
            pack_recorder(state.recorder, "draws", arrays)
            pack_leaves("running", state.running, arrays)
        pack = pack_tuned_cohort if state.surrogates else pack_cohort
        cohorts = [pack(cohort, f"cohort{number}", arrays) for number, cohort in enumerate(self.run.cohorts)]
        pack_surrogates(state, arrays)
        wanted = None if self.run.settings.filling else self.run.settings.draws
        head = dict(
            description=self.description, stream=self.stream.describe(),
            draws=0 if state.tuned is None else min(self.run.settings.draws, state.draws), tuned=state.tuned,
            thinning=state.thinning, block=runner.blocks.moves, clock=runner.clock, tune_clock=state.tune_clock,
            rows=runner.meter.rows, seconds=time.monotonic() - runner.meter.start, cohorts=cohorts,
            surrogates=bool(state.surrogates), seconds_left=runner.meter.seconds_left(), written=time.time(),
            wanted=wanted, **{name: getattr(runner, name) for name in COUNTERS},
        )  # fmt: skip
        return head, arrays


def pack_recorder(recorder: Recorder, name: str, arrays: Arrays) -> None:
    """Add a recorder's counts, and the draws that it holds, to the arrays."""
    arrays[f"{name}/open"] = recorder.open
    arrays[f"{name}/counts"] = recorder.counts
    arrays[f"{name}/taken"] = np.array(recorder.taken)
    if recorder.counts.max() > recorder.taken:
        pack_leaves(name, recorder.get_all(), arrays)


def unpack_recorder(recorder: Recorder, name: str, arrays: Arrays, run: Run) -> None:
    """Set a new recorder to what `pack_recorder` wrote."""
    fresh = (recorder.open, recorder.counts)
    recorder.open, recorder.counts = (arrays[f"{name}/{what}"].copy() for what in ("open", "counts"))
    require_same_shapes((recorder.open, recorder.counts), fresh)
    recorder.taken = int(arrays[f"{name}/taken"])
    held = int(recorder.counts.max()) - recorder.taken
    if held:
        like = blank_kept(run)
        recorder.buffer = jax.tree.map(np.array, unpack_leaves(name, like, arrays))
        for found, own in zip(jax.tree.leaves(recorder.buffer), jax.tree.leaves(like), strict=True):
            if found.shape != (own.shape[0], held, *own.shape[2:]):
                raise ValueError(f"draws of shape {found.shape} in place of {(own.shape[0], held, *own.shape[2:])}")


def unpack_summary(state: RunState, arrays: Arrays, run: Run) -> RunningSummary | None:
    """Return the running summary of the draws so far, if there is one."""
    if not state.retention.summarised or "running.0" not in arrays:
        return None
    like = begin_summary(run, np.zeros((1, 1, run.problem.target.model.dimension)))
    running: RunningSummary = jax.tree.map(np.array, unpack_leaves("running", like, arrays))
    require_same_shapes(running, like)
    return running


def pack_cohort(cohort: Cohort, name: str, arrays: Arrays) -> dict[str, Any]:
    """Add a cohort's state to the arrays; return its counts."""
    held = cohort.take_snapshot()
    U, store, queues, pages = held.written
    pack_leaves(name, (held.state, U, held.recent, queues), arrays)
    pack_leaves(f"{name}/store", store, arrays)
    return {"moves": held.moves, "pages": pages, "store": store is not None}


def unpack_cohort(cohort: Cohort, name: str, head: dict[str, Any], arrays: Arrays) -> None:
    """Set a new cohort to what `pack_cohort` wrote; `get_stored_page` gives the structure of a tape's pages."""
    fresh = cohort.take_snapshot()
    like = (fresh.state, fresh.written.U, fresh.recent, fresh.written.queues)
    state, U, recent, queues = unpack_leaves(name, like, arrays)
    require_same_shapes((state, U), like[:2])
    require_rows_exist(U, cohort)
    store = unpack_leaves(f"{name}/store", cohort.get_stored_page(), arrays) if head["store"] else None
    queues = [Queue(*queue) for queue in queues]
    cohort.resume_from(CohortState(head["moves"], state, Written(U, store, queues, head["pages"]), recent))


def pack_tuned_cohort(cohort: Cohort, name: str, arrays: Arrays) -> dict[str, Any]:
    """Add the state of a cohort that exact=True moves no more after tune; return its counts."""
    pack_leaves(name, cohort.state, arrays)
    return {"moves": cohort.moves}


def unpack_tuned_cohort(cohort: Cohort, name: str, head: dict[str, Any], arrays: Arrays) -> None:
    """Set a new cohort to what `pack_tuned_cohort` wrote."""
    state = unpack_leaves(name, cohort.state, arrays)
    require_same_shapes(state, cohort.state)
    cohort.stop_at(state, head["moves"])


def pack_surrogates(state: RunState, arrays: Arrays) -> None:
    """Add θ and U of every surrogate of exact=True, as they are between two corrections."""
    for number, surrogate in enumerate(state.surrogates):
        held = (jax.tree.map(np.array, surrogate.U), surrogate.theta, np.array(surrogate.done))
        pack_leaves(f"surrogate{number}", held, arrays)
        if state.values is not None:
            arrays[f"values{number}"] = state.values[number]


def unpack_surrogates(state: RunState, run: Run, arrays: Arrays) -> None:
    """Build the surrogates that `pack_surrogates` wrote."""
    state.surrogates = build_surrogates(run.cohorts, state.thinning)
    for number, surrogate in enumerate(state.surrogates):
        like = (surrogate.U, surrogate.theta, np.array(0))
        U, theta, done = unpack_leaves(f"surrogate{number}", like, arrays)
        require_same_shapes((U, theta, done), like)
        require_rows_exist(U, run.cohorts[number])
        surrogate.U, surrogate.theta, surrogate.done = U, theta, int(done)
    if "values0" in arrays:
        state.values = [arrays[f"values{number}"] for number in range(len(state.surrogates))]


def pack_leaves(name: str, tree: Any, arrays: Arrays) -> None:
    """Add the leaves of a pytree as numbered arrays."""
    arrays |= {f"{name}.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def unpack_leaves(name: str, like: Any, arrays: Arrays) -> Any:
    """Return the pytree, built like `like`, whose leaves `pack_leaves` wrote."""
    leaves = [arrays[f"{name}.{i}"] for i, _ in enumerate(jax.tree.leaves(like))]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def require_same_shapes(tree: Any, like: Any) -> None:
    """Raise if arrays differ in shape or type from those of this run: no program was compiled for them."""
    for found, own in zip(jax.tree.leaves(tree), jax.tree.leaves(like), strict=True):
        if (found.shape, found.dtype) != (own.shape, own.dtype):
            raise ValueError(f"{found.dtype} {found.shape} in place of {own.dtype} {own.shape}")


def require_rows_exist(U: Subset, cohort: Cohort) -> None:
    """Raise if a subset holds rows that do not exist: compiled loops would read past the end."""
    if U.indices.size and not (U.indices.min() >= 0 and U.indices.max() < len(cohort.problem.subsets.rows)):
        raise IndexError("a subset holds rows that the data do not have")
