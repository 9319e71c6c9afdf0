"""The manifest of a store of rows: one JSON file beside its shards.

    store/
      manifest.json            format, columns with their levels, shards with their checksums, the source and its files
      rows-00000-float64.npy   the columns of one dtype, row after row, of the first shard
      rows-00000-int32.npy

The manifest is written last and by renaming, so a folder with a manifest is whole.
"""

import json
from pathlib import Path
from typing import Any

from lwa.errors import DataError
from lwa.storage.atomic import write_whole

STORE_FORMAT = "lwa-rows"
STORE_VERSION = 1
STORE_MANIFEST = "manifest.json"
CONVERSION_FILE = "conversion.json"
"""Says which conversion is under way in a folder that has no manifest yet."""

type Record = dict[str, Any]
"""What one of these JSON files holds."""


def name_shard(number: int, dtype: str) -> str:
    """Return the name of the file of one shard and one dtype."""
    return f"rows-{number:05d}-{dtype}.npy"


def name_record(number: int) -> str:
    """Return the name of the file that says, while a conversion goes on, that a shard is whole."""
    return f"rows-{number:05d}.json"


def write_record(path: Path, content: Record) -> None:
    """Write a JSON file that is either whole or not there."""
    write_whole(path, json.dumps(content, indent=1).encode())


def read_record(path: Path) -> Record | None:
    """Return what a JSON file holds; None if it does not exist or is no record."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def is_store(folder: Path) -> bool:
    """Return whether a folder holds rows that lwa converted, or a conversion that is not finished."""
    found = read_record(folder / STORE_MANIFEST) or read_record(folder / CONVERSION_FILE) or {}
    return found.get("format") == STORE_FORMAT


def read_manifest(folder: Path) -> Record:
    """Return the manifest of a store; raise unless it is whole and of this version."""
    again = f"lwa.rows.convert(source, {str(folder)!r})"
    try:
        found, begun = read_record(folder / STORE_MANIFEST), read_record(folder / CONVERSION_FILE)
    except OSError as error:
        raise DataError(f"'{folder}' cannot be read: {error.strerror}. Check its permissions with ls -l.") from error
    if found is None and begun is not None:
        raise DataError(f"the conversion into '{folder}' is not finished. Go on with {again}.")
    if found is None or found.get("format") != STORE_FORMAT:
        raise DataError(f"'{folder}' holds no converted rows. Make them with {again}.")
    if found.get("version") != STORE_VERSION:
        raise DataError(
            f"'{folder}' is of version {found.get('version')!r}; version {STORE_VERSION} is expected. Convert the "
            f"source again: lwa.rows.convert(source, {str(folder)!r}, overwrite=True)."
        )
    return found
