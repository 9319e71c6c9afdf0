"""A run on disk: one JSON manifest and `.npy` segments of draws. No pickle, and nothing in it is ever executed.

    run/
      manifest.json     format, attributes, variables, dims, coords, and each segment with its draws and checksum
      draws-00000.npy   a structured array (chains, draws), one field per variable: "posterior/beta", "sample_stats/lp"
      draws-00001.npy   the path of tune, if it was kept: "warmup_posterior/beta", "warmup_sample_stats/lp"
      draws.rows        instead of the first, the draws of a run with checkpoints (`stream.py`)
      state-*.lwa       the last two states of such a run (`generations.py`)
      .lock             while a process writes to the folder (`locks.py`)

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
from lwa.storage.atomic import LARGEST_TEXT, create_file, is_partial, read_regular, write_whole
from lwa.storage.generations import STATE_FILES, Head, encode_scalar, find_partial_states, read_generations
from lwa.storage.locks import LOCK_FILE, require_idle
from lwa.storage.stream import STREAM_FILE, build_record, load_stream

FORMAT = "lwa-run"
VERSION = 1
MANIFEST = "manifest.json"
KEPT_FILES = {STREAM_FILE, LOCK_FILE}
"""What a killed process may leave behind besides segments, states, and partial files."""
SEGMENT_FILES = "draws-" + 5 * "[0-9]" + ".npy"

type Variables = dict[str, NDArray[Any]]
"""By "group/name"; arrays are `(chains, draws, *shape)`."""


def write_run(
    folder: str | os.PathLike[str], tables: list[Variables], description: Head,
    already: Sequence[dict[str, Any]] | None = None,
) -> Path:  # fmt: skip
    """Save draws and their description; raise rather than overwrite anything that is not a run.

    Variables of one table have the same number of draws and are one segment. Segments that are there `already`, of a
    run with checkpoints in this folder, are only listed, and its states stay; pass None for any other run.
    """
    path = require_free(folder)
    if already is None:
        require_idle(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        before = sorted(path.glob(SEGMENT_FILES))
        number = int(before[-1].stem.removeprefix("draws-")) + 1 if before else 0
        new = [path / f"draws-{number + i:05d}.npy" for i in range(len(tables))]
        try:
            segments = [_write_segment(one, variables) for one, variables in zip(new, tables, strict=True)]
            write_manifest(path, description, [*(already or ()), *segments])
        except BaseException:  # Ctrl-C too: remove what is half-written, keep what was there before
            for one in new:
                one.unlink(missing_ok=True)
            raise
        # Only now is the new run whole.
        for old in [*before, *find_kept_files(path)] if already is None else before:
            old.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise RunFolderError(f"Cannot save the run to {path}: {reason}. Pass another folder.") from error
    return path


def write_manifest(path: Path, description: Head, segments: list[dict[str, Any]]) -> None:
    """Write the manifest, which makes a folder a run that can be loaded."""
    manifest = {"format": FORMAT, "version": VERSION, **description, "segments": segments}
    write_whole(path / MANIFEST, json.dumps(manifest, indent=1, default=encode_scalar).encode())


def require_free(folder: str | os.PathLike[str], *, replace: bool = True) -> Path:
    """Return the folder's path; raise unless it is new, empty, a saved run, or what a killed save left behind.

    If `replace` is False, raise for a saved run too.
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
    manifest = _read_manifest(path) if path / MANIFEST in inside else {}
    unfinished = not manifest and any(entry.match(STATE_FILES) for entry in inside)
    ours = unfinished or all(is_own(entry) for entry in inside)
    if not (ours or manifest.get("format") == FORMAT):
        raise RunFolderError(f"{path} exists and is not a saved run. Pass the path of a new or empty folder.")
    if (manifest or unfinished) and not replace:
        go_on = f"lwa resume {path} goes on with it. " if unfinished else ""
        raise RunFolderError(
            f"{path} holds a run already. {go_on}Pass --overwrite to replace it, or --out with a new folder."
        )
    return path


def require_no_links(files: Iterable[Path]) -> None:
    """Raise if one of a run's files is a link: what is written to it would go elsewhere."""
    for file in files:
        if (is_own(file) or file.name == MANIFEST or file.match(STATE_FILES)) and file.is_symlink():
            raise RunFolderError(f"{file} is a link to somewhere else, and a run is written to its own folder alone.")


def is_own(file: Path) -> bool:
    """Return whether lwa may have written this file, and been killed before it wrote a manifest or a state."""
    left = is_partial(file, (MANIFEST, "state"))
    return left or file.name in KEPT_FILES or file.match(SEGMENT_FILES)


