"""A run kept on disk while it goes on: draws as they come, the state of all chains every few seconds."""

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
from lwa.run.budget import decide_retention
from lwa.run.conclude import variables_of
from lwa.run.draws import RunState, begin_summary, blank_kept, build_recorder, take_last_draws
from lwa.run.loop import BlockRunner
from lwa.storage.generations import Arrays, Generation, write_generation
from lwa.storage.run_folder import MANIFEST
from lwa.storage.stream import STREAM_FILE, Stream, build_record, load_stream
from lwa.subsets.tape import Queue, Written

EVERY = 5.0
"""Seconds between two generations, at the least."""
SHARE = 0.01
"""Of the time, that writing them may take."""
COUNTERS = ("position", "invalid", "refreshed", "transitions", "infeasible", "furthest", "accepted")
"""What a runner counts, by the names it has for it."""


@dataclass
class Folder:
    """A run's folder, and where the run is taken up, if it was begun before."""

    path: Path
    run: Run
    description: dict[str, Any]
    begun: Generation | None = None
    stream: Stream = field(init=False)
    number: int = field(default=0, init=False)
    due: float = field(default=0.0, init=False)  # when the next generation is
    failed: str = field(default="", init=False)  # why the last state is not on disk

    def __post_init__(self) -> None:
        """No draws yet."""
        none = variables_of(self.run, blank_kept(self.run))
        self.stream = Stream(self.path / STREAM_FILE, build_record(none), self.run.settings.chains)

    def load_state(self, runner: BlockRunner, state: RunState) -> None:
        """Put both where the checkpoint was made; a new run is kept at once, so that a folder that will not do is known
        before there is anything to lose."""
        if self.begun is None:
            self.keep(runner, state)
        else:
            try:
                self._load(self.begun, runner, state)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise RunFolderError(
                    f"State {self.begun.number} of {self.path} is not lwa's own ({type(error).__name__}: {error}). "
                    "Begin the run anew in another folder."
                ) from error
        self.due = time.monotonic() + EVERY

    def _load(self, begun: Generation, runner: BlockRunner, state: RunState) -> None:
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
            put_back(state.path, "path", arrays, self.run)
        if state.tuned is None:
            state.memory = deque([arrays["memory"]] if len(arrays["memory"]) else [])
        else:
            settings = self.run.settings
            state.retention, _ = decide_retention(
                settings.draws, self.run.draw_bytes, chains=settings.chains, keep=settings.keep, on_disk=True
            )
            state.recorder = build_recorder(self.run, state.thinning, state.retention.room)
            put_back(state.recorder, "draws", arrays, self.run)
            state.running = running_back(state, arrays, self.run)
            for cohort in self.run.cohorts:
                cohort.freeze()
        up = take_up_tuned if head["surrogates"] else take_up_cohort
        for number, cohort in enumerate(self.run.cohorts):
            up(cohort, f"cohort{number}", head["cohorts"][number], arrays)
        if head["surrogates"]:
            take_up_surrogates(state, self.run, arrays)

    def after_block(self, runner: BlockRunner, state: RunState) -> None:
        """A generation, if the last is old enough."""
        began = time.monotonic()
        if began < self.due:
            return
        self.keep(runner, state)
        ended = time.monotonic()
        self.due = ended + max(EVERY, (ended - began) / SHARE)

    def finish(self, runner: BlockRunner, state: RunState) -> dict[str, NDArray[Any]]:
        """The last generation, and all draws: views of their file, or copies where it takes no more."""
        try:
            self.keep(runner, state)
            if state.retention.summarised:
                return variables_of(self.run, take_last_draws(state, self.run))
            return self.stream.variables()
        except RunFolderError as error:
            self.failed = str(error)
            if state.retention.summarised:
                return variables_of(self.run, take_last_draws(state, self.run))
            there, left = self.stream.variables(), self._ready(state)
            if left == 0:
                return there
            here = self._first(state, left)
            return {name: np.concatenate([values, here[name]], axis=1) for name, values in there.items()}

    def keep(self, runner: BlockRunner, state: RunState) -> None:
        """Draws first, then what says how many of them count.

        A torn run has no state to keep. Its draws are kept all the same, by the manifest that follows; whoever goes on
        from the state before makes them again.
        """
        try:
            self._stream(state)
            if not state.torn:
                write_generation(self.path, self.number + 1, *self._held(runner, state))
                self.number += 1
                (self.path / MANIFEST).unlink(missing_ok=True)  # of the run as it was when it last stopped
        except OSError as error:
            resume = f"lwa.resume({str(self.path)!r}, model, data)"
            raise RunFolderError(
                f"Cannot write a checkpoint to {self.path}: {error.strerror or error}. "
                + (f"Make room, then {resume} goes on from the one before." if self.number else "Pass another folder.")
            ) from error

    def _stream(self, state: RunState) -> None:
        """Draws that every chain has, to disk."""
        ready = self._ready(state)
        if ready and state.recorder is not None:
            self.stream.append(self._first(state, ready))
            state.recorder.drop(ready)  # only now that they are on disk

    def _ready(self, state: RunState) -> int:
        """Draws that every chain has, and that are not on disk, but belong there."""
        if state.tuned is None or state.retention.summarised:
            return 0
        return max(0, min(self.run.settings.draws, state.draws) - self.stream.draws)

    def _first(self, state: RunState, draws: int) -> dict[str, NDArray[Any]]:
        """The first so many draws that are in memory, by "group/name"."""
        assert state.recorder is not None
        return variables_of(self.run, state.recorder.between(0, draws))

    def _held(self, runner: BlockRunner, state: RunState) -> tuple[dict[str, Any], Arrays]:
        """All that a later process needs."""
        arrays: Arrays = {}
        if state.path is not None:
            put_down(state.path, "path", arrays)
        if state.tuned is None:
            width = self.run.problem.target.model.dimension
            empty = np.empty((0, self.run.settings.chains, width))
            arrays["memory"] = np.concatenate(state.memory) if state.memory else empty
        else:
            assert state.recorder is not None
            put_down(state.recorder, "draws", arrays)
            leaves_down("running", state.running, arrays)
        down = put_down_tuned if state.surrogates else put_down_cohort
        cohorts = [down(cohort, f"cohort{number}", arrays) for number, cohort in enumerate(self.run.cohorts)]
        put_down_surrogates(state, arrays)
        head = {
            "description": self.description,
            "stream": self.stream.describe(),
            "draws": 0 if state.tuned is None else min(self.run.settings.draws, state.draws),
            "tuned": state.tuned,
            "thinning": state.thinning,
            "block": runner.blocks.moves,
            "clock": runner.clock,
            "tune_clock": state.tune_clock,
            "rows": runner.meter.rows,
            "seconds": time.monotonic() - runner.meter.start,
            "cohorts": cohorts,
            "surrogates": bool(state.surrogates),
            "seconds_left": runner.meter.seconds_left(),
            "written": time.time(),
            "wanted": None if self.run.settings.filling else self.run.settings.draws,
        } | {name: getattr(runner, name) for name in COUNTERS}
        return head, arrays


