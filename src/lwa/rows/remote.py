"""Files behind a URL, through fsspec."""

from typing import Any

from lwa.errors import DataError

_EXTRA = "pip install 'lwa[remote]'"


def filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path that it knows the URL by."""
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


def listed(url: str) -> list[str]:
    """All files at a URL: of a folder with all its subfolders, of a pattern, or the one file."""
    system, path = filesystem(url)
    if any(sign in path for sign in "*?["):
        found = system.glob(path)
    elif system.isdir(path):
        found = system.find(path)
    elif system.exists(path):
        found = [path]
    else:
        raise FileNotFoundError(url)
    return [system.unstrip_protocol(one) for one in sorted(found) if not system.isdir(one)]


def stamp(url: str) -> tuple[int, str]:
    """The size of a file in bytes, and a word that changes when the file does."""
    system, path = filesystem(url)
    return int(system.info(path)["size"] or 0), str(system.ukey(path))


def open_url(url: str) -> Any:
    """The bytes of a file, to be read."""
    system, path = filesystem(url)
    return system.open(path, "rb")
