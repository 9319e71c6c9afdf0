"""Rows by path: files that can be read at once, stores, and tables that are converted once and kept."""

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from lwa.errors import DataError
from lwa.executors import Executor, Serial
from lwa.rows.npy import open_npy
from lwa.rows.protocol import Rows
from lwa.rows.store.conversion import convert
from lwa.rows.store.manifest import STORE_MANIFEST, is_store, read_json
from lwa.rows.store.places import absolute, cache_folder, is_url
from lwa.rows.store.store import StoreRows, open_store, source_changes
from lwa.rows.store.table_source import files_of
from lwa.rows.workers.on_workers import RowsOnWorkers, rows_on_workers
from lwa.user.progress import Display, open_display


def rows_at(
    where: str | os.PathLike[str],
    progress: bool | Display = False,
    *,
    columns: Iterable[str] | None = None,
    missing: str = "error",
    executor: Executor | None = None,
) -> Rows:
    """The rows of a `.npy` file, of a store, or of a table, which is converted first where it has not been yet.

    Of a table, `columns` are those that are needed, and `missing` what to do about rows that lack one of them. Parquet
    files are read by the workers of `executor` where it has any.
    """
    place = absolute(where)
    if (found := _opened(place, where)) is not None:
        return found
    names = None if columns is None else sorted(set(columns))
    if read_by_workers(place, executor):
        assert executor is not None
        return rows_on_workers(place, executor, columns=names, missing=missing, progress=progress)
    return converted(place, progress, names, missing)


def read_by_workers(data: object, executor: Executor | None) -> bool:
    """Whether the rows of data are, or would be, with the workers of an executor: those of Parquet files."""
    if isinstance(data, RowsOnWorkers):
        return True
    if executor is None or isinstance(executor, Serial) or not isinstance(data, str | os.PathLike):
        return False
    place = absolute(data)
    local = not is_url(place) and (place.endswith(".npy") or is_store(Path(place)))
    return not local and files_of(place)[0] == "parquet"


def ready_rows(
    where: str | os.PathLike[str], *, columns: Iterable[str] | None = None, missing: str = "error"
) -> Rows | None:
    """The rows that `rows_at` would give without converting anything; None where it would have to."""
    place = absolute(where)
    if (found := _opened(place, where)) is not None:
        return found
    folder = _folder_of(place, None if columns is None else sorted(set(columns)), missing)
    manifest = read_json(folder / STORE_MANIFEST)
    if manifest is None or source_changes(manifest):
        return None
    try:
        return open_store(folder, check=False)
    except DataError:
        return None


def _opened(place: str, where: str | os.PathLike[str]) -> Rows | None:
    """Of a `.npy` file or a store."""
    if is_url(place):
        return None
    if place.endswith(".npy"):
        return open_npy(where)
    return open_store(place) if is_store(Path(place)) else None


def _folder_of(place: str, columns: list[str] | None, missing: str) -> Path:
    """Where a table, or some columns of it, is kept once it is converted."""
    asked = place if columns is None and missing == "error" else repr((place, columns, missing))
    return cache_folder() / blake2b(asked.encode(), digest_size=12).hexdigest()


def converted(place: str, progress: bool | Display, columns: list[str] | None, missing: str) -> StoreRows:
    """A table, or some columns of it, from the cache where its files are still the same."""
    folder = _folder_of(place, columns, missing)
    manifest = read_json(folder / STORE_MANIFEST)
    with open_display(progress) as display, display.stages("conversion"):
        if manifest is not None and not source_changes(manifest):
            try:
                rows = open_store(folder, check=False)
            except DataError:  # damaged, or of another version: it is made anew
                display.say(f"The rows of {place} as converted before cannot be used; they are converted again.")
            else:
                display.say(f"The rows of {place} are as converted before, in {folder}.")
                return rows
        # Where nothing is there yet, another process may be at it: then its rows are taken.
        return convert(
            place, folder, columns=columns, missing=missing, overwrite=manifest is not None, progress=display
        )
