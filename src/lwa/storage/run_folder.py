"""A run on disk: one JSON manifest and `.npy` segments of draws. No pickle, and nothing in it is ever executed.

    run/
      manifest.json     format, attributes, variables, dims, coords, and each segment with its draws and checksum
      draws-00000.npy   a structured array (chains, draws), one field a variable: "posterior/beta", "sample_stats/lp"
      draws-00001.npy   the path of tune, where it was kept: "warmup_posterior/beta", "warmup_sample_stats/lp"
      draws.rows        in place of the first, the draws of a run that was kept while it went on (`stream.py`)
      state-*.lwa       the last two states of such a run (`generations.py`)

The manifest is written last and by renaming, so a folder with a manifest is whole.
"""

import json
import os
import zlib
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import RunFolderError
from lwa.storage.generations import NAMES as STATES
from lwa.storage.generations import PARTIAL as UNFINISHED
from lwa.storage.generations import generations, plain, write_whole
from lwa.storage.run_lock import require_idle
from lwa.storage.stream import FILE as STREAM
from lwa.storage.stream import stream_of

FORMAT = "lwa-run"
VERSION = 1
MANIFEST = "manifest.json"
PARTIAL = MANIFEST + ".partial"
SEGMENTS = "draws-" + 5 * "[0-9]" + ".npy"

type Variables = dict[str, NDArray[Any]]
"""By "group/name"; arrays are `(chains, draws, *shape)`."""


def write_run(
    folder: str | os.PathLike[str],
    tables: list[Variables],
    description: dict[str, Any],
    already: Sequence[dict[str, Any]] | None = None,
) -> Path:
    """Save draws and what describes them; refuses to overwrite anything that is not a run.

    Variables of one table have as many draws, and are one segment. Segments that are there `already`, of a run that was
    kept in this folder while it went on, are only named, and its states stay; None where it was not.
    """
    path = require_free(folder)
    if already is None:
        require_idle(path)
    partial = path / PARTIAL
    try:
        path.mkdir(parents=True, exist_ok=True)
        before = sorted(path.glob(SEGMENTS))
        number = int(before[-1].stem.removeprefix("draws-")) + 1 if before else 0
        new = [path / f"draws-{number + i:05d}.npy" for i in range(len(tables))]
        try:
            segments = [_write_segment(one, variables) for one, variables in zip(new, tables, strict=True)]
            write_manifest(path, description, [*(already or ()), *segments])
        except BaseException:  # Ctrl-C too: what is half-written goes, and what was there before stays
            partial.unlink(missing_ok=True)
            for one in new:
                one.unlink(missing_ok=True)
            raise
        for old in [*before, *kept_in(path)] if already is None else before:  # only now that the new run is whole
            old.unlink()
    except OSError as error:
        raise RunFolderError(
            f"Cannot save the run to {path}: {error.strerror or error}. Pass another folder."
        ) from error
    return path


def write_manifest(path: Path, description: dict[str, Any], segments: list[dict[str, Any]]) -> None:
    """What makes a folder a run: from then on it can be loaded."""
    manifest = {"format": FORMAT, "version": VERSION, **description, "segments": segments}
    content = json.dumps(manifest, indent=1, default=plain).encode()
    write_whole(path / MANIFEST, content, path / PARTIAL)


def require_free(folder: str | os.PathLike[str], *, replace: bool = True) -> Path:
    """The folder's path, if a run can be saved there: new, empty, a saved run, or what a killed save left behind.

    Where `replace` is False, a saved run is an obstacle too.
    """
    path = Path(folder)
    try:
        inside = list(path.iterdir()) if path.exists() else []
    except OSError as error:
        raise RunFolderError(
            f"Cannot save a run to {path}: {error.strerror}. Pass the path of a new or empty folder."
        ) from None
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise RunFolderError(
            f"Cannot save a run to {path}: '{there}' is no folder that you may write to. Pass the path of a new folder."
        )
    require_no_links(inside)
    manifest = _manifest(path) if path / MANIFEST in inside else {}
    unfinished = not manifest and any(entry.match(STATES) for entry in inside)
    files = {PARTIAL, STREAM, UNFINISHED}
    ours = unfinished or all(entry.name in files or entry.match(SEGMENTS) for entry in inside)
    if not (ours or manifest.get("format") == FORMAT):
        raise RunFolderError(f"{path} exists and is not a saved run. Pass the path of a new or empty folder.")
    if (manifest or unfinished) and not replace:
        go_on = f"lwa resume {path} goes on with it. " if unfinished else ""
        raise RunFolderError(
            f"{path} holds a run already. {go_on}Pass --overwrite to replace it, or --out with a new folder."
        )
    return path


def require_no_links(files: Iterable[Path]) -> None:
    """Refuse links in the place of a run's files: what is written to them would go elsewhere."""
    for file in files:
        own = file.name in (MANIFEST, PARTIAL, STREAM, UNFINISHED) or file.match(SEGMENTS) or file.match(STATES)
        if own and file.is_symlink():
            raise RunFolderError(f"{file} is a link to somewhere else, and a run is written to its own folder alone.")


