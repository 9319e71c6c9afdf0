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
from lwa.engine.cohort import Held
from lwa.engine.exact import surrogates_of
from lwa.engine.recorder import Kept, Recorder
from lwa.engine.remote_cohort import Playing
from lwa.errors import RunFolderError
from lwa.run.conclude import variables_of
from lwa.run.loop import Player, Run, Sofar, kept_of, last_draws, recorder_of, summary_around
from lwa.run.retention import retention_of
from lwa.storage.generations import Arrays, Generation, write_generation
from lwa.storage.run_folder import MANIFEST
from lwa.storage.stream import STREAM_FILE, Stream, build_record, load_stream
from lwa.subsets.tape import Queue, Written

EVERY = 5.0
"""Seconds between two generations, at the least."""
SHARE = 0.01
"""Of the time, that writing them may take."""
COUNTERS = ("position", "invalid", "refreshed", "transitions", "infeasible", "furthest", "accepted")
"""What a player counts, by the names it has for it."""


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
        none = variables_of(self.run, nothing(self.run))
        self.stream = Stream(self.path / STREAM_FILE, build_record(none), self.run.settings.chains)

    def take_up(self, player: Player, sofar: Sofar) -> None:
        """Put both where the checkpoint was made; a new run is kept at once, so that a folder that will not do is known
        before there is anything to lose."""
        if self.begun is None:
            self.keep(player, sofar)
        else:
            try:
                self._take_up(self.begun, player, sofar)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise RunFolderError(
                    f"State {self.begun.number} of {self.path} is not lwa's own ({type(error).__name__}: {error}). "
                    "Begin the run anew in another folder."
                ) from error
        self.due = time.monotonic() + EVERY

    def _take_up(self, begun: Generation, player: Player, sofar: Sofar) -> None:
        head, arrays = begun.head, begun.arrays
        self.number = begun.number
        fresh, self.stream = self.stream, load_stream(self.path, head["stream"])
        if (self.stream.record, self.stream.chains) != (fresh.record, fresh.chains):
            raise ValueError("its draws are those of another model")
        for name in COUNTERS:
            setattr(player, name, head[name])
        player.blocks = replace(player.blocks, moves=head["block"])
        player.clock = [(draws, at) for draws, at in head["clock"]]
        player.meter.rows = head["rows"]
        player.meter.start -= head["seconds"]
        sofar.tune_clock = [(draws, at) for draws, at in head["tune_clock"]]
        sofar.tuned, sofar.thinning = head["tuned"], head["thinning"]
        put_back(sofar.path, "path", arrays, self.run)
        if sofar.tuned is None:
            sofar.memory = deque([arrays["memory"]] if len(arrays["memory"]) else [])
        else:
            sofar.retention, _ = retention_of(self.run.settings, self.run.memory, self.run.settings.draws)
            sofar.recorder = recorder_of(self.run, sofar.thinning, sofar.retention.room)
            put_back(sofar.recorder, "draws", arrays, self.run)
            sofar.running = running_back(sofar, arrays, self.run)
            for cohort in self.run.cohorts:
                cohort.freeze()
        up = take_up_tuned if head["surrogates"] else take_up_cohort
        for number, cohort in enumerate(self.run.cohorts):
            up(cohort, f"cohort{number}", head["cohorts"][number], arrays)
        if head["surrogates"]:
            take_up_surrogates(sofar, self.run, arrays)

    def after_block(self, player: Player, sofar: Sofar) -> None:
        """A generation, if the last is old enough."""
        began = time.monotonic()
        if began < self.due:
            return
        self.keep(player, sofar)
        ended = time.monotonic()
        self.due = ended + max(EVERY, (ended - began) / SHARE)

    def finish(self, player: Player, sofar: Sofar) -> dict[str, NDArray[Any]]:
        """The last generation, and all draws: views of their file, or copies where it takes no more."""
        try:
            self.keep(player, sofar)
            if sofar.retention.summarised:
                return variables_of(self.run, last_draws(sofar, self.run))
            return self.stream.variables()
        except RunFolderError as error:
            self.failed = str(error)
            if sofar.retention.summarised:
                return variables_of(self.run, last_draws(sofar, self.run))
            there, left = self.stream.variables(), self._ready(sofar)
            if left == 0:
                return there
            here = self._first(sofar, left)
            return {name: np.concatenate([values, here[name]], axis=1) for name, values in there.items()}

    def keep(self, player: Player, sofar: Sofar) -> None:
        """Draws first, then what says how many of them count.

        A torn run has no state to keep. Its draws are kept all the same, by the manifest that follows; whoever goes on
        from the state before makes them again.
        """
        try:
            self._stream(sofar)
            if not sofar.torn:
                write_generation(self.path, self.number + 1, *self._held(player, sofar))
                self.number += 1
                (self.path / MANIFEST).unlink(missing_ok=True)  # of the run as it was when it last stopped
        except OSError as error:
            resume = f"lwa.resume({str(self.path)!r}, model, data)"
            raise RunFolderError(
                f"Cannot write a checkpoint to {self.path}: {error.strerror or error}. "
                + (f"Make room, then {resume} goes on from the one before." if self.number else "Pass another folder.")
            ) from error

    def _stream(self, sofar: Sofar) -> None:
        """Draws that every chain has, to disk."""
        if ready := self._ready(sofar):
            self.stream.append(self._first(sofar, ready))
            sofar.recorder.drop(ready)  # only now that they are on disk

    def _ready(self, sofar: Sofar) -> int:
        """Draws that every chain has, and that are not on disk, but belong there."""
        if sofar.tuned is None or sofar.retention.summarised:
            return 0
        return max(0, min(self.run.settings.draws, sofar.draws) - self.stream.draws)

    def _first(self, sofar: Sofar, draws: int) -> dict[str, NDArray[Any]]:
        """The first so many draws that are in memory, by "group/name"."""
        return variables_of(self.run, sofar.recorder.between(0, draws))

    def _held(self, player: Player, sofar: Sofar) -> tuple[dict[str, Any], Arrays]:
        """All that a later process needs."""
        arrays: Arrays = {}
        put_down(sofar.path, "path", arrays)
        if sofar.tuned is None:
            width = self.run.problem.target.model.dimension
            empty = np.empty((0, self.run.settings.chains, width))
            arrays["memory"] = np.concatenate(sofar.memory) if sofar.memory else empty
        else:
            put_down(sofar.recorder, "draws", arrays)
            leaves_down("running", sofar.running, arrays)
        down = put_down_tuned if sofar.surrogates else put_down_cohort
        cohorts = [down(cohort, f"cohort{number}", arrays) for number, cohort in enumerate(self.run.cohorts)]
        put_down_surrogates(sofar, arrays)
        head = {
            "description": self.description,
            "stream": self.stream.describe(),
            "draws": 0 if sofar.tuned is None else min(self.run.settings.draws, sofar.draws),
            "tuned": sofar.tuned,
            "thinning": sofar.thinning,
            "block": player.blocks.moves,
            "clock": player.clock,
            "tune_clock": sofar.tune_clock,
            "rows": player.meter.rows,
            "seconds": time.monotonic() - player.meter.start,
            "cohorts": cohorts,
            "surrogates": bool(sofar.surrogates),
            "seconds_left": player.meter.seconds_left(),
            "written": time.time(),
            "wanted": None if self.run.settings.filling else self.run.settings.draws,
        } | {name: getattr(player, name) for name in COUNTERS}
        return head, arrays