def holds_run(path: Path) -> bool:
    """Return whether there is a run, finished or not."""
    return (path / MANIFEST).exists() or any(path.glob(STATE_FILES))


def find_kept_files(path: Path) -> list[Path]:
    """Return the files of a run with checkpoints, its states first: draws that no state counts are of no use."""
    stream = [path / STREAM_FILE] if (path / STREAM_FILE).exists() else []
    return [*path.glob(STATE_FILES), *stream, *find_partial_states(path)]


def discard_run(path: Path) -> None:
    """Remove a run; other files in its folder stay."""
    (path / MANIFEST).unlink(missing_ok=True)
    for file in (*find_kept_files(path), *path.glob(SEGMENT_FILES)):
        file.unlink()


def read_run(folder: str | os.PathLike[str]) -> tuple[Variables, Head]:
    """Read the draws and their description, and check them against the manifest or, without one, the last state."""
    path = Path(folder)
    if not (path / MANIFEST).exists() and any(path.glob(STATE_FILES)):
        return _read_unfinished(path)
    manifest = _read_manifest(path)
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
            if "record" in segment:  # of a run with checkpoints
                variables |= _read_stream(path, segment)
            else:
                read = _read_segment(path, segment)
                alike.setdefault(read.dtype, []).append(read)
        for segments in alike.values():
            variables |= _unpack(np.concatenate(segments, axis=1))
        return variables, manifest
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise RunFolderError(f"{path} is damaged: {error}. Restore it from a copy.") from None


def _read_unfinished(path: Path) -> tuple[Variables, Head]:
    """Read the last checkpoint of a run that still goes on or was killed."""
    faults = []
    for generation, fault in read_generations(path):
        if generation is None:
            faults.append(fault)
            continue
        try:
            head = generation.head
            description = dict(head["description"]["result"])
            description["attributes"] = description["attributes"] | {
                "stopped": "it still goes on, or was ended without notice", "moves": head["position"],
                "rows_read": head["rows"], "thinning": head["thinning"], "seconds": round(head["seconds"], 3),
                "warnings": [],
            }  # fmt: skip
            return _read_stream(path, head["stream"]), description
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            faults.append(f"state {generation.number} is not lwa's own ({error})")
        except RunFolderError as error:
            faults.append(str(error))
    raise RunFolderError(f"{path} is damaged: {'; '.join(faults)}. Restore it from a copy.")


def _read_stream(path: Path, segment: dict[str, Any]) -> Variables:
    """Return the draws of a stream: views of its file."""
    stream = load_stream(path, segment)
    if wrong := stream.verify():
        raise RunFolderError(f"{stream.path} is damaged: {wrong}. Restore it from a copy.")
    return stream.variables()


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(read_regular(path / MANIFEST, most=LARGEST_TEXT).decode())
    except FileNotFoundError:
        what = f"{path} holds no run: there is no {MANIFEST}"
        raise RunFolderError(f"{what}. Pass a folder made by fit.save().") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise RunFolderError(f"{path / MANIFEST} cannot be read: {reason}. Restore it from a copy.") from None
    return manifest if isinstance(manifest, dict) else {}


def _write_segment(path: Path, variables: Variables) -> dict[str, Any]:
    """Write one segment and return its entry in the manifest."""
    segment = _pack(variables)
    with create_file(path) as file:  # version 3, since names may be Greek
        np.lib.format.write_array(file, segment, version=(3, 0), allow_pickle=False)
    return {"file": path.name, "draws": segment.shape[1], "crc32": zlib.crc32(path.read_bytes())}


def _read_segment(path: Path, segment: dict[str, Any]) -> NDArray[Any]:
    name = segment["file"]
    if Path(name).name != name:
        raise RunFolderError(f"{path / MANIFEST} names a file outside the run, {name!r}. It is not lwa's own.")
    try:
        content = read_regular(path / name)
    except OSError as error:
        raise RunFolderError(f"{path / name} cannot be read: {error.strerror}. The run is incomplete.") from None
    if zlib.crc32(content) != segment["crc32"]:
        raise RunFolderError(f"{path / name} is damaged: its checksum is not the manifest's. Restore it from a copy.")
    return np.lib.format.read_array(BytesIO(content), allow_pickle=False)


def _pack(variables: Variables) -> NDArray[Any]:
    segment = np.empty(next(iter(variables.values())).shape[:2], build_record(variables))
    for name, values in variables.items():
        segment[name] = values
    return segment


def _unpack(segment: NDArray[Any]) -> Variables:
    return {name: np.ascontiguousarray(segment[name]) for name in segment.dtype.names or ()}
