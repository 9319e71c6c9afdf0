"""Rows by path: `.npy` files, stores, and tables, which are converted once into the user's cache."""

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from lwa.errors import DataError
from lwa.executors import Executor, Serial
from lwa.rows.memory import open_npy
from lwa.rows.protocol import Rows
from lwa.rows.store.conversion import convert
from lwa.rows.store.files import STORE_MANIFEST, is_store, read_record
from lwa.rows.store.places import find_rows_cache, is_url, make_absolute
from lwa.rows.store.store import StoreRows, find_source_changes, open_store
from lwa.rows.store.table_source import find_table_files
from lwa.rows.workers.on_workers import RowsOnWorkers, read_on_workers
from lwa.user.progress import Display, open_display


def open_path(
    where: str | os.PathLike[str], progress: bool | Display = False, *,
    columns: Iterable[str] | None = None, missing: str = "error", executor: Executor | None = None,
) -> Rows:  # fmt: skip
    """Open the rows of a `.npy` file, of a store, or of a table, which is converted first if it has not been yet.

    Of a table, `columns` are those needed, and `missing` is what to do about rows that lack one of them. Parquet files
    are read by the workers of `executor` if it has any.
    """
    place = make_absolute(where)
    if (found := _open_ready(place, where)) is not None:
        return found
    names = None if columns is None else sorted(set(columns))
    if is_read_by_workers(place, executor):
        assert executor is not None
        return read_on_workers(place, executor, columns=names, missing=missing, progress=progress)
    return convert_cached(place, progress, names, missing)


def is_read_by_workers(data: object, executor: Executor | None) -> bool:
    """Return whether the workers of an executor hold the rows of data, or would: they read Parquet files."""
    if isinstance(data, RowsOnWorkers):
        return True
    if executor is None or isinstance(executor, Serial) or not isinstance(data, str | os.PathLike):
        return False
    place = make_absolute(data)
    local = not is_url(place) and (place.endswith(".npy") or is_store(Path(place)))
    return not local and find_table_files(place)[0] == "parquet"


def find_ready_rows(
    where: str | os.PathLike[str], *, columns: Iterable[str] | None = None, missing: str = "error"
) -> Rows | None:
    """Return the rows that `open_path` opens without converting anything; None if it would have to convert."""
    place = make_absolute(where)
    if (found := _open_ready(place, where)) is not None:
        return found
    folder = _find_folder(place, None if columns is None else sorted(set(columns)), missing)
    manifest = read_record(folder / STORE_MANIFEST)
    if manifest is None or find_source_changes(manifest):
        return None
    try:
        return open_store(folder, check=False)
    except DataError:
        return None


def _open_ready(place: str, where: str | os.PathLike[str]) -> Rows | None:
    """Open a `.npy` file or a store; return None for a table."""
    if is_url(place):
        return None
    if place.endswith(".npy"):
        return open_npy(where)
    return open_store(place) if is_store(Path(place)) else None


def _find_folder(place: str, columns: list[str] | None, missing: str) -> Path:
    """Return the folder in the cache for a table, or for some columns of it."""
    asked = place if columns is None and missing == "error" else repr((place, columns, missing))
    return find_rows_cache() / blake2b(asked.encode(), digest_size=12).hexdigest()


def convert_cached(place: str, progress: bool | Display, columns: list[str] | None, missing: str) -> StoreRows:
    """Open a table, or some columns of it, in the cache; convert it if its files have changed."""
    folder = _find_folder(place, columns, missing)
    manifest = read_record(folder / STORE_MANIFEST)
    with open_display(progress) as display, display.stages("conversion"):
        if manifest is not None and not find_source_changes(manifest):
            try:
                rows = open_store(folder, check=False)
            except DataError:  # damaged, or of another version
                display.say(f"The converted rows of {place} cannot be used; they are converted again.")
            else:
                display.say(f"Using the rows of {place} that were converted before, in {folder}.")
                return rows
        # If nothing is there yet, another process may be converting: then its rows are used.
        again = manifest is not None
        return convert(place, folder, columns=columns, missing=missing, overwrite=again, progress=display)
