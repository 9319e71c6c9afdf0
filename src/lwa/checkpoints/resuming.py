"""Runs that are kept on disk while they go on: how one is begun, taken up again, and closed."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa import __version__
from lwa.blocks import Run
from lwa.checkpoints.arguments import Unkept, as_json, from_json, held
from lwa.checkpoints.identity import identity_of, require_same
from lwa.checkpoints.keeping import Folder
from lwa.conclusion import labels_of
from lwa.errors import InputError, LwaWarning, RunFolderError
from lwa.result import Home, Result
from lwa.run_folder.generations import NAMES, Generation, generations
from lwa.run_folder.saved import MANIFEST, SOURCE
from lwa.run_folder.stream import FILE, stream_of


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


def require_new(folder: Path) -> None:
    """Refuse a folder that is in use, before anything is computed."""
    if folder.is_dir() and (any(folder.glob(NAMES)) or (folder / MANIFEST).exists()):
        raise RunFolderError(
            f"{folder} holds a run already. lwa.resume({str(folder)!r}, model, data) goes on with it; else pass "
            "checkpoint= with a new folder."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / "state.partial"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunFolderError(
            f"Cannot keep a run in {folder}: {error.strerror or error}. Pass checkpoint= with a folder that you may "
            "write to."
        ) from None
    if strange := [entry.name for entry in folder.iterdir() if entry.name not in (FILE, SOURCE)]:
        raise RunFolderError(
            f"{folder} holds other files ({strange[0]!r}, for example) and no run. Pass checkpoint= with a new or "
            "empty folder."
        )


def taken_up(folder: str | os.PathLike[str]) -> Begun:
    """The last state of a run that is whole, draws included."""
    path, faults = Path(folder), list[str]()
    for generation, fault in generations(path):
        if generation is None:
            faults.append(fault)
            continue
        if wrong := stream_of(path, generation.head["stream"]).verify():
            faults.append(f"{FILE} does not hold the draws of state {generation.number}: {wrong}")
            continue
        return Begun(path, generation, faults)
    found = "; ".join(faults) or "there is none"
    raise RunFolderError(f"{folder} holds no checkpoint to go on from: {found}. Begin the run anew in another folder.")


def arguments_of(begun: Begun, given: Mapping[str, Any], draws: Any, budget: Any) -> dict[str, Any]:
    """The arguments of the call that began it, and what is asked for now."""
    kept = begun.description["asked"]
    for name, value in given.items():
        if name not in kept["arguments"] and name not in kept["unkept"]:
            raise InputError(f"lwa.resume has no argument {name!r}. Pass what lwa.sample was called with, or nothing.")
        try:
            now = held(value)
        except Unkept:
            continue  # what draws depend on is compared once the run is prepared
        if name in kept["arguments"] and kept["arguments"][name] != now:
            raise RunFolderError(
                f"{begun.path} was begun with {name}={kept['arguments'][name]!r}, so its draws cannot be continued "
                f"with {name}={now!r}. Leave it out, or begin a new run in another folder."
            )
    asked = from_json(kept, given, begun.path)
    there = begun.generation.head["stream"]["draws"]
    if draws is not None:
        if isinstance(draws, int) and draws < there:
            raise InputError(f"{begun.path} has {there} draws already. Pass draws={there} or more.")
        asked["draws"] = draws
    if budget is not None:
        asked["budget"] = budget
    return asked


def starts_of(begun: Begun) -> list[NDArray[np.float64]] | None:
    """Where its chains began, if that was given: the mode was looked for from there."""
    starts = begun.description["starts"]
    return None if starts is None else [np.array(start) for start in starts]


def opened(run: Run, asked: Mapping[str, Any], starts: Any, begun: Begun | None) -> Folder:
    """The keeper of a run that is prepared."""
    path = run.settings.checkpoint
    assert path is not None
    if begun is not None:
        require_same(begun.description["identity"], run, path)
        return Folder(path, run, begun.description, begun.generation)
    kept = {name: value for name, value in asked.items() if name != "checkpoint"}
    description = {
        "asked": as_json(kept | {"seed": run.settings.seed, "subset_size": run.settings.subset_size}),
        "starts": None if starts is None else [start.tolist() for start in starts],
        "identity": identity_of(run),
        "result": described(run),
    }
    return Folder(path, run, description)


def described(run: Run) -> dict[str, Any]:
    """What `lwa.load` must know of a run that is not over."""
    dims, coords = labels_of(run)
    told = {
        "inference_library": "lwa",
        "inference_library_version": __version__,
        "seed": run.settings.seed,
        "target": run.settings.target,
        "subset_size": run.subset_size,
        "rows": run.survey.length,
        "settings": run.settings.record(),
    }
    return {"attributes": told, "dims": dims, "coords": coords}


def closed(keeper: Folder, result: Result) -> Result:
    """The run that is over, its draws on disk; `lwa.load` reads it from now on."""
    assert keeper.stream is not None
    if keeper.failed:
        remarks = [*result.attributes["warnings"], keeper.failed]
        warnings.warn(keeper.failed, LwaWarning, stacklevel=3)
        return replace(result, attributes={**result.attributes, "warnings": remarks})
    kept = replace(result, home=Home(keeper.path, keeper.stream.segment()))
    kept.save(keeper.path)
    return kept
