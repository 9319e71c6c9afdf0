"""Find the files of a table: one file, a folder, a pattern or a URL, which fsspec reads."""

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote

from lwa.errors import DataError, LwaError
from lwa.storage.cache import find_user_cache

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

SUFFIXES = {
    ".parquet": "parquet", ".parq": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".csv": "csv", ".tsv": "csv",
}  # fmt: skip
"""The format of a file by the end of its name."""
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Further ends of the names of CSV files; the other formats compress inside."""
MISSING_KEY = "__HIVE_DEFAULT_PARTITION__"
"""The value in the name of a folder whose rows lack the key."""
REMOTE_EXTRA = "pip install 'lwa[remote]'"


class OutOfReach(DataError):
    """A file that cannot be reached now, whatever it holds."""


@dataclass(frozen=True)
class SourceFile:
    """One file: its path, what shows whether it has changed, and the keys in the names of its folders."""

    path: str
    size: int
    modified: str
    keys: tuple[tuple[str, str | None], ...] = ()


def is_url(where: str) -> bool:
    """Return whether this is a URL and not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", where) is not None


def make_absolute(where: str | os.PathLike[str]) -> str:
    """Return a path that does not depend on the working folder, or the URL."""
    text = os.fspath(where)
    if text.startswith("file://"):
        text = unquote(text.removeprefix("file://"))
    return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


def find_files(where: str) -> list[SourceFile]:
    """Return the files of a table, in the order of their names. `where` is absolute.

    Folders are searched with all their subfolders, except names that begin with a dot or an underscore.
    """
    with explain_unreachable(where):
        paths = _list_url(where) if is_url(where) else _list_local(where)
    alone = paths == [where]
    if alone:
        require_format(where)
    else:
        root = _find_root(where)
        paths = [path for path in paths if _find_format(path) and not _is_hidden(path, root)]
        if not paths:
            what = "No file that holds a table matches" if _is_pattern(where) else "There is no table in the folder"
            raise DataError(
                f"{what} '{where}'. Files that end in {', '.join(SUFFIXES)} are read. Pass a path, a folder or a "
                "pattern that holds at least one."
            )
    with explain_unreachable(where):
        return [_stamp_file(path, () if alone else _read_keys(path, _find_root(where))) for path in paths]


def require_format(path: str) -> str:
    """Return the format of a file by its name; raise if it is no table."""
    found = _find_format(path)
    if found is None:
        raise DataError(
            f"'{path}' ends in {PurePosixPath(path).suffix!r}, which is no table that lwa reads. It reads "
            f"{', '.join(SUFFIXES)} (CSV also {', '.join(COMPRESSED)}) and '.npy'. Read the file yourself and pass "
            "the DataFrame, or write an array once with np.save('rows.npy', array)."
        )
    return found


def find_compression(path: str) -> str | None:
    """Return how the whole file is compressed, if it is."""
    return COMPRESSED.get(PurePosixPath(path.partition("?")[0]).suffix.lower())


@contextmanager
def explain_unreachable(where: str) -> Iterator[None]:
    """Turn errors of the system or of a service into one that says why a file or folder cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise OutOfReach(
            f"'{where}' does not exist (working folder: '{Path.cwd()}'). Pass the path of a file, a folder, a pattern "
            "or a URL."
        ) from error
    except PermissionError as error:
        raise OutOfReach(f"'{where}' cannot be read: Permission denied. Check its permissions with ls -l.") from error
    except OSError as error:
        raise OutOfReach(
            f"'{where}' cannot be read: {error.strerror or error}. Check that it is whole and within reach."
        ) from error
    except Exception as error:  # every service has errors of its own
        if isinstance(error, LwaError) or not is_url(where):
            raise
        raise OutOfReach(
            f"'{where}' cannot be read: {error}. Check the address and your credentials, and try again."
        ) from error


def find_rows_cache() -> Path:
    """Return the folder of converted tables in the user's cache."""
    return find_user_cache() / "rows"