def put_down(recorder: Recorder, name: str, arrays: Arrays) -> None:
    """A recorder between two blocks: its counts, and the draws that are held by it."""
    arrays[f"{name}/open"] = recorder.open
    arrays[f"{name}/counts"] = recorder.counts
    arrays[f"{name}/taken"] = np.array(recorder.taken)
    if recorder.counts.max() > recorder.taken:
        leaves_down(name, recorder.all(), arrays)


def put_back(recorder: Recorder, name: str, arrays: Arrays, run: Run) -> None:
    """The other way round."""
    fresh = (recorder.open, recorder.counts)
    recorder.open, recorder.counts = (arrays[f"{name}/{what}"].copy() for what in ("open", "counts"))
    require_alike((recorder.open, recorder.counts), fresh)
    recorder.taken = int(arrays[f"{name}/taken"])
    held = int(recorder.counts.max()) - recorder.taken
    if held:
        like = blank_kept(run)
        recorder.buffer = jax.tree.map(np.array, leaves_back(name, like, arrays))
        for found, own in zip(jax.tree.leaves(recorder.buffer), jax.tree.leaves(like), strict=True):
            if found.shape != (own.shape[0], held, *own.shape[2:]):
                raise ValueError(f"draws of shape {found.shape} in place of {(own.shape[0], held, *own.shape[2:])}")


