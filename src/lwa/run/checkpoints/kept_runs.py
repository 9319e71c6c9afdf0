"""Runs that are kept on disk while they go on: how one is begun, taken up again, and closed."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from lwa.errors import InputError, RunFolderError, warn
from lwa.result.result import Home, Result
from lwa.run.begin import Run, Starts
from lwa.run.checkpoints.arguments import Unkept, as_json, from_json, held
from lwa.run.checkpoints.identity import identity_of, require_same
from lwa.run.checkpoints.keeper import Folder
from lwa.run.conclude import label_axes
from lwa.storage.generations import Generation, read_generations
from lwa.storage.locks import lock_run, require_idle
from lwa.storage.run_folder import discard_run, holds_run, require_free, require_no_links
from lwa.storage.stream import STREAM_FILE, load_stream

STRANGE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What comes of reading a state that is whole, but was not written by lwa."""


@dataclass(frozen=True)
class Begun:
    """A run that an earlier process began."""

    path: Path
    generation: Generation
    faults: list[str]  # of later generations

    @property
    def description(self) -> dict[str, Any]:
        """What the run is, as it was when it began."""
        described: dict[str, Any] = self.generation.head["description"]
        return described


@dataclass(frozen=True)
class Fresh:
    """How a new run is begun."""

    told: Mapping[str, Any] | None = None  # whatever a later process should know, as JSON
    replaces: bool = False  # a run that is in the folder already


FRESH: Fresh = Fresh()


def require_new(folder: Path, fresh: Fresh) -> None:
    """Refuse a folder that is in use, before anything is computed."""
    require_free(folder)
    require_idle(folder)
    require_no_run(folder, fresh)


def require_no_run(folder: Path, fresh: Fresh) -> None:
    """Refuse to write over a run, unless that is what is wanted."""
    if holds_run(folder) and not fresh.replaces:
        raise RunFolderError(
            f"{folder} holds a run already. lwa.resume({str(folder)!r}, model, data) goes on with it; else pass "
            "checkpoint= with a new folder."
        )


def load_state(folder: str | os.PathLike[str]) -> Begun:
    """The last state of a run that is whole, draws included."""
    path, faults = Path(folder), list[str]()
    require_idle(path)
    require_no_links(path.glob("*"))
    for generation, fault in read_generations(path):
        if generation is None:
            faults.append(fault)
            continue
        try:
            wrong = load_stream(path, generation.head["stream"]).verify()
        except (*STRANGE, RunFolderError) as error:
            faults.append(f"state {generation.number} is not lwa's own ({error})")
            continue
        if wrong:
            faults.append(f"{STREAM_FILE} does not hold the draws of state {generation.number}: {wrong}")
            continue
        return Begun(path, generation, faults)
    found = "; ".join(faults) or "there is none"
    raise RunFolderError(f"{folder} holds no checkpoint to go on from: {found}. Begin the run anew in another folder.")


def read_arguments(
    begun: Begun, given: Mapping[str, Any], names: Collection[str], *, draws: object, budget: object
) -> dict[str, Any]:
    """The arguments of the call that began it, and what is asked for now; `names` are all that there are."""
    if strange := [name for name in given if name not in names]:
        raise InputError(
            f"lwa.resume has no argument {strange[0]!r}. Pass what lwa.sample was called with, or nothing."
        )
    with of_lwas_own(begun.path):
        kept = begun.description["asked"]
        if {*kept["arguments"], *kept["unkept"]} != set(names):
            raise KeyError("arguments of another version")
        rebuilt = from_json(kept, given, begun.path)
        there = int(begun.generation.head["draws"])
    for name, value in given.items():
        try:
            now = held(value)
        except Unkept:
            continue  # what draws depend on is compared once the run is prepared
        if name in kept["arguments"] and kept["arguments"][name] != now:
            raise RunFolderError(
                f"{begun.path} was begun with {name}={kept['arguments'][name]!r}, so its draws cannot be continued "
                f"with {name}={now!r}. Leave it out, or begin a new run in another folder."
            )
    if isinstance(draws, int) and draws < there:
        raise InputError(f"{begun.path} has {there} draws already. Pass draws={there} or more.")
    more = {"draws": draws, "budget": budget}
    return rebuilt | {name: value for name, value in more.items() if value is not None}


def recall_starts(begun: Begun) -> Starts | None:
    """Where its chains began, if that was given: the mode was looked for from there."""
    with of_lwas_own(begun.path):
        starts = begun.description["starts"]
        return None if starts is None else [np.array(start, np.float64) for start in starts]


@contextmanager
def open_run(
    run: Run, path: Path, asked: Mapping[str, Any], starts: Starts | None, *, begun: Begun | None, fresh: Fresh
) -> Iterator[Folder]:
    """Yield the keeper of a run that is prepared, alone in its folder."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"Cannot keep a run in {path}: {error.strerror or error}. Pass checkpoint= with a folder that you may "
            "write to."
        ) from None
    with lock_run(path):
        if begun is not None:
            yield Folder(path, run, begun.description, begun.generation)
            return
        require_no_run(path, fresh)  # which another process may have made meanwhile
        discard_run(path)
        settled = dict(asked) | {"seed": run.settings.seed, "subset_size": run.subset_size}
        del settled["checkpoint"]
        description = {
            "asked": as_json(settled),
            "starts": None if starts is None else [start.tolist() for start in starts],
            "identity": identity_of(run),
            "result": described(run),
            "told": fresh.told,
        }
        yield Folder(path, run, description)


def check_identity(run: Run, begun: Begun) -> list[str]:
    """Refuse a run that is not the one that was begun; warn of what is to be known of one that is, and return it."""
    with of_lwas_own(begun.path):
        remarks = require_same(begun.description["identity"], run, begun.path)
    remarks = [*(f"{fault}. The run went on from the state before it." for fault in begun.faults), *remarks]
    for remark in remarks:
        warn(remark)
    return remarks


@contextmanager
def of_lwas_own(path: Path) -> Iterator[None]:
    """A state that is whole but says what no state of lwa says is refused in a sentence."""
    try:
        yield
    except (InputError, RunFolderError):
        raise
    except STRANGE as error:
        raise RunFolderError(
            f"The state of {path} is not lwa's own ({type(error).__name__}: {error}). Begin the run anew in another "
            "folder, or go on with the lwa that wrote it."
        ) from None


def described(run: Run) -> dict[str, Any]:
    """What `lwa.load` must know of a run that is not over."""
    dims, coords = label_axes(run.data.given)
    told = {
        "inference_library": "lwa",
        "inference_library_version": version("lwa"),
        "seed": run.settings.seed,
        "target": run.settings.target.name,
        "subset_size": run.subset_size,
        "rows": run.survey.length,
        "settings": run.record(),
    }
    return {"attributes": told, "dims": dims, "coords": coords}


def finish_folder(keeper: Folder, result: Result) -> Result:
    """The run that is over, its draws on disk; `lwa.load` reads it from now on."""
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