def open_bytes(path: str) -> BinaryIO:
    """Open a file, local or remote, for reading bytes."""
    if not is_url(path):
        return Path(path).open("rb")
    system, inside = _open_filesystem(path)
    return system.open(inside, "rb")


def _open_filesystem(url: str) -> tuple["AbstractFileSystem", str]:
    """Return the file system of a URL, and the path of the URL in it."""
    try:
        import fsspec
    except ImportError as error:
        raise DataError(
            f"'{url}' is a URL, and fsspec, which reads URLs, is not installed. Type {REMOTE_EXTRA}, or pass a local "
            "path."
        ) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise DataError(
            f"'{url}': fsspec needs one more library for '{url.partition('://')[0]}://' ({error}). Install the library "
            f"that it names beside {REMOTE_EXTRA}, or pass a local path."
        ) from error
    except (ValueError, OSError) as error:
        raise DataError(
            f"'{url}' cannot be opened: {error}. Pass a URL whose scheme fsspec knows, e.g. 's3://...' or "
            f"'https://...' ({REMOTE_EXTRA}), or a local path."
        ) from error
    return system, str(path)


def _list_url(url: str) -> list[str]:
    """Return all files at a URL: of a folder with all its subfolders, of a pattern, or the one file."""
    system, path = _open_filesystem(url)
    system.invalidate_cache()  # what was listed before may have changed
    if _is_pattern(url):
        found = [name for name, info in system.glob(path, detail=True).items() if info["type"] == "file"]
    elif system.isfile(path):
        # First of all, since to find out whether a web address is a folder, fsspec reads the whole file for links.
        return [url]
    elif system.isdir(path):
        found = system.find(path)
    else:
        raise FileNotFoundError(url)
    return [system.unstrip_protocol(name) for name in sorted(found)]


def _list_local(where: str) -> list[str]:
    if os.path.isfile(where):
        return [where]
    if _is_pattern(where) and not os.path.exists(where):
        return sorted(path for path in glob.glob(where, recursive=True) if os.path.isfile(path))
    if not os.path.isdir(where):
        raise FileNotFoundError(where)
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(where, onerror=_fail) for name in names)


def _fail(error: OSError) -> None:
    # os.walk skips folders that cannot be read, and their rows would be missing silently.
    raise error


def _is_pattern(where: str) -> bool:
    # In a web address, a question mark begins a query.
    return any(sign in where for sign in ("*[" if where.startswith(("http://", "https://")) else "*?["))


def _find_root(where: str) -> str:
    """Return the folder that all files are in."""
    if not _is_pattern(where):
        return where
    parts = where.split("/")
    return "/".join(parts[: next(i for i, part in enumerate(parts) if any(sign in part for sign in "*?["))])


def _find_format(path: str) -> str | None:
    pure = PurePosixPath(path.partition("?")[0].lower())
    if pure.suffix in COMPRESSED:
        found = SUFFIXES.get(PurePosixPath(pure.stem).suffix)
        return found if found == "csv" else None
    return SUFFIXES.get(pure.suffix)


def _split_below(path: str, root: str) -> list[str]:
    return path.removeprefix(root).strip("/").split("/")


def _is_hidden(path: str, root: str) -> bool:
    return any(part.startswith((".", "_")) and "=" not in part for part in _split_below(path, root))


def _read_keys(path: str, root: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns that folders named key=value stand for."""
    pairs = [part.partition("=") for part in _split_below(path, root)[:-1] if "=" in part]
    return tuple((unquote(key), None if value == MISSING_KEY else unquote(value)) for key, _, value in pairs)


def _stamp_file(path: str, keys: tuple[tuple[str, str | None], ...]) -> SourceFile:
    if not is_url(path):
        found = os.stat(path)
        return SourceFile(path, found.st_size, str(found.st_mtime_ns), keys)
    system, inside = _open_filesystem(path)
    info = system.info(inside)
    # Web servers have a tag that changes if the file does; ukey is what other systems have (times, tags, versions).
    return SourceFile(path, int(info["size"] or 0), f"{system.ukey(inside)} {info.get('ETag', '')}".strip(), keys)