def running_back(state: RunState, arrays: Arrays, run: Run) -> RunningSummary | None:
    """The summary of the draws so far, where there is one."""
    if not state.retention.summarised or "running.0" not in arrays:
        return None
    like = begin_summary(run, np.zeros((1, 1, run.problem.target.model.dimension)))
    running = jax.tree.map(np.array, leaves_back("running", like, arrays))
    require_alike(running, like)
    return running


def put_down_cohort(cohort: Cohort, name: str, arrays: Arrays) -> dict[str, Any]:
    """A cohort's arrays, and what else is to be known of it."""
    held = cohort.held()
    U, store, queues, pages = held.written
    leaves_down(name, (held.state, U, held.recent, queues), arrays)
    leaves_down(f"{name}/store", store, arrays)
    return {"moves": held.moves, "pages": pages, "store": store is not None}


def take_up_cohort(cohort: Cohort, name: str, head: dict[str, Any], arrays: Arrays) -> None:
    """The other way round; a tape that has written a page shows the structure that pages have."""
    fresh = cohort.held()
    like = (fresh.state, fresh.written.U, fresh.recent, fresh.written.queues)
    state, U, recent, queues = leaves_back(name, like, arrays)
    require_alike((state, U), like[:2])
    require_rows(U, cohort)
    store = leaves_back(f"{name}/store", cohort.page_in_store(), arrays) if head["store"] else None
    queues = [Queue(*queue) for queue in queues]
    cohort.go_on_from(CohortState(head["moves"], state, Written(U, store, queues, head["pages"]), recent))


def put_down_tuned(cohort: Cohort, name: str, arrays: Arrays) -> dict[str, Any]:
    """A cohort that has done its tune for exact=True, and will not move again."""
    leaves_down(name, cohort.state, arrays)
    return {"moves": cohort.moves}


def take_up_tuned(cohort: Cohort, name: str, head: dict[str, Any], arrays: Arrays) -> None:
    """The other way round."""
    state = leaves_back(name, cohort.state, arrays)
    require_alike(state, cohort.state)
    cohort.stand(state, head["moves"])


def put_down_surrogates(state: RunState, arrays: Arrays) -> None:
    """θ and U of exact=True between two corrections."""
    for number, surrogate in enumerate(state.surrogates):
        held = (jax.tree.map(np.array, surrogate.U), surrogate.theta, np.array(surrogate.done))
        leaves_down(f"surrogate{number}", held, arrays)
        if state.values is not None:
            arrays[f"values{number}"] = state.values[number]


def take_up_surrogates(state: RunState, run: Run, arrays: Arrays) -> None:
    """The other way round."""
    state.surrogates = build_surrogates(run.cohorts, state.thinning)
    for number, surrogate in enumerate(state.surrogates):
        like = (surrogate.U, surrogate.theta, np.array(0))
        U, theta, done = leaves_back(f"surrogate{number}", like, arrays)
        require_alike((U, theta, done), like)
        require_rows(U, run.cohorts[number])
        surrogate.U, surrogate.theta, surrogate.done = U, theta, int(done)
    if "values0" in arrays:
        state.values = [arrays[f"values{number}"] for number in range(len(state.surrogates))]


def leaves_down(name: str, tree: Any, arrays: Arrays) -> None:
    """The leaves of a pytree as numbered arrays."""
    arrays |= {f"{name}.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def leaves_back(name: str, like: Any, arrays: Arrays) -> Any:
    """The pytree of which they are the leaves, of the structure of `like`."""
    leaves = [arrays[f"{name}.{i}"] for i, _ in enumerate(jax.tree.leaves(like))]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def require_alike(tree: Any, like: Any) -> None:
    """Refuse arrays that are not of the shapes and types that this run has: no program was compiled for them."""
    for found, own in zip(jax.tree.leaves(tree), jax.tree.leaves(like), strict=True):
        if (found.shape, found.dtype) != (own.shape, own.dtype):
            raise ValueError(f"{found.dtype} {found.shape} in place of {own.dtype} {own.shape}")


def require_rows(U: Subset, cohort: Cohort) -> None:
    """Refuse a subset of rows that are not there: compiled loops would read past the end."""
    if U.indices.size and not (U.indices.min() >= 0 and U.indices.max() < len(cohort.problem.subsets.rows)):
        raise IndexError("a subset holds rows that the data do not have")
