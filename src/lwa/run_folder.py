"""A run on disk: one JSON manifest and `.npy` segments of draws. No pickle, and nothing in it is ever executed.

    run/
      manifest.json     format, attributes, variables, dims, coords, and each segment with its draws and checksum
      draws-00000.npy   a structured array (chains, draws), one field a variable: "posterior/beta", "sample_stats/lp"

The manifest is written last and by renaming, so a folder with a manifest is whole.
"""

import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import RunFolderError

FORMAT = "lwa-run"
VERSION = 1
MANIFEST = "manifest.json"

type Variables = dict[str, NDArray[Any]]
"""By "group/name"; arrays are `(chains, draws, *shape)`."""


def write_run(folder: str | os.PathLike[str], variables: Variables, description: dict[str, Any]) -> Path:
    """Save draws and what describes them; refuses to overwrite anything that is not a run."""
    path = Path(folder)
    if path.exists() and not (path.is_dir() and ((path / MANIFEST).exists() or not any(path.iterdir()))):
        raise RunFolderError(f"{path} exists and is not a saved run. Pass the path of a new or empty folder.")
    try:
        path.mkdir(parents=True, exist_ok=True)
        before = sorted(path.glob("draws-*.npy"))
        name = f"draws-{int(before[-1].stem.split('-')[1]) + 1 if before else 0:05d}.npy"
        segment = _pack(variables)
        np.save(path / name, segment, allow_pickle=False)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            **description,
            "segments": [{"file": name, "draws": segment.shape[1], "crc32": zlib.crc32((path / name).read_bytes())}],
        }
        partial = path / (MANIFEST + ".partial")
        partial.write_text(json.dumps(manifest, indent=1))
        partial.replace(path / MANIFEST)
        for old in before:  # only now that the new run is whole
            old.unlink()
    except OSError as error:
        raise RunFolderError(
            f"Cannot save the run to {path}: {error.strerror or error}. Pass another folder."
        ) from error
    return path


def read_run(folder: str | os.PathLike[str]) -> tuple[Variables, dict[str, Any]]:
    """The draws and their description, checked against the manifest."""
    path = Path(folder)
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except FileNotFoundError:
        raise RunFolderError(
            f"{path} holds no run: there is no {MANIFEST}. Pass a folder made by fit.save()."
        ) from None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path / MANIFEST} cannot be read: {error}.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        raise RunFolderError(f"{path / MANIFEST} is not of format {FORMAT!r}, version {VERSION}.")
    try:
        segments = [_read_segment(path, segment) for segment in manifest["segments"]]
        return _unpack(np.concatenate(segments, axis=1)), manifest
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged: {error}.") from None


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
    return np.load(path / name, allow_pickle=False)


def _pack(variables: Variables) -> NDArray[Any]:
    shape = next(iter(variables.values())).shape[:2]
    fields = [(name, values.dtype.str, values.shape[2:]) for name, values in variables.items()]
    segment = np.empty(shape, np.dtype(fields))
    for name, values in variables.items():
        segment[name] = values
    return segment


def _unpack(segment: NDArray[Any]) -> Variables:
    return {name: np.ascontiguousarray(segment[name]) for name in segment.dtype.names or ()}
