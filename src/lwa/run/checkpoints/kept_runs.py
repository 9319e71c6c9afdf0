"""Runs that are kept on disk: begin one, load its state to resume it, and finish it."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np

from lwa.errors import InputError, RunFolderError, warn
from lwa.result.result import Home, Result
from lwa.run.begin import Run, Starts
from lwa.run.checkpoints import description
from lwa.run.checkpoints.keeper import Folder
from lwa.run.conclude import label_axes
from lwa.storage.generations import Generation, read_generations
from lwa.storage.locks import lock_run, require_idle
from lwa.storage.run_folder import discard_run, holds_run, require_free, require_no_links
from lwa.storage.stream import STREAM_FILE, load_stream

STRANGE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""Errors of reading a state that is whole, but was not written by lwa."""


@dataclass(frozen=True)
class Begun:
    """A run that an earlier process began."""

    path: Path
    generation: Generation
    faults: list[str]  # why later generations could not be used

    @property
    def description(self) -> dict[str, Any]:
        """What the run is: its arguments, starts and identity."""
        return cast(dict[str, Any], self.generation.head["description"])


@dataclass(frozen=True)
class Fresh:
    """How a new run is begun."""

    told: Mapping[str, Any] | None = None  # JSON to store for a later process
    replaces: bool = False  # whether to overwrite a run that is in the folder


FRESH: Fresh = Fresh()


def require_new(folder: Path, fresh: Fresh) -> None:
    """Raise if a folder is in use, before anything is computed."""
    require_free(folder)
    require_idle(folder)
    require_no_run(folder, fresh)


def require_no_run(folder: Path, fresh: Fresh) -> None:
    """Raise if the folder holds a run that must not be overwritten."""
    if holds_run(folder) and not fresh.replaces:
        raise RunFolderError(
            f"{folder} already holds a run. Continue it with lwa.resume({str(folder)!r}, model, data), or pass "
            "checkpoint= with a new folder."
        )


def load_state(folder: str | os.PathLike[str]) -> Begun:
    """Return the last state of a run that is undamaged, its draws included."""
    path, faults = Path(folder), list[str]()
    require_idle(path)
    require_no_links(path.glob("*"))
    for generation, fault in read_generations(path):
        if generation is None:
            faults.append(fault)
            continue
        try:
            if not (wrong := load_stream(path, generation.head["stream"]).verify()):
                return Begun(path, generation, faults)
            faults.append(f"{STREAM_FILE} does not hold the draws of state {generation.number}: {wrong}")
        except (*STRANGE, RunFolderError) as error:
            faults.append(f"state {generation.number} is not lwa's own ({error})")
    found = "; ".join(faults) or "there is none"
    raise RunFolderError(f"{folder} holds no checkpoint to go on from: {found}. Begin the run anew in another folder.")


def read_arguments(
    begun: Begun, given: Mapping[str, Any], names: Collection[str], *, draws: object, budget: object
) -> dict[str, Any]:
    """Return the arguments of the call that began a run, with the new ones; `names` are all valid names."""
    if strange := [name for name in given if name not in names]:
        raise InputError(f"lwa.resume has no argument {strange[0]!r}. Pass what lwa.sample was given, or nothing.")
    with report_foreign_state(begun.path):
        kept = begun.description["asked"]
        if {*kept["arguments"], *kept["unkept"]} != set(names):
            raise KeyError("arguments of another version")
        arguments = description.decode_arguments(kept, given, begun.path)
        there = int(begun.generation.head["draws"])
    for name, value in given.items():
        try:
            now = description.encode_value(value)
        except description.UnsupportedValue:
            continue  # what draws depend on is compared once the run is prepared
        if name in kept["arguments"] and kept["arguments"][name] != now:
            raise RunFolderError(
                f"{begun.path} was begun with {name}={kept['arguments'][name]!r}, so its draws cannot be continued "
                f"with {name}={now!r}. Leave it out, or begin a new run in another folder."
            )
    if isinstance(draws, int) and draws < there:
        raise InputError(f"{begun.path} has {there} draws already. Pass draws={there} or more.")
    more = {"draws": draws, "budget": budget}
    return arguments | {name: value for name, value in more.items() if value is not None}


def recall_starts(begun: Begun) -> Starts | None:
    """Return the starts that the user gave, if any: the search for the mode began there."""
    with report_foreign_state(begun.path):
        starts = begun.description["starts"]
        return None if starts is None else [np.array(start, np.float64) for start in starts]


@contextmanager
def open_run(
    run: Run, path: Path, asked: Mapping[str, Any], starts: Starts | None, *, begun: Begun | None, fresh: Fresh
) -> Iterator[Folder]:
    """Lock the folder of a prepared run, and yield what writes the run to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"Cannot keep a run in {path}: {error.strerror or error}. Pass checkpoint= with a writable folder."
        ) from None
    with lock_run(path):
        if begun is not None:
            yield Folder(path, run, begun.description, begun.generation)
            return
        require_no_run(path, fresh)  # another process may have made one meanwhile
        discard_run(path)
        settled = dict(asked) | {"seed": run.settings.seed}
        if asked["subset_size"] is not None:  # the default is settled by the rows alone, "auto" also by the clock
            settled["subset_size"] = run.subset_size
        del settled["checkpoint"]
        described = {
            "asked": description.encode_arguments(settled), "starts": starts and [start.tolist() for start in starts],
            "identity": description.describe_identity(run), "result": describe_run(run), "told": fresh.told,
        }  # fmt: skip
        yield Folder(path, run, described)


def check_identity(run: Run, begun: Begun) -> list[str]:
    """Raise if a run is not the one that was begun; warn of damaged states and another processor, and return that."""
    with report_foreign_state(begun.path):
        remarks = description.require_same_run(begun.description["identity"], run, begun.path)
    remarks = [*(f"{fault}. The run resumed from the state before it." for fault in begun.faults), *remarks]
    for remark in remarks:
        warn(remark)
    return remarks


@contextmanager
def report_foreign_state(path: Path) -> Iterator[None]:
    """Turn errors of reading a state that lwa did not write into one that says so."""
    try:
        yield
    except (InputError, RunFolderError):
        raise
    except STRANGE as error:
        raise RunFolderError(
            f"The state of {path} is not lwa's own ({type(error).__name__}: {error}). Begin the run anew in another "
            "folder, or resume it with the version of lwa that wrote it."
        ) from None


def describe_run(run: Run) -> dict[str, Any]:
    """Return what `lwa.load` needs to read a run that is not over."""
    dims, coords = label_axes(run.data.given)
    attributes = {
        "inference_library": "lwa", "inference_library_version": version("lwa"), "seed": run.settings.seed,
        "target": run.settings.target.name, "subset_size": run.subset_size, "rows": run.survey.length,
        "settings": run.record(),
    }  # fmt: skip
    return {"attributes": attributes, "dims": dims, "coords": coords}


def finish_folder(keeper: Folder, result: Result) -> Result:
    """Save the result of a finished run beside its draws; from now on `lwa.load` reads it."""
    failed = keeper.failed
    if not failed:
        streamed = keeper.stream.describe() if result.running is None else None
        kept = replace(result, home=Home(keeper.path, streamed))
        try:
            kept.save(keeper.path)
            return kept
        except RunFolderError as error:
            failed = str(error)
    warn(failed)
    return replace(result, attributes={**result.attributes, "warnings": [*result.attributes["warnings"], failed]})