def nothing(run: Run) -> Kept:
    """No draws, in the shape that draws have."""
    return kept_of(recorder_of(run, 1), run, 0)


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
        like = nothing(run)
        recorder.buffer = jax.tree.map(np.array, leaves_back(name, like, arrays))
        for found, own in zip(jax.tree.leaves(recorder.buffer), jax.tree.leaves(like), strict=True):
            if found.shape != (own.shape[0], held, *own.shape[2:]):
                raise ValueError(f"draws of shape {found.shape} in place of {(own.shape[0], held, *own.shape[2:])}")


def running_back(sofar: Sofar, arrays: Arrays, run: Run) -> RunningSummary | None:
    """The summary of the draws so far, where there is one."""
    if not sofar.retention.summarised or "running.0" not in arrays:
        return None
    like = summary_around(run, np.zeros((1, 1, run.problem.target.model.dimension)))
    state = jax.tree.map(np.array, leaves_back("running", like, arrays))
    require_alike(state, like)
    return state


def put_down_cohort(cohort: Playing, name: str, arrays: Arrays) -> dict[str, Any]:
    """A cohort's arrays, and what else is to be known of it."""
    held = cohort.held()
    U, store, queues, pages = held.written
    leaves_down(name, (held.state, U, held.recent, queues), arrays)
    leaves_down(f"{name}/store", store, arrays)
    return {"moves": held.moves, "pages": pages, "store": store is not None}


