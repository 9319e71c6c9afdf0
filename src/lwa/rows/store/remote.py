"""Files behind a URL, read by fsspec."""

from typing import TYPE_CHECKING, BinaryIO

from lwa.errors import DataError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_EXTRA = "pip install 'lwa[remote]'"


def open_filesystem(url: str) -> tuple["AbstractFileSystem", str]:
    """Return the file system of a URL, and the path of the URL in it."""
    scheme = url.partition("://")[0]
    try:
        import fsspec
    except ImportError as error:
        raise DataError(
            f"'{url}' is a URL, and fsspec, which reads URLs, is not installed. Type {_EXTRA}, or pass a local path."
        ) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise DataError(
            f"'{url}': fsspec needs one more library for '{scheme}://' ({error}). Install the library that it names "
            f"beside {_EXTRA}, or pass a local path."
        ) from error
    except (ValueError, OSError) as error:
        raise DataError(
            f"'{url}' cannot be opened: {error}. Pass a URL whose scheme fsspec knows, e.g. 's3://...' or "
            f"'https://...' ({_EXTRA}), or a local path."
        ) from error
    return system, str(path)


def is_url_pattern(url: str) -> bool:
    """Return whether a URL is a pattern. In a web address, a question mark begins a query instead."""
    return any(sign in url for sign in ("*[" if url.startswith(("http://", "https://")) else "*?["))


def list_url(url: str) -> list[str]:
    """Return all files at a URL: of a folder with all its subfolders, of a pattern, or the one file."""
    system, path = open_filesystem(url)
    system.invalidate_cache()  # what was listed before may have changed
    if is_url_pattern(url):
        found = [name for name, info in system.glob(path, detail=True).items() if info["type"] == "file"]
    elif system.isfile(path):
        # First of all, since to find out whether a web address is a folder, fsspec reads the whole file for links.
        return [url]
    elif system.isdir(path):
        found = system.find(path)
    else:
        raise FileNotFoundError(url)
    return [system.unstrip_protocol(name) for name in sorted(found)]


def stamp_url(url: str) -> tuple[int, str]:
    """Return the size of a file in bytes, and a text that changes if the file does."""
    system, path = open_filesystem(url)
    info = system.info(path)
    # Web servers have a tag for that; ukey is what other systems have (times, tags, versions).
    return int(info["size"] or 0), f"{system.ukey(path)} {info.get('ETag', '')}".strip()


def open_url(url: str) -> BinaryIO:
    """Open a file for reading bytes."""
    system, path = open_filesystem(url)
    return system.open(path, "rb")