def holds_run(path: Path) -> bool:
    """Whether there is a run, over or not."""
    return (path / MANIFEST).exists() or any(path.glob(STATES))


def kept_in(path: Path) -> list[Path]:
    """The files of a run that is kept while it goes on, its states first: draws that no state counts are of no use."""
    return [*path.glob(STATES), *(file for file in (path / STREAM, path / UNFINISHED) if file.exists())]


def discard(path: Path) -> None:
    """Remove a run; what else lies in its folder stays."""
    (path / MANIFEST).unlink(missing_ok=True)
    for file in (*kept_in(path), *path.glob(SEGMENTS)):
        file.unlink()


def read_run(folder: str | os.PathLike[str]) -> tuple[Variables, dict[str, Any]]:
    """The draws and their description, checked against the manifest, or of a run that has none yet."""
    path = Path(folder)
    if not (path / MANIFEST).exists() and any(path.glob(STATES)):
        return _unfinished(path)
    manifest = _manifest(path)
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        came = f"{manifest.get('format')!r}, version {manifest.get('version')!r}"
        raise RunFolderError(
            f"{path / MANIFEST} is of format {came}; {FORMAT!r}, version {VERSION}, is expected. "
            "Pass a folder made by fit.save(), or load it with the lwa that wrote it."
        )
    try:
        alike: dict[Any, list[NDArray[Any]]] = {}
        variables: Variables = {}
        for segment in manifest["segments"]:
            if "record" in segment:  # a run that was kept while it went on
                variables |= _streamed(path, segment)
            else:
                read = _read_segment(path, segment)
                alike.setdefault(read.dtype, []).append(read)
        for segments in alike.values():
            variables |= _unpack(np.concatenate(segments, axis=1))
        return variables, manifest
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise RunFolderError(f"{path} is damaged: {error}. Restore it from a copy.") from None


def _unfinished(path: Path) -> tuple[Variables, dict[str, Any]]:
    """What the last checkpoint says of a run that still goes on, or was ended without notice."""
    faults = []
    for generation, fault in generations(path):
        if generation is None:
            faults.append(fault)
            continue
        try:
            head = generation.head
            described = dict(head["description"]["result"])
            described["attributes"] = described["attributes"] | {
                "stopped": "it still goes on, or was ended without notice",
                "moves": head["position"],
                "rows_read": head["rows"],
                "thinning": head["thinning"],
                "seconds": round(head["seconds"], 3),
                "warnings": [],
            }
            return _streamed(path, head["stream"]), described
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            faults.append(f"state {generation.number} is not lwa's own ({error})")
        except RunFolderError as error:
            faults.append(str(error))
    raise RunFolderError(f"{path} is damaged: {'; '.join(faults)}. Restore it from a copy.")


def _streamed(path: Path, segment: dict[str, Any]) -> Variables:
    """Draws that were streamed: views of their file."""
    stream = stream_of(path, segment)
    if wrong := stream.verify():
        raise RunFolderError(f"{stream.path} is damaged: {wrong}. Restore it from a copy.")
    return stream.variables()


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFolderError(
            f"{path} holds no run: there is no {MANIFEST}. Pass a folder made by fit.save()."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path / MANIFEST} cannot be read: {error}. Restore it from a copy.") from None
    return manifest if isinstance(manifest, dict) else {}


def _write_segment(path: Path, variables: Variables) -> dict[str, Any]:
    """Write one, and what the manifest says of it."""
    segment = _pack(variables)
    with path.open("wb") as file:  # version 3, since names may be Greek
        np.lib.format.write_array(file, segment, version=(3, 0), allow_pickle=False)
    return {"file": path.name, "draws": segment.shape[1], "crc32": zlib.crc32(path.read_bytes())}


def _read_segment(path: Path, segment: dict[str, Any]) -> NDArray[Any]:
    name = segment["file"]
    if Path(name).name != name:
        raise RunFolderError(f"{path / MANIFEST} names a file outside the run, {name!r}. It is not lwa's own.")
    try:
        content = (path / name).read_bytes()
    except OSError as error:
        raise RunFolderError(f"{path / name} cannot be read: {error.strerror}. The run is incomplete.") from None
    if zlib.crc32(content) != segment["crc32"]:
        raise RunFolderError(f"{path / name} is damaged: its checksum is not the manifest's. Restore it from a copy.")
    return np.lib.format.read_array(BytesIO(content), allow_pickle=False)


def _pack(variables: Variables) -> NDArray[Any]:
    shape = next(iter(variables.values())).shape[:2]
    fields = [(name, values.dtype.str, values.shape[2:]) for name, values in variables.items()]
    segment = np.empty(shape, np.dtype(fields))
    for name, values in variables.items():
        segment[name] = values
    return segment


def _unpack(segment: NDArray[Any]) -> Variables:
    return {name: np.ascontiguousarray(segment[name]) for name in segment.dtype.names or ()}