def take_up_cohort(cohort: Playing, name: str, head: dict[str, Any], arrays: Arrays) -> None:
    """The other way round; a tape that has written a page shows the structure that pages have."""
    fresh = cohort.held()
    like = (fresh.state, fresh.written.U, fresh.recent, fresh.written.queues)
    state, U, recent, queues = leaves_back(name, like, arrays)
    require_alike((state, U), like[:2])
    require_rows(U, cohort)
    store = leaves_back(f"{name}/store", cohort.page_in_store(), arrays) if head["store"] else None
    queues = [Queue(*queue) for queue in queues]
    cohort.go_on_from(Held(head["moves"], state, Written(U, store, queues, head["pages"]), recent))


def put_down_tuned(cohort: Playing, name: str, arrays: Arrays) -> dict[str, Any]:
    """A cohort that has done its tune for exact=True, and will not move again."""
    leaves_down(name, cohort.state, arrays)
    return {"moves": cohort.moves}


def take_up_tuned(cohort: Playing, name: str, head: dict[str, Any], arrays: Arrays) -> None:
    """The other way round."""
    state = leaves_back(name, cohort.state, arrays)
    require_alike(state, cohort.state)
    cohort.stand(state, head["moves"])


def put_down_surrogates(sofar: Sofar, arrays: Arrays) -> None:
    """θ and U of exact=True between two corrections."""
    for number, surrogate in enumerate(sofar.surrogates):
        held = (jax.tree.map(np.array, surrogate.U), surrogate.theta, np.array(surrogate.done))
        leaves_down(f"surrogate{number}", held, arrays)
        if sofar.values is not None:
            arrays[f"values{number}"] = sofar.values[number]


def take_up_surrogates(sofar: Sofar, run: Run, arrays: Arrays) -> None:
    """The other way round."""
    sofar.surrogates = surrogates_of(run.cohorts, sofar.thinning)
    for number, surrogate in enumerate(sofar.surrogates):
        like = (surrogate.U, surrogate.theta, np.array(0))
        U, theta, done = leaves_back(f"surrogate{number}", like, arrays)
        require_alike((U, theta, done), like)
        require_rows(U, run.cohorts[number])
        surrogate.U, surrogate.theta, surrogate.done = U, theta, int(done)
    if "values0" in arrays:
        sofar.values = [arrays[f"values{number}"] for number in range(len(sofar.surrogates))]


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


def require_rows(U: Subset, cohort: Playing) -> None:
    """Refuse a subset of rows that are not there: compiled loops would read past the end."""
    if U.indices.size and not (U.indices.min() >= 0 and U.indices.max() < len(cohort.problem.subsets.rows)):
        raise IndexError("a subset holds rows that the data do not have")
